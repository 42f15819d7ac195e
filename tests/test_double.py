"""Runs in fp64, by which verify tells rounding from other arithmetic."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.verifier import verify
from ddpfix.patcher.engine.patch import patch
from forked import Forge
from sabotage import write

SCRIPT = """
import json, sys
import numpy, torch

torch.manual_seed(0)
read = torch.from_numpy(numpy.random.RandomState(0).rand(8, 1, 6, 6).astype("float32"))
target = torch.arange(8) % 3
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(64, 3),
)
model.load_state_dict({name: value.float() for name, value in model.state_dict().items()})
optimizer = torch.optim.AdamW([{"params": model.parameters()}], lr=0.1)
losses = []
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(read).float(), target)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
kept = torch.zeros(2, dtype=torch.float32)
kept[0] = model[4].bias[0]
single = torch.FloatTensor([1.0, 2.0])
single[1] = model[4].bias[1]
tensors = [loss, kept, *model.parameters(), *model[1].buffers(), single + loss]
types = [str(each.dtype) for each in tensors if each.is_floating_point()]
json.dump([losses, types], open(sys.argv[1], "w"))
"""


def computed(folder: Path, *options: str) -> tuple[list[float], set[str]]:
    """A script's losses, and the types that it has computed in."""
    script, out = folder / "train.py", folder / "found.json"
    script.write_text(SCRIPT)
    trace = [sys.executable, "-m", "ddpfix.launchers.trace", "--out", str(folder), *options]
    subprocess.run([*trace, str(script), str(out)], check=True)
    losses, types = json.loads(out.read_text())
    return losses, set(types)


def test_what_a_script_makes_reads_and_trains_is_fp64(tmp_path: Path) -> None:
    losses, types = computed(tmp_path, "--double")
    assert types == {"torch.float64"}
    assert any(loss != float(f"{loss:.9g}") for loss in losses), "more digits than fp32 has"
    assert computed(tmp_path)[1] == {"torch.float32"}


@pytest.mark.parametrize(
    ("factor", "status"),
    [
        pytest.param("1", "holds", id="rounding"),
        pytest.param("(1 + 1e-5 * ranks)", "broken", id="a factor"),
    ],
)
def test_a_difference_that_fp64_does_not_have_is_rounding(
    tmp_path: Path, forge: Forge, factor: str, status: str
) -> None:
    script, arguments = write(tmp_path)
    patch(script).write()
    backward = "            loss.backward()\n"
    rounded = (
        "            together = torch.distributed\n"
        "            ranks = together.get_world_size() if together.is_initialized() else 1\n"
        f"            loss = (loss * {factor} + 100) - 100\n"
    )
    text = script.read_text()
    assert text.count(backward) == 1
    script.write_text(text.replace(backward, rounded + backward))
    request = VerifyRequest(script, arguments, as_is=True, accumulations=(1,))
    row = verify(request, start=forge.trace).row("C3")
    assert row.status == status, row.evidence
    assert ("by rounding: in fp64 the same runs" in row.evidence) == (status == "holds")
