"""What was saved is not loaded again.

What         torch.load of a file that holds more than tensors, which weights_only has refused since
             torch 2.6; from_pretrained called with …/pytorch_model.bin.
At run time  UnpicklingError for a TensorDataset, the parsed arguments, NumPy arrays, a whole model
             or a script's own classes, or a cache that is built anew in every run where a try
             hides it. OSError: transformers takes a folder or a name on the hub.
Example      features = torch.load(cached_features_file)
Fix          weights_only=False where the script itself writes the file; the folder instead of the
             file. A state_dict is loaded as before; a file of unknown making is reported.
Fix safety   Safe: the line could only raise before, or it loads what the same script saved.
Source       torch.load (weights_only); transformers.PreTrainedModel.from_pretrained
"""

import ast
from collections.abc import Iterator

from ..analysis.language.results import spelled_name
from ..analysis.models.loaded_models import holds_whole_model
from ..analysis.training.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import argument, everywhere, keyword, last_argument, mentions, precedes, within

CODE, SEVERITY, SAFETY = "DF606", Severity.ERROR, Safety.SAFE

WEIGHT_FILES = ("pytorch_model.bin", "model.safetensors")
NUMPY_FUNCTIONS = ("array", "asarray", "concatenate", "ones", "stack", "vstack", "zeros")
UNRESTRICTED = ", weights_only=False"
MODEL_METHODS = ("eval", "generate", "parameters", "train")

Save = tuple[Module, ast.expr, ast.expr]  # the module, the value and the file


def findings(program: Program) -> Iterator[Finding]:
    saves = list(torch_saves(program))
    for module in program.modules:
        yield from file_instead_of_folder(module)
        for call in module.calls_to("load"):
            user = module.parents[call]
            is_state = isinstance(user, ast.Call) and mentions(user.func, "load_state_dict")
            if is_state or keyword(call, "weights_only"):
                continue
            if module.dotted(call.func) == "torch.load":
                yield from pickled_objects(program, module, call, saves)


def file_instead_of_folder(module: Module) -> Iterator[Finding]:
    """Paths ``…/pytorch_model.bin`` that are passed to ``from_pretrained``."""
    sources = [
        argument(call, 0, "pretrained_model_name_or_path")
        for call in module.calls_to("from_pretrained")
    ]
    loaded = {module.text(source) for source in sources if source is not None}
    for path in module.calls_to("join") if loaded else []:
        stmt = module.parents[path]
        if not (
            isinstance(stmt, ast.Assign)
            and module.dotted(path.func) == "os.path.join"
            and len(path.args) == 2
            and isinstance(path.args[1], ast.Constant)
            and path.args[1].value in WEIGHT_FILES
            and any(module.text(target) in loaded for target in stmt.targets)
        ):
            continue
        yield Finding(
            module,
            stmt,
            f"{module.text(stmt.targets[0])} goes to from_pretrained",
            (Rewrite(path, module.text(path.args[0])),),
        )


def torch_saves(program: Program) -> Iterator[Save]:
    """Calls of ``torch.save``, and of ``save_on_main``, into which DF601 turns them."""
    for module, call in program.calls_to("save", "save_on_main"):
        value = argument(call, 0, "obj")
        target = argument(call, 1, "f") or argument(call, 1, "path")
        is_save = module.dotted(call.func) in ("torch.save", "save_on_main")
        if is_save and value is not None and target is not None:
            yield module, value, target


def pickled_objects(
    program: Program, module: Module, call: ast.Call, saves: list[Save]
) -> Iterator[Finding]:
    """The finding for a ``torch.load`` of something other than a state_dict."""
    path, last = argument(call, 0, "f"), last_argument(call)
    if path is None or last is None:
        return
    names = file_names(module, path)
    saved = [
        (saver, value)
        for saver, value, target in saves
        if is_same_file(module, path, names, saver, target)
    ]
    if any(
        is_state_dict(saver, value) and not refused_kind(program, saver, value)
        for saver, value in saved
    ):
        return
    if not saved:
        whole = next(
            (
                value
                for value, item in whole_objects(module, call, saves)
                if holds_whole_model(program, module, item)
            ),
            None,
        )
        if whole is not None:
            because = f"a model comes from it whole, as line {whole.lineno} saves it"
            yield Finding(module, call, because, (Rewrite(last, UNRESTRICTED, after=True),))
            return
        use = object_use(module, call)
        if use:
            because = f"it is used as {use}: weights_only=False, where the file can be trusted"
            yield Finding(module, call, because, severity=Severity.NOTE)
        return
    saver, value = saved[0]
    kind = refused_kind(program, saver, value)
    if not kind and is_counted(program, saver, value):
        return
    in_try = any(isinstance(up, ast.Try) for up in module.ancestors(call))
    because = f"line {value.lineno} saves {saver.text(value)}{f', {kind}' if kind else ''}"
    yield Finding(
        module,
        call,
        because,
        (Rewrite(last, UNRESTRICTED, after=True),),
        severity=None if kind and not in_try else Severity.DEGRADED,
    )


def whole_objects(
    module: Module, load: ast.Call, saves: list[Save]
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What the program saves whose objects a load takes, by key or number, with where it does.

    ``model = checkpoint["model"]`` of ``{"model": model}``; ``net, opt = torch.load(path)``.
    """
    stmt = module.statement(load)
    if not (isinstance(stmt, ast.Assign) and stmt.value is load and len(stmt.targets) == 1):
        return
    (target,) = stmt.targets
    items = [
        (user.slice.value, user)
        for name in module.occurrences(target.id if isinstance(target, ast.Name) else "")
        if isinstance(user := module.parents[name], ast.Subscript)
        and isinstance(user.slice, ast.Constant)
        and module.function(name) is module.function(stmt)
    ]
    for saver, value, _ in saves:
        match saver.definition(value, value) or value, target:
            case ast.Dict(keys=names, values=values), ast.Name():
                for key, part in zip(names, values, strict=True):
                    if isinstance(key, ast.Constant) and is_bare(saver, part):
                        yield from ((value, item) for name, item in items if name == key.value)
            case (ast.List(elts=parts) | ast.Tuple(elts=parts), ast.Tuple() | ast.List()):
                if len(parts) == len(target.elts) and any(is_bare(saver, part) for part in parts):
                    yield value, load


def is_bare(module: Module, part: ast.expr) -> bool:
    """Whether an object itself is saved: ``model``, not ``model.state_dict()``, also by a name."""
    return isinstance(part, ast.Name) and not is_state_dict(module, part)


def is_same_file(
    module: Module, path: ast.expr, names: set[str], saver: Module, target: ast.expr
) -> bool:
    """Whether a path has the text of the target in the same scope, or the same file names."""
    if module is saver and module.text(path) == saver.text(target):
        is_global = isinstance(path, ast.Attribute | ast.Constant)
        if is_global or module.function(path) is saver.function(target):
            return True
    return bool(names) and names <= file_names(saver, target)


def file_names(module: Module, path: ast.expr) -> set[str]:
    """Literal parts of a path that have a suffix."""
    return {
        node.value
        for node in everywhere(module.definition(path, path) or path, ast.Constant)
        if isinstance(node.value, str) and "." in node.value.strip("./{}")
    }


def is_state_dict(module: Module, value: ast.expr) -> bool:
    """``….state_dict()``, alone or in a dict."""
    return mentions(module.definition(value, value) or value, "state_dict")


def refused_kind(program: Program, module: Module, value: ast.expr) -> str:
    """What kind of object weights_only refuses; the empty string where it may accept it."""
    if spelled_name(module, value) in {name for _, _, name in program.parse_sites}:
        return "the parsed arguments"
    made = module.definition(value, value) or value
    if isinstance(made, ast.Dict):
        return next(filter(None, (refused_kind(program, module, part) for part in made.values)), "")
    if isinstance(made, ast.Call):
        name = module.last_name(made.func)
        if name == "from_pretrained":
            return "a whole model"
        if module.dotted(made.func).startswith(("numpy.", "np.")) and name in NUMPY_FUNCTIONS:
            return "a NumPy array"
        is_own_class = any(c.name == name for m in program.modules for c in m.nodes(ast.ClassDef))
        if name.endswith("Dataset") or is_own_class:
            return f"a {name}"
    return ""


def is_counted(program: Program, module: Module, value: ast.expr) -> bool:
    """Whether a value is a number that some line counts on: ``state.step += 1``."""
    return isinstance(value, ast.Name | ast.Attribute) and any(
        where.last_name(add.target) == module.last_name(value)
        and isinstance(add.value, ast.Constant)
        and type(add.value.value) in (int, float)
        for where in program.modules
        for add in where.nodes(ast.AugAssign)
    )


def object_use(module: Module, call: ast.Call) -> str:
    """What kind of object is loaded, judging by its use; the empty string where that is unknown."""
    stmt = module.statement(call)
    if not (isinstance(stmt, ast.Assign) and stmt.value is call):
        return ""
    name = stmt.targets[0]
    if not isinstance(name, ast.Name):
        return ""
    for use in within(module.scope_statements(stmt), ast.Call):
        if not precedes(stmt, use):
            continue
        first = argument(use, 0, "dataset", "data_source")
        is_argument = isinstance(first, ast.Name) and first.id == name.id
        if is_argument and module.dotted(use.func).endswith(("DataLoader", "Sampler")):
            return "a data set"
        if module.dotted(use.func) in {f"{name.id}.{method}" for method in MODEL_METHODS}:
            return "a model"
    return ""
