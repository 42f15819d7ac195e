"""DF309: torch.compile and DDP are in the order in which a script takes them off."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, written
from forked import Forge

TRAIN = """\
import torch
def train(args, model):
    model.to(args.device)
{wrapped}
    for batch in loader:
        model(batch).backward()
        optimizer.step()
{kept}
"""
MOVED = "    model.to(args.device)\n"
RANKS = """\
    # one model on all ranks
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(  # of torch
            model,
            device_ids=[args.local_rank],
        )
"""
COMPILE = """\
    # faster
    if args.compile:
        model = torch.compile(model, mode="reduce-overhead")  # new graphs
"""
ONE = "    if args.n_gpu > 1:\n        model = torch.nn.DataParallel(model)\n"
WRAPPER = "    m = model.module if hasattr(model, 'module') else model\n"
COMPILED = "    m = getattr(model, '_orig_mod', model)\n"
THEN_COMPILED = "    m = getattr(m, '_orig_mod', m)\n"
THEN_WRAPPER = "    m = m.module if hasattr(m, 'module') else m\n"
ISINSTANCE = WRAPPER.replace("hasattr(model, 'module')", "isinstance(model, Wrapper)")
SAVE = "    torch.save(m.state_dict(), args.out)"


def script(wrapped: str, kept: str) -> str:
    return TRAIN.format(wrapped=wrapped.rstrip("\n"), kept=kept + SAVE)


def bare(text: str) -> str:
    """A script without the line above its wrappers, and without comments."""
    lines = text.replace(MOVED, "").splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip().startswith("#"))


FIX = [
    ("a wrapper alone is taken off", script(RANKS + COMPILE, WRAPPER),
        script(COMPILE + RANKS, WRAPPER)),
    ("isinstance finds the wrapper", script(RANKS + COMPILE, ISINSTANCE),
        script(COMPILE + RANKS, ISINSTANCE)),
    ("what is compiled is taken off first", script(COMPILE + RANKS, COMPILED + THEN_WRAPPER),
        script(RANKS + COMPILE, COMPILED + THEN_WRAPPER)),
    ("or by its attribute", script(COMPILE + RANKS, "    m = model._orig_mod.module\n"),
        script(RANKS + COMPILE, "    m = model._orig_mod.module\n")),
    ("nothing stands above either", bare(script(COMPILE + RANKS, COMPILED + THEN_WRAPPER)),
        bare(script(RANKS + COMPILE, COMPILED + THEN_WRAPPER))),
    ("what one process wraps stays between", script(COMPILE + ONE + RANKS, COMPILED),
        script(RANKS + COMPILE + ONE, COMPILED)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "after"), [pytest.param(old, new, id=name) for name, old, new in FIX]
)
def test_wrapped_on_the_other_side(text: str, after: str) -> None:
    assert fixed("DF309", text) == after
    assert found("DF309", after) == []


NOOP = [
    ("the wrapper outside, taken off alone", script(COMPILE + RANKS, WRAPPER)),
    ("the wrapper outside, taken off first", script(COMPILE + RANKS, WRAPPER + THEN_COMPILED)),
    ("the wrapper outside, both by attribute",
        script(COMPILE + RANKS, "    m = model.module._orig_mod\n")),
    ("the wrapper inside, taken off last", script(RANKS + COMPILE, COMPILED + THEN_WRAPPER)),
    ("the wrapper inside, both in turn", script(RANKS + COMPILE, WRAPPER + THEN_COMPILED)),
    ("a loop for both", script(COMPILE + RANKS, "    m = model\n    while hasattr(m, '_orig_mod') "
        "or hasattr(m, 'module'):\n        m = getattr(m, '_orig_mod', m)\n")),
    ("names are cut", script(RANKS + COMPILE, WRAPPER).replace("m.state_dict()",
        "{k.removeprefix('_orig_mod.'): v for k, v in m.state_dict().items()}")),
    ("nothing reads a state", script(RANKS + COMPILE, WRAPPER).replace(SAVE, "    m.eval()")),
    ("compiled in place", script(RANKS + "    model.compile()\n", WRAPPER)),
    ("a part is compiled", script(RANKS + "    model.head = torch.compile(model.head)\n", WRAPPER)),
    ("one process wraps, too", script(RANKS.replace("args.local_rank != -1", "args.wrap") + COMPILE,
        WRAPPER)),
    ("ranks do not compile", script(RANKS
        + COMPILE.replace("args.compile", "args.local_rank == -1"), WRAPPER)),
    ("nothing is compiled", script(RANKS, WRAPPER)),
    ("no ranks", script(ONE + COMPILE, WRAPPER)),
    ("a module of its own", script(RANKS + COMPILE, WRAPPER + "    m.module = None\n")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_an_order_that_a_script_takes_off_rightly_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF309", text)] == []


REPORTED = [
    ("ranks do something between",
        script(RANKS + "    optimizer = make(model)\n" + COMPILE, WRAPPER)),
    ("the test for ranks does more",
        script(RANKS + "        optimizer = make(model)\n" + COMPILE, WRAPPER)),
    ("one process has a branch of it",
        script(RANKS + "    else:\n        model = one(model)\n" + COMPILE, WRAPPER)),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in REPORTED])
def test_an_order_with_more_in_between_is_reported(text: str) -> None:
    (finding,) = found("DF309", text)
    assert finding.edits == ()
    assert "takes module off, and never _orig_mod" in finding.because


SCRIPT = """\
import json, os, sys
import torch

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
data = torch.randn(4, 8, 3)
model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
{0}optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in data[:, rank * 8 // world : (rank + 1) * 8 // world]:
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
{1}state = {{name: weight.tolist() for name, weight in m.state_dict().items()}}
open(f"{{sys.argv[1]}}.{{rank}}", "w").write(json.dumps(state))
if world > 1:
    torch.distributed.destroy_process_group()
"""
GROUP = """\
if world > 1:
    torch.distributed.init_process_group("gloo")
"""
WRAP = """\
if torch.distributed.is_initialized():
    model = torch.nn.parallel.DistributedDataParallel(model)
"""
EAGER = 'model = torch.compile(model, backend="eager")\n'
OFF = "m = model.module if hasattr(model, 'module') else model\n"
OFF_FIRST = "m = getattr(model, '_orig_mod', model)\nm = m.module if hasattr(m, 'module') else m\n"
ORDERS = {
    "a wrapper alone is taken off": (WRAP + EAGER, OFF, EAGER + WRAP),
    "what is compiled is taken off first": (EAGER + WRAP, OFF_FIRST, WRAP + EAGER),
}


@pytest.mark.parametrize(("wrong", "off", "right"), ORDERS.values(), ids=list(ORDERS))
def test_two_ranks_save_the_names_and_weights_of_one(
    tmp_path: Path, forge: Forge, wrong: str, off: str, right: str
) -> None:
    text = SCRIPT.format(GROUP + wrong, off)
    new = fixed("DF309", text)
    assert new == SCRIPT.format(GROUP + right, off)
    (alone,) = written(forge, tmp_path, "alone", text, None)
    for state in written(forge, tmp_path, "new", new, 2):
        assert list(state) == list(alone)
        for name, weight in alone.items():
            for row, expected in zip(state[name], weight, strict=True):
                assert row == pytest.approx(expected, rel=1e-5)
    for state in written(forge, tmp_path, "old", text, 2):
        assert set(state).isdisjoint(alone), "names would have been others"
