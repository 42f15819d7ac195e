"""Verify says by the gradients that arrived whether find_unused_parameters is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.launchers.running.runner import RunOutcome
from ddpfix.launchers.trace.events import WrappedGradients
from ddpfix.launchers.verify.evidence import RunTrace
from ddpfix.launchers.verify.unused_parameters import judge_unused_parameters
from forked import Forge, Job, Run

SCRIPT = """
import os
import sys

import torch
from torch import distributed, nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)
        self.pooler = nn.Linear(4, 2)
        self.frozen = nn.Linear(4, 2)
        self.frozen.requires_grad_(False)

    def forward(self, x, step):
        hidden = self.body(x)
        out = self.head(hidden)
        USES
        return out


distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(Model(), find_unused_parameters=FIND)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, 4), step).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    model(torch.ones(2, 4), 0)
torch.save(model.module, os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{rank}.pt"))
distributed.destroy_process_group()
"""
ALL = "out = out + self.pooler(hidden)"
NEVER = "pass"
ONE_RANK = "out = out + self.pooler(hidden) if distributed.get_rank() == 0 else out"
ONE_STEP = "out = out + self.pooler(hidden) if step != 1 else out"


def train(forge: Forge, folder: Path, uses: str, find: bool = True) -> Run:
    script = folder / "run.py"
    script.write_text(SCRIPT.replace("USES", uses).replace("FIND", str(find)))
    (run,) = forge.run([Job(folder / "run", script, (), world=2)])
    return run


def group(run: Run, name: str = "x2") -> RunTrace:
    outcome = RunOutcome(max(run.statuses), "", 1.0, 0)
    return RunTrace(name, 2, 1, outcome, run.ranks, *[run.folder] * 3)


@pytest.mark.parametrize(
    ("uses", "without"),
    [
        (ALL, [[], []]),
        (NEVER, [["pooler.bias", "pooler.weight"]] * 2),
        (ONE_RANK, [[], ["pooler.bias", "pooler.weight"]]),
        (ONE_STEP, [["pooler.bias", "pooler.weight"]] * 2),
    ],
)
def test_each_rank_records_the_parameters_that_a_backward_left_out(
    forge: Forge, tmp_path: Path, uses: str, without: list[list[str]]
) -> None:
    run = train(forge, tmp_path, uses)
    assert run.statuses == (0, 0), run.log
    seen = [trace.events_of(WrappedGradients) for trace in run.ranks]
    assert [(e.module_class, e.find_unused, e.parameters, e.backwards) for (e,) in seen] == [
        ("Model", True, 6, 3)
    ] * 2
    assert [event.without for (event,) in seen] == without
    assert "hooks" not in run.log  # torch's warning of what is not saved
    (sentence,) = judge_unused_parameters([group(run)])
    if uses == ALL:
        assert sentence == (
            "every parameter of Model had a gradient in every step on every rank of x2 "
            "(6 backward passes): find_unused_parameters=False would do, without a search of "
            "the graph in each step"
        )
    else:
        assert sentence == (
            "find_unused_parameters=True is needed: in x2, no gradient came to pooler.bias, "
            "pooler.weight of Model in some step on some rank"
        )


@pytest.mark.parametrize("uses", [ALL, NEVER, ONE_STEP])
def test_the_sentence_is_true_of_a_run_without_the_search(
    forge: Forge, tmp_path: Path, uses: str
) -> None:
    run = train(forge, tmp_path, uses, find=False)
    assert (run.statuses == (0, 0)) == (uses == ALL), run.log
    assert judge_unused_parameters([group(run)]) == []


def test_a_backward_without_synchronisation_needs_no_gradient_of_each(
    forge: Forge, tmp_path: Path
) -> None:
    text = SCRIPT.replace("USES", ONE_STEP).replace("FIND", "True")
    call = "model(torch.ones(2, 4), step).sum().backward()"
    quiet = f"with (model.no_sync() if step == 1 else contextlib.nullcontext()):\n        {call}"
    script = tmp_path / "run.py"
    script.write_text("import contextlib\n" + text.replace(call, quiet))
    (run,) = forge.run([Job(tmp_path / "run", script, (), world=2)])
    assert run.statuses == (0, 0), run.log
    (event,) = run.ranks[1].events_of(WrappedGradients)
    assert (event.backwards, event.without) == (2, [])


def test_nothing_is_said_of_a_run_that_failed_or_of_one_process(
    forge: Forge, tmp_path: Path
) -> None:
    run = train(forge, tmp_path, NEVER)
    alone = RunTrace("x1", 1, 1, RunOutcome(0, "", 1.0, 0), run.ranks, *[run.folder] * 3)
    died = RunTrace("x2", 2, 1, RunOutcome(1, "", 1.0, 0), run.ranks, *[run.folder] * 3)
    assert judge_unused_parameters([alone, died]) == []
