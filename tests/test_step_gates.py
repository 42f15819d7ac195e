"""DF703: what happens every n optimizer steps happens once, with accumulation too."""

from __future__ import annotations

import pytest
from cases import fixed

SCRIPT = """\
import torch
loader = torch.utils.data.DataLoader(data, batch_size=4)
for step, batch in enumerate(loader):
    loss = model(batch) / args.accumulation
    loss.backward()
    stepped = False
    if (step + 1) % args.accumulation == 0:
        optimizer.step()
        stepped = True
        global_step += 1
        {inside}
    {gate}
        save(model)
"""


def patched(gate: str, inside: str = "pass") -> str:
    once = fixed("DF703", SCRIPT.format(gate=gate, inside=inside))
    return fixed("DF703", fixed("DF703", once))


@pytest.mark.parametrize(
    ("gate", "after"),
    [
        ("if global_step % 10 == 0:", "if global_step % 10 == 0 and last_micro_step:"),
        (
            "if args.every > 0 and global_step % args.every == 0:",
            "if args.every > 0 and global_step % args.every == 0 and last_micro_step:",
        ),
        (
            "if global_step % 10 == 0 or args.often:",
            "if (global_step % 10 == 0 or args.often) and last_micro_step:",
        ),
    ],
)
def test_a_gate_beside_the_step_asks_for_the_last_micro_batch(gate: str, after: str) -> None:
    text = patched(gate)
    assert f"    {after}\n        save(model)\n" in text
    assert fixed("DF703", text) == text


@pytest.mark.parametrize(
    "gate",
    ["if stepped and global_step % 10 == 0:", "if step % 10 == 0:", "if global_step > 10:"],
)
def test_another_gate_stays(gate: str) -> None:
    assert f"    {gate}\n" in patched(gate)


def test_a_gate_within_the_step_stays() -> None:
    assert "if global_step % 5 == 0: save(model)\n" in patched(
        "if True:", "if global_step % 5 == 0: save(model)"
    )
