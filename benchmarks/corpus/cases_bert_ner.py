"""github.com/lonePatient/BERT-NER-Pytorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .bert_model import ENGLISH, build_bert
from .case import Case, Words, words
from .sentence_data import PARTS, SHORT, tags

REPOSITORY, COMMIT = "lonePatient/BERT-NER-Pytorch", "7c938a2ded28d8d379fef1879e07da08df5a1eb8"


def write_tags(data: Path, texts: Sequence[str]) -> None:
    """The three files of a corpus in words and tags."""
    data.mkdir()
    for name, part in PARTS.items():
        text = "\n".join(
            "".join(f"{word} {tag}\n" for word, tag in tags(sentence, "S-NAME"))
            for sentence in texts[part]
        )
        (data / f"{name}.char.bmes").write_text(text)


def named_entities(home: Path) -> list[str]:
    """Train, evaluate and predict on sentences in which persons are tagged."""
    model = build_bert(home / "model")
    write_tags(home / "data", ENGLISH)
    told: Words = {"task_name": "cner", "data_dir": home / "data", "model_type": "bert"}
    told |= {"model_name_or_path": model, "output_dir": f"{home / 'out'}/"}
    told |= {"train_max_seq_length": 8, "eval_max_seq_length": 8}
    told |= SHORT | {"logging_steps": 4, "save_steps": 4}
    switches = "do_train do_eval do_predict do_lower_case overwrite_output_dir"
    return words(switches, **told)


R = "BERT-NER-Pytorch/"
CASES = (
    Case(f"{R}run_ner_softmax.py", named_entities),
    Case(f"{R}run_ner_crf.py", named_entities),
    Case(f"{R}run_ner_span.py", named_entities),
)
