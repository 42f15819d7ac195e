"""DF204: a script for one process says so, and nobody else is told."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{imports}

def main():
    model = torch.nn.Linear(2, 2)
    {setup}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in DataLoader(data):
        model(batch).sum().backward()
        {step}

{run}
"""


def script(
    imports: str = "import os",
    setup: str = "model.cuda()",
    step: str = "optimizer.step()",
    run: str = 'if __name__ == "__main__":\n    main()',
) -> str:
    return SCRIPT.format(imports=imports, setup=setup, step=step, run=run)


def test_a_script_for_one_process_says_so() -> None:
    (finding,) = found("DF204", script())
    assert finding.because == "under a launcher each rank trains a model alone"
    assert not finding.edits


@pytest.mark.parametrize(
    "text",
    [
        script(setup="model = torch.nn.DataParallel(model)"),
        script(setup='torch.distributed.init_process_group("gloo")'),
        script(setup="model = torch.nn.parallel.DistributedDataParallel(model)"),
        script("from accelerate import Accelerator", "model = Accelerator().prepare(model)"),
        script("import deepspeed", "model, *_ = deepspeed.initialize(model=model)"),
        script(step="torch.distributed.all_reduce(model.weight.grad); optimizer.step()"),
        script(step="image = image + image.grad.sign()"),  # an attack trains nothing
        script(run="# a library's module: its callers decide"),
    ],
)
def test_who_knows_of_ranks_or_trains_nothing_is_left_alone(text: str) -> None:
    assert found("DF204", text) == []
