"""DF901, DF902 and DF905: what today's transformers and tree_sitter no longer have."""

from __future__ import annotations

import importlib
import textwrap
from typing import Any

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity
from ddpfix.patcher.rules import df901_names_gone_from_transformers as df901
from test_rules import added_and_removed

NOOP = [
    ("DF901", "tried, with another way", """
        try:
            from transformers import AdamW
        except ImportError:
            from torch.optim import AdamW
        """),
    ("DF901", "a test of the version", """
        if version < 5:
            from transformers import AutoModelWithLMHead
        """),
    ("DF901", "modules that stayed", """
        from transformers.modeling_utils import PreTrainedModel
        from transformers.tokenization_utils import PreTrainedTokenizer
        from transformers.file_utils import WEIGHTS_NAME
        from transformers.models.roberta.modeling_roberta import RobertaModel
        """),
    ("DF901", "a module of the script's own", "from modeling_bert import BertLayerNorm"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in NOOP]
)
def test_left_alone(code: str, text: str) -> None:
    assert [finding.because for finding in found(code, text)] == []


FIX = [
    ("DF901", "two names side by side and one apart", """
        from transformers import (BertModel, AdamW, TruncationStrategy,
                                  BertConfig, PaddingStrategy)
        """, [
        "-from transformers import (BertModel, AdamW, TruncationStrategy,",
        "-BertConfig, PaddingStrategy)",
        "+from transformers import (BertModel, BertConfig)",
        "+from torch.optim import AdamW",
        "+from transformers.tokenization_utils_base import TruncationStrategy",
        "+from transformers.utils import PaddingStrategy"]),
    ("DF901", "a layer norm under its old name",
        "import torch\nfrom transformers.modeling_bert import BertLayerNorm", [
        "-from transformers.modeling_bert import BertLayerNorm",
        "+from torch.nn import LayerNorm as BertLayerNorm"]),
    ("DF901", "one model's module",
        "from transformers.modeling_roberta import RobertaLMHead as H", [
        "-from transformers.modeling_roberta import RobertaLMHead as H",
        "+from transformers.models.roberta.modeling_roberta import RobertaLMHead as H"]),
    ("DF901", "a class asked of the package",
        "import torch\nimport transformers\nopt = transformers.AdamW(p, lr=1)", [
        "-opt = transformers.AdamW(p, lr=1)",
        "+opt = torch.optim.AdamW(p, lr=1, eps=1e-6, weight_decay=0.0)"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "diff"), [pytest.param(c, t, d, id=f"{c} {name}") for c, name, t, d in FIX]
)
def test_repaired(code: str, text: str, diff: list[str]) -> None:
    text = textwrap.dedent(text).lstrip("\n")
    new = fixed(code, text)
    assert sorted(added_and_removed(text, new)) == sorted(diff)
    assert [f for f in found(code, new) if f.edits] == []


REPORTED = [
    ("DF901", "a choice by the checkpoint", "E",
        "from transformers import AutoModelWithLMHead, AdamW"),
    ("DF901", "a list of names on the hub", "E",
        "from transformers.modeling_bert import BERT_PRETRAINED_MODEL_ARCHIVE_LIST"),
    ("DF901", "only where a function is called", "W", """
        def glue():
            from transformers import glue_processors
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "severity", "text"),
    [pytest.param(c, s, t, id=f"{c} {name}") for c, name, s, t in REPORTED],
)
def test_reported_and_not_touched(code: str, severity: str, text: str) -> None:
    findings = found(code, text)
    assert [finding.severity for finding in findings] == [Severity(severity)]
    assert not any(finding.edits for finding in findings)


def moved() -> list[tuple[str, str]]:
    """Each name of DF901's tables, as it was imported and as it is today."""
    flat = [
        f"transformers.{kind}_{model}.{df901.PREFIXES[model]}{name}"
        for model, names in df901.HELD.items()
        for name in names.split()
        for kind in [
            "configuration" if name == "Config"
            else "tokenization" if name.startswith("Tokenizer")
            else "modeling"
        ]
    ]  # fmt: skip
    return [(name, df901.today(name)) for name in (*df901.OLD_ADAMW, *df901.MOVED, *flat)]


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(old, new, id=old) for old, new in sorted(moved())]
)
def test_the_new_place_has_it_and_the_old_one_has_not(old: str, new: str) -> None:
    assert has(new)
    assert not has(old)


@pytest.mark.parametrize("name", [*df901.GONE, *df901.CARRIED])
def test_what_is_called_gone_is_gone(name: str) -> None:
    assert not has(name)


@pytest.mark.parametrize("model", sorted(df901.MODELS))
def test_a_models_modules_have_moved(model: str) -> None:
    importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    assert not has(f"transformers.modeling_{model}.Model")


def has(name: str) -> bool:
    home, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(home), last)
    except ModuleNotFoundError:
        return False


def test_the_heads_that_are_left_to_prune() -> None:
    text = """\
import torch
from transformers.pytorch_utils import find_pruneable_heads_and_indices as find
heads, stay = find([0, 2], 3, 2, {0})
"""
    names: dict[str, Any] = {}
    exec(fixed("DF901", text), names)
    # Head 0 is gone already, so that head 2 is the second of those there are.
    assert names["heads"] == {2}
    assert names["stay"].tolist() == [0, 1, 4, 5]
