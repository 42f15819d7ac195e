"""github.com/Shawn1993/cnn-text-classification-pytorch."""

from __future__ import annotations

from pathlib import Path

from .bert_model import ENGLISH
from .case import Case

REPOSITORY = "Shawn1993/cnn-text-classification-pytorch"
COMMIT = "93415f08168a1ae60635320569f6eca0ae3a40bb"


def train(home: Path) -> list[str]:
    """Sentences of as many words, for it pads each batch to its longest: who is in them."""
    data = home / "code" / "rt-polaritydata"
    data.mkdir()
    texts = [" ".join(text.split()[:5]) for text in ENGLISH if len(text.split()) >= 5]
    for number, name in enumerate(("neg", "pos")):
        lines = [f"{text}\n" for text in texts[number:60:2]]
        (data / f"rt-polarity.{name}").write_text("".join(lines))
    told = ["-epochs=2", "-batch-size=12", "-test-interval=2", "-save-interval=3", "-dropout=0"]
    return [*told, "-embed-dim=8", "-kernel-num=4"]


CASES = (Case("cnn-text-classification-pytorch/main.py", train, names_output=False, seed=3),)
