"""Recipes are data: they are read strictly, and a mistake is one line that names the field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ddpfix.errors import InputError
from ddpfix.recipes import model
from ddpfix.recipes.load import load, recipe_names, recipe_toml
from ddpfix.recipes.parse import parse

HERE = Path(model.__file__).parent
TEXT = (HERE / "codegpt-bigclonebench-legacy.toml").read_text()


FIXTURES = HERE.parent / "fixtures"


@pytest.mark.parametrize("name", recipe_names())
def test_the_recipe_is_sound_and_its_flags_are_those_of_its_familys_script(name: str) -> None:
    recipe = load(name)
    script = (FIXTURES / recipe.family / recipe.script).read_text()
    accepted = set(re.findall(r"add_argument\(\s*['\"](--[\w-]+)", script))
    if "@dataclass" in script:  # of which each field is a flag
        accepted |= {f"--{name}" for name in re.findall(r"(?m)^    (\w+): \w+ = ", script)}
    flags = recipe.flags
    named: list[str | None] = [flags.train_batch, flags.eval_batch, flags.accumulation]
    named += [flags.output, flags.learning_rate, flags.epochs, flags.sequence_length, flags.seed]
    assert {*filter(None, named), *recipe.arguments, *recipe.data.files} <= accepted
    assert recipe.name == name
    assert recipe == parse(recipe_toml(name), source=f"{name}.toml", name=name)


def test_the_two_legacy_recipes_of_family_a_differ_in_the_model_and_the_cap_alone() -> None:
    gpt = load("codegpt-bigclonebench-legacy")
    bert = load("codebert-bigclonebench")
    assert gpt.arguments["--model_name_or_path"] == "microsoft/CodeGPT-small-java-adaptedGPT2"
    assert bert.arguments["--model_name_or_path"] == "microsoft/codebert-base"
    assert (gpt.batch.global_batch, bert.batch.global_batch) == (16, 16)
    assert (gpt.batch.per_device_cap, bert.batch.per_device_cap) == (8, 16)
    same = set(gpt.arguments) - {
        "--model_type",
        "--config_name",
        "--model_name_or_path",
        "--tokenizer_name",
    }
    assert {k: gpt.arguments[k] for k in same} == {k: bert.arguments[k] for k in same}


# Recipe -> global batch, at most per device, evaluation batch, and arguments.
ANCHOR: dict[str, object] = {"--lora-rank": 32, "--lora-alpha": 64, "--projection-dim": 768}
FIGURES: dict[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "anchor-xlmr-large": ((512, 256, 256), ANCHOR),
    "anchor-xlmr-xl": ((384, 192, 192), ANCHOR),
    "anchor-xlmr-xxl": ((256, 128, 128), ANCHOR),
    "code-detector": (
        (256, 128, 256),
        {
            "--epochs": 10,
            "--freeze_epochs": 2,
            "--learning_rate": "3e-5",
            "--num_workers": 8,
            "--prefetch_factor": 2,
            "--warmup_steps": 1000,
        },
    ),
    "codegpt-bigclonebench": (
        (64, 8, 32),
        {
            "--block_size": 1024,
            "--epoch": 2,
            "--learning_rate": "5e-5",
            "--max_grad_norm": 1.0,
            "--save_steps": 500,
            "--save_total_limit": 2,
            "--seed": 3,
        },
    ),
    "codegpt-bigclonebench-legacy": ((16, 8, 32), {"--block_size": 400, "--seed": 123456}),
    "graphcodebert-clonedetection": (
        (64, 16, 32),
        {"--code_length": 400, "--data_flow_length": 128},
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_of_the_recipe_are_those_it_is_known_by(name: str) -> None:
    recipe = load(name)
    sizes, arguments = FIGURES[name]
    batch = recipe.batch
    assert (batch.global_batch, batch.per_device_cap, batch.eval_per_device) == sizes
    assert (recipe.arguments | recipe.if_declared).items() >= arguments.items()


@pytest.mark.parametrize("name", recipe_names())
def test_every_figure_of_the_recipe_has_a_source(name: str) -> None:
    recipe = load(name)
    given = recipe.arguments | recipe.if_declared
    words = {flag for flag, value in given.items() if value is True or "name" in flag}
    named = {figure for figure in model.figures_of(recipe) if figure not in words}
    if recipe.data.train_share == 1:
        named.discard("data.train_share")
    assert {*recipe.sources} == named - {"--model_type"}
    assert all(recipe.sources.values())


def test_a_recipe_answers_to_its_other_name_and_no_two_to_the_same() -> None:
    assert load("graphcodebert") == load("graphcodebert-clonedetection")
    names = [*recipe_names(), *(x for name in recipe_names() for x in load(name).aliases)]
    assert len(names) == len({*names})


def test_a_recipe_of_ones_own_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace("global_batch = 16", "global_batch = 48"))
    recipe = load(str(path))
    assert (recipe.name, recipe.batch.global_batch) == ("mine", 48)


def test_arguments_keep_their_order() -> None:
    assert list(load("codegpt-bigclonebench").arguments)[:2] == [
        "--model_type",
        "--config_name",
    ]


# What is wrong: the text replaced, what replaces it, and the whole complaint.
MISTAKES = {
    "text for a number": (
        "global_batch = 16",
        'global_batch = "16"',
        "field batch.global_batch: '16' is not a whole number",
    ),
    "a fraction": (
        "global_batch = 16",
        "global_batch = 16.5",
        "field batch.global_batch: 16.5 is not a whole number",
    ),
    "a batch of zero": (
        "global_batch = 16",
        "global_batch = 0",
        "field batch: global_batch is 0, but has to be 1 or more",
    ),
    "a field left out": (
        'train_batch = "--train_batch_size"',
        "",
        "field flags.train_batch: required field missing",
    ),
    "a table left out": (
        '[output]\nfolder = "saved_models"',
        "",
        "field output: required field missing",
    ),
    "an unknown field": ("[flags]", "[flags]\nx = 1", "field flags: extra fields found (x)"),
    "a name of its own": (
        'script = "run.py"',
        'script = "run.py"\nname = "y"',
        "field name: a recipe is named by its file, leave this out",
    ),
    "a flag without dashes": (
        '"--epoch" = 2',
        "epoch = 2",
        "arguments holds 'epoch', which is no flag: write it as '--name'",
    ),
    "a switch turned off": (
        '"--epoch" = 2',
        '"--epoch" = false',
        "field arguments['--epoch']: False is neither text nor a number nor true: leave it out",
    ),
    "a string for a list": (
        'beside = ["data.jsonl"]',
        'beside = "data.jsonl"',
        "field data.beside: 'data.jsonl' is not a list of strings",
    ),
    "a share above all": (
        "train_share = 0.1",
        "train_share = 1.5",
        "field data: train_share is 1.5, but has to be above 0 and at most 1",
    ),
    "a training file that is no file": (
        'train = "--train_data_file"',
        'train = "--train"',
        "field data: train is '--train', which is none of files",
    ),
    "a source of nothing": (
        "[sources]",
        '[sources]\n"--lr" = "README"',
        "sources names '--lr', which is no figure of this recipe",
    ),
    "an absolute output folder": (
        'folder = "saved_models"',
        'folder = "/x"',
        "field output: folder is '/x', but has to be a relative path",
    ),
    "heads that do not share the width": (
        "heads = 12",
        "heads = 7",
        "field model: hidden is 768, which 7 heads cannot share",
    ),
    "a head without its projection": (
        'head = "pair"',
        'head = "anchor"',
        "field model: projection is missing, which head = 'anchor' needs",
    ),
    "a length by a flag without dashes": (
        'length = ["--block_size"]',
        'length = ["block_size"]',
        "field model: length holds 'block_size', which is no flag and no number",
    ),
    "a number for a script": ('"run.py"', "3", "field script: 3 is not a string"),
}


@pytest.mark.parametrize(("old", "new", "complaint"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_complaint_is_one_line_that_names_file_and_field_about(
    old: str, new: str, complaint: str
) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(InputError) as caught:
        parse(TEXT.replace(old, new), source="recipes/x.toml", name="x")
    assert str(caught.value) == f"recipes/x.toml: {complaint}"


def test_text_that_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(InputError, match=r"^recipes/x.toml: no valid TOML: .*line 2") as caught:
        parse("a = 1\n[b\n", source="recipes/x.toml", name="x")
    assert "\n" not in str(caught.value)


def test_a_misspelt_name_is_answered_with_the_nearest_and_all_known() -> None:
    with pytest.raises(InputError, match="did you mean codegpt-bigclonebench") as caught:
        load("codegpt")
    for name in recipe_names():
        assert name in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["that is missing", "not in UTF-8"])
def test_a_recipe_that_cannot_be_read_is_refused_in_one_line(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(str(path))):
        load(str(path))


@pytest.mark.parametrize(
    ("new", "message"),
    [
        pytest.param("9" * 5000, "no valid TOML", id="5,000 digits"),
        pytest.param("0x" + "f" * 5000, "the number is too large", id="5,000 digits of base 16"),
        pytest.param(str(1 << 63), "the number is too large", id="64 bits and a sign"),
        pytest.param("[" * 5000 + "]" * 5000, "nested too deeply", id="lists in lists"),
        pytest.param("{a=" * 5000 + "1" + "}" * 5000, "nested too deeply", id="tables in tables"),
    ],
)
def test_numbers_and_nesting_beyond_sense_are_one_line(new: str, message: str) -> None:
    assert TEXT.count("heads = 12") == 1
    with pytest.raises(InputError) as caught:
        parse(TEXT.replace("heads = 12", f"heads = {new}"), source="x.toml", name="x")
    text = str(caught.value)
    assert text.startswith("x.toml: ")
    assert message in text
    assert "\n" not in text
    assert len(text) < 300
