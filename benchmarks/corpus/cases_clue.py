"""github.com/CLUEbenchmark/CLUE."""

from __future__ import annotations

from pathlib import Path

from .bert_model import build_bert
from .case import Case, Words, nothing, words
from .sentence_data import SHORT, write_pairs

REPOSITORY, COMMIT = "CLUEbenchmark/CLUE", "9d232934e74c3ddd1f7b25d8e9711900aef5b8fe"


def classify(home: Path) -> list[str]:
    """Whether two sentences are about the same person, with a local copy of transformers 2."""
    model = build_bert(home / "model", pickled=True)
    data = write_pairs(home / "data", ".json", form="json")
    told: Words = {"model_type": "bert", "model_name_or_path": model, "task_name": "afqmc"}
    told |= {"data_dir": data, "output_dir": f"{home / 'out'}/", "max_seq_length": 20}
    told |= SHORT | {"logging_steps": 4, "save_steps": 4}
    return words("do_train do_eval do_predict do_lower_case overwrite_output_dir", **told)


R = "CLUE/baselines/models_pytorch/"
CASES = (
    Case(f"{R}classifier_pytorch/run_classifier.py", classify, shims=("own_transformers",)),
    Case(f"{R}mrc_pytorch/run_mrc.py", nothing),
)
