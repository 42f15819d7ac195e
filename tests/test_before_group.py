"""Which code runs before the process group is made, where programs make it in several places."""

from __future__ import annotations

import pytest
from cases import module
from ddpfix.patcher.analysis.ranks.before_group import runs_before_group
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
