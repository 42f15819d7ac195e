"""DF509: A rank goes on after an error of its own."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

SCRIPT = """
import torch
{wrap}
for batch in loader:
    {before}
    try:
        loss = model(batch).mean()
        {back}
        optimizer.step()
    except {kind} as error:
        {handler}
"""
PARTS = {
    "wrap": "model = torch.nn.parallel.DistributedDataParallel(net)",
    "before": "pass",
    "back": "loss.backward()",
    "kind": "RuntimeError",
    "handler": "print(error)",
}
RAISE = """if torch.distributed.is_initialized():
            raise  # the other ranks wait for this one
        """
CHOICE = "if 'memory' in str(error):\n            {}\n        else:\n            raise"


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


AROUND = """
import torch, traceback
model = torch.nn.parallel.DistributedDataParallel(net)
def train():
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
def main():
    try:
        train()
    except {kind}:
        {handler}
main()
"""


def around(handler: str, kind: str = "Exception") -> str:
    return AROUND.format(handler=handler, kind=kind)


END = "def end():\n    torch.distributed.destroy_process_group()\n"

# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("one process", script(wrap="model = net")),
    ("raised in the end", script(handler="print(error)\n        raise")),
    ("raised on both ways", script(handler=CHOICE.format("raise Full(error)"))),
    ("an error of the data, the same on all", script(kind="(KeyError, ValueError)")),
    ("the end of a training by hand", around("save(model)", "KeyboardInterrupt")),
    ("a training that ends with a status", around("traceback.print_exc()\n        os._exit(1)")),
    ("a try around something else", script(before="loss.backward()", back="pass")),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    ("swallowed", script(), script(handler=f"{RAISE}print(error)")),
    (
        "out of memory is swallowed",
        script(handler=CHOICE.format("continue")),
        script(handler=RAISE + CHOICE.format("continue")),
    ),
    (
        "an error that ends the training",
        around("traceback.print_exc()"),
        around(f"traceback.print_exc()\n        {RAISE.rstrip()}"),
    ),
    (
        "an error at which a rank leaves the group, in a function",
        around("traceback.print_exc()\n        end()\n        print('end')") + END,
        around(f"traceback.print_exc()\n        {RAISE}end()\n        print('end')") + END,
    ),
    (
        "an error with which a function returns",
        around("save(model)\n        return"),
        around(f"save(model)\n        {RAISE}return"),
    ),
    (
        "one kind of several",
        script(kind="(KeyError, torch.cuda.OutOfMemoryError)"),
        script(kind="(KeyError, torch.cuda.OutOfMemoryError)", handler=f"{RAISE}print(error)"),
    ),
]


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF509 leaves alone"
    assert FIX, "write down a script that DF509 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF509", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF509", before)
    assert fixed("DF509", before) == textwrap.dedent(after).lstrip("\n")
    assert found("DF509", after) == []
