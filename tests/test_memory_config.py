"""Memory without a recipe: the model that arguments lead to, predicted from its config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from command_line import run
from ddpfix.launchers.script.model_folder import find_config
from ddpfix.recipes.load import load

SCRIPT = """
import argparse
import torch
from torch.utils.data import DataLoader
from transformers import CLASS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name_or_path", default=None)
    parser.add_argument("--max_seq_length", type=int, default=32)
    parser.add_argument("--max_target_length", type=int, default=16)
    parser.add_argument("--train_batch_size", type=int, default=8)
    parser.add_argument("--output_dir", default="out")
    args = parser.parse_args()
    model = CLASS.from_pretrained(args.model_name_or_path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for ids, labels in DataLoader(list(range(64)), batch_size=args.train_batch_size):
        model(ids, labels=labels)[0].backward()
        optimizer.step()
    model.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
"""
BERT: dict[str, Any] = {
    "vocab_size": 3000,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 64,
}
DISTILBERT = {"dim": 128, "n_layers": 2, "n_heads": 2, "hidden_dim": 512}
# Class -> the sizes in its config.json.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "BertForSequenceClassification": {"model_type": "bert", **BERT},
    "RobertaForMaskedLM": {"model_type": "roberta", **BERT},
    "DistilBertForTokenClassification": {
        "model_type": "distilbert",
        "vocab_size": 3000,
        "max_position_embeddings": 64,
        **DISTILBERT,
    },
    "GPT2LMHeadModel": {
        "model_type": "gpt2",
        "vocab_size": 3000,
        "n_embd": 128,
        "n_layer": 14,
        "n_head": 2,
    },
    "T5ForConditionalGeneration": {
        "model_type": "t5",
        "is_encoder_decoder": True,
        "decoder_start_token_id": 0,
        "vocab_size": 3000,
        "d_model": 128,
        "d_kv": 64,
        "d_ff": 512,
        "num_layers": 2,
        "num_heads": 2,
    },
}
CARDS = "2x A100 80GB"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def write(here: Path, model_class: str, folder: Path) -> None:
    (here / "train.py").write_text(SCRIPT.replace("CLASS", model_class))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(ARCHITECTURES[model_class]))


def real_bytes(folder: Path, model_class: str) -> tuple[int, int]:
    """The bytes of all weights and buffers of the class with that config, and of its weights."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = getattr(transformers, model_class)(config)
    weights = sum(weight.numel() * weight.itemsize for weight in model.parameters())
    return weights + sum(each.numel() * each.itemsize for each in model.buffers()), weights


@pytest.mark.parametrize("model_class", ARCHITECTURES)
def test_weights_and_moments_are_those_of_the_config(model_class: str, here: Path) -> None:
    write(here, model_class, here / "model")
    words = ("train.py", "--", "--model_name_or_path", "model")
    done = run("plan", "--gpus", CARDS, "--json", *words)
    assert done.exit_code == 0, done.output
    memory = json.loads(done.stdout)["memory"]
    held, trained = real_bytes(here / "model", model_class)
    # The allocator gives each tensor a multiple of 512 bytes.
    assert held <= memory["peak"]["parameters"] < held * 1.01
    assert 2 * trained <= memory["peak"]["optimizer"] < 2 * trained * 1.01
    assert trained <= memory["peak"]["buckets"] < trained * 1.01
    told = run("plan", "--gpus", CARDS, *words).stdout  # by the prediction in the cache
    size = "32 tokens and 16 of the target" if model_class.startswith("T5") else "32 tokens"
    assert f"memory rests on model/config.json: {model_class}, {size}, adamw" in told.splitlines()


ROBERTA = {
    "model_type": "roberta",
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
}
GPT2 = {"model_type": "gpt2", "n_inner": 3072, "layer_norm_epsilon": 1e-5}


@pytest.mark.parametrize(
    ("recipe", "sizes"),
    [("codebert-bigclonebench", ROBERTA), ("codegpt-bigclonebench", GPT2)],
)
def test_a_config_predicts_what_the_recipe_of_its_script_does(
    recipe: str, sizes: dict[str, Any], here: Path
) -> None:
    (here / "model").mkdir()
    found = load(recipe)
    assert found.model is not None
    same = {**sizes, "vocab_size": found.model.vocabulary}
    (here / "model" / "config.json").write_text(json.dumps(same))
    script = ROOT / "fixtures" / "bigclonebench" / "run.py"
    flag = found.flags.train_batch
    common = ("plan", "--json", "--gpus", "1x H200", "--per-device", 4, "--global-batch", 8)
    by_recipe = run(*common, "--recipe", recipe, "--script", script)
    assert by_recipe.exit_code == 0, by_recipe.output
    words = ("--model_type", sizes["model_type"], "--model_name_or_path", "model", flag, "8")
    length = ("--block_size", str(found.arguments["--block_size"]))
    by_config = run(*common, script, "--", *words, *length, "--output_dir", "out")
    assert by_config.exit_code == 0, by_config.output
    one, other = (json.loads(each.stdout)["memory"]["peak"] for each in (by_recipe, by_config))
    for part in ("total", "parameters", "optimizer", "activations"):
        assert other[part] == pytest.approx(one[part], rel=0.05)


def test_the_length_and_the_batch_of_the_command_count(here: Path) -> None:
    write(here, "BertForSequenceClassification", here / "model")

    def activations(*words: str) -> int:
        command = ("train.py", "--", "--model_name_or_path", "model", *words)
        done = run("plan", "--gpus", CARDS, "--json", *command)
        return int(json.loads(done.stdout)["memory"]["peak"]["activations"])

    small = activations("--train_batch_size", "64")
    assert activations("--train_batch_size", "128") > 1.8 * small
    assert activations("--train_batch_size", "64", "--max_seq_length", "64") > 1.8 * small


# Words of the command, and why nothing is predicted.
UNKNOWN = {
    "no name": ((), "makes the model of a name not known: pass --model_name_or_path"),
    "a name that is not here": (
        ("--model_name_or_path", "no/such"),
        "--model_name_or_path no/such: neither a folder with a config.json nor in the hub's local "
        "cache; name a folder, or --probe N measures it",
    ),
    "no length": (
        ("--model_name_or_path", "model", "--max_seq_length", "-1"),
        "the length of a sequence is not known: pass --max_seq_length; --probe N measures it",
    ),
    "a class that is not there": (
        ("--model_name_or_path", "strange"),
        "Unrecognized model identifier: strange",
    ),
}


@pytest.mark.parametrize(("words", "because"), UNKNOWN.values(), ids=UNKNOWN)
def test_where_nothing_is_predicted_it_is_said_why(
    words: tuple[str, ...], because: str, here: Path
) -> None:
    write(here, "BertForSequenceClassification", here / "model")
    (here / "strange").mkdir()
    (here / "strange" / "config.json").write_text('{"model_type": "strange"}')
    done = run("plan", "--gpus", CARDS, "train.py", "--", *words)
    assert done.exit_code == 0, done.output
    line = next(one for one in done.stdout.splitlines() if "memory" in one)
    assert line.startswith("memory is not predicted: ")
    assert because in line


def test_a_decoder_without_a_length_of_its_own_is_not_guessed(here: Path) -> None:
    write(here, "T5ForConditionalGeneration", here / "model")
    script = (here / "train.py").read_text().replace("max_target_length", "max_words")
    (here / "train.py").write_text(script)
    words = ("train.py", "--", "--model_name_or_path", "model")
    said = run("plan", "--gpus", CARDS, *words).stdout
    because = "which option is the length of a target cannot be told; --probe N measures it"
    assert f"memory is not predicted: {because}" in said.splitlines()


def test_a_name_is_looked_up_in_the_local_cache_of_the_hub(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cached(root: Path, commit: str) -> Path:
        path = root / "models--some--bert" / "snapshots" / commit / "config.json"
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        return path

    assert find_config("some/bert") is None
    hub = here / "cache" / "huggingface" / "hub"
    first, second = cached(hub, "aaa"), cached(hub, "bbb")
    assert find_config("some/bert") == first
    main = hub / "models--some--bert" / "refs" / "main"
    main.parent.mkdir()
    main.write_text("bbb\n")
    assert find_config("some/bert") == second
    monkeypatch.setenv("HF_HOME", str(here / "home"))
    assert find_config("some/bert") is None
    third = cached(here / "home" / "hub", "ccc")
    assert find_config("some/bert") == third
    assert find_config("some/bert", str(hub)) == second
    folder = here / "some" / "bert"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert find_config("some/bert") == Path("some/bert/config.json")
