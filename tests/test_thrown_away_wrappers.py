"""DF301: a wrapper that nothing keeps is bound to the name of its model."""

from __future__ import annotations

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity

SCRIPT = """import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train(args, model, loader, optimizer):
    torch.distributed.init_process_group("nccl")
    if args.local_rank != -1:
        {wrap}
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("wrap", "bound"),
    [
        ("model == DDP(model)", "model = DDP(model)"),
        (
            "DDP(model, device_ids=[args.local_rank])",
            "model = DDP(model, device_ids=[args.local_rank])",
        ),
        ("DDP(module=model)", "model = DDP(module=model)"),
    ],
)
def test_a_wrapper_that_is_thrown_away_is_bound(wrap: str, bound: str) -> None:
    text = SCRIPT.format(wrap=wrap)
    (finding,) = found("DF301", text)
    assert finding.because.startswith("the wrapper is made and thrown away")
    after = fixed("DF301", text)
    assert after == SCRIPT.format(wrap=bound)
    assert found("DF301", after) == []


@pytest.mark.parametrize(
    "wrap", ["model = DDP(model)", "assert isinstance(model, DDP)\n        model = DDP(model)"]
)
def test_a_wrapper_with_a_name_is_left_alone(wrap: str) -> None:
    assert found("DF301", SCRIPT.format(wrap=wrap)) == []


def test_a_wrapper_of_a_model_without_a_name_is_only_told() -> None:
    text = SCRIPT.format(wrap="DDP(models[0])").replace("model(x)", "models[0](x)")
    (finding,) = found("DF301", text)
    assert not finding.edits


@pytest.mark.parametrize("is_met", [True, False])
def test_a_step_with_no_sync_has_a_wrapper_that_is_not_read(is_met: bool) -> None:
    text = SCRIPT.format(wrap="model = instantiate(args.wrapper, model=model)")
    if is_met:
        text = text.replace("loss.backward()", "with model.no_sync():\n            loss.backward()")
    (finding,) = found("DF301", text)
    assert finding.because.startswith("nothing that is read wraps") is is_met
    assert not is_met or (finding.severity is Severity.DEGRADED and not finding.edits)
