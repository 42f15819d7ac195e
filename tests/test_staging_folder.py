"""Models that are saved through a folder beside the one that is read (DF601)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ddpfix.patcher.editing.helper_code import staging_folder
from transformers import BertConfig, BertForSequenceClassification


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of each file under a folder, by its path in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def model_of(seed: int) -> BertForSequenceClassification:
    """A model of two tokens and one layer, other weights for other seeds."""
    torch.manual_seed(seed)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=2,
            hidden_size=4,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=4,
            max_position_embeddings=4,
        )
    )


def save_until_disk_is_full(model: BertForSequenceClassification, folder: Path) -> None:
    """Save a model, and fail before the save ends."""
    with staging_folder(folder) as staging:
        model.save_pretrained(staging)
        raise OSError("disk")


def test_a_model_has_the_files_that_it_has_without(tmp_path: Path) -> None:
    model = model_of(1)
    model.save_pretrained(tmp_path / "directly")
    for seed in (2, 1):  # over those of another one
        with staging_folder(tmp_path / "staged" / "best") as staging:
            model_of(seed).save_pretrained(staging)
    assert contents(tmp_path / "staged" / "best") == contents(tmp_path / "directly")
    assert len(contents(tmp_path)) == 2 * len(contents(tmp_path / "directly"))


def test_a_save_that_ends_early_leaves_what_was_there(tmp_path: Path) -> None:
    model_of(1).save_pretrained(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(OSError, match="disk"):
        save_until_disk_is_full(model_of(2), tmp_path)
    left = contents(tmp_path)
    assert {name: left[name] for name in before} == before

    with staging_folder(tmp_path) as staging:
        Path(staging, "only.txt").write_text("x")
    assert contents(tmp_path) == before | {"only.txt": b"x"}


def test_folders_in_the_folder_are_filled_too(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "old").write_text("old")
    with staging_folder(tmp_path) as staging:
        Path(staging, "parts", "deep").mkdir(parents=True)
        Path(staging, "parts", "deep", "new").write_text("new")
    assert contents(tmp_path) == {"parts/old": b"old", "parts/deep/new": b"new"}
