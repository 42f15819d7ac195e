"""Exits from training by what rank 0 alone counts (DF506, O6)."""

from __future__ import annotations

import pytest
from audited import audited
from cases import fixed, found

SCRIPT = """\
import torch
import torch.distributed as dist

def train(args, model, loader, data, optimizer):
    model = torch.nn.parallel.DistributedDataParallel(model)
    best, bad, stop = 0, 0, False
    for epoch in range(args.epochs):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
        score = whole(model, data)
{}
    return model

def main(args):
    dist.init_process_group("gloo")
    train(args, *things())

if __name__ == "__main__":
    main(*options())
"""
ELSE = """\
if score > best and dist.get_rank() == 0:
    best, bad = score, 0
    torch.save(model.module.state_dict(), "best.pt")
else:
    bad += 1
    if bad > args.patience:
        return
"""
BEHIND = """\
bad += 1
if dist.get_rank() == 0:
    if score > best:
        best, bad = score, 0
if bad > args.patience:
    break
"""
TOLD = """\
if dist.get_rank() == 0:
    stop = score < best
flag = torch.tensor(int(stop))
dist.broadcast(flag, 0)
stop = flag.item()
if stop:
    break
"""
TOLD_AT_ONCE = """\
if dist.get_rank() == 0:
    stop = score < best
stop = flag_of_all()
if stop:
    break
"""
OF_RANK_0 = """\
if dist.get_rank() == 0:
    bad += 1
    print(bad)
if epoch > args.patience:
    break
"""
SIDES = {
    "else": (ELSE, True),
    "behind": (BEHIND, True),
    "told": (TOLD, False),
    "told at once": (TOLD_AT_ONCE, False),
    "of rank 0": (OF_RANK_0, False),
}


def script(lines: str) -> str:
    return SCRIPT.replace("{}", "".join(f"        {line}\n" for line in lines.splitlines()))


@pytest.mark.parametrize(("lines", "is_told"), SIDES.values(), ids=SIDES)
def test_ranks_leave_by_what_all_of_them_count(lines: str, is_told: bool) -> None:
    text = script(lines)
    told = [each for each in found("DF506", text) if "counted on rank 0 alone" in each.because]
    assert bool(told) is is_told
    violated = {
        line for code, answer, line in audited(text) if (code, answer) == ("O6", "violated")
    }
    assert bool(violated) is is_told
    after = fixed("DF506", text)
    assert (after != text) is is_told
    assert found("DF506", after) == []


def test_a_gate_of_the_rank_is_taken_away() -> None:
    assert "        if score > best:\n            best, bad = score, 0\n" in fixed(
        "DF506", script(ELSE)
    )
    assert "        bad += 1\n        if score > best:\n" in fixed("DF506", script(BEHIND))


IN_CALLER = """\
import torch
import torch.distributed as dist

def train(model, loader, optimizer):
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()

def main(args):
    dist.init_process_group("gloo")
    model, loader, data, optimizer = things()
    model = torch.nn.parallel.DistributedDataParallel(model)
    best, bad = 0, 0
    for epoch in range(args.epochs):
        train(model, loader, optimizer)
        score = whole(model, data)
        bad += 1
        if args.local_rank in [-1, 0] and score > best:
            best, bad = score, 0
        if bad > args.patience:
            break

if __name__ == "__main__":
    main(*options())
"""


def test_epochs_are_left_in_the_function_that_calls_the_training() -> None:
    (one,) = found("DF506", IN_CALLER)
    assert one.because == "bad is counted on rank 0 alone, in line 18"
    assert "        if score > best:\n" in fixed("DF506", IN_CALLER)
