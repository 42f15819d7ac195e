"""github.com/microsoft/unilm, its scripts for texts."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

from ddpfix.fixtures.tiny import build_model

from .bert_model import ENGLISH, build_bert
from .case import PER_GPU, STEADY, Case, Words, nothing, words
from .sentence_data import PARTS, SHORT, tags
from .sentence_data import pairs as sentence_pairs

REPOSITORY, COMMIT = "microsoft/unilm", "768a3c873f598bb9b4d4dfb9267b099e35f8fe56"


def tagger(home: Path) -> list[str]:
    """Tag persons, a sentence and its tags in a line."""
    model, data = build_bert(home / "model"), home / "data"
    data.mkdir()
    for name, part in PARTS.items():
        rows = [zip(*tags(text, "B-PER"), strict=True) for text in ENGLISH[part]]
        text = "".join(f"{' '.join(a)}\t{' '.join(b)}\n" for a, b in rows)
        (data / f"{name}.txt").write_text(text)
    (data / "labels.txt").write_text("O\nB-PER\n")
    told: Words = {"model_type": "bert", "model_name_or_path": model, "data_dir": data}
    told |= {"output_dir": home / "out", "labels": data / "labels.txt", "max_seq_length": 16}
    told |= SHORT | {"logging_steps": 4}
    return words("do_train do_eval do_lower_case overwrite_output_dir", **told)


def pages(home: Path) -> list[str]:
    """Tag persons on pages: words, boxes and images' sizes in three files."""
    model, data = build_bert(home / "model", max_2d_position_embeddings=1024), home / "data"
    data.mkdir()
    for name, part in PARTS.items():
        files: dict[str, list[str]] = {"": [], "_box": [], "_image": []}
        for number, text in enumerate(ENGLISH[part]):
            for place, (word, tag) in enumerate(tags(text, "S-ANSWER")):
                box = f"{100 * place} 10 {100 * place + 90} 20"
                files[""].append(f"{word}\t{tag}\n")
                files["_box"].append(f"{word}\t{box}\n")
                files["_image"].append(f"{word}\t{box}\t1000 1000\tpage{number}.png\n")
            for rows in files.values():
                rows.append("\n")
        for ending, rows in files.items():
            (data / f"{name}{ending}.txt").write_text("".join(rows))
    (data / "labels.txt").write_text("O\nS-ANSWER\n")
    told: Words = {"model_type": "layoutlm", "model_name_or_path": model, "data_dir": data}
    told |= {"output_dir": home / "out", "labels": data / "labels.txt", "max_seq_length": 16}
    told |= SHORT | {"logging_steps": 4, "save_steps": 4}
    return words("do_train do_eval do_lower_case overwrite_output_dir", **told)


def pairs(home: Path) -> list[str]:
    """Whether two sentences are about the same person, in the form of MRPC."""
    model, data = build_bert(home / "model"), home / "data"
    data.mkdir()
    for name in PARTS:
        rows = (f"{label}\t0\t0\t{a}\t{b}\n" for a, b, label in sentence_pairs(name))
        (data / f"{name}.tsv").write_text("head\n" + "".join(rows))
    told: Words = {"model_type": "bert", "model_name_or_path": model, "task_name": "mrpc"}
    told |= {"data_dir": data, "output_dir": home / "out", "max_seq_length": 24}
    told |= SHORT | {"logging_steps": 4}
    return words("do_train do_eval do_lower_case", **told)


FIELDS = ("author", "none", "title")  # of the nodes of a page, as its vertical names them


def websites(home: Path) -> list[str]:
    """Tell what the nodes of web pages are: pickled pages of ten websites, some to train on."""
    model, data = build_model(home / "model", "roberta"), home / "data"
    data.mkdir()
    sentences = iter(itertools.cycle(ENGLISH))
    for name in SHOPS:
        page = {
            str(number): [
                (next(sentences), f"/html/body/div[{place + 1}]/p", field)
                for place, field in enumerate(("fixed-node", *FIELDS))
            ]
            for number in range(4)
        }
        (data / f"book-{name}-4.pickle").write_bytes(pickle.dumps(page))
    told: Words = {"root_dir": data, "model_name_or_path": model, "output_dir": home / "out"}
    told |= PER_GPU | STEADY | {"n_seed": 6, "n_pages": 4, "max_seq_length": 48, "doc_stride": 8}
    told |= {"logging_steps": 1, "num_train_epochs": 3}
    return words("do_train do_eval overwrite_output_dir", **told)


LAYOUTLM, MARKUPLM = "unilm/layoutlm/deprecated", "unilm/markuplm"
SHOPS = (
    *("abebooks", "amazon", "barnesandnoble", "bookdepository", "booksamillion", "borders"),
    *("buy", "christianbook", "deepdiscount", "waterstones"),
)
FOLDER = (
    "args = parser.parse_args()",
    "args = parser.parse_args()\n    os.makedirs(args.output_dir, exist_ok=True)",
)
# As where the package is installed, which lies beside the examples.
INSTALLED = (
    "from layoutlm import FunsdDataset",
    "import sys\n"
    "sys.path.append(os.path.join(os.path.dirname(__file__), '..', '..'))\n"
    "from layoutlm import FunsdDataset",
)
CASES = (
    Case("unilm/adalm/finetune/run_ner.py", tagger),
    Case("unilm/adalm/finetune/run_pico.py", tagger),
    Case(
        "unilm/adalm/finetune/run_classifier.py",
        pairs,
        edits=(("from nlu_finetune.utils_for_glue", "from utils_for_glue"),),
    ),
    Case(
        f"{LAYOUTLM}/examples/seq_labeling/run_seq_labeling.py",
        pages,
        root=LAYOUTLM,
        edits=(INSTALLED, FOLDER),
    ),
    Case(
        f"{MARKUPLM}/examples/fine_tuning/run_swde/run.py",
        websites,
        root=MARKUPLM,
        edits=(
            ("for i in range(10):", "for i in range(1):"),
            (
                "from markuplmft.models",
                "import sys\n"
                "sys.path.append(os.path.join(os.path.dirname(__file__), '..', '..', '..'))\n"
                "from markuplmft.models",
            ),
        ),
    ),
    Case(f"{MARKUPLM}/examples/fine_tuning/run_websrc/run.py", nothing, root=MARKUPLM),
)
