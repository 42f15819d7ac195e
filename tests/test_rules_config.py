"""DF907: a configuration follows the vocabulary of the model that was loaded with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, written
from ddpfix.fixtures.tiny import build_model
from forked import Forge


def script(*lines: str) -> str:
    """A script that loads a model and adds tokens."""
    body = "\n    ".join(lines)
    return f"""import json
import sys
from transformers import RobertaConfig, RobertaModel
def main(path, args=None):
    config = RobertaConfig.from_pretrained(path)
    {body}
"""


LOADED = "model = RobertaModel.from_pretrained(path, config=config)"
RESIZED = "model.resize_token_embeddings(700)"
FIX = [
    ("handed to a head", script(LOADED, RESIZED, "return Model(model, config)")),
    ("read in an assignment of its own", script(LOADED, RESIZED, "config = wrapped(config)")),
]  # fmt: skip
NOOP = [
    ("read before alone", script(LOADED, "print(config)", RESIZED, "return model")),
    ("made anew", script(LOADED, RESIZED, "config = model.config", "return config")),
    ("another configuration", script(LOADED, RESIZED, "return other_config")),
    ("a model without one", script("model = RobertaModel(size)", RESIZED, "return config")),
    ("not resized", script(LOADED, "return config")),
]


@pytest.mark.parametrize("text", [p[1] for p in FIX], ids=[p[0] for p in FIX])
def test_a_configuration_that_is_read_is_the_models_own(text: str) -> None:
    after = fixed("DF907", text)
    resized = f"    {RESIZED}\n"
    assert after == text.replace(resized, f"{resized}    config = model.config\n") != text
    assert found("DF907", after) == []


@pytest.mark.parametrize("text", [p[1] for p in NOOP], ids=[p[0] for p in NOOP])
def test_one_that_nobody_reads_stays(text: str) -> None:
    assert found("DF907", text) == []


def test_the_head_fits_the_embeddings(tmp_path: Path, forge: Forge) -> None:
    text = script(LOADED, RESIZED, "return [config.vocab_size, model.config.vocab_size]")
    model = build_model(tmp_path / "model", "roberta")
    text += f"""
with open(sys.argv[1] + ".0", "w") as file:
    json.dump(main({str(model)!r}), file)
"""
    ((size, resized),) = written(forge, tmp_path, "before", text, None)
    assert size < resized == 700
    assert written(forge, tmp_path, "after", fixed("DF907", text), None) == [[700, 700]]
