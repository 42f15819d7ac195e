"""An import of a patch stands above the first statement that reads its name when it runs."""

from __future__ import annotations

import pytest
from cases import fixed

SCRIPT = """\
import torch
from transformers import AdamW, BertConfig

{before}
from transformers import get_linear_schedule_with_warmup
optimizer = AdamW([p], lr=0.1)
"""
IMPORT = "from torch.optim import AdamW\n"


@pytest.mark.parametrize(
    ("before", "above"),
    [
        ("optimizer = AdamW([p], lr=0.01)", "\noptimizer = AdamW([p], lr=0.01"),
        ("def make():\n    return AdamW([p], lr=0.01)", "optimizer = AdamW([p], lr=0.1"),
    ],
)
def test_an_import_comes_before_its_name_is_read(before: str, above: str) -> None:
    text = fixed("DF901", SCRIPT.format(before=before))
    assert f"{IMPORT}{above}" in text
    assert text.count(IMPORT) == 1
