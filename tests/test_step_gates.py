"""DF703: what happens every n optimizer steps happens once, with accumulation too."""

from __future__ import annotations

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity

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


CLIPPED = """\
import torch
loader = torch.utils.data.DataLoader(data, batch_size=4)
for step, batch in enumerate(loader):
    last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
    (model(batch) / args.accumulation).backward()
    {clip}
    if last_micro_step:
        optimizer.step()
        {inside}
    {behind}
"""
CLIP = "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


@pytest.mark.parametrize(
    ("inside", "behind", "clips_once"),
    [
        ("pass", "print(norm)", False),
        ("print(norm)", "pass", True),
        ("pass", "if last_micro_step:\n        print(norm)", True),
        ("pass", "norm = 1.0", True),
    ],
)
def test_a_norm_that_each_micro_batch_reads_is_computed_for_each(
    inside: str, behind: str, clips_once: bool
) -> None:
    text = fixed("DF703", CLIPPED.format(clip=CLIP, inside=inside, behind=behind))
    assert (f"    if last_micro_step:\n        {CLIP}\n" in text) is clips_once


def test_a_norm_that_is_bound_above_may_be_computed_once_a_step() -> None:
    text = fixed(
        "DF703",
        CLIPPED.format(clip=f"norm = 0.0\n    {CLIP}", inside="pass", behind="print(norm)"),
    )
    assert f"    if last_micro_step:\n        {CLIP}\n" in text


CHOSEN = """\
import torch
loader = torch.utils.data.DataLoader(data, batch_size=4)
for step, batch in enumerate(loader):
    loss = model(batch)
    if config.accumulation > 1:
        loss = loss / config.accumulation
        loss.backward()
        if (step + 1) % config.accumulation == 0:
            optimizer.step()
    else:
        loss.backward()
        optimizer.step()
"""


def test_steps_that_wait_where_a_setting_says_so_alone_are_only_reported() -> None:
    (finding,) = found("DF703", CHOSEN)
    assert "line 5 asks first" in finding.because
    assert not finding.edits


@pytest.mark.parametrize(("options", "shared"), [("batch_size=4", True), ("**options", False)])
def test_losses_are_weighed_only_where_torch_makes_the_batches(options: str, shared: bool) -> None:
    text = CLIPPED.format(clip="pass", inside="pass", behind="pass")
    assert ("loss_share" in fixed("DF703", text.replace("batch_size=4", options))) is shared


def test_a_gate_whose_names_are_read_behind_it_is_told() -> None:
    text = patched("if global_step % 10 == 0:\n        seen = global_step")
    assert "    if global_step % 10 == 0 and last_micro_step:\n" in text
    text = patched("print(seen)\n    if global_step % 10 == 0:\n        seen = global_step")
    assert "    if global_step % 10 == 0:\n" in text
    assert [finding.edits for finding in found("DF703", text)] == [()]


ROUNDS = """\
import torch
loader = torch.utils.data.DataLoader(data, batch_size=4)
for i, batch in enumerate(loader):
    loss = model(batch)
    if i % n == 0:
        optimizer.zero_grad()
        loss.backward()
        if n == 1:
            optimizer.step()
    elif i % n == n - 1:
        loss.backward()
        optimizer.step()
    else:
        loss.backward()
"""


def test_a_test_that_begins_a_round_of_micro_batches_is_told() -> None:
    (finding,) = found("DF703", ROUNDS)
    assert finding.because == "line 12 steps under another test"
    assert finding.severity is Severity.NOTE
    assert finding.edits == ()
