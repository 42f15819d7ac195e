"""github.com/CLUEbenchmark/CLUE."""

from __future__ import annotations

import json
from pathlib import Path

from .bert_model import ENGLISH, build_bert
from .case import COMMON, Case, Words, words
from .sentence_data import NAMES, PARTS, SHORT, write_pairs

REPOSITORY, COMMIT = "CLUEbenchmark/CLUE", "9d232934e74c3ddd1f7b25d8e9711900aef5b8fe"


def classify(home: Path) -> list[str]:
    """Whether two sentences are about the same person, with a local copy of transformers 2."""
    model = build_bert(home / "model", pickled=True)
    data = write_pairs(home / "data", ".json", form="json")
    told: Words = {"model_type": "bert", "model_name_or_path": model, "task_name": "afqmc"}
    told |= {"data_dir": data, "output_dir": f"{home / 'out'}/", "max_seq_length": 20}
    told |= SHORT | {"logging_steps": 4, "save_steps": 4}
    return words("do_train do_eval do_predict do_lower_case overwrite_output_dir", **told)


def model_files(home: Path) -> Words:
    """A model as its configuration, vocabulary and weights."""
    # With 0.05 gradients are 1e-4, the rest of larger terms, and lose their digits.
    model = build_bert(home / "model", pickled=True, spread=0.4)
    return {"bert_config_file": model / "config.json", "vocab_file": model / "vocab.txt"}


def choose(home: Path) -> list[str]:
    """Who a sentence is about, of four persons."""
    told, data = model_files(home), home / "data"
    data.mkdir()
    for name, part in PARTS.items():
        asked = [
            [[text], [{"question": "who", "choice": [*NAMES[:4]], "answer": answer}]]
            for text in ENGLISH[part]
            for answer in NAMES[:4]
            if answer in text.split()
        ]
        (data / f"c3-d-{name}.json").write_text(json.dumps(asked))
        (data / f"c3-m-{name}.json").write_text("[]")
    told |= {"data_dir": data, "output_dir": home / "out", "task_name": "c3", "gpu_ids": "0"}
    told |= {"init_checkpoint": home / "model" / "pytorch_model.bin", "max_seq_length": 24}
    told |= COMMON | {
        "learning_rate": 1e-5,
        "num_train_epochs": 2,
        "gradient_accumulation_steps": 1,
    }
    return words("do_train do_eval", **told)


def read(home: Path) -> list[str]:
    """Where in a sentence the person is."""
    told, data = model_files(home), home / "data"
    data.mkdir()
    for name, part in PARTS.items():
        paragraphs = []
        for number, text in enumerate(ENGLISH[part]):
            word = text.split()[1]
            answers = [{"text": word, "answer_start": text.index(word)}]
            asked = {"question": "who", "id": f"{name}{number}", "answers": answers}
            paragraphs.append({"context": text, "id": str(number), "qas": [asked]})
        content = json.dumps({"data": [{"paragraphs": paragraphs}]})
        (data / f"{name}.json").write_text(content)
    told |= {"train_dir": data / "train_features.json", "dev_dir1": data / "dev_examples.json"}
    told |= {"dev_dir2": data / "dev_features.json", "train_file": data / "train.json"}
    told |= {"dev_file": data / "dev.json", "checkpoint_dir": home / "out", "n_batch": 12}
    told |= {"init_restore_dir": home / "model" / "pytorch_model.bin", "task_name": "cmrc2018"}
    told |= {"max_seq_length": 24, "vocab_size": len(open_vocabulary(home)), "lr": 5e-5}
    return words("", **told)


def open_vocabulary(home: Path) -> list[str]:
    """The lines of the vocabulary."""
    return (home / "model" / "vocab.txt").read_text("utf-8").splitlines()


R = "CLUE/baselines/models_pytorch/"
OLD = ("libraries_of_old",)
CASES = (
    Case(f"{R}classifier_pytorch/run_classifier.py", classify, shims=("own_transformers", *OLD)),
    Case(
        f"{R}mrc_pytorch/run_c3.py",
        choose,
        shims=OLD,
    ),
    Case(
        f"{R}mrc_pytorch/run_mrc.py",
        read,
        shims=OLD,
        edits=(('torch.device("cuda")', 'torch.device("cpu")'),),
    ),
)
