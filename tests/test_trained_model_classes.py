"""Capabilities find the model among the classes that are loaded by from_pretrained."""

from __future__ import annotations

import ast

import pytest
from cases import module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.capabilities.models import transformer_class

SCRIPT = "from transformers import {kind}\nx = {kind}.from_pretrained(args.model)\n"


@pytest.mark.parametrize(
    ("kind", "is_model"),
    [
        ("BertForTokenClassification", True),
        ("T5ForConditionalGeneration", True),
        ("BertTokenizerFast", False),
        ("AutoConfig", False),
        ("WhisperFeatureExtractor", False),
    ],
)
def test_a_class_is_a_model_or_none(kind: str, is_model: bool) -> None:
    script = module(SCRIPT.format(kind=kind))
    (stmt,) = script.nodes(ast.Assign)
    assert transformer_class(Program(script), script, stmt.value, stmt) == (
        kind if is_model else ""
    )
