"""github.com/monologg/JointBERT."""

from __future__ import annotations

from pathlib import Path

from .bert_model import ENGLISH, build_bert
from .case import COMMON, STEADY, Case, Words, words
from .sentence_data import NAMES, PARTS, tags

REPOSITORY = "monologg/JointBERT"
COMMIT = "00324f60dda4a491b2913bc3065ae93966caea3f"


def intents(home: Path) -> list[str]:
    """Whether a sentence is about a teacher, and who is in it."""
    build_bert(home / "model")
    data = home / "data" / "atis"
    for name, part in PARTS.items():
        (data / name).mkdir(parents=True)
        rows = [zip(*tags(text, "B-name"), strict=True) for text in ENGLISH[part]]
        pairs = [(" ".join(words_), " ".join(tags_)) for words_, tags_ in rows]
        told = {"seq.in": [text for text, _ in pairs], "seq.out": [text for _, text in pairs]}
        told["label"] = [NAMES[NAMES[0] in text.split()] for text in ENGLISH[part]]
        for file, lines in told.items():
            (data / name / file).write_text("\n".join(lines) + "\n")
    (data / "intent_label.txt").write_text(f"UNK\n{NAMES[0]}\n{NAMES[1]}\n")
    (data / "slot_label.txt").write_text("PAD\nUNK\nO\nB-name\n")
    told_flags: Words = {"task": "atis", "data_dir": home / "data", "model_dir": "out"}
    told_flags |= COMMON | STEADY | {"num_train_epochs": 2, "max_seq_len": 16, "logging_steps": 4}
    told_flags |= {"save_steps": 4, "gradient_accumulation_steps": 1}
    return words("do_train do_eval", **told_flags)


CASES = (
    Case(
        "JointBERT/main.py",
        intents,
        names_output=False,
        edits=(("MODEL_PATH_MAP[args.model_type]", "args.data_dir + '/../model'"),),
    ),
)
