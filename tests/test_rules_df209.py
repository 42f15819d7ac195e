"""DF209: Every rank spreads its model over all cards."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

SCRIPT = """
import os
import torch
from transformers import AutoModelForCausalLM
{group}
def load(name):
    return AutoModelForCausalLM.from_pretrained(name, device_map={elsewhere})

teacher = AutoModelForCausalLM.from_pretrained("big", device_map="auto").eval()
model = AutoModelForCausalLM.from_pretrained("small", device_map={here})
{then}
optimizer = torch.optim.AdamW(model.parameters())
for x in loader:
    with torch.no_grad():
        y = teacher(x).logits
    (model(x).logits - y).square().mean().backward()
    optimizer.step()
"""
GROUP = "torch.distributed.init_process_group('nccl')"
OWN = "{'': int(os.environ['LOCAL_RANK'])} if 'LOCAL_RANK' in os.environ"
OWN += " and torch.cuda.is_available() else "


def script(here: str = "None", elsewhere: str = "None", then: str = "", group: str = GROUP) -> str:
    return SCRIPT.format(here=here, elsewhere=elsewhere, then=then, group=group)


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("a frozen model", script()),
    ("one process", script("'auto'", group="")),
    ("a card of its own", script("{'': int(os.environ['LOCAL_RANK'])}")),
    ("a table of layers", script("cards")),
    ("another number of cards", script("'auto' if args.n_gpu > 1 else None")),
    ("a library makes the ranks", script("'auto'", group=GROUP
        + "\nfrom accelerate import Accelerator\naccelerator = Accelerator()")),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    ("the model that is trained", script("'auto'"), script(f"{OWN}'auto'")),
    ("another word for all cards", script('"balanced"'), script(f'{OWN}"balanced"')),
    (
        "where there is a card",
        script("'auto' if torch.cuda.is_available() else None"),
        script(f"{OWN}('auto' if torch.cuda.is_available() else None)"),
    ),
    (
        "a function returns it",
        script(elsewhere="'auto'", then="model = load('small')"),
        script(
            elsewhere=f"{OWN}'auto'",
            then="model = load('small')",
        ),
    ),
]


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF209 leaves alone"
    assert FIX, "write down a script that DF209 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF209", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF209", before)
    assert fixed("DF209", before) == textwrap.dedent(after).lstrip("\n")
    assert found("DF209", after) == []
