"""Arguments of scripts that classify, search, write or go on with functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ddpfix.fixtures.tiny import build_clone_data, build_model

from .case import COMMON, PER_GPU, STEADY, Build, Row, Words, words
from .code_data import (
    EVERY,
    FUNCTIONS,
    SPLITS,
    TRAIN,
    as_lines,
    files,
    pairs_of_files,
    relabelled,
)


def pairs(more: Words | None = None, *, block: int = 64, train: int = 48) -> Build:
    """Clone detection on pairs."""

    def build(home: Path) -> list[str]:
        model = build_model(home / "model", "roberta", block=block)
        tenths = ("train", "valid") if train == TRAIN.stop else ("valid",)
        data = build_clone_data(home / "data", train=train, valid=13, test=11, tenths=tenths)
        return classify(home, model, files(data, "txt"), more or {})

    return build


def classify(home: Path, model: Path, data: Words, more: Words) -> list[str]:
    """Train, evaluate and test."""
    told: Words = {"output_dir": home / "out", "model_name_or_path": model, **data}
    told |= COMMON | STEADY | {"block_size": 60}
    switches = "do_train do_eval do_test"
    if more.get("num_train_epochs") is None:
        switches += " evaluate_during_training"
        told |= {"config_name": model, "tokenizer_name": model, "epoch": 2, "model_type": "roberta"}
    return words(switches, **(told | more))


def lines(
    more: Words | None = None, *, labels: bool = False, parts: Mapping[str, slice] = SPLITS
) -> Build:
    """Scripts that classify or search functions; ``labels``: each has its task's."""

    def build(home: Path) -> list[str]:
        model = build_model(home / "model", "roberta")
        data = as_lines(home / "data", "jsonl", {**parts, "codebase": EVERY})
        if labels:
            relabelled(data)
        (home / "out").mkdir()
        told = dict(more or {})
        if "codebase_file" in told:
            told["codebase_file"] = data / "codebase.jsonl"
        if "lang" in told:
            told |= {"config_name": model, "tokenizer_name": model}
        return classify(home, model, files(data, "jsonl"), told)

    return build


def generate(more: Words | None = None, *, texts: bool = False, change: Row | None = None) -> Build:
    """Scripts that write a text for each function; ``texts``: sources and targets are files."""

    def build(home: Path) -> list[str]:
        model = build_model(home / "model", "roberta")
        data = as_lines(home / "data", "jsonl", change=change)
        if texts:
            pairs_of_files(data)
        told: Words = {"output_dir": home / "out", "model_name_or_path": model, **COMMON, **STEADY}
        told |= {"max_source_length": 30, "max_target_length": 10, "beam_size": 2}
        told |= {"num_train_epochs": 2, "learning_rate": 5e-5}
        for flag, name in (("train", "train"), ("dev", "valid"), ("test", "test")):
            path = data / name
            told[f"{flag}_filename"] = f"{path}.src,{path}.trg" if texts else f"{path}.jsonl"
        if more and "model_type" in more:
            told |= {"config_name": model, "tokenizer_name": model}
        return words("do_train do_eval do_test", **(told | (more or {})))

    return build


def language_model(ending: str, more: Words) -> Build:
    """Scripts that go on with a text."""

    def build(home: Path) -> list[str]:
        model = build_model(home / "model", "gpt2")
        data = as_lines(home / "data", ending)
        for name, part in SPLITS.items():
            codes = [" ".join(code.split()) for _, code in FUNCTIONS[part]]
            (data / f"{name}.txt").write_text("".join(f"<s> {code} </s>\n" for code in codes))
        literals = data / "literals.json"
        literals.write_text(json.dumps({"str": ["a"], "num": ["0"], "char": ["c"]}))
        told: Words = {"data_dir": data, "output_dir": home / "out", "pretrain_dir": model}
        told |= {"log_file": home / "log.txt", "model_type": "gpt2", "block_size": 32}
        told |= PER_GPU | STEADY | {"gradient_accumulation_steps": 1, "num_train_epochs": 2}
        told |= {"logging_steps": 2, "save_steps": 4} | more
        if "lit_file" in told:
            told["lit_file"] = literals
        switches = "do_train evaluate_during_training overwrite_output_dir"
        return words(f"{switches} not_pretrain" if ending == "txt" else switches, **told)

    return build


SEQUENCES: Words = {"model_type": "roberta"}
STEPS = SEQUENCES | {"num_train_epochs": 1, "train_steps": 8, "eval_steps": 4}
