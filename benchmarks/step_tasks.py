"""Trainings that benchmarks/step_overhead.py times: a fixture's script, and its parts for others.

A `Case` says what is trained; `build` writes the patched script, its model and its data; `load`
gives model and data of that script to a training loop that is not the script's own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import asdict, frozen
from ddpfix.fixtures.tiny import (
    Kind,
    build_clone_data,
    build_model,
    clone_arguments,
    copy_family,
    graph_arguments,
)
from ddpfix.patcher.engine.patch import patch

SHAPES = Path(__file__).resolve().parents[1] / "fixtures" / "shapes"
WORDS = ("get", "set", "add", "size", "list", "index", "value", "name", "count", "total", "item")
TARGET = 24  # words that are generated


@frozen
class Case:
    """A model and its batches: `batch` examples a micro-batch, `length` tokens a function.

    An epoch is `micro_steps` micro-batches of each rank, and `valid` examples are evaluated in it
    `evaluations` times. `unused` says whether the model has parameters that get no gradient.
    """

    title: str
    family: str
    kind: Kind = "roberta"
    hidden: int = 128
    layers: int = 2
    length: int = 64
    batch: int = 4
    micro_steps: int = 16
    valid: int = 64
    evaluations: int = 1
    unused: bool = False
    trainer: bool = True
    workers: int = 0
    eval_workers: int = 4
    thresholds: int = 99
    bar: bool = True


CASES = (
    Case("CodeGPT", "bigclonebench", "gpt2"),
    Case("CodeBERT", "bigclonebench", unused=True),
    Case(
        *("GraphCodeBERT", "graphcodebert"),
        unused=True,
        evaluations=2,
        workers=2,
        eval_workers=2,
        thresholds=19,
    ),
    Case("CodeGPT, tiny", "bigclonebench", "gpt2", hidden=32, length=32, valid=32),
    Case(
        *("token means, tiny", "token_means"),
        hidden=256,
        micro_steps=64,
        trainer=False,
        eval_workers=0,
        bar=False,
    ),
)
GENERATION = Case(
    *("T5, beam search", "generation_loop"),
    length=32,
    trainer=False,
    eval_workers=0,
    bar=False,
)
"""Sequences are generated in each evaluation; the step itself is not compared with others."""


@frozen
class Place:
    """Where a case was built, and what it takes to run it."""

    case: Case
    folder: Path
    script: Path
    ranks: int
    epochs: int
    accumulation: int

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        plain = asdict(self)
        return {**plain, "folder": str(self.folder), "script": str(self.script)}

    @staticmethod
    def of_plain(plain: dict[str, Any]) -> Place:
        """The other way round."""
        paths = {name: Path(plain[name]) for name in ("folder", "script")}
        return Place(**{**plain, **paths, "case": Case(**plain["case"])})

    @property
    def train(self) -> int:
        """Examples of an epoch."""
        return self.case.batch * self.case.micro_steps * self.ranks

    def words(self, output: Path) -> list[str]:
        """The script's arguments: a learning rate of 0, so that no score is ever a new best one."""
        case = self.case
        if case.family == "token_means":
            return [
                f"--output_dir={output}",
                f"--train_batch_size={case.batch * self.accumulation}",
                f"--eval_batch_size={case.batch}",
                f"--gradient_accumulation_steps={self.accumulation}",
                f"--num_train_epochs={self.epochs}",
                "--learning_rate=0",
            ]
        if case.family == "generation_loop":
            return [
                *(f"--output_dir={output}", "--do_train", "--do_eval"),
                *(f"--train_filename={self.folder / 'train.tsv'}",),
                *(f"--dev_filename={self.folder / 'valid.tsv'}", f"--max_target_length={TARGET}"),
                *(f"--train_batch_size={case.batch}", f"--eval_batch_size={case.batch}"),
                *(f"--num_train_epochs={self.epochs}", "--learning_rate=0"),
                f"--gradient_accumulation_steps={self.accumulation}",
            ]
        common: dict[str, Any] = {
            "batch": case.batch,
            "accumulation": self.accumulation,
            "epochs": self.epochs,
            "learning_rate": 0.0,
        }
        model, data = self.folder / "model", self.folder / "data"
        if case.family == "graphcodebert":
            flow = case.length // 4
            lengths = {"code_length": case.length - flow, "data_flow_length": flow}
            words = graph_arguments(model, data, output, **common, **lengths)
        else:
            words = clone_arguments(model, data, output, case.kind, block=case.length, **common)
        return [word for word in words if word not in ("--do_eval", "--do_test")]


def build(case: Case, folder: Path, ranks: int, epochs: int, accumulation: int) -> Place:
    """The patched script in `folder`, its model and data."""
    folder.mkdir(parents=True, exist_ok=True)
    train = case.batch * case.micro_steps * ranks
    if case.family == "token_means":
        sizes = {
            "LineDataset(48, 3)": f"LineDataset({train}, 3)",
            "LineDataset(13, 5)": f"LineDataset({case.valid}, 5)",
            "nn.Embedding(7, 8)": f"nn.Embedding(7, {case.hidden})",
            "nn.Linear(8, 7)": f"nn.Linear({case.hidden}, 7)",
        }
        script = resized(folder, case.family, sizes)
    elif case.family == "generation_loop":
        sizes = {
            "d_model=16, d_kv=8, d_ff=32, num_layers=1": f"d_model={case.hidden}, "
            f"d_kv={case.hidden // 2}, d_ff={2 * case.hidden}, num_layers={case.layers}",
        }
        script = resized(folder, case.family, sizes)
        for name, number in (("train", train), ("valid", case.valid)):
            write_sequences(folder / f"{name}.tsv", number, case.length)
    else:
        script = copy_family(case.family, folder / "code")
        build_model(
            *(folder / "model", case.kind),
            hidden=case.hidden,
            layers=case.layers,
            block=case.length + 8,
        )
    place = Place(case, folder, script, ranks, epochs, accumulation)
    if not (SHAPES / f"{case.family}.py").is_file():
        tenths = ("valid",) if case.family == "graphcodebert" else ("train", "valid")
        sizes_of = {"train": place.train, "valid": case.valid, "test": 1}
        build_clone_data(folder / "data", tenths=tenths, **sizes_of)
    result = patch(script)
    result.write()
    return place


def resized(folder: Path, shape: str, sizes: dict[str, str]) -> Path:
    """A copy of a script of fixtures/shapes with other sizes."""
    script = folder / "code" / f"{shape}.py"
    script.parent.mkdir(exist_ok=True)
    text = (SHAPES / script.name).read_text(encoding="utf-8")
    for old, new in sizes.items():
        assert old in text
        text = text.replace(old, new)
    script.write_text(text, encoding="utf-8")
    return script


def write_sequences(path: Path, number: int, length: int) -> None:
    """Lines of `length` words, a tab and half as many."""
    lines = [
        " ".join(WORDS[(line * word + line) % len(WORDS)] for word in range(length))
        + "\t"
        + " ".join(WORDS[(line + word) % len(WORDS)] for word in range(length // 2))
        for line in range(number)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@frozen
class Parts:
    """What a training loop needs of a script: its model and data, and what its batches mean.

    `names` are the arguments of forward in the order of a batch, labels last.
    """

    model: Any
    train_set: Any
    eval_set: Callable[[], Any]
    names: tuple[str, ...]


def load(place: Place, output: Path) -> Parts:
    """Model and data, made by the script's own classes."""
    case = place.case
    sys.path.insert(0, str(place.script.parent))
    if case.family == "token_means":
        module = importlib.import_module("token_means")
        data = module.LineDataset(place.train, 3)
        valid = module.LineDataset(case.valid, 5)
        return Parts(module.LineModel(), data, lambda: valid, ("source_ids",))
    import transformers

    known = place.words(output)
    words = dict(word[2:].split("=", 1) for word in known if "=" in word)
    lengths = ("block_size", "code_length", "data_flow_length")
    numbers = {name: int(words[name]) for name in lengths if name in words}
    args = SimpleNamespace(**{**words, **numbers})
    source = words["model_name_or_path"]
    model_module = importlib.import_module("model")
    if case.family == "graphcodebert":
        config = transformers.RobertaConfig.from_pretrained(source)
        config.num_labels = 1
        tokenizer = transformers.RobertaTokenizer.from_pretrained(source)
        encoder = transformers.RobertaForSequenceClassification.from_pretrained(
            source, config=config
        )
        make = importlib.import_module("features").TextDataset
        names = ("ids_1", "position_idx_1", "attn_mask_1", "ids_2", "position_idx_2", "attn_mask_2")
    else:
        import multiprocessing

        run = importlib.import_module("run")
        config_class, model_class, tokenizer_class = run.MODEL_CLASSES[case.kind]
        config = config_class.from_pretrained(source)
        tokenizer = tokenizer_class.from_pretrained(source)
        encoder = model_class.from_pretrained(source, config=config)
        pool = multiprocessing.Pool(run.cpu_cont // place.ranks)
        names = ("input_ids",)

        def make(tokenizer: Any, args: Any, file_path: str) -> Any:
            return run.TextDataset(tokenizer, args, file_path, pool)

    model = model_module.Model(encoder, config, tokenizer, args)
    return Parts(
        model,
        make(tokenizer, args, file_path=words["train_data_file"]),
        lambda: make(tokenizer, args, file_path=words["eval_data_file"]),
        (*names, "labels"),
    )
