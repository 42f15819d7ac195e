"""A training function that runs several times, for seeds or folds, in one process group."""

from __future__ import annotations

import pytest
from audited import program_of
from cases import fixed
from ddpfix.patcher.audit import audit

SCRIPT = """\
import argparse
import torch
from torch.utils.data import DataLoader

def main(seed):
    parser = argparse.ArgumentParser()
    {option}
    args = parser.parse_args()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    for batch in DataLoader(examples):
        model(batch).sum().backward()
        optimizer.step()

{run}
"""
OPTION = "parser.add_argument('--local_rank', type=int, default=-1)"
LAUNCHED = "if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:"
GUARD = 'if __name__ == "__main__":'
RUNS = [
    (f"{GUARD}\n    for seed in range(3):\n        main(seed)", True),
    (f"def run():\n    for seed in [1, 2]:\n        main(seed)\n\n{GUARD}\n    run()", True),
    (f"{GUARD}\n    main(1)\n    main(2)", True),
    (f"{GUARD}\n    print([main(seed) for seed in range(3)])", True),
    (f"{GUARD}\n    main(1)", False),
    (f"{GUARD}\n    if examples:\n        main(1)\n    else:\n        main(2)", False),
]


@pytest.mark.parametrize(("run", "again"), RUNS)
@pytest.mark.parametrize("option", ["pass", OPTION], ids=["", "local_rank"])
def test_the_group_is_made_once(run: str, again: bool, option: str) -> None:
    new = fixed("DF204", SCRIPT.format(option=option, run=run))
    made, guard = new.index("init_process_group"), new.index(GUARD)
    assert (made > guard) is again
    head = new.partition("    args = parser.parse_args()\n")[2]
    tells = f"    {LAUNCHED}  # torchrun, accelerate launch\n        args.local_rank = int("
    assert head.startswith(tells) is (again and option == OPTION)


def test_without_a_guard_the_group_is_made_behind_the_imports() -> None:
    new = fixed("DF204", SCRIPT.format(option="pass", run="for seed in range(3):\n    main(seed)"))
    assert f"\n{LAUNCHED}" in new
    assert f"    {LAUNCHED}" not in new


TESTS = """\
def eval(path):
    options = argparse.ArgumentParser().parse_args()
    return test(options)

def main(seed)"""


@pytest.mark.parametrize("run", ["main(1)", "if ready:\n    main(1)"])
def test_a_function_that_nobody_calls_makes_no_group(run: str) -> None:
    text = SCRIPT.replace("def main(seed)", TESTS).format(option="pass", run=run)
    new = fixed(
        "DF204",
        text.replace("        optimizer.step()", "        optimizer.step()\n    model.eval()"),
    )
    assert new.index("def main") < new.index("init_process_group")


GROUP = """\
import torch
def main(seed):
    {make}
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
    {end}
{run}
"""
MAKE = "torch.distributed.init_process_group('gloo', timeout=t)"
END = "torch.distributed.destroy_process_group()"
SEEDS = "for seed in range(3):\n    main(seed)"


@pytest.mark.parametrize(
    ("make", "end", "run", "is_told"),
    [
        (MAKE, "pass", SEEDS, True),
        (MAKE, "pass", "main(1)", False),
        (MAKE, END, SEEDS, False),
        (f"if not torch.distributed.is_initialized():\n        {MAKE}", "pass", SEEDS, False),
    ],
)
def test_a_group_that_a_loop_makes_again_is_told_of(
    make: str, end: str, run: str, is_told: bool
) -> None:
    program = program_of(GROUP.format(make=make, end=end, run=run))
    told = [each.because for each in audit(program) if each.code == "O10" and each.is_violated]
    assert any("makes the process group again" in each for each in told) is is_told
