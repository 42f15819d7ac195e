"""github.com/microsoft/CodeBERT."""

from __future__ import annotations

from pathlib import Path

from ddpfix.fixtures import json_lines
from ddpfix.fixtures.tiny import build_model

from .case import COMMON, PER_GPU, STEADY, Case, Row, Words, words
from .code_data import FUNCTIONS, SPLITS
from .code_tasks import STEPS, generate, lines, pairs

REPOSITORY = "microsoft/CodeBERT"
COMMIT = "c0de43d3aaf38e89290f1efb771f8de845e7a489"


def classifier(home: Path) -> list[str]:
    """CodeBERT's own search, on lines with a mark between fields."""
    model = build_model(home / "model", "roberta")
    data = home / "data"
    data.mkdir()
    for name, part in SPLITS.items():
        found = [
            "<CODESPLIT>".join([str(n % 2), f"u{n}", f"f{n}", f"do {task}", " ".join(code.split())])
            for n, (task, code) in enumerate(FUNCTIONS[part])
        ]
        (data / f"{name}.txt").write_text("\n".join(found) + "\n")
    told: Words = {"data_dir": data, "model_name_or_path": model, "model_type": "roberta"}
    told |= {"task_name": "codesearch", "output_dir": home / "out", "max_seq_length": 60}
    told |= {"train_file": "train.txt", "dev_file": "valid.txt", "num_train_epochs": 2}
    told |= PER_GPU | STEADY | {"gradient_accumulation_steps": 1}
    return words("do_train do_eval overwrite_output_dir", **told)


def completion(home: Path) -> list[str]:
    """UniXcoder's completion of lines: the folder of the files is named for the data set."""
    model = build_model(home / "model", "roberta")
    data = home / "data" / "javaCorpus"
    data.mkdir(parents=True)
    codes = [code.split() for _, code in FUNCTIONS]
    for name in ("train", "dev"):
        texts = (f"<s> {' '.join(tokens)} </s>\n" for tokens in codes[SPLITS[name]])
        (data / f"{name}.txt").write_text("".join(texts))
    for name in ("dev", "test"):
        found = [
            {"input": f"<s> {' '.join(tokens[:12])}", "gt": " ".join(tokens[12:20])}
            for tokens in codes[SPLITS[name]]
        ]
        json_lines.write(data / f"{name}.json", found)
    told: Words = {"model_name_or_path": model, "output_dir": home / "out", "lang": "java"}
    told |= {"train_filename": data / "train.txt", "dev_filename": data / "dev.json"}
    told |= {"test_filename": data / "test.json", "num_train_epochs": 2, "beam_size": 2}
    told |= {"max_source_length": 40, "max_target_length": 10, **COMMON, **STEADY}
    return words("do_train do_eval do_test", **told)


NEWER: Words = {"num_train_epochs": 2}
GRAPH: Words = {"code_length": 56, "data_flow_length": 16, "epochs": 1, "block_size": None}
GRAPH |= {"epoch": None, "model_type": None}
SEARCH = NEWER | {"nl_length": 20, "code_length": 40, "codebase_file": "", "block_size": None}
SEARCH |= {"adam_epsilon": None}
FLOW = SEARCH | {"lang": "java", "data_flow_length": 16}
CONSTANT: Row = {"docstring_tokens": ["public", "static", "int", "value", "return"]}
B, U = "CodeBERT/", "CodeBERT/UniXcoder/downstream-tasks/"
CASES = (
    Case(f"{B}CodeBERT/code2nl/run.py", generate(STEPS)),
    Case(f"{B}CodeBERT/codesearch/run_classifier.py", classifier),
    Case(f"{B}GraphCodeBERT/clonedetection/run.py", pairs(GRAPH, block=72, train=120)),
    Case(f"{B}GraphCodeBERT/codesearch/run.py", lines(FLOW), unsafe=True),
    Case(f"{B}GraphCodeBERT/refinement/run.py", generate(STEPS, texts=True)),
    Case(
        f"{B}GraphCodeBERT/translation/run.py",
        generate(STEPS | {"source_lang": "java"}, texts=True),
    ),
    Case(f"{U}clone-detection/BCB/run.py", pairs(NEWER)),
    Case(
        f"{U}clone-detection/POJ-104/run.py",
        lines(NEWER, labels=True),
        unsafe=True,
        defect="the other examples of the batch are its negatives, of which each rank has a part;"
        " its model sorts the pairs of them, which patch leaves alone and says (DF307)",
    ),
    Case(f"{U}code-completion/run.py", completion),
    Case(f"{U}code-generation/run.py", generate()),
    Case(f"{U}code-search/run.py", lines(SEARCH), unsafe=True),
    Case(
        f"{U}code-summarization/run.py",
        generate({"learning_rate": 1e-2, "num_train_epochs": 6}, change=CONSTANT),
    ),
)
