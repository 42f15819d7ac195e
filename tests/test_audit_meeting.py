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


CALLED_BY_SOME = """\
import torch
import torch.distributed as dist
def train(args):
    dist.init_process_group("gloo")
    rank = None
    if args.distributed:
        rank = {rank}
    return rank, torch.nn.Linear(2, 1)
def test(model):
    print(model)
    dist.barrier()
def main(args):
    rank, model = train(args)
    if {test}:
        test(model)
if __name__ == "__main__":
    main(*things())
"""


@pytest.mark.parametrize(
    ("test", "rank", "told"),
    [
        ("args.test and (rank is None or rank == 0)", "dist.get_rank()", ["unknown"]),
        ("args.test and dist.get_rank() == 0", "dist.get_rank()", ["violated"]),
        ("args.test", "dist.get_rank()", []),
    ],
    ids=["a rank of one branch", "the rank", "an option"],
)
def test_what_leads_to_a_collective_may_hang_on_the_rank(
    test: str, rank: str, told: list[str]
) -> None:
    said = audit(Program(module(CALLED_BY_SOME.format(test=test, rank=rank))))
    assert [each.answer.value for each in said if each.code == "O6"] == told


BEHIND_THE_END = """\
import torch
import torch.distributed as dist
def is_main():
    return not dist.is_initialized() or dist.get_rank() == 0
def keep(state, path):
    if is_main():
        torch.save(state, path)
def main(args, model):
    if args.distributed:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    keep(model.state_dict(), "first.pt")
    {end}
if __name__ == "__main__":
    main(*things())
"""
DESTROY = "if args.distributed:\n        dist.destroy_process_group()\n"


@pytest.mark.parametrize(
    ("end", "lines"),
    [
        (DESTROY + "    keep(model.state_dict(), 'last.pt')", [15]),
        ("keep(model.state_dict(), 'last.pt')\n    " + DESTROY, []),
        (DESTROY + "    else:\n        keep(model.state_dict(), 'last.pt')", []),
    ],
    ids=["behind it", "ahead of it", "where there is no group"],
)
def test_behind_the_end_of_the_group_every_rank_is_the_first(end: str, lines: list[int]) -> None:
    said = audit(Program(module(BEHIND_THE_END.format(end=end))))
    assert [each.line for each in said if each.code == "O7"] == lines


PASSED = """\
import torch
import torch.distributed as dist
def first(make):
    made = make() if dist.get_rank() == 0 else None
    dist.barrier()
    return made
class Data(Base):
    def __init__(self, path):
        first(lambda: path.exists())
        {inside}
def main(path):
    dist.init_process_group("gloo")
    data = Data(path)
    {used}
main(options.path)
"""


@pytest.mark.parametrize(
    ("inside", "used", "may"),
    [
        ("super(Data, self).__init__(path)", "pass", False),
        ("pass", "print(isinstance(data, Data))", False),
        ("pass", "keep(Data)", True),
    ],
)
def test_a_class_that_super_names_is_no_value_that_one_rank_may_call(
    inside: str, used: str, may: bool
) -> None:
    program = Program(module(PASSED.format(inside=inside, used=used)))
    told = [each.because for each in audit(program) if each.code == "O6"]
    assert any("which may be __init__() and wait for all" in each for each in told) is may
