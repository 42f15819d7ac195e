"""DF706: a loss read before it is one number, and a model left in eval mode."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from cases import changes, fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.findings import Safety, Severity

LOSS = """\
def train(model, loader, several):
    for batch in loader:
        loss = model(batch)
        {first}
        if several:
            loss = loss.mean()
        {second}
        loss.backward()
    return seen
"""
MODES = """\
from torch.utils.data import DataLoader

def evaluate(model, data):
    model.eval()
    for batch in DataLoader(data):
        model(batch)
    {restored}

def train(model, data):
    loader = DataLoader(data)
    {before}
    for epoch in range(2):
        {head}
        for step, batch in enumerate(loader):
            {inside}
            loss = model(batch)
            loss.backward()
            if step % 10 == 9:
                evaluate(model, data)
                {behind}
        {between}
        {last}
"""
PARTS = dict.fromkeys(
    ("restored", "before", "head", "inside", "behind", "between", "last"), "pass"
)  # fmt: skip


def modes(**parts: str) -> str:
    return MODES.format(**{**PARTS, **parts})


NOOP = [
    ("read once it is one number", LOSS.format(first="pass", second="seen = loss.item()")),
    ("a loss that is no plain name", LOSS.format(
        first="seen = out.l.item()", second="pass").replace("loss = loss", "out.l = out.l")),
    ("training mode in every step", modes(inside="model.train()")),
    ("training mode behind the evaluation", modes(behind="model.train()")),
    ("the evaluation puts it back", modes(restored="model.train()")),
    ("nothing is trained behind it", modes(behind="return")),
    ("between epochs, each of which begins with it", modes(
        head="model.train()", between="evaluate(model, data)").replace(
        "                evaluate(model, data)\n", "")),
    ("behind the training", modes(inside="model.train()") + "    evaluate(model, data)\n"),
    ("another model", modes(behind="pass").replace("evaluate(model, d", "evaluate(teacher, d")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_a_loop_that_reads_and_trains_rightly_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF706", text)] == []


def test_a_loss_is_joined_before_it_is_read() -> None:
    import torch

    text = LOSS.format(first="seen = loss.item()", second="pass")
    new = fixed("DF706", text)
    assert new == text.replace("seen = loss.item()", "seen = loss.mean().item()") != text
    assert found("DF706", new) == []
    functions: list[dict[str, Any]] = [{}, {}]
    for code, names in zip((text, new), functions, strict=True):
        exec(code, names)
    old, joined = (names["train"] for names in functions)
    weight = torch.tensor([0.1, 0.3], requires_grad=True)
    with pytest.raises(RuntimeError):
        old(lambda batch: weight * batch, [1.0], several=True)
    assert joined(lambda batch: weight * batch, [1.0], several=True) == pytest.approx(0.2)
    one = torch.tensor(0.1, requires_grad=True)
    for batch in (1 / 3, 7.7):
        assert joined(lambda x: one * x, [batch], several=False) == old(
            lambda x: one * x, [batch], several=False
        )


WITHIN_EPOCHS = """
        @@ -19,2 +19,3 @@
                         evaluate(model, data)
        +                model.train()
                         pass
        """
LEFT_IN_EVAL_MODE = [
    ("before all epochs only", modes(before="model.train()"), WITHIN_EPOCHS),
    ("by a function that goes over two sets", modes(
        restored="for batch in DataLoader(data.second): model(batch)"), WITHIN_EPOCHS),
    ("at the head of an epoch only", modes(head="model.train()"), WITHIN_EPOCHS),
    ("between epochs", modes(before="model.train()", between="evaluate(model, data)"), """
        @@ -19,4 +19,6 @@
                         evaluate(model, data)
        +                model.train()
                         pass
                 evaluate(model, data)
        +        model.train()
                 pass
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "diff"), [pytest.param(t, d, id=name) for name, t, d in LEFT_IN_EVAL_MODE]
)
def test_a_model_left_in_eval_mode_is_noted_and_put_back_on_demand(text: str, diff: str) -> None:
    findings = found("DF706", text)
    assert {(f.severity, f.safety) for f in findings} == {(Severity.NOTE, Safety.UNSAFE)}
    assert len(findings) == diff.count("+ ")
    new = fixed("DF706", text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert found("DF706", new) == []


EITHER = """\
for step, batch in enumerate(loader):
    loss = model(batch)
    if args.accumulation > 1:
        (loss / args.accumulation).backward()
        if (step + 1) % args.accumulation == 0:
            optimizer.step()
    else:
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("text", "accumulates"),
    [
        pytest.param(EITHER, True, id="one branch of a test accumulates"),
        pytest.param(EITHER + "    optimizer.step()\n", False, id="it steps with every batch"),
        pytest.param(EITHER.replace("optimizer", "lr_scheduler"), False, id="a schedule"),
    ],
)
def test_a_loop_accumulates_where_its_optimizer_waits(text: str, accumulates: bool) -> None:
    (loop,) = Program(module(text)).train_loops
    assert (loop.accumulation is not None) is accumulates


@pytest.mark.parametrize(
    ("other", "horizon", "told"),
    [
        ("batch_size=args.size", "args.epochs * len(whole)", True),
        ("batch_size=args.size", "args.epochs * len(whole) // args.accumulation", False),
        ("batch_size=args.size", "int(args.epochs * len(whole))", True),
        ("batch_size=args.size", "steps_of(len(whole), args)", False),
        ("batch_size=1", "args.epochs * len(whole)", False),
    ],
    ids=["of the same batches", "divided", "rounded", "a function's own", "of other batches"],
)
def test_a_horizon_of_a_loader_of_all_data_counts_its_micro_batches(
    other: str, horizon: str, told: bool
) -> None:
    text = f"""\
import torch
from torch.utils.data import DataLoader
from transformers import get_linear_schedule_with_warmup

def train(args, model, optimizer, data):
    loader = DataLoader(data[:9], batch_size=args.size)
    whole = DataLoader(data, {other})
    args.max_steps = {horizon}
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, args.max_steps)
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            loss = model(batch).mean() / args.accumulation
            loss.backward()
            if (step + 1) % args.accumulation == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
"""
    because = "args.max_steps counts micro-batches of whole: divide it by args.accumulation"
    assert [each.because for each in found("DF702", text)] == [because] * told
