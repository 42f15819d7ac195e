"""Files that a module writes, reads, tests, makes or removes, and what their paths are made of."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from enum import Enum

from ....record import record
from ...source.module import Module
from ...source.tree import argument, below, everywhere, mentions, parameters, within
from ..ranks.rank_reach import UNKNOWN, values_by_role
from .databases import CONNECT, changes_database
from .only_read import is_only_read
from .shell_commands import command_uses

MAX_DEPTH = 6
ONLY_BY_KEYWORD = 99

# Functions and methods, with the position and the keyword of the path; -1: the object itself.
LOGURU = "loguru.logger.add"
WRITERS = {
    "torch.save": (1, "f"),
    "numpy.save": (0, "file"),
    "numpy.savez": (0, "file"),
    "numpy.savez_compressed": (0, "file"),
    "numpy.savetxt": (0, "fname"),
    "joblib.dump": (1, "filename"),
    "shutil.copy": (1, "dst"),
    "shutil.copy2": (1, "dst"),
    "shutil.copyfile": (1, "dst"),
    "shutil.copytree": (1, "dst"),
    "shutil.move": (1, "dst"),
    "shutil.make_archive": (0, "base_name"),
    "os.symlink": (1, "dst"),
    "os.link": (1, "dst"),
    "torch.jit.save": (1, "f"),
    "torch.onnx.export": (2, "f"),
    "torchvision.utils.save_image": (1, "fp"),
    "torchvision.io.write_video": (0, "filename"),
    "torchvision.io.write_png": (1, "filename"),
    "torchvision.io.write_jpeg": (1, "filename"),
    "cv2.imwrite": (0, "filename"),
    "cv2.VideoWriter": (0, "filename"),
    "nibabel.save": (1, "filename"),
    "SimpleITK.WriteImage": (1, "fileName"),
    "tifffile.imwrite": (0, "file"),
    "tifffile.imsave": (0, "file"),
    "imageio.imwrite": (0, "uri"),
    "imageio.imsave": (0, "uri"),
    "imageio.mimsave": (0, "uri"),
    "imageio.mimwrite": (0, "uri"),
    "imageio.get_writer": (0, "uri"),
    "imageio.v2.imwrite": (0, "uri"),
    "imageio.v2.imsave": (0, "uri"),
    "imageio.v2.mimsave": (0, "uri"),
    "imageio.v2.mimwrite": (0, "uri"),
    "imageio.v2.get_writer": (0, "uri"),
    "imageio.v3.imwrite": (0, "uri"),
    "scipy.misc.imsave": (0, "name"),
    "scipy.io.savemat": (0, "file_name"),
    "scipy.io.wavfile.write": (0, "filename"),
    "scipy.sparse.save_npz": (0, "file"),
    "soundfile.write": (0, "file"),
    "torchaudio.save": (0, "uri"),
    "librosa.output.write_wav": (0, "path"),
    "matplotlib.pyplot.imsave": (0, "fname"),
    "skimage.io.imsave": (0, "fname"),
    "safetensors.torch.save_file": (1, "filename"),
    "safetensors.torch.save_model": (1, "filename"),
    "omegaconf.OmegaConf.save": (1, "f"),
    "shelve.open": (0, "filename"),
    "open3d.io.write_point_cloud": (0, "filename"),
    "faiss.write_index": (1, "fname"),
    "networkx.write_gpickle": (1, "path"),
    "dgl.save_graphs": (0, "filename"),
    "dgl.data.save_graphs": (0, "filename"),
    "dgl.data.utils.save_graphs": (0, "filename"),
    "dgl.data.utils.save_info": (0, "path"),
    "logging.basicConfig": (ONLY_BY_KEYWORD, "filename"),
    LOGURU: (0, "sink"),
}
WRITING_METHODS = {
    "save_pretrained": (0, "save_directory"),
    "to_csv": (0, "path_or_buf"),
    "to_json": (0, "path_or_buf"),
    "to_pickle": (0, "path"),
    "to_parquet": (0, "path"),
    "to_excel": (0, "excel_writer"),
    "to_feather": (0, "path"),
    "to_hdf": (0, "path_or_buf"),
    "to_html": (0, "buf"),
    "to_latex": (0, "buf"),
    "to_markdown": (0, "buf"),
    "savefig": (0, "fname"),
    "write_html": (0, "file"),
    "write_image": (0, "file"),
    "tofile": (0, "fid"),
    "save_word2vec_format": (0, "fname"),
    "write_text": (-1, ""),
    "write_bytes": (-1, ""),
    "symlink_to": (-1, ""),
    "hardlink_to": (-1, ""),
    "save_model": (0, "output_dir"),
    "save_vocabulary": (0, "save_directory"),
    "to_json_file": (0, "json_file_path"),
    "save_file": (1, "filename"),
    "save_to_disk": (0, "dataset_path"),
    "save_adapter": (0, "save_directory"),
    "save_all_adapters": (0, "save_directory"),
    "save_adapter_fusion": (0, "save_directory"),
    "save_finetuned": (0, "finetuned_delta_path"),
    "FileHandler": (0, "filename"),
    "RotatingFileHandler": (0, "filename"),
    "TimedRotatingFileHandler": (0, "filename"),
    "SummaryWriter": (0, "log_dir"),
    "export_chrome_trace": (0, "path"),
    "export_stacks": (0, "path"),
    "upload_file": (0, "path_or_fileobj"),  # of boto3 and huggingface_hub, to one place
    "upload_folder": (0, "folder_path"),
    "upload_from_filename": (0, "filename"),  # of google.cloud.storage
}
SAVED_PARTS = {  # of a model, by classes of transformers, adapters and opendelta
    *("save_vocabulary", "to_json_file", "save_finetuned"),
    *("save_adapter", "save_all_adapters", "save_adapter_fusion"),
}
READERS = {
    "torch.load": (0, "f"),
    "numpy.load": (0, "file"),
    "numpy.loadtxt": (0, "fname"),
    "numpy.genfromtxt": (0, "fname"),
    "numpy.fromfile": (0, "file"),
    "scipy.io.loadmat": (0, "file_name"),
    "scipy.io.wavfile.read": (0, "filename"),
    "soundfile.read": (0, "file"),
    "torchaudio.load": (0, "uri"),
    "librosa.load": (0, "path"),
    "cv2.imread": (0, "filename"),
    "imageio.imread": (0, "uri"),
    "skimage.io.imread": (0, "fname"),
    "matplotlib.pyplot.imread": (0, "fname"),
    "joblib.load": (0, "filename"),
    "os.listdir": (0, "path"),
    "os.scandir": (0, "path"),
    "os.stat": (0, "path"),
    "os.path.getsize": (0, "filename"),
    "os.path.getmtime": (0, "filename"),
    "faiss.read_index": (0, "fname"),
    "dgl.load_graphs": (0, "filename"),
    "dgl.data.load_graphs": (0, "filename"),
    "dgl.data.utils.load_graphs": (0, "filename"),
    "glob.glob": (0, "pathname"),
}
READING_METHODS = {
    "from_pretrained": (0, "pretrained_model_name_or_path"),
    "read_csv": (0, "filepath_or_buffer"),
    "read_json": (0, "path_or_buf"),
    "read_pickle": (0, "filepath_or_buffer"),
    "read_parquet": (0, "path"),
    "read_text": (-1, ""),
    "read_bytes": (-1, ""),
    "stat": (-1, ""),
    "load_file": (0, "filename"),
    "load_from_disk": (0, "dataset_path"),
    "load_adapter": (0, "adapter_name_or_path"),
}
TESTS = {
    "os.path.exists": (0, "path"),
    "os.path.isfile": (0, "path"),
    "os.path.isdir": (0, "s"),
    "os.access": (0, "path"),
}
TESTING_METHODS = {"exists": (-1, ""), "is_file": (-1, ""), "is_dir": (-1, "")}
MAKERS = {"os.makedirs": (0, "name"), "os.mkdir": (0, "path")}
MAKING_METHODS = {"mkdir": (-1, "")}
REMOVERS = {
    "os.remove": (0, "path"),
    "os.unlink": (0, "path"),
    "os.rmdir": (0, "path"),
    "os.rename": (1, "dst"),
    "os.replace": (1, "dst"),
    "shutil.rmtree": (0, "path"),
}
REMOVING_METHODS = {"unlink": (-1, ""), "rmdir": (-1, "")}
BY_NAME = {
    "write": (WRITERS, WRITING_METHODS),
    "read": (READERS, READING_METHODS),
    "test": (TESTS, TESTING_METHODS),
    "make folder": (MAKERS, MAKING_METHODS),
    "remove": (REMOVERS, REMOVING_METHODS),
}
#: What opens a file by a mode: position and keyword of the path, and of the mode.
OPENED_BY_MODE = {
    "tarfile.open": (0, "name", 1),
    "zipfile.ZipFile": (0, "file", 1),
    "wave.open": (0, "f", 1),
    "h5py.File": (0, "name", 1),
    "jsonlines.open": (0, "file", 1),
    "smart_open.open": (0, "uri", 1),
    "numpy.memmap": (0, "filename", 2),
    "numpy.lib.format.open_memmap": (0, "filename", 1),
}
OPENING_LIBRARIES = ("rasterio", "zarr", "fitz", "laspy", "lmdb", "netCDF4", "fsspec")
PICTURES = (
    *(".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".pdf", ".svg"),
    *(".mp4", ".avi"),
)
MADE_WITH_SAVE = (  # by these libraries, objects that write themselves to a path
    *("PIL.Image.", "matplotlib.animation.", "torch.jit."),
    *("gensim.models.", "sentence_transformers.", "tokenizers."),
)
OPTIONS_OF_PICTURES = ("quality", "optimize", "save_all", "append_images")  # of their save()
WRITING_FLAGS = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND")  # of os.open
STAGING = "staging_folder"  # a helper of patched scripts
OPENERS = ("open", "codecs.open", "io.open", "gzip.open", "bz2.open", "lzma.open")
PATH_WORDS = ("file", "filename", "fname", "path")
BUFFERS = ("BytesIO", "StringIO", "TemporaryFile", "SpooledTemporaryFile", "NamedTemporaryFile")


class PathKind(Enum):
    """What the path of a file is made of."""

    MEMORY = "memory"
    RANK = "rank"
    CONSTANT = "constant"
    OPTION = "option"
    UNKNOWN = "unknown"


@record
class FileUse:
    """A call that uses a file: ``what`` is write, read, test, make folder or remove."""

    what: str
    call: ast.Call
    path: ast.expr | None


def file_uses(module: Module) -> Iterator[FileUse]:
    """All calls of a module that use files."""
    for call in module.calls_to("open"):
        if module.dotted(call.func) in OPENERS:
            what = "read" if is_only_read(module, call) else _open_mode(call, 1)
            yield FileUse(what, call, argument(call, 0, "file"))
        elif module.dotted(call.func) == "os.open":
            flags = argument(call, 1, "flags")
            writes = flags is not None and any(mentions(flags, word) for word in WRITING_FLAGS)
            yield FileUse("write" if writes else "read", call, argument(call, 0, "path"))
        elif isinstance(call.func, ast.Attribute) and not is_of_a_library(module, call.func):
            yield FileUse(_open_mode(call, 0), call, call.func.value)  # Path(…).open("w")
    for call in module.calls_to(*(name.rpartition(".")[2] for name in OPENED_BY_MODE)):
        opener = OPENED_BY_MODE.get(_plain(module.dotted(call.func)))
        if opener is not None:
            at, word, mode = opener
            yield FileUse(_open_mode(call, mode), call, argument(call, at, word))
    for call in module.calls_to("connect"):
        if module.dotted(call.func) == CONNECT:
            what = "write" if changes_database(module, call) else "read"
            yield FileUse(what, call, argument(call, 0, "database"))
    for what, call, command in command_uses(module):
        yield FileUse(what, call, command)
    for call in module.calls_to("save"):
        if saves_itself(module, call):
            yield FileUse("write", call, argument(call, 0, "fp"))
    for call in module.calls_to("dump"):
        if dumps_itself(module, call):
            yield FileUse("write", call, call.args[0])
    for kind, (functions, methods) in BY_NAME.items():
        lasts = {name.rpartition(".")[2]: name for name in functions}
        for call in module.calls_to(*lasts, *methods):
            what, name = kind, module.dotted(call.func)
            last = module.last_name(call.func)
            place = functions.get(_plain(name)) or methods.get(last)
            if place is None or (last in methods and _plain(name) in ALL_FUNCTIONS - {*functions}):
                continue
            if name == "shelve.open":
                what = _shelve_mode(call)
            elif name == LOGURU and not is_file_sink(module, call):
                continue
            index, keyword = place
            path = argument(call, index, keyword) if index >= 0 else None
            if path is None and what == "write" and index != ONLY_BY_KEYWORD:
                path = _by_older_word(call)
            if index < 0 and isinstance(call.func, ast.Attribute):
                path = call.func.value
            if path is None and (last in methods or index == ONLY_BY_KEYWORD):
                continue  # to_csv() returns a text, basicConfig() logs to the terminal
            if path is not None:
                path = folder_of(module, _opened(module, path))
            yield FileUse(what, call, path)


def dumps_itself(module: Module, call: ast.Call) -> bool:
    """``scores.dump(f"{folder}/scores.dat")``, of an array of numpy's."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=[path], keywords=[]):
            is_text = isinstance(path, ast.JoinedStr) or (
                isinstance(path, ast.Constant) and isinstance(path.value, str)
            )
            return is_text and name not in module.aliases
    return False


def file_sinks(module: Module) -> list[ast.Call]:
    """The calls that have loguru write a file."""
    return [call for call in module.calls_to("add") if is_file_sink(module, call)]


def is_file_sink(module: Module, call: ast.Call) -> bool:
    """Whether a call tells loguru of a file; not of a stream or of a function."""
    sink = argument(call, 0, "sink")
    if module.dotted(call.func) != LOGURU or sink is None or isinstance(sink, ast.Lambda):
        return False
    is_function = isinstance(sink, ast.Name) and any(
        sink.id == function.name for function in module.all_functions
    )
    return not is_function and module.dotted(sink).partition(".")[0] != "sys"


def is_of_a_library(module: Module, function: ast.Attribute) -> bool:
    """``Image.open`` and ``tarfile.open``: functions of libraries, and no methods of a path."""
    head = module.dotted(function.value).partition(".")[0]
    if head == "pathlib":
        return False
    others = (name.partition(".")[0] for name in OPENED_BY_MODE)
    return head in sys.stdlib_module_names or head in ("PIL", *OPENING_LIBRARIES, *others)


def _by_older_word(call: ast.Call) -> ast.expr | None:
    """The path of a call that has another keyword for it, as an older library had."""
    words = (word.value for word in call.keywords if word.arg in PATH_WORDS)
    return next(words, None)


def saves_itself(module: Module, call: ast.Call) -> bool:
    """``picture.save(path)``, of a picture that Pillow, or torchvision with it, has made.

    Or an animation of matplotlib's, what torch.jit has compiled, vectors or a tokenizer of a
    library, or what a path, or an option such as ``quality=95``, calls a picture.
    """
    func = call.func
    return isinstance(func, ast.Attribute) and (
        any(word.arg in OPTIONS_OF_PICTURES for word in call.keywords)
        or any(
            isinstance(value, ast.Call) and has_save(module, value)
            for value in _bound_to(module, func.value)
        )
        or (len(call.args) == 1 and is_called_picture(module, call.args[0]))
    )


def is_called_picture(module: Module, path: ast.expr) -> bool:
    """Whether a path, or what its name stands for, ends like that of a picture or a film."""
    return any(
        isinstance(text.value, str) and text.value.lower().endswith(PICTURES)
        for value in (path, *module.alternatives(path, path))
        for text in everywhere(value, ast.Constant)
    )


def _bound_to(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """An expression and what its name stands for; of ``frames[0]`` what is appended to them."""
    for value in (node, *module.alternatives(node, node)):
        yield value
        if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            for add in within(module.scope_statements(value), ast.Call):
                if add.args and module.text(add.func) == f"{value.value.id}.append":
                    yield from (add.args[0], *module.alternatives(add.args[0], add.args[0]))


def has_save(module: Module, made: ast.expr) -> bool:
    """``Image.fromarray(array)``, also with methods behind it: ``.convert("RGB").resize(size)``."""
    while isinstance(made, ast.Call):
        name = module.dotted(made.func)
        if name.startswith(MADE_WITH_SAVE) or name.endswith(("to_pil_image", "ToPILImage")):
            return True
        made = made.func.value if isinstance(made.func, ast.Attribute) else made.func
    return False


def _opened(module: Module, path: ast.expr) -> ast.expr:
    """The path of the file that a name stands for: ``with open(path, "wb") as file``."""
    if isinstance(path, ast.Name):
        for node in within(module.scope_statements(path), ast.With):
            for item in node.items:
                target, made = item.optional_vars, item.context_expr
                if not isinstance(target, ast.Name) or target.id != path.id:
                    continue
                if isinstance(made, ast.Call) and module.dotted(made.func) in OPENERS:
                    return argument(made, 0, "file") or path
    return path


def folder_of(module: Module, path: ast.expr) -> ast.expr:
    """The folder in which files come to lie that are written to a path, which may be staged."""
    return staged_folder(module, path) or path


def staged_folder(module: Module, path: ast.expr) -> ast.expr | None:
    """The folder for which a name stages files, ``with staging_folder(folder) as name``."""
    for up in module.ancestors(path):
        for item in up.items if isinstance(up, ast.With) else ():
            target, made = item.optional_vars, item.context_expr
            if (
                isinstance(made, ast.Call)
                and module.last_name(made.func) == STAGING
                and isinstance(target, ast.Name)
                and isinstance(path, ast.Name)
                and target.id == path.id
            ):
                return argument(made, 0, "folder")
    return None


def _plain(name: str) -> str:
    """A resolved name, with numpy under its usual alias."""
    head, dot, rest = name.partition(".")
    return f"numpy{dot}{rest}" if head == "np" else name


ALL_FUNCTIONS = {name for functions, _ in BY_NAME.values() for name in functions}


def _open_mode(call: ast.Call, index: int) -> str:
    mode = argument(call, index, "mode")
    text = mode.value if isinstance(mode, ast.Constant) else "r"
    return "write" if isinstance(text, str) and any(c in text for c in "wax+") else "read"


def _shelve_mode(call: ast.Call) -> str:
    """A shelf is opened to be written, unless its flag says otherwise."""
    flag = argument(call, 1, "flag")
    return "read" if isinstance(flag, ast.Constant) and flag.value == "r" else "write"


def path_kind(module: Module, path: ast.expr, depth: int = 0) -> PathKind:
    """What a path is made of: the most telling of its parts."""
    if _names_rank(module, path):
        return PathKind.RANK
    if is_null_device(module, path):
        return PathKind.MEMORY
    kinds: set[PathKind] = set()
    function = module.function(path)
    for name in everywhere(path, ast.Name):
        parent = module.parents.get(name)
        if isinstance(parent, ast.Call) and parent.func is name:
            continue
        if name.id in module.aliases:
            continue
        value = module.definition(name, name) or module.single_assignment(None, name.id)
        if isinstance(value, ast.Call) and module.last_name(value.func) in BUFFERS:
            return PathKind.MEMORY
        if value is not None and depth < MAX_DEPTH and value is not path:
            kinds.add(path_kind(module, value, depth + 1))
        elif isinstance(parent, ast.Attribute) or (
            function is not None and name.id in parameters(function)
        ):
            kinds.add(PathKind.OPTION)
        else:
            kinds.add(PathKind.UNKNOWN)
    for kind in (PathKind.MEMORY, PathKind.RANK, PathKind.UNKNOWN, PathKind.OPTION):
        if kind in kinds:
            return kind
    return PathKind.CONSTANT if not within_calls(module, path) else PathKind.UNKNOWN


def is_null_device(module: Module, path: ast.expr) -> bool:
    """Whether a path is ``os.devnull``, or sqlite3's memory, which keep nothing."""
    return module.dotted(path) == "os.devnull" or (
        isinstance(path, ast.Constant) and path.value in (os.devnull, ":memory:")
    )


def within_calls(module: Module, path: ast.expr) -> list[ast.Call]:
    """Calls in a path other than those that put paths together."""
    known = ("join", "Path", "joinpath", "format", "str", "abspath", "dirname", "expanduser")
    return [call for call in everywhere(path, ast.Call) if module.last_name(call.func) not in known]


def _names_rank(module: Module, path: ast.expr) -> bool:
    """Whether a part of a path has another value on rank 0 than on the others."""
    for node in below(path):
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call):
            continue
        _, main, other = values_by_role(module, node)
        if main is not UNKNOWN and other is not UNKNOWN and main != other:
            return True
    return False
