"""The work of a check grows with a program's size, and not with its square.

Work is the number of Python functions that a check calls: it is the same on every machine.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cases import module
from command_line import LEGACY, run
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.engine.check import check
from ddpfix.patcher.rules import all_rules
from ddpfix.patcher.source.module import parse_and_number

SIZES = (100, 200, 400)
AT_MOST = 2.5  # times the work at half the size

HEAD = """
import argparse, torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net())
loader = DataLoader(data)
"""
LOOP = "for batch in {0}:\n    model(batch).backward()\n"


def calls(n: int) -> str:
    """A chain of functions of which each calls the next one twice; the last one saves."""
    chain = "".join(f"def f{i}(x):\n    f{i + 1}(x)\n    f{i + 1}(x)\n" for i in range(n))
    return (
        HEAD + chain + f"def f{n}(x):\n    torch.save(x, 'a')\n" + LOOP.format("loader") + "f0(1)\n"
    )


def rank_tests(n: int) -> str:
    """Tests of the rank in a row, each with a save."""
    one = "if args.local_rank in [-1, 0] and x{0}:\n    torch.save(x, 'a{0}')\n"
    return HEAD + LOOP.format("loader") + "".join(one.format(i) for i in range(n))


def elifs(n: int) -> str:
    """One test with many branches, of which each saves."""
    rest = "".join(f"elif args.mode == {i}:\n    torch.save(x, 'a{i}')\n" for i in range(n))
    return HEAD + LOOP.format("loader") + "if args.local_rank == 0:\n    pass\n" + rest


def loops(n: int) -> str:
    """Training loops over one loader."""
    return HEAD + LOOP.format("loader") * n


def loaders(n: int) -> str:
    """A loader and a training loop for each."""
    return HEAD + "".join(
        f"loader{i} = DataLoader(data{i})\n" + LOOP.format(f"loader{i}") for i in range(n)
    )


def aliases(n: int) -> str:
    """A value that goes through many names before it is used."""
    chain = "a0 = args.local_rank\n" + "".join(f"a{i + 1} = a{i}\n" for i in range(n))
    return HEAD + chain + LOOP.format("loader") + f"if a{n} == 0:\n    torch.save(x, 'a')\n"


def classes(n: int) -> str:
    """Classes with a base, each of which keeps its rank."""
    one = (
        "class Part{0}(Base):\n    def __init__(self, rank):\n        super().__init__()\n"
        "        if rank == 0:\n            torch.save(self, 'a{0}')\n"
    )
    parts = "".join(one.format(i) + f"Part{i}(args.local_rank)\n" for i in range(n))
    return HEAD + "class Base:\n    pass\n" + parts + LOOP.format("loader")


def namesakes(n: int) -> str:
    """Classes that all have a settings class of one name, each derived from another's."""
    one = (
        "class Part{0}(Base):\n    class Settings(Base.Settings):\n"
        "        def __init__(self):\n            self.start = torch.zeros(1)\n"
    )
    parts = "".join(one.format(i) for i in range(n))
    return HEAD + parts + "Part0.from_pretrained(args.name)\n" + LOOP.format("loader")


PROGRAMS = (calls, rank_tests, elifs, loops, loaders, aliases, classes, namesakes)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count calls of Python functions; a profiler that a test runner has set comes back."""
    count, before = [0], sys.getprofile()

    def step(frame: object, event: str, argument: object) -> None:
        count[0] += event == "call"

    sys.setprofile(step)
    try:
        yield count
    finally:
        sys.setprofile(before)


def work(text: str) -> int:
    """How many functions a check of a program calls."""
    rules = all_rules()
    parse_and_number.cache_clear()
    with counted() as count:
        check(Program(module(text)), rules)
    return count[0]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_work_grows_with_the_size(program: Callable[[int], str]) -> None:
    work(program(2))  # whatever is made once
    amounts = [work(program(n)) for n in SIZES]
    ratios = [after / before for before, after in itertools.pairwise(amounts)]
    assert max(ratios) <= AT_MOST, amounts
    assert amounts[-1] > SIZES[-1]


def handed_on(n: int) -> str:
    """What is loaded, and methods of one name that hand it to each other."""
    taker = "class Taker{}:\n    def take(self, value):\n        other.take(value)\n"
    takers = "".join(map(taker.format, range(n)))
    return f"{HEAD}{takers}taker.take(torch.load(path))\n{LOOP.format('loader')}"


def test_a_value_that_many_functions_hand_on_is_followed_once_to_each() -> None:
    work(handed_on(2))
    few, many = work(handed_on(4)), work(handed_on(8))
    assert many / few < 5  # pairs of them; each way through them would be 64 times as many


def copied_settings(n: int) -> str:
    """A seed under a test of a setting, which classes copy from one another."""
    one = "class Part{0}:\n    def __init__(self, other):\n        self.quick = other.quick\n"
    seed = "if not config.quick:\n    torch.manual_seed(config.quick)\n"
    draw = "order = torch.randperm(8)\n"
    return HEAD + "".join(map(one.format, range(n))) + seed + draw + LOOP.format("loader")


def test_a_setting_that_many_classes_copy_is_followed_once_to_each() -> None:
    work(copied_settings(2))
    few, many = work(copied_settings(3)), work(copied_settings(6))
    assert many / few < 3  # all ways through the copies would be 4,000 times as many


DEEP = {
    "elif": "if a == 0:\n    pass\n" + "".join(f"elif a == {i}:\n    pass\n" for i in range(1600)),
    "calls": "x = " + "f(" * 3000 + ")" * 3000 + "\n",
    "sums": "x = " + " + ".join(["1"] * 3000) + "\n",
}


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("command", ["check", "patch"])
def test_deep_nesting_costs_the_file_at_most(command: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(LEGACY + DEEP[kind])
    (tmp_path / "run.py").write_text(LEGACY)
    options = ["--no-cache"] if command == "check" else ["--dry-run"]
    result = run(command, *options, tmp_path)
    assert result.exit_code in (1, 2)
    assert "run.py" in result.stdout
    assert "deep.py" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
