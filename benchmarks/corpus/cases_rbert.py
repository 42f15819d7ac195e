"""github.com/monologg/R-BERT."""

from __future__ import annotations

from pathlib import Path

from .bert_model import ENGLISH, build_bert
from .case import COMMON, STEADY, Case, Words, words
from .sentence_data import NAMES, PARTS

REPOSITORY = "monologg/R-BERT"
COMMIT = "254aa5090c94542635b2df46ed16d596facb6556"


def relations(home: Path) -> list[str]:
    """Whether the second of two marked words is a teacher; the scorer is a program in Perl."""
    model, data = build_bert(home / "model", [*ENGLISH, "$ #"]), home / "data"
    data.mkdir()
    for name, part in PARTS.items():
        rows = []
        for text in ENGLISH[part]:
            first, second, *rest = text.split()
            marked = f"<e1> {first} </e1> <e2> {second} </e2> {' '.join(rest)}"
            rows.append(f"{'Yes' if second == NAMES[0] else 'Other'}\t{marked}\n")
        (data / f"{name}.tsv").write_text("".join(rows))
    (data / "label.txt").write_text("Other\nYes\n")
    told: Words = {"data_dir": data, "model_dir": "out", "eval_dir": "eval"}
    told |= {"model_name_or_path": model, "max_seq_len": 24, "logging_steps": 0, "save_steps": 4}
    told |= COMMON | STEADY | {"num_train_epochs": 2, "gradient_accumulation_steps": 1}
    return words("do_train", **told)


CASES = (
    Case(
        "R-BERT/main.py",
        relations,
        names_output=False,
    ),
)
