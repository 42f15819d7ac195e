"""Functions in Java and what the data sets of code tasks call their fields."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from ddpfix.fixtures import json_lines
from ddpfix.fixtures.javacode import corpus

from .case import Row, Words

TRAIN, VALID, TEST = slice(0, 48), slice(48, 61), slice(61, 72)
SPLITS = {"train": TRAIN, "valid": VALID, "dev": VALID, "test": TEST}
MANY = slice(0, 144)  # for scripts that evaluate ten times an epoch
EVERY = slice(48, 80)


def functions() -> list[tuple[str, str]]:
    """Functions with the name of their task, in an order of no meaning."""
    found = [(task, code) for task, codes in corpus(20, random.Random(0)).items() for code in codes]
    random.Random(1).shuffle(found)
    return found


FUNCTIONS = functions()
TASKS = sorted({task for task, _ in FUNCTIONS})


def function_row(number: int, task: str, code: str) -> Row:
    """What the data sets of all tasks call their fields, in one row."""
    tokens = code.split()
    return {
        "func": code,
        "target": number % 2,
        "label": number % 2,
        "idx": number,
        "url": f"u{number}",
        "doc": f"how to {task}",
        "nl": f"do {task}",
        "code": " ".join(tokens[:15]),
        "original_string": code,
        "code_tokens": tokens[:20],
        "function_tokens": tokens[:20],
        "docstring_tokens": f"this function does {task}".split(),
        "signature": f"def f{number}",
        "body": " ".join(tokens[:15]),
        "docstring": f"do {task}",
    }


def rows(part: slice, change: Mapping[str, object] | None = None) -> list[Row]:
    """Rows of one part; those beyond the last function are the first ones again."""
    twice = [*FUNCTIONS, *FUNCTIONS][part]
    return [{**function_row(n, *each), **(change or {})} for n, each in enumerate(twice)]


def as_lines(
    folder: Path, ending: str, parts: Mapping[str, slice] = SPLITS, change: Row | None = None
) -> Path:
    """A file of JSON lines for each part; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        json_lines.write(folder / f"{name}.{ending}", rows(part, change))
    return folder


def files(folder: Path, ending: str) -> Words:
    """Flags of the scripts that compare or classify."""
    names = {"train_data_file": "train", "eval_data_file": "valid", "test_data_file": "test"}
    return {flag: folder / f"{name}.{ending}" for flag, name in names.items()}


def relabelled(data: Path) -> None:
    """Give every row the number of its task, as text, of which each split has some alike."""
    chosen = [(task, [c for t, c in FUNCTIONS if t == task]) for task in TASKS]
    chosen = [(task, codes) for task, codes in chosen if len(codes) >= 6]
    for name, part in (("train", slice(0, 3)), ("valid", slice(3, 6)), ("test", slice(3, 6))):
        found = [
            {"code": code, "index": f"{n}-{i}", "label": str(n)}
            for n, (_, codes) in enumerate(chosen)
            for i, code in enumerate(codes[part])
        ]
        json_lines.write(
            data / f"{name}.jsonl", (found * 4)[:48] if name == "train" else found[:15]
        )


def pairs_of_files(folder: Path) -> None:
    """Source and target texts, a line each."""
    for name, part in SPLITS.items():
        codes = [code.split() for _, code in FUNCTIONS[part]]
        for ending, some in (("src", slice(0, 20)), ("trg", slice(2, 10))):
            text = "".join(" ".join(tokens[some]) + "\n" for tokens in codes)
            (folder / f"{name}.{ending}").write_text(text)
