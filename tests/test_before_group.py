"""Which code runs before the process group is made, where programs make it in several places."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import module
from ddpfix.patcher.analysis.ranks.before_group import runs_before_group
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.analysis.training.program import Program

SCRIPT = """\
import torch

def start():
    torch.distributed.init_process_group("gloo")

def train(args):
    start()
    save("trained")

def tune(args):
    prepare()
    start()
    save("tuned")

def prepare():
    save("raw")

if __name__ == "__main__":
    {main}
"""
BRANCHES = "if args.tune:\n        tune(args)\n    else:\n        train(args)"


@pytest.mark.parametrize(
    ("main", "early"),
    [
        (BRANCHES, {"raw"}),
        (BRANCHES.replace("args.tune", "not args.tune"), {"raw"}),
        ("tune(args)\n    train(args)", {"raw"}),
        ("save('first')\n    train(args)", {"raw", "first"}),
        ("train(args)\n    save('last')", {"raw"}),
        ("if args.tune:\n        save('first')\n        tune(args)", {"raw", "first"}),
        ("if args.tune:\n        tune(args)\n    else:\n        save('alone')", {"raw"}),
    ],
)
def test_code_above_the_group_on_its_own_way_is_early(main: str, early: set[str]) -> None:
    script = module(SCRIPT.format(main=main))
    program = Program(script)
    assert {
        call.args[0].value
        for call in script.calls_to("save")
        if runs_before_group(program, script, call)
    } == early


HEAD = """\
{above}
import torch
def main():
    {inside}
    torch.distributed.init_process_group("gloo")
{below}
main()
"""


@pytest.mark.parametrize(
    ("parts", "early"),
    [
        ({"above": "from log import logger"}, True),
        ({"above": "import log"}, True),
        ({"inside": "import log"}, False),
        ({}, False),
    ],
)
def test_what_an_imported_module_calls_runs_before_the_group(
    parts: dict[str, str], early: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD.format(**{"above": "", "inside": "pass", "below": "", **parts}))
    log = "def make():\n    return open('log.txt', 'w')\nlogger = make()\n"
    (tmp_path / "log.py").write_text(log)
    program = read_program(str(script))
    runs = [
        runs_before_group(program, each, call)
        for each in program.modules
        for name in ("open", "make")
        for call in each.calls_to(name)
    ]
    assert runs == [early] * len(runs)


def test_the_main_guard_of_an_imported_script_runs_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    head = HEAD.format(above="from log import make", inside="pass", below="")
    script.write_text(f"{head}make()\n")
    guard = "if __name__ == '__main__':\n    make()\n"
    log = f"def make():\n    return open('log.txt', 'w')\n{guard}"
    (tmp_path / "log.py").write_text(log)
    program = read_program(str(script))
    ((module, call),) = program.calls_to("open")
    assert not runs_before_group(program, module, call)
