"""A script runs its own functions, and not those of like names in scripts that it imports."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.engine.patch import patch
from test_program import program_of

PRETRAIN = """
import torch
from steps import make_optimizer

def load(batch):
    return torch.utils.data.DataLoader(torch.zeros(64, 8), batch_size=batch, shuffle=True)

def build():
    model = torch.nn.Linear(8, 3)
    model = torch.nn.DataParallel(model)
    return model.cuda()

def train(loader, model, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

def main():
    model = build()
    optimizer = make_optimizer(model)
    for epoch in range(2):
        train(load(8), model, optimizer)

if __name__ == "__main__":
    main()
"""
STEPS = """
import torch

def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
"""
PROBE = """
import torch
from pretrain import load
from steps import make_optimizer

def build():
    body, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)
    body = torch.nn.DataParallel(body)
    return body.cuda(), head.cuda()

def train(loader, body, head, optimizer):
    for batch in loader:
        with torch.no_grad():
            features = body(batch)
        optimizer.zero_grad()
        head(features).mean().backward()
        optimizer.step()

def main():
    body, head = build()
    optimizer = make_optimizer(head)
    for epoch in range(2):
        train(load(8), body, head, optimizer)

if __name__ == "__main__":
    main()
"""
FILES = {"pretrain": PRETRAIN, "steps": STEPS}


def live(folder: Path, module: str, **files: str) -> set[str]:
    program = program_of(folder, **files)
    (found,) = [each for each in program.modules if Path(each.source.name).stem == module]
    return {each.name for each in found.all_functions if program.is_live(found, each.body[0])}


def test_a_wrapper_that_another_script_would_call_wraps_nothing_here(tmp_path: Path) -> None:
    program_of(tmp_path, "probe.py", probe=PROBE, **FILES)
    done = patch(tmp_path / "probe.py")
    assert done.refusal == ""
    texts = {Path(change.source.name).stem: change.text for change in done.changes}
    assert "    average_gradients(" in texts["probe"]
    assert "DistributedDataParallel" not in texts["probe"]
    assert "DistributedDataParallel" not in texts["pretrain"], "it runs nothing but load()"


def test_the_model_that_is_trained_is_wrapped_where_ddp_can(tmp_path: Path) -> None:
    text = PROBE.replace("body = torch.nn.DataParallel(body)", "head = torch.nn.DataParallel(head)")
    program_of(tmp_path, "probe.py", probe=text, **FILES)
    done = patch(tmp_path / "probe.py")
    texts = {Path(change.source.name).stem: change.text for change in done.changes}
    assert "DistributedDataParallel(head" in texts["probe"]
    assert "DistributedSampler(" in texts["pretrain"]
    assert "DistributedDataParallel" not in texts["pretrain"], "it runs nothing but load()"


def test_the_other_script_is_patched_as_ever(tmp_path: Path) -> None:
    program_of(tmp_path, "probe.py", probe=PROBE, **FILES)
    (tmp_path / "probe.py").unlink()
    done = patch(tmp_path / "pretrain.py")
    assert "DistributedDataParallel(model" in done.changes[0].text


@pytest.mark.parametrize(
    ("running", "use"),
    [
        ({"load"}, "from pretrain import load\nload(8)\n"),
        ({"load", "build"}, "from pretrain import *\nload(8)\nbuild()\n"),
        ({"load", "build"}, "import pretrain\npretrain.build()\npretrain.load(8)\n"),
        ({"train"}, "from pretrain import train\ndef other(train):\n    train()\nother(train)\n"),
        (
            {"build"},
            "try:\n    from pretrain import build\nexcept E:\n    from steps import build\n",
        ),
        (
            {"load", "build", "train", "main"},
            "from importlib import import_module\nimport pretrain\n"
            "import_module('pretrain').main(load, train, build)\n",
        ),
        ({"load", "build", "train", "main"}, "from pretrain import main as begin\nbegin()\nmain\n"),
    ],
)
def test_what_runs_of_an_imported_script(tmp_path: Path, running: set[str], use: str) -> None:
    own = "def train():\n    for batch in data:\n        model(batch).backward()\ntrain()\nbuild\n"
    more = {"pretrain": PRETRAIN, "steps": STEPS + "\ndef build():\n    pass\n"}
    assert live(tmp_path, "pretrain", run=use + own, **more) >= running


@pytest.mark.parametrize(("own", "runs"), [("grammar_of", False), ("grammar", True)])
def test_a_helper_of_ours_that_imports_by_name_runs_no_other(
    tmp_path: Path, own: str, runs: bool
) -> None:
    looking = f"import importlib\ndef {own}(name):\n    return importlib.import_module(name)\n"
    use = f"import pretrain\ndef main():\n    {own}('tree_sitter_c')\nmain()\n"
    run = looking + use + "for batch in data:\n    model(batch).backward()\n"
    found = live(tmp_path, "pretrain", run=run, pretrain=PRETRAIN, steps=STEPS)
    assert ("main" in found) is runs


@pytest.mark.parametrize("elsewhere", ["", "class Saving: pass\n"])
def test_methods_of_a_base_in_another_module_are_the_class_s_own(
    tmp_path: Path, elsewhere: str
) -> None:
    (tmp_path / "base.py").write_text(
        "import torch\nclass Saving(torch.nn.Module):\n"
        "    def keep(self, path):\n        torch.save(self.state_dict(), path)\n"
    )
    (tmp_path / "other.py").write_text(f"x = 1\n{elsewhere}")
    (tmp_path / "net.py").write_text(
        "from base import Saving\nclass Net(Saving):\n    def forward(self, x):\n        return x\n"
        "class Small(Net):\n    pass\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, other\nfrom net import Small\ndef main():\n    net = Small()\n"
        "    for batch in torch.utils.data.DataLoader(data):\n"
        "        net(batch).mean().backward()\n        optimizer.step()\n"
        "    net.keep('a.pt')\nif __name__ == '__main__':\n    main()\n"
    )
    result = patch(script)
    assert [f.module.source.file for f in result.findings_before if f.code == "DF601"] == [
        "base.py"
    ]


BY_NAME = {
    "a module's attribute": "getattr(nets, name)()",
    "a module's dictionary": "nets.__dict__[name]()",
    "vars": "vars(nets)[name]()",
    "globals": "globals()[name]()",
    "eval": "eval(name)()",
    "its own module": "getattr(sys.modules[__name__], name)()",
}
NOT_BY_NAME = {
    "an option": "getattr(options, name)()",
    "a constant": "getattr(nets, 'size')()",
    "numbers": "list(eval(name))",
    "a function of the script": "globals_of(name)()",
}


@pytest.mark.parametrize("made", [*BY_NAME, *NOT_BY_NAME])
def test_a_class_that_is_looked_up_by_a_computed_name_may_run(tmp_path: Path, made: str) -> None:
    call = (BY_NAME | NOT_BY_NAME)[made]
    program = program_of(
        tmp_path,
        run=f"import sys\nimport nets\nfrom nets import *\n\ndef main(options, name):\n"
        f"    net = {call}\n    net.keep()\n\nif __name__ == '__main__':\n    main(*sys.argv)\n",
        nets="from base import Base\n\nclass Net(Base):\n    def forward(self, x):\n"
        "        return x\n",
        base="import torch\n\nclass Base(torch.nn.Module):\n    def keep(self):\n"
        "        torch.save(self.state_dict(), 'a.pt')\n",
    )
    saves = [each for each in program.calls_to("save") if program.is_live(*each)]
    assert len(saves) == (made in BY_NAME)


LOOPS = """
def {name}(loader, model, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
"""
TWO_LOOPS = LOOPS.format(name="train_plain") + LOOPS.format(name="train_guided")
TRAINS_PLAIN = """
import sys, torch, loops
from loops import train_plain as train

model = torch.nn.Linear(8, 3)
loader = torch.utils.data.DataLoader(torch.zeros(64, 8), batch_size=8, shuffle=True)
train(loader, model, torch.optim.SGD(model.parameters(), lr=0.1))
{more}
"""


@pytest.mark.parametrize(
    ("more", "alone"),
    [
        ("", True),
        ("getattr(loops, 'train_' + kind)(loader, model, optimizer)", False),
        ("eval('train_' + kind)(loader, model, optimizer)", False),
        ("run(loops, 'train_guided')", False),
        ("loops.__dict__['train_' + kind](loader, model, optimizer)", False),
        (
            "class Meter:\n    def __str__(self):\n        return '{x}'.format(**self.__dict__)",
            True,
        ),
        ("print(args.__dict__)", True),
        ("import torchvision.models as models\nnet = models.__dict__[name]()", True),
        ("def draw_alike():\n    return sys.modules.get('numpy')", True),
        ("print(sys.modules['loops'])", False),
    ],
)
def test_a_loop_beside_the_one_that_is_imported_is_run_by_nobody(
    tmp_path: Path, more: str, alone: bool
) -> None:
    program = program_of(tmp_path, run=TRAINS_PLAIN.format(more=more), loops=TWO_LOOPS)
    live = {
        function.name
        for module in program.modules
        for function in module.all_functions
        if program.is_live(module, function.body[0])
    }
    assert live == {"train_plain"} | (set() if alone else {"train_guided"})


CLASSES = """
class Plain:
    def train(self, loader, model, optimizer):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()

class Guided:
    def train(self, loader, model, optimizer):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("more", "lines"), [("", [4]), ("Other = loops.Guided", [4, 10]), ("make('Guided')", [4, 10])]
)
def test_methods_of_a_class_that_nobody_names_are_run_by_nobody(
    tmp_path: Path, more: str, lines: list[int]
) -> None:
    script = TRAINS_PLAIN.format(more=more).replace("import train_plain as train", "import Plain")
    run = script.replace("train(loader", "Plain().train(loader")
    program = program_of(tmp_path, run=run, loops=CLASSES)
    loops = [loop for loop in program.train_loops if program.is_live(loop.module, loop.steps)]
    assert [loop.steps.lineno for loop in loops] == lines


TRIES_ITSELF = """
import torch

class Slow(torch.optim.SGD):
    pass

def build():
    return torch.nn.Linear(8, 3)

if __name__ == "__main__":
    model = build()
    optimizer = Slow(model.parameters(), lr=0.1)
    for i in range(9):
        model(torch.randn(2, 8)).mean().backward()
        optimizer.step()
    torch.save(model.state_dict(), "tried.pt")
"""
USES_IT = """
import torch
from slow import Slow

model = torch.nn.DataParallel(torch.nn.Linear(8, 3).cuda())
loader = torch.utils.data.DataLoader(torch.zeros(64, 8), batch_size=8, shuffle=True)
optimizer = Slow(model.parameters(), lr=0.1)
for batch in loader:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
"""


def test_what_a_module_does_when_it_is_run_itself_is_nothing_of_its_importers(
    tmp_path: Path,
) -> None:
    program_of(tmp_path, "run.py", run=USES_IT, slow=TRIES_ITSELF)
    done = patch(tmp_path / "run.py")
    assert done.refusal == ""
    assert [Path(change.source.name).stem for change in done.changes] == ["run"]
    assert {found.module.source.file for found in done.findings_before} == {"run.py"}
    alone = patch(tmp_path / "slow.py")
    assert "DF601" in {found.code for found in alone.findings_before}


OF_OTHERS = """
import torch

class First:
    def read(self, rank, size):
        return self.lines[rank::size]

class Second(First):
    pass

class Third(Second):
    def read(self, rank, size):
        return super().read(rank, size)

READERS = {"first": First, "third": Third}
"""


@pytest.mark.parametrize(
    ("use", "runs"),
    [
        ("from readers import *", set()),
        ("from readers import *\nread = Second().read(0, 1)", {5}),
        ("from readers import READERS\nread = READERS[name]().read(0, 1)", {5, 12}),
        ("from readers import READERS", {5, 12}),  # which another may get from here
    ],
)
def test_what_only_an_unread_table_holds_is_for_other_scripts(
    tmp_path: Path, use: str, runs: set[int]
) -> None:
    own = "\ndef train():\n    for batch in data:\n        model(batch).backward()\ntrain()\n"
    program = program_of(tmp_path, run=use + own, readers=OF_OTHERS)
    (readers,) = (m for m in program.modules if m.source.path.stem == "readers")
    live = {f.lineno for f in readers.all_functions if program.is_live(readers, f.body[0])}
    assert live == runs


NET = """
import torch

class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(size)

    def forward(self, x):
        return self.norm(x)
"""
PICKS = """
import sys
import torch
import {nets}

class Run:
    def __init__(self, kind):
        self.table = {{"first": first, "second": second}}
        table = {{"first": first}}
        self.model = {pick}.Model(8)

    def train(self, data):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        for x in data.split(4):
            optimizer.zero_grad()
            self.model(x).mean().backward()
            optimizer.step()

if __name__ == "__main__":
    Run(sys.argv[1]).train(torch.zeros(64, 8))
"""


@pytest.mark.parametrize(
    ("pick", "are_live"),
    [
        ("self.table[kind]", [True, True, False]),
        ("table[kind]", [True, False, False]),
        ("table.get(kind)", [True, False, False]),
        ("second", [False, True, False]),
    ],
)
def test_a_class_is_that_of_the_modules_that_a_table_holds(
    tmp_path: Path, pick: str, are_live: list[bool]
) -> None:
    nets = ("first", "second", "third")
    script = PICKS.format(nets=", ".join(nets), pick=pick)
    files = {"run": script, **{net: f"# {net}\n{NET}" for net in nets}}
    assert [bool(live(tmp_path, net, **files)) for net in nets] == are_live


LOOKS_FOR_RATE = """
def adjust(optimizer, lr):
    optimizer.param_groups[0]["lr"] = lr

def find_lr(net, loader, optimizer):
    for batch in loader:
        net(batch).mean().backward()
        optimizer.step()
"""
TOP = """
import torch
from tools import adjust, find_lr

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.rand(8, 2), batch_size=2, shuffle=True)
{begin}
for batch in loader:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
{end}
"""


@pytest.mark.parametrize(
    ("begin", "end", "is_shared"),
    [
        ("", "", True),
        ("adjust(optimizer, 0.1)", "", True),
        ("def main():", "main()", True),
        ("", "find_lr(model, unknown(), optimizer)", False),
        ("from tools import find_lr as look", "look(model, unknown(), optimizer)", False),
        ("import tools", "getattr(tools, name)(model, unknown(), optimizer)", False),
        ("", "globals()[name](model, unknown(), optimizer)", False),
    ],
)
def test_a_training_that_is_imported_and_never_called_is_left_out(
    tmp_path: Path, begin: str, end: str, is_shared: bool
) -> None:
    head, _, loop = TOP.partition("{begin}")
    if begin == "def main():":
        loop = loop.replace("\n", "\n    ").replace("    {end}", "{end}")
    text = head + begin + loop.replace("{end}", end)
    program_of(tmp_path, "train.py", train=text, tools=LOOKS_FOR_RATE)
    assert ("over_ranks(model)" in patch(tmp_path / "train.py").diff()) is is_shared
