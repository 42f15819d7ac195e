"""What running a function does, through the functions that it calls."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from cases import module
from ddpfix.patcher.analysis.effects.effects import Kind, Reached, effects_of, effects_of_call
from ddpfix.patcher.analysis.effects.file_effects import PathKind
from ddpfix.patcher.analysis.ranks.rank_reach import Role, roles_reaching
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.analysis.training.program import Program

ALONE, MAIN, OTHER = Role.SINGLE, Role.MAIN, Role.OTHER
HEAD = "import json, os, sys, torch, torch.distributed as dist\n"


def program(text: str) -> Program:
    return Program(module(HEAD + textwrap.dedent(text)))


def effects(text: str, function: str = "f") -> list[Reached]:
    whole = program(text)
    return effects_of(whole, whole.script.functions[function])


def rows(found: list[Reached]) -> set[tuple[Kind, frozenset[Role], bool]]:
    return {(each.effect.kind, each.roles, each.always) for each in found}


EVERYONE = frozenset(Role)
CASES = [
    ("a collective", "def f():\n    dist.barrier()", {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("in a helper", "def g():\n    dist.barrier()\ndef f():\n    g()",
        {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("under rank 0", "def f(args):\n    if dist.get_rank() == 0:\n        torch.save(1, 'x')",
        {(Kind.WRITE, frozenset({ALONE, MAIN}), False)}),
    ("a helper called under rank 0",
        "def g():\n    torch.save(1, 'x')\ndef f():\n    if dist.get_rank() == 0:\n        g()",
        {(Kind.WRITE, frozenset({ALONE, MAIN}), False)}),
    ("where there is a group",
        "def f():\n    if dist.is_initialized():\n        dist.barrier()",
        {(Kind.COLLECTIVE, frozenset({MAIN, OTHER}), True)}),
    ("perhaps", "def f(x):\n    if x:\n        dist.barrier()",
        {(Kind.COLLECTIVE, EVERYONE, False)}),
    ("in a loop", "def f(x):\n    for y in x:\n        dist.barrier()",
        {(Kind.COLLECTIVE, EVERYONE, False)}),
    ("behind an exit", "def f(x):\n    if x:\n        return\n    dist.barrier()",
        {(Kind.COLLECTIVE, EVERYONE, False)}),
    ("behind an exit of lone processes",
        "def f(x):\n    if not dist.is_initialized():\n        return\n    dist.barrier()",
        {(Kind.COLLECTIVE, frozenset({MAIN, OTHER}), True)}),
    ("once perhaps, once always",
        "def g():\n    dist.barrier()\ndef f(x):\n    if x:\n        g()\n    g()",
        {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("a method",
        "class A:\n    def g(self):\n        dist.barrier()\ndef f():\n    a = A()\n    a.g()",
        {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("an inherited method, on self", "class B:\n    def g(self):\n        dist.barrier()\n"
        "class A(B):\n    def f(self):\n        self.g()", {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("a model's forward", "class Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        dist.all_reduce(x)\ndef f(x):\n    model = Net().to('cpu')\n    return model(x)",
        {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("a table of functions", "def g():\n    dist.barrier()\nTABLE = {'g': g}\n"
        "def f(x):\n    TABLE[x]()", {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("a function by another name", "def g():\n    dist.barrier()\ndef f():\n    h = g\n    h()",
        {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("a function that is passed for a parameter", "def g():\n    dist.barrier()\n"
        "def f(run=g):\n    run()\nf()\nf(g)", {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("a parameter that may be something else", "def g():\n    dist.barrier()\n"
        "def f(run):\n    run()\nf(g)\nf(made())", set()),
    ("a parameter that is passed on", "def g():\n    dist.barrier()\n"
        "def f(run):\n    run()\n    started(run)\nf(g)", {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("backward, exit and a test", "def f(loss):\n    loss.backward()\n    sys.exit()\n"
        "    os.path.exists('x')", {(Kind.BACKWARD, EVERYONE, True), (Kind.EXIT, EVERYONE, True),
                                    (Kind.TEST, EVERYONE, True)}),
    ("functions that call each other", "def f(x):\n    g(x)\ndef g(x):\n    if x:\n        f(x)\n"
        "    dist.barrier()", {(Kind.COLLECTIVE, EVERYONE, True)}),
    ("reduce, which is not torch's", "import functools\ndef f(x):\n    functools.reduce(x)", set()),
]  # fmt: skip


@pytest.mark.parametrize(("what", "text", "expected"), CASES, ids=[case[0] for case in CASES])
def test_what_a_function_does(
    what: str, text: str, expected: set[tuple[Kind, frozenset[Role], bool]]
) -> None:
    assert rows(effects(text)) == expected


PATHS = [
    ("torch.save(1, 'out/x.pt')", PathKind.CONSTANT),
    ("torch.save(1, os.path.join('out', 'x.pt'))", PathKind.CONSTANT),
    ("torch.save(1, args.output_dir)", PathKind.OPTION),
    ("torch.save(1, f'{args.local_rank}.pt')", PathKind.RANK),
    ("path = f'out_{dist.get_rank()}'\n    torch.save(1, path + '.pt')", PathKind.RANK),
    ("import io\n    buffer = io.BytesIO()\n    torch.save(1, buffer)", PathKind.MEMORY),
    ("with open(args.output_dir, 'w') as file:\n        json.dump(1, file)", PathKind.OPTION),
    ("torch.save(1, secrets())", PathKind.UNKNOWN),
    ("g(f'{dist.get_rank()}.pt')", PathKind.RANK),
    ("g('x.pt')", PathKind.CONSTANT),
    ("h(dist.get_rank())", PathKind.RANK),
    ("h(1)", PathKind.OPTION),
]


@pytest.mark.parametrize(("line", "kind"), PATHS)
def test_what_a_path_is_made_of(line: str, kind: PathKind) -> None:
    helpers = "def g(path):\n    torch.save(1, path)\ndef h(n):\n    torch.save(1, f'part{n}')\n"
    found = effects(f"{helpers}def f(args):\n    {line}\n")
    assert {each.path_kind for each in found} == {kind}


METER = """
import torch

class Meter:
    def plot(self, path):
        self.figure.savefig(path)

meter = Meter()
checkpoint = {source}
if checkpoint:
    meter = checkpoint["meter"]
meter.plot("loss.png")
"""


@pytest.mark.parametrize(
    ("source", "certain"), [('torch.load("last.pt")', 1), ("build(meters)", 0)]
)
def test_what_comes_from_a_checkpoint_is_of_the_class_of_what_it_replaces(
    source: str, certain: int
) -> None:
    whole = program(METER.format(source=source))
    plot = whole.script.all_functions[0]
    assert len(whole.callers(plot)) == certain
    assert len(whole.possible_callers(plot)) == 1 - certain


def test_a_path_that_a_helper_gets_is_the_callers() -> None:
    whole = program("def g(path):\n    torch.save(1, path)\ndef f(args):\n    g(args.out)\n")
    call = whole.script.calls_to("g")[0]
    (effect,) = effects_of_call(whole, whole.script, call)
    assert effect.path is call.args[0]
    assert effect.call is call
    assert effect.effect.node is whole.script.calls_to("save")[0]


def test_effects_come_from_other_modules_and_from_those_that_are_not_found(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("from .inner import sync\n")
    (tmp_path / "pkg" / "inner.py").write_text(HEAD + "def sync():\n    dist.barrier()\n")
    run = tmp_path / "run.py"
    run.write_text(HEAD + "import pkg\nfrom .gone import f\npkg.sync()\nf()\nif __name__: pass\n")
    found = effects_of(read_program(str(run)), None)
    assert rows(found) == {(Kind.COLLECTIVE, EVERYONE, True), (Kind.UNREAD, EVERYONE, True)}


def chain(length: int) -> str:
    """Helpers of which each calls the one before it twice."""
    parts = ["def f0(args):\n    torch.save(args, args.out)\n"]
    parts += [
        f"def f{n}(args):\n    f{n - 1}(args)\n    if args.local_rank in [-1, 0]:\n"
        f"        f{n - 1}(args)\n"
        for n in range(1, length)
    ]
    return "".join(parts) + f"f{length - 1}(parse())\n"


def calls_made(length: int) -> int:
    """Python functions that run to tell who writes and what the last helper does."""
    whole = program(chain(length))
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        assert len(effects_of(whole, None)) == 1
        save = whole.script.calls_to("save")[0]
        assert roles_reaching(whole, whole.script, save) == EVERYONE
    finally:
        sys.setprofile(before)
    return count


def test_helpers_that_call_each_other_twice_cost_no_more_than_their_number() -> None:
    counts = [calls_made(length) for length in (20, 40, 80)]
    assert counts[1] <= 2.5 * counts[0]
    assert counts[2] <= 2.5 * counts[1]


BY_ANOTHER_NAME = """
import torch

class Run:
    def __init__(self, path):
        self.path = path

    def store(self, state):
        torch.save(state, self.path)

def main(train):
    Chosen = Run
    if train:
        run = Chosen("a.pt")
        run.store(1)
    else:
        run = Chosen("b.pt")
        run.store(2)

main(True)
"""


def test_a_class_is_known_by_another_name_too() -> None:
    program = Program(module(BY_ANOTHER_NAME))
    functions = {function.name: function for function in program.script.all_functions}
    assert [len(program.callers(functions[name])) for name in ("__init__", "store")] == [2, 2]
    assert [each.effect.kind for each in effects_of(program, functions["main"])] == [Kind.WRITE]


def test_a_table_of_functions_is_known_in_a_module_that_imports_it(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(
        "import torch\n"
        "def first(path):\n    torch.save(1, path)\n"
        "def second(path):\n    pass\n"
        "GETTERS = {'first': first, 'second': second}\n"
    )
    (tmp_path / "run.py").write_text(
        "import torch\nfrom data import GETTERS\n"
        "def main(name):\n    GETTERS[name]('a.pt')\n"
        "if __name__ == '__main__':\n    main('first')\n"
    )
    program = read_program(str(tmp_path / "run.py"))
    functions = {each.name: each for module in program.modules for each in module.all_functions}
    assert [len(program.callers(functions[name])) for name in ("first", "second")] == [1, 1]
    assert [each.effect.kind for each in effects_of(program, functions["main"])] == [Kind.WRITE]


ABSTRACT = """
import torch

class Base:
    def train(self):
        for epoch in range(3):
            self.step(epoch)

    {head}def step(self, epoch):
        {body}

class Trainer(Base):
    def step(self, epoch):
        torch.save(epoch, "a.pt")
{beside}
Trainer().train()
"""
BESIDE = """
class Other(Base):
    def step(self, epoch):
        print(epoch)
"""


@pytest.mark.parametrize(
    ("head", "body", "beside", "certain"),
    [
        ("", "raise NotImplementedError", "", True),
        ("", "raise NotImplementedError()", "", True),
        ("@abstractmethod\n    ", "pass", "", True),
        ("", "print(epoch)", "", True),
        ("", "raise NotImplementedError", BESIDE, True),
        ("", "print(epoch)", "Base().train()", False),
    ],
    ids=[
        *("raises", "raises an object", "is abstract", "does something", "has another heir"),
        "is made itself",
    ],
)
def test_what_a_class_leaves_to_the_one_below_is_called_there(
    head: str, body: str, beside: str, certain: bool
) -> None:
    program = Program(module(ABSTRACT.format(head=head, body=body, beside=beside)))
    (step,) = [
        each
        for each in program.script.all_functions
        if each.name == "step" and "save" in program.script.text(each)
    ]
    assert (len(program.callers(step)), len(program.possible_callers(step))) == (
        int(certain),
        1 - certain,
    )
