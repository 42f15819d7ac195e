"""Memory by a config.json against that of the recipes: python benchmarks/memory_config.py

Each recipe's batch is planned twice for one card: by the recipe, and as a user without it would, by
the script, the recipe's arguments and a config.json with the recipe's sizes. Prints a table in
Markdown: both figures, or why the second is refused. The exit status is 1 where a figure is more
than 5 % away; a refusal is no error, for it sends the user to a probe.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.recipes.load import load, recipe_names
from ddpfix.recipes.model import Recipe

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
CARD = "1x H200"
MOST = 0.05
NAMES = ("model_name", "model_name_or_path", "config_name", "tokenizer_name")
"""Options that take the folder of a model."""


def main() -> int:
    """Print the table; 1 where a prediction is too far from the recipe's."""
    far = 0
    print("| recipe | batch | by the recipe / GB | by config.json / GB | error |")
    print("|---|---|---|---|---|")
    for name in recipe_names():
        recipe = load(name)
        if recipe.model is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            error, row = compare(recipe, Path(folder))
        print(f"| {name} | {recipe.batch.per_device_cap} | {row} |", flush=True)
        far += abs(error) > MOST
    return 1 if far else 0


def compare(recipe: Recipe, folder: Path) -> tuple[float, str]:
    """How far the config's figure is from the recipe's, and both as cells of a row."""
    batch = recipe.batch.per_device_cap
    script = str(FIXTURES / recipe.family / recipe.script)
    common = ("--gpus", CARD, "--per-device", str(batch), "--global-batch", str(batch))
    one, _ = memory((*common, "--recipe", recipe.name, "--script", script))
    write_config(recipe, folder)
    other, because = memory((*common, script, "--", *words(recipe, folder)))
    if not one:
        raise SystemExit(f"{recipe.name}: its recipe predicts nothing: {because}")
    if not other:
        return 0.0, f"{one / 1e9:.2f} | refused | {because}"
    error = other / one - 1
    return error, f"{one / 1e9:.2f} | {other / 1e9:.2f} | {error:+.3%}"


def memory(options: tuple[str, ...]) -> tuple[int, str]:
    """The peak of a plan in bytes, or 0 and why there is none."""
    done = CliRunner().invoke(ddpfix, ["plan", "--json", *options])
    if done.exit_code:
        return 0, done.output.strip().splitlines()[-1]
    found = json.loads(done.stdout)["memory"]
    if found and found.get("peak"):
        return int(found["peak"]["total"]), ""
    told = CliRunner().invoke(ddpfix, ["plan", *options]).stdout.splitlines()
    return 0, next((line for line in told if line.startswith("memory is not predicted")), "")


def words(recipe: Recipe, folder: Path) -> list[str]:
    """The arguments of the recipe as a user types them, with the folder as the model's name."""
    values: dict[str, object] = {
        recipe.flags.train_batch: recipe.batch.per_device_cap,
        recipe.flags.output: "out",
        **recipe.arguments,
    }
    for flag in values:
        if flag.lstrip("-").replace("-", "_") in NAMES:
            values[flag] = str(folder)
    return [
        word
        for flag, value in values.items()
        for word in _spelled(flag, value, joined=recipe.joined)
    ]


def _spelled(flag: str, value: object, *, joined: bool) -> list[str]:
    """An option as one word or as two."""
    if value is True:
        return [flag]
    return [f"{flag}={value}"] if joined else [flag, str(value)]


def write_config(recipe: Recipe, folder: Path) -> None:
    """The config.json of the recipe's model, with the names that its class has for the sizes."""
    model = recipe.model
    assert model is not None
    sizes = {
        "vocab_size": model.vocabulary,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.intermediate,
        "max_position_embeddings": model.positions,
        "type_vocab_size": model.token_types,
    }
    if model.architecture == "gpt2":
        sizes = {
            "vocab_size": model.vocabulary,
            "n_embd": model.hidden,
            "n_layer": model.layers,
            "n_head": model.heads,
            "n_inner": model.intermediate,
            "n_positions": model.positions,
        }
    text = json.dumps({"model_type": model.architecture, **sizes})
    (folder / "config.json").write_text(text)


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    sys.exit(main())
