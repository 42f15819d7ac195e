"""github.com/microsoft/CodeXGLUE."""

from __future__ import annotations

import json
from pathlib import Path

from ddpfix.fixtures.tiny import build_model

from .case import PER_GPU, STEADY, Case, Words, words
from .code_data import MANY, SPLITS, rows
from .code_tasks import SEQUENCES, STEPS, generate, language_model, lines, pairs

REPOSITORY = "microsoft/CodeXGLUE"
COMMIT = "ac74a62802a0dd159b3258c78a2df8ad36cdf2b9"


def queries(home: Path) -> list[str]:
    """Questions and functions that may answer them, for a model of the one width its head takes."""
    model = build_model(home / "model", "roberta", hidden=768, layers=1)
    data = home / "data"
    data.mkdir()
    for name, part in SPLITS.items():
        (data / f"{name}.json").write_text(json.dumps(rows(part)))
    told: Words = {"data_dir": data, "encoder_name_or_path": model, "output_dir": home / "out"}
    told |= {"train_file": "train.json", "dev_file": "valid.json", "max_seq_length": 40}
    told |= PER_GPU | STEADY | {"num_train_epochs": 2, "learning_rate": 5e-5}
    told["gradient_accumulation_steps"] = 1
    return words("do_train evaluate_during_training", **told)


COMPLETION: Words = {"langs": "java", "lit_file": ""}
X = "CodeXGLUE/"
CASES = (
    Case(f"{X}Code-Code/Clone-detection-BigCloneBench/code/run.py", pairs()),
    Case(
        f"{X}Code-Code/Clone-detection-POJ-104/code/run.py",
        lines(labels=True),
        unsafe=True,
        defect="the other examples of the batch are its negatives, of which each rank has a part;"
        " its model sorts the pairs of them, which patch leaves alone and says (DF307)",
    ),
    Case(f"{X}Code-Code/CodeCompletion-line/code/run_lm.py", language_model("txt", COMPLETION)),
    Case(f"{X}Code-Code/CodeCompletion-token/code/run_lm.py", language_model("txt", COMPLETION)),
    Case(f"{X}Code-Code/Defect-detection/code/run.py", lines()),
    Case(f"{X}Code-Code/Method-Generation/code/run.py", language_model("jsonl", {"lit_file": ""})),
    Case(f"{X}Code-Code/code-refinement/code/run.py", generate(STEPS, texts=True)),
    Case(f"{X}Code-Code/code-to-code-trans/code/run.py", generate(STEPS, texts=True)),
    Case(f"{X}Code-Text/code-to-text/code/run.py", generate(SEQUENCES)),
    Case(
        f"{X}Text-Code/NL-code-search-Adv/code/run.py",
        lines({"epoch": 1}, parts=SPLITS | {"train": MANY}),
        unsafe=True,
    ),
    Case(f"{X}Text-Code/NL-code-search-WebQuery/code/run_classifier.py", queries),
    Case(f"{X}Text-Code/text-to-code/code/run.py", language_model("json", {"langs": "java"})),
    Case(
        f"{X}Text-Text/text-to-text/code/run.py",
        generate(STEPS | {"learning_rate": 5e-4}, texts=True),
    ),
)
