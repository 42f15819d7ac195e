"""Scripts of microsoft/CodeXGLUE and microsoft/CodeBERT, each with a tiny model and data to run on.

Nothing of them is here but their paths and the names of their flags.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen
from ddpfix.fixtures import json_lines
from ddpfix.fixtures.javacode import corpus
from ddpfix.fixtures.tiny import build_clone_data, build_model

TRAIN, VALID, TEST = slice(0, 48), slice(48, 61), slice(61, 72)
SPLITS = {"train": TRAIN, "valid": VALID, "dev": VALID, "test": TEST}
MANY = slice(0, 144)  # for scripts that evaluate ten times an epoch
EVERY = slice(48, 80)

Row = Mapping[str, object]
Words = dict[str, object]
Build = Callable[[Path], list[str]]
"""From a folder for model and data to the script's arguments."""


def functions() -> list[tuple[str, str]]:
    """Functions with the name of their task, in an order of no meaning."""
    found = [(task, code) for task, codes in corpus(20, random.Random(0)).items() for code in codes]
    random.Random(1).shuffle(found)
    return found


FUNCTIONS = functions()
TASKS = sorted({task for task, _ in FUNCTIONS})
COMMON = {"train_batch_size": 12, "eval_batch_size": 4, "learning_rate": 5e-4, "seed": 3}
PER_GPU = {"per_gpu_train_batch_size": 12, "per_gpu_eval_batch_size": 4} | {
    name: value for name, value in COMMON.items() if "batch" not in name
}
STEADY = {"adam_epsilon": 1e-5}  # else rounding noise of Adam's grows to whole steps


@frozen
class Case:
    """A script below the folder of both repositories; ``unsafe``: with the unsafe fixes."""

    script: str
    build: Build
    unsafe: bool = False


def words(switches: str, **values: object) -> list[str]:
    """``--switch`` for each, and ``--name=value`` for what is not None."""
    given = [f"--{name}={value}" for name, value in values.items() if value is not None]
    return [*(f"--{switch}" for switch in switches.split()), *given]


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


def pairs(more: Words | None = None, *, block: int = 64, train: int = 48) -> Build:
    """Clone detection on pairs."""

    def build(home: Path) -> list[str]:
        model = build_model(home / "model", "roberta", block=block)
        tenths = ("train", "valid") if train == TRAIN.stop else ("valid",)
        data = build_clone_data(home / "data", train=train, valid=13, test=11, tenths=tenths)
        return classify(home, model, files(data, "txt"), more or {})

    return build


def classify(home: Path, model: Path, data: Words, more: Words) -> list[str]:
    """Train, evaluate and test."""
    told: Words = {"output_dir": home / "out", "model_name_or_path": model, **data}
    told |= COMMON | STEADY | {"block_size": 60}
    switches = "do_train do_eval do_test"
    if more.get("num_train_epochs") is None:
        switches += " evaluate_during_training"
        told |= {"config_name": model, "tokenizer_name": model, "epoch": 2, "model_type": "roberta"}
    return words(switches, **(told | more))


def lines(
    more: Words | None = None, *, labels: bool = False, parts: Mapping[str, slice] = SPLITS
) -> Build:
    """Scripts that classify or search functions; ``labels``: each has its task's."""

    def build(home: Path) -> list[str]:
        model = build_model(home / "model", "roberta")
        data = as_lines(home / "data", "jsonl", {**parts, "codebase": EVERY})
        if labels:
            relabelled(data)
        (home / "out").mkdir()
        told = dict(more or {})
        if "codebase_file" in told:
            told["codebase_file"] = data / "codebase.jsonl"
        if "lang" in told:
            told |= {"config_name": model, "tokenizer_name": model}
        return classify(home, model, files(data, "jsonl"), told)

    return build


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


def generate(more: Words | None = None, *, texts: bool = False, change: Row | None = None) -> Build:
    """Scripts that write a text for each function; ``texts``: sources and targets are files."""

    def build(home: Path) -> list[str]:
        model = build_model(home / "model", "roberta")
        data = as_lines(home / "data", "jsonl", change=change)
        if texts:
            pairs_of_files(data)
        told: Words = {"output_dir": home / "out", "model_name_or_path": model, **COMMON, **STEADY}
        told |= {"max_source_length": 30, "max_target_length": 10, "beam_size": 2}
        told |= {"num_train_epochs": 2, "learning_rate": 5e-5}
        for flag, name in (("train", "train"), ("dev", "valid"), ("test", "test")):
            path = data / name
            told[f"{flag}_filename"] = f"{path}.src,{path}.trg" if texts else f"{path}.jsonl"
        if more and "model_type" in more:
            told |= {"config_name": model, "tokenizer_name": model}
        return words("do_train do_eval do_test", **(told | (more or {})))

    return build


def pairs_of_files(folder: Path) -> None:
    """Source and target texts, a line each."""
    for name, part in SPLITS.items():
        codes = [code.split() for _, code in FUNCTIONS[part]]
        for ending, some in (("src", slice(0, 20)), ("trg", slice(2, 10))):
            text = "".join(" ".join(tokens[some]) + "\n" for tokens in codes)
            (folder / f"{name}.{ending}").write_text(text)


def language_model(ending: str, more: Words) -> Build:
    """Scripts that go on with a text."""

    def build(home: Path) -> list[str]:
        model = build_model(home / "model", "gpt2")
        data = as_lines(home / "data", ending)
        for name, part in SPLITS.items():
            codes = [" ".join(code.split()) for _, code in FUNCTIONS[part]]
            (data / f"{name}.txt").write_text("".join(f"<s> {code} </s>\n" for code in codes))
        literals = data / "literals.json"
        literals.write_text(json.dumps({"str": ["a"], "num": ["0"], "char": ["c"]}))
        told: Words = {"data_dir": data, "output_dir": home / "out", "pretrain_dir": model}
        told |= {"log_file": home / "log.txt", "model_type": "gpt2", "block_size": 32}
        told |= PER_GPU | STEADY | {"gradient_accumulation_steps": 1, "num_train_epochs": 2}
        told |= {"logging_steps": 2, "save_steps": 4} | more
        if "lit_file" in told:
            told["lit_file"] = literals
        switches = "do_train evaluate_during_training overwrite_output_dir"
        return words(f"{switches} not_pretrain" if ending == "txt" else switches, **told)

    return build


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


SEQUENCES: Words = {"model_type": "roberta"}
STEPS = SEQUENCES | {"num_train_epochs": 1, "train_steps": 8, "eval_steps": 4}
COMPLETION: Words = {"langs": "java", "lit_file": ""}
NEWER: Words = {"num_train_epochs": 2}
GRAPH: Words = {"code_length": 56, "data_flow_length": 16, "epochs": 1, "block_size": None}
GRAPH |= {"epoch": None, "model_type": None}
SEARCH = NEWER | {"nl_length": 20, "code_length": 40, "codebase_file": "", "block_size": None}
SEARCH |= {"adam_epsilon": None}
FLOW = SEARCH | {"lang": "java", "data_flow_length": 16}
CONSTANT: Row = {"docstring_tokens": ["public", "static", "int", "value", "return"]}
X, B, U = "CodeXGLUE/", "CodeBERT/", "CodeBERT/UniXcoder/downstream-tasks/"
CASES = (
    Case(f"{X}Code-Code/Clone-detection-BigCloneBench/code/run.py", pairs()),
    Case(f"{X}Code-Code/Clone-detection-POJ-104/code/run.py", lines(labels=True), unsafe=True),
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
    Case(f"{U}clone-detection/POJ-104/run.py", lines(NEWER, labels=True), unsafe=True),
    Case(f"{U}code-completion/run.py", completion),
    Case(f"{U}code-generation/run.py", generate()),
    Case(f"{U}code-search/run.py", lines(SEARCH), unsafe=True),
    Case(
        f"{U}code-summarization/run.py",
        generate({"learning_rate": 1e-2, "num_train_epochs": 6}, change=CONSTANT),
    ),
)
