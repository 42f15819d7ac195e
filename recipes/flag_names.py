"""The usual names of training scripts' flags, by role.

The names are those of CodeXGLUE, CodeBERT, CodeT5, the examples of transformers and their
descendants, from public shell files and parsers; dashes and underscores are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Role (a field of recipes.model.Flags) -> names, the likelier ones first.
ROLES: dict[str, tuple[str, ...]] = {
    "train_batch": (
        "train_batch_size",
        "per_gpu_train_batch_size",
        "per_device_train_batch_size",
        "per_gpu_batch_size",
        "batch_size_per_gpu",
        "micro_batch_size",
        "batch_size",
        "batchsize",
        "train_bs",
        "bs",
    ),
    "eval_batch": (
        "eval_batch_size",
        "per_gpu_eval_batch_size",
        "per_device_eval_batch_size",
        "valid_batch_size",
        "val_batch_size",
        "dev_batch_size",
        "test_batch_size",
    ),
    "accumulation": (
        "gradient_accumulation_steps",
        "gradient_accumulate_steps",
        "grad_accumulation_steps",
        "grad_accum_steps",
        "accumulation_steps",
        "accumulate_grad_batches",
        "grad_accum",
        "accum_steps",
    ),
    "output": (
        "output_dir",
        "output_path",
        "out_dir",
        "save_dir",
        "save_path",
        "saved_dir",
        "checkpoint_dir",
        "ckpt_dir",
        "model_save_path",
        "output",
    ),
    "learning_rate": ("learning_rate", "lr"),
    "epochs": (
        *("num_train_epochs", "epoch", "epochs", "num_epochs", "train_epochs", "max_epochs"),
        "num_training_epochs",
    ),
    "max_steps": (
        *("max_steps", "train_steps", "max_train_steps", "num_train_steps"),
        "num_training_steps",
    ),
    "sequence_length": (
        "block_size",
        "max_seq_length",
        "max_source_length",
        "code_length",
        "max_length",
        "max_seq_len",
        "max_len",
        "seq_length",
        "seq_len",
    ),
    "seed": ("seed", "random_seed"),
}

MAX_STEPS = ROLES["max_steps"]
"""Number of optimizer steps after which training ends. Not looked up as a role in shell files, as
many scripts overwrite it: a recipe says with flags.max_steps that its script obeys it."""

PER_PROCESS = ("per_gpu", "per_device", "micro_batch")
"""Parts of batch flags' names that mean the batch of one process, never that of all GPUs."""

DATA_FLAG = re.compile(
    r"(?=.*(train|eval|dev|valid|val|test|query|candidate|codebase|data|corpus))"
    r"(?=.*(file|filename|path|data|set|src|tgt))(?!.*(dir|model|output|out_|save|cache|log|trace))"
)
DATA_FILE = re.compile(r"[^,\s]+\.(txt|jsonl?|csv|tsv|pkl|pickle|parquet|gz|zip|h5|src|tgt|raw)")
DATA_FOLDERS = ("data_dir", "data_folder", "data_root", "dataset_dir")
"""Flags of a folder to which a script adds the bare names of its data files."""
TRAINING_DATA = re.compile(r"^(?!.*(eval|dev|valid|test)).*train")
# Suffixes of training files with one example per line.
LINE_FORMATS = (".txt", ".jsonl", ".tsv")
EVALUATION_SWITCH = re.compile(r"(do_)?(test|eval|predict|inference|valid)(_only)?")


def normalize_flag(flag: str) -> str:
    """The flag's name in lower case, without leading dashes and with underscores."""
    return flag.lstrip("-").replace("-", "_").lower()


def flag_for(role: str, flags: Iterable[str]) -> str | None:
    """The most likely of ``flags`` for a role; None where none is known for it."""
    by_name = {normalize_flag(flag): flag for flag in flags}
    return next((by_name[name] for name in ROLES[role] if name in by_name), None)


def is_data(flag: str, value: str) -> bool:
    """Whether a flag and its value name a data file."""
    return bool(DATA_FLAG.match(normalize_flag(flag)) and DATA_FILE.fullmatch(value))
