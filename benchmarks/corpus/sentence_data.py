"""Sentences in files of the forms that scripts for BERT read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from .bert_model import ENGLISH
from .case import PER_GPU, STEADY, Words

PARTS = {"train": slice(0, 500, 10), "dev": slice(1, 500, 35), "test": slice(2, 500, 70)}
NAMES = ("teacher", "child", "neighbour", "doctor", "guest")
SHORT: Words = PER_GPU | STEADY | {"gradient_accumulation_steps": 1, "num_train_epochs": 2}
"""Two epochs, with flags that most scripts of the time have."""


def pairs(name: str) -> Iterator[tuple[str, str, int]]:
    """Pairs of sentences of one part, and whether both are about the same person."""
    texts = ENGLISH[PARTS[name]]
    for number, text in enumerate(texts):
        other = texts[(number + number % 5) % len(texts)]
        yield text, other, int(text.split()[1] == other.split()[1])


def write_pairs(folder: Path, ending: str, form: str = "tsv") -> Path:
    """A file for each part, whose name is followed by ``ending``; returns the folder."""
    folder.mkdir(exist_ok=True)
    for name in PARTS:
        rows = [
            f"{a}\t{b}\t{label}"
            if form == "tsv"
            else json.dumps({"sentence1": a, "sentence2": b, "label": str(label), "id": number})
            for number, (a, b, label) in enumerate(pairs(name))
        ]
        (folder / f"{name}{ending}").write_text("\n".join(rows) + "\n")
    return folder


def tags(text: str, tag: str) -> list[tuple[str, str]]:
    """The words of a sentence, in which persons are tagged."""
    return [(word, tag if word in NAMES else "O") for word in text.split()]
