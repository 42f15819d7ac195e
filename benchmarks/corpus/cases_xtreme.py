"""github.com/google-research/xtreme."""

from __future__ import annotations

from pathlib import Path

from .bert_model import build_bert
from .case import Case, Words, nothing, words
from .sentence_data import SHORT, write_pairs

REPOSITORY, COMMIT = "google-research/xtreme", "838c13b69daafb9328785d16caae2711e4012123"


def classify(home: Path) -> list[str]:
    """Whether two sentences are about the same person."""
    model, data = build_bert(home / "model-0"), write_pairs(home / "data", "-en.tsv")
    (home / "out").mkdir()
    told: Words = {"model_type": "bert", "model_name_or_path": model, "task_name": "pawsx"}
    told |= {
        "data_dir": data,
        "output_dir": home / "out",
        "max_seq_length": 24,
        "log_file": "train.log",
    }
    told |= SHORT | {"logging_steps": 4, "save_steps": 4}
    switches = "do_train do_eval do_predict do_lower_case overwrite_output_dir"
    return words(switches, **told)


R = "xtreme/third_party/"
CASES = (
    Case(f"{R}run_classify.py", classify),
    Case(f"{R}run_tag.py", nothing),
    Case(f"{R}run_squad.py", nothing),
)
