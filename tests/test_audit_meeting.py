"""Tests that sound as if they asked which process this is."""

from __future__ import annotations

import ast
import textwrap

import pytest
from cases import module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import audit
from ddpfix.patcher.audit.meeting import sounds_of_the_first
from ddpfix.patcher.audit.ranks import may_name_rank

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--do_zero_shot", action="store_true")
parser.add_argument("--first", type=int)
parser.add_argument("--main", action="store_true")
args = parser.parse_args()
args.main = chosen()
if {}:
    pass
"""


@pytest.mark.parametrize(
    ("test", "sounds"),
    [
        ("args.do_zero_shot is False", False),
        ("args.epochs > 3", False),
        ("args.first", True),
        ("args.main", True),
        ("cfg.is_master", True),
        ("first", True),
    ],
)
def test_a_switch_of_the_command_line_asks_for_no_process(test: str, sounds: bool) -> None:
    program = Program(module(textwrap.dedent(SCRIPT).format(test)))
    (branch,) = program.script.nodes(ast.If)
    assert sounds_of_the_first(program, branch.test) is sounds


OTHER_FILE = """\
import os, torch
import torch.distributed as dist
def main(args, model):
    dist.init_process_group("gloo")
    first = os.path.join(args.scratch, "first.pt")
    if os.path.exists({asked}):
        model.load_state_dict(torch.load(args.weights))
    else:
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), first)
        dist.barrier()
if __name__ == "__main__":
    main(*things())
"""


@pytest.mark.parametrize(
    ("asked", "is_violated"), [("args.weights", False), ("first", True), ("args.scratch", True)]
)
def test_a_branch_may_write_another_file_than_its_test_asks_for(
    asked: str, is_violated: bool
) -> None:
    program = Program(module(OTHER_FILE.format(asked=asked)))
    (verdict,) = [each for each in audit(program) if each.code == "O6"]
    assert verdict.is_violated is is_violated


SAME_NAMES = """\
import os
class One:
    def made(self):
        value = 1
        return value
class Two:
    def made(self):
        value = os.environ["RANK"]
        return value
def main(one: One, two: Two):
    return [one.made(), {second}]
"""


@pytest.mark.parametrize(("second", "may"), [("two.made()", True), ("one.made()", False)])
def test_each_function_of_one_name_is_asked_whether_it_names_a_rank(second: str, may: bool) -> None:
    program = Program(module(SAME_NAMES.replace("{second}", second)))
    (made,) = program.script.nodes(ast.List)
    assert may_name_rank(program, program.script, made) is may
