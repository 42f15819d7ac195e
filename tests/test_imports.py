"""Which files a program's imports mean, and what names stand for through them."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from ddpfix.errors import InputError
from ddpfix.patcher.analysis.training.load import MAX_FILES, read_program, read_source
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.frontend.cache import Cache
from ddpfix.patcher.frontend.checker import check_script
from ddpfix.patcher.source.files import Source

GUARD = "if __name__ == '__main__':\n    main()\n"
OPTION = """import argparse, importlib
p = argparse.ArgumentParser()
p.add_argument('--net-type', default='b')
opt = p.parse_args()
"""
FUNCTION = "import torch\ndef is_main():\n    return torch.distributed.get_rank() == 0\n"


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names_of(program: Program, folder: Path) -> list[str]:
    return [os.path.relpath(module.source.name, folder) for module in program.modules]


IMPORTS = [
    ("a module beside it", "import helpers", "helpers.is_main", {"helpers.py": FUNCTION}),
    ("under another name", "import helpers as h", "h.is_main", {"helpers.py": FUNCTION}),
    ("a name of it", "from helpers import is_main as m", "m", {"helpers.py": FUNCTION}),
    ("a dotted module", "import a.b", "a.b.is_main", {"a/__init__.py": "", "a/b.py": FUNCTION}),
    ("a package's module", "from a import b", "b.is_main",
        {"a/__init__.py": "", "a/b.py": FUNCTION}),
    ("a folder without __init__", "from a import b", "b.is_main", {"a/b.py": FUNCTION}),
    ("a re-export", "from a import is_main", "is_main",
        {"a/__init__.py": "from .b import is_main\n", "a/b.py": FUNCTION}),
    ("a re-export under another name", "import a", "a.first",
        {"a/__init__.py": "from .b import is_main as first\n", "a/b.py": FUNCTION}),
    ("all names", "from a import *", "is_main",
        {"a/__init__.py": "from .b import *\n", "a/b.py": FUNCTION}),
    ("a name that hides a module of the package", "from a import is_main", "is_main",
        {"a/__init__.py": "from .is_main import is_main\n", "a/is_main.py": FUNCTION}),
    ("relative, from the folder above", "from a.c.d import is_main", "is_main",
        {"a/__init__.py": "", "a/c/__init__.py": "", "a/c/d.py": "from ..b import is_main\n",
         "a/b.py": FUNCTION}),
    ("relative, the package itself", "from a.d import b", "b.is_main",
        {"a/__init__.py": "", "a/d.py": "from . import b\n", "a/b.py": FUNCTION}),
    ("in a function", "def main():\n    import helpers\n    helpers.is_main()", "helpers.is_main",
        {"helpers.py": FUNCTION}),
    ("optional", "try:\n    import fast as helpers\nexcept ImportError:\n    import helpers",
        "helpers.is_main", {"helpers.py": FUNCTION}),
    ("import_module", "import importlib\nh = importlib.import_module('a.b')", "h.is_main",
        {"a/__init__.py": "", "a/b.py": FUNCTION}),
    ("import_module of what an option is by default",
        f"{OPTION}h = importlib.import_module('a.' + opt.net_type)", "h.is_main",
        {"a/__init__.py": "", "a/b.py": FUNCTION}),
    ("import_module of an option in a text",
        OPTION + "h = importlib.import_module(f'a.{opt.net_type}')",
        "h.is_main", {"a/__init__.py": "", "a/b.py": FUNCTION}),
    ("import_module of an option that fills a text",
        f"{OPTION}h = importlib.import_module('a.%s' % opt.net_type)", "h.is_main",
        {"a/__init__.py": "", "a/b.py": FUNCTION}),
    ("sys.path.append of a constant", "import sys\nsys.path.append('lib')\nimport helpers",
        "helpers.is_main", {"lib/helpers.py": FUNCTION}),
    ("sys.path.insert of a folder beside the script's own",
        "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))\n"
        "import helpers", "helpers.is_main", {"../lib/helpers.py": FUNCTION}),
    ("the folder of a split path",
        "import os, sys\nhere = os.path.split(os.path.realpath(__file__))[0]\n"
        "sys.path.append(here + '/lib')\nimport helpers", "helpers.is_main",
        {"lib/helpers.py": FUNCTION}),
    ("a path in a name", "import os, sys\nroot = os.path.dirname(os.path.abspath(__file__))\n"
        "sys.path.append(root + '/lib')\nimport helpers", "helpers.is_main",
        {"lib/helpers.py": FUNCTION}),
    ("pathlib", "import sys\nfrom pathlib import Path\n"
        "sys.path.append(str(Path(__file__).resolve().parents[1] / 'lib'))\nimport helpers",
        "helpers.is_main", {"../lib/helpers.py": FUNCTION}),
    ("a path in a name that is bound anew behind", "import os, sys\nfrom pathlib import Path\n"
        "root = Path(__file__).resolve().parents[1]\nsys.path.append(str(root))\n"
        "root = Path(os.path.relpath(root, Path.cwd()))\nimport helpers",
        "helpers.is_main", {"../helpers.py": FUNCTION}),
    ("a package above a script that is part of it", "from pkg.helpers import is_main", "is_main",
        {"__init__.py": "", "../pkg/__init__.py": "", "../pkg/helpers.py": FUNCTION}),
    ("beside the script's folder, from which it imports by name",
        "import code.more\nfrom lib.helpers import is_main", "is_main",
        {"more.py": FUNCTION, "../lib/helpers.py": FUNCTION}),
    ("a package of a folder above, for which PYTHONPATH is", "import lib.helpers as helpers",
        "helpers.is_main", {"../lib/__init__.py": "", "../lib/helpers.py": FUNCTION}),
    ("an installed checkout", "from lib.helpers import is_main", "is_main",
        {"../setup.py": "", "../lib/__init__.py": "", "../lib/helpers.py": FUNCTION}),
    ("a folder named like a library", "from transformers import is_main", "is_main",
        {"transformers/__init__.py": "from .utils import is_main\n",
         "transformers/utils.py": FUNCTION}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "start", "name", "files"), IMPORTS, ids=[i[0] for i in IMPORTS])
def test_a_name_leads_to_its_definition(
    tmp_path: Path, what: str, start: str, name: str, files: dict[str, str]
) -> None:
    folder = tmp_path / "code"
    written(folder, {"run.py": f"{start}\nimport torch\nx = {name}\n{GUARD}", **files})
    program = read_program(str(folder / "run.py"))
    value = next(
        stmt.value
        for stmt in program.script.nodes(ast.Assign)
        if ast.unparse(stmt.targets[0]) == "x"
    )
    found = program.resolve(program.script, value)
    assert found is not None
    module, node = found
    assert isinstance(node, ast.FunctionDef)
    assert node.name == "is_main"
    assert module.source.text == FUNCTION
    assert program.unread == ()


def test_a_parameter_of_the_name_is_not_the_import(tmp_path: Path) -> None:
    text = "import helpers\nimport torch\ndef f(helpers):\n    return helpers.is_main\n" + GUARD
    written(tmp_path, {"run.py": text, "helpers.py": FUNCTION})
    program = read_program(str(tmp_path / "run.py"))
    (node,) = program.script.attributes("is_main")
    assert program.resolve(program.script, node) is None


def test_libraries_are_not_looked_for_inside(tmp_path: Path) -> None:
    """Each further place that is asked for is one more that the cache has to compare."""
    asked: list[str] = []

    def look(path: str) -> Source | None:
        asked.append(os.path.relpath(path, tmp_path))
        return read_source(path)

    written(tmp_path, {"run.py": "from torch.utils.data import DataLoader, Dataset\n" + GUARD})
    read_program(str(tmp_path / "run.py"), look=look)
    assert sorted(asked) == ["__init__.py", "torch.py", "torch/__init__.py"]


def test_imports_that_cannot_be_read_are_named_once(tmp_path: Path) -> None:
    text = """
import torch
from .gone import a
from .gone import b
import pkg.gone
import torch.gone
try:
    from pkg.fast import c
except ImportError:
    c = None
"""
    written(tmp_path, {"run.py": text + GUARD, "pkg/__init__.py": "x = 1\n"})
    program = read_program(str(tmp_path / "run.py"))
    assert [(line, name) for _, line, name in program.unread] == [(3, ".gone"), (5, "pkg.gone")]


def test_a_module_that_cannot_be_parsed_is_unread(tmp_path: Path) -> None:
    written(tmp_path, {"run.py": "import torch\nimport old\n" + GUARD, "old.py": "print 1\n"})
    program = read_program(str(tmp_path / "run.py"))
    assert program.unread == ((str(tmp_path / "old.py"), 1, "old.py"),)
    with pytest.raises(InputError):
        read_program(str(tmp_path / "old.py"))


def test_circles_of_imports_end(tmp_path: Path) -> None:
    files = {
        "run.py": "import torch\nfrom a import f\nx = f\n" + GUARD,
        "a.py": "from b import f\n",
        "b.py": "from a import f\n",
    }
    written(tmp_path, files)
    program = read_program(str(tmp_path / "run.py"))
    assert names_of(program, tmp_path) == ["run.py", "a.py", "b.py"]
    (use,) = [node for node in program.script.nodes(ast.Name) if node.id == "f"]
    assert program.resolve(program.script, use) is None


def test_only_so_many_files_are_read(tmp_path: Path) -> None:
    written(tmp_path, {f"m{n}.py": f"import torch, m{n + 1}\n" for n in range(MAX_FILES + 20)})
    written(tmp_path, {"run.py": "import torch, m0\n" + GUARD})
    assert len(read_program(str(tmp_path / "run.py")).modules) == MAX_FILES + 1


def test_a_module_far_from_training_is_left_out(tmp_path: Path) -> None:
    files = {
        "code/run.py": "import torch, pkg.net, pkg.ranks, near\n" + GUARD,
        "code/near.py": "x = 1\n",
        "code/pkg/__init__.py": "",
        "code/pkg/net.py": "import torch\nclass Net(torch.nn.Module):\n    pass\n",
        "code/pkg/ranks.py": FUNCTION,
    }
    written(tmp_path, files)
    program = read_program(str(tmp_path / "code" / "run.py"))
    assert names_of(program, tmp_path / "code") == ["run.py", "pkg/ranks.py", "near.py"]
    assert program.unread == ()


@pytest.mark.parametrize(
    ("behind", "modules"),
    [
        ("loss.backward()", ["run.py", "pkg/factory.py", "pkg/bert_one.py"]),
        ("pass", ["run.py"]),
    ],
)
def test_a_module_leads_to_one_that_trains(behind: str, modules: list[str], tmp_path: Path) -> None:
    files = {
        "run.py": "import torch\nfrom pkg.factory import create\n" + GUARD,
        "pkg/__init__.py": "",
        "pkg/factory.py": "from pkg.bert_one import One\ndef create():\n    return One()\n",
        "pkg/bert_one.py": f"class One:\n    def step(self, loss):\n        {behind}\n",
    }
    written(tmp_path, files)
    assert names_of(read_program(str(tmp_path / "run.py")), tmp_path) == modules


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["CUDA_VISIBLE_DEVICES"] = gpu',
        'device = torch.device("cuda:%d" % gpu)',
        "labelled = numpy.random.choice(range(gpu))",
        "return torch.optim.SGD(gpu, 0.1)",
        "return [model(x) for x in val_loader]",
    ],
)
def test_a_module_that_chooses_cards_examples_or_an_optimizer_is_of_the_program(
    tmp_path: Path, line: str
) -> None:
    files = {
        "run.py": "import torch\nfrom pkg.base import Base\n" + GUARD,
        "pkg/__init__.py": "",
        "pkg/base.py": f"import os, torch\nclass Base:\n    def choose(self, gpu): {line}\n",
    }
    written(tmp_path, files)
    program = read_program(str(tmp_path / "run.py"))
    assert "pkg/base.py" in names_of(program, tmp_path)


def test_the_cache_sees_a_package_appear_and_change(tmp_path: Path) -> None:
    """Findings in a package above the script, and the absence of one, are part of the key."""
    run = tmp_path / "tools" / "run.py"
    start = "import sys, torch\nsys.path.append('..')\nfrom lib.steps import f\nf(1)\n"
    written(tmp_path, {"tools/run.py": start + "for b in bs: b.backward()\n" + GUARD})
    store = Cache(None, "")
    codes = ("DF203",)
    entry = check_script(str(run), codes, store)
    store.remember(entry)
    assert Cache(None, "").recall(str(run), entry.key) is None

    def recalled() -> bool:
        fresh = Cache(None, "")
        fresh.remember(entry)
        return fresh.recall(str(run), entry.key) is not None

    assert recalled()
    assert entry.diagnostics == ()
    steps = "import torch.distributed\ndef f(args):\n    return 8 // args.n_gpu\n"
    written(tmp_path, {"lib/steps.py": steps})
    assert not recalled()
    entry = check_script(str(run), codes, Cache(None, ""))
    assert [(item.path, item.line) for item in entry.diagnostics] == [("../lib/steps.py", 3)]
    assert recalled()
    written(tmp_path, {"lib/steps.py": steps.replace("args.n_gpu", "max(args.n_gpu, 1)")})
    assert not recalled()


def test_a_function_of_a_library_is_none_of_the_program_s_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import torch\n\n\ndef main():\n    torch.save({}, 'x')\n")
    calls = "starter.main()\n" + "work_of_another_folder.main()\n" + "main()\n"
    (tmp_path / "run.py").write_text(
        f"import starter\nimport work_of_another_folder\nfrom work import main\n{calls}"
    )
    program = read_program(str(tmp_path / "run.py"))
    (function,) = [f for module in program.modules for f in module.all_functions]
    assert [call.lineno for _, call in program.callers(function)] == [6]


@pytest.mark.parametrize(
    ("last", "unread"),
    [
        ("Solver(model, optimizer).train()", ["solver"]),
        ("model(batch).sum().backward()", []),
        ("pass", []),
    ],
)
def test_what_trains_a_model_that_nothing_else_trains_is_not_read(
    tmp_path: Path, last: str, unread: list[str]
) -> None:
    script = tmp_path / "train.py"
    made = "optimizer = torch.optim.SGD(model.parameters())" if last != "pass" else "pass"
    script.write_text(f"import torch\nfrom solver import Solver\n{made}\n{last}\n")
    assert [name for _, _, name in read_program(str(script)).unread] == unread


def test_a_checkout_is_a_package_by_its_own_name_though_it_has_no_init(tmp_path: Path) -> None:
    text = "from lab.nets import is_main\nis_main()\n" + GUARD
    written(
        tmp_path,
        {
            "lab/examples/train.py": text,
            "lab/nets/__init__.py": "from .one import is_main\n",
            "lab/nets/one.py": FUNCTION,
        },
    )
    program = read_program(str(tmp_path / "lab/examples/train.py"))
    assert "lab/nets/one.py" in names_of(program, tmp_path)


@pytest.mark.parametrize(
    ("mark", "module", "is_read"),
    [
        ("requirements.txt", "nets", True),
        (".git/config", "nets", True),
        ("notes.txt", "lab.nets", True),
        ("notes.txt", "nets", False),  # another project's, as far as can be told
    ],
)
def test_a_script_in_a_folder_imports_from_its_project(
    tmp_path: Path, mark: str, module: str, is_read: bool
) -> None:
    text = f"from {module} import is_main\nis_main()\n" + GUARD
    name = f"{module.replace('.', '/')}.py"
    written(tmp_path, {"tools/train.py": text, name: FUNCTION, mark: "\n"})
    program = read_program(str(tmp_path / "tools/train.py"))
    assert (name in names_of(program, tmp_path)) is is_read


def test_a_folder_may_have_the_name_of_a_library_that_is_not_installed(tmp_path: Path) -> None:
    text = "from datasets.nets import is_main\nis_main()\n" + GUARD
    written(tmp_path, {"train.py": text, "datasets/nets.py": FUNCTION})
    program = read_program(str(tmp_path / "train.py"))
    assert "datasets/nets.py" in names_of(program, tmp_path)
