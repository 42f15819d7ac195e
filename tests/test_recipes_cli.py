"""``ddpfix recipes``: what there is, what one says, and a new one from a shell file."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from ddpfix.launchers.backends.command import ScriptCall
from ddpfix.launchers.planning.planner import PlanRequest
from ddpfix.launchers.script.arguments import parse_flags
from ddpfix.recipes import model
from ddpfix.recipes.flag_names import ROLES
from ddpfix.recipes.load import load, recipe_names
from ddpfix.recipes.parse import parse
from ddpfix.record import replace

FIXTURES = Path(model.__file__).parents[1] / "fixtures"


def test_every_recipe_is_listed_with_its_other_names() -> None:
    lines = run("recipes").stdout.splitlines()
    for name in recipe_names():
        recipe = load(name)
        [line] = [line for line in lines if line.startswith((f"{name} ", f"{name}, "))]
        assert recipe.description in line
        assert all(alias in line for alias in recipe.aliases)
    assert [one["name"] for one in json.loads(run("recipes", "--json").stdout)] == recipe_names()


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_shown_with_every_figure_and_its_source(name: str) -> None:
    recipe = load(name)
    shown = run("recipes", "show", name).stdout
    for figure, source in recipe.sources.items():
        [line] = re.findall(rf"^{re.escape(figure)} .*$", shown, re.MULTILINE)
        assert line.endswith(source)
    for flag, value in recipe.arguments.items():
        assert re.search(
            rf"^{flag} +{'on' if value is True else re.escape(str(value))}( |$)", shown, re.M
        )


def test_a_recipe_is_shown_as_json_and_as_the_file_that_it_is() -> None:
    answer = json.loads(run("recipes", "show", "graphcodebert", "--json").stdout)
    assert answer["batch"]["global_batch"] == 64
    assert answer["name"] == "graphcodebert-clonedetection"
    text = run("recipes", "show", "graphcodebert", "--toml").stdout
    again = parse(text, source="mine.toml", name="graphcodebert-clonedetection")
    assert again == load("graphcodebert")


def test_on_a_terminal_a_recipe_is_a_table() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ddpfix", "recipes", "show", "codebert-bigclonebench"]
    with subprocess.Popen(command, stdout=theirs, env=os.environ | {"COLUMNS": "160"}) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the other end is closed
            pass
    assert process.returncode == 0
    assert "│" in shown.decode()
    os.close(ours)


def test_an_unknown_recipe_is_refused_in_one_line() -> None:
    for option in ((), ("--toml",), ("--json",)):
        done = run("recipes", "show", "codegpt", *option)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "did you mean codegpt-bigclonebench" in done.stderr


def new(folder: Path, text: str, *arguments: str, name: str = "run.sh") -> Any:
    """What `recipes new` makes of a shell file."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return run("recipes", "new", "--from", folder / name, *arguments)


def recipe_of(folder: Path, text: str, *arguments: str) -> model.Recipe:
    done = new(folder, text, *arguments)
    assert done.exit_code == 0, done.stderr
    return parse(done.stdout, source="new.toml", name="new")


@pytest.mark.parametrize("which", ["codegpt", "codebert"])
def test_the_shell_files_of_family_a_give_the_recipes_of_family_a(which: str) -> None:
    path = FIXTURES / "bigclonebench" / f"run_{which}.sh"
    done = run("recipes", "new", "--from", path)
    recipe = parse(done.stdout, source="new.toml", name="new")
    name = "codegpt-bigclonebench-legacy" if which == "codegpt" else "codebert-bigclonebench"
    known = load(name)
    assert recipe.arguments == known.arguments
    assert (recipe.flags, recipe.joined) == (known.flags, known.joined)
    assert recipe.batch.global_batch == known.batch.global_batch
    assert recipe.batch.eval_per_device == known.batch.eval_per_device
    assert recipe.data == model.Data("../dataset", known.data.files, train="--train_data_file")
    assert recipe.output.folder == f"saved_models/{which}"
    assert f"saved_models/{which}/train.log is log.txt of the run folder" in done.stderr
    line = (
        path.read_text()
        .splitlines()
        .index(f"    --seed 123456 2>&1 | tee ./saved_models/{which}/train.log")
    )
    assert recipe.sources["--seed"] == f"run_{which}.sh, line {line + 1}"


def test_that_of_family_d_is_told_as_the_fields_of_its_dataclass_are() -> None:
    path = FIXTURES / "detector" / "run.sh"
    recipe = parse(run("recipes", "new", "--from", path).stdout, source="d", name="d")
    known = load("code-detector")
    assert (recipe.flags, recipe.data) == (known.flags, known.data)
    assert recipe.joined is known.joined is True
    told = replace(known.batch, cap_memory=recipe.batch.cap_memory)  # of which card it is not
    assert recipe.batch == told


LAUNCHED = """\
GPUS=4
python -m torch.distributed.launch --nproc_per_node=$GPUS code/train.py --train_file data/t.jsonl \\
  --per_gpu_train_batch_size 8 --gradient_accumulation_steps 2 --out_dir /big/out --lr 1e-4 \\
  --gpu_per_node $GPUS --tags a b -q --lang $1 --weight_decay 0.010 --fp16
"""


def test_what_is_taken_over_is_what_the_command_says(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, LAUNCHED)
    assert recipe.script == "code/train.py"
    assert recipe.batch == model.Batch(global_batch=64, per_device_cap=8, eval_per_device=8)
    assert recipe.flags.accumulation == "--gradient_accumulation_steps"
    assert recipe.flags.learning_rate == "--lr"
    # Relative to the script's folder.
    assert recipe.data == model.Data("../data", {"--train_file": "t.jsonl"}, train="--train_file")
    assert recipe.output.folder == "big/out"
    assert recipe.arguments == {
        "--lr": "1e-4",
        "--gpu_per_node": 4,
        "--weight_decay": "0.010",
        "--fp16": True,
    }
    assert recipe.sources["batch.global_batch"] == (
        "run.sh, line 3: 8 per process x 4 x 2 accumulated"
    )


def test_what_is_not_taken_over_is_said_and_stands_in_the_file_as_a_comment(
    tmp_path: Path,
) -> None:
    done = new(tmp_path, LAUNCHED)
    for left_out in (
        "--tags a b: it takes several values, a recipe's one",
        "-q: a recipe's flags begin with --",
        "--lang $1: $1 is not known, pass the arguments of run.sh behind --",
    ):
        argument, _, reason = left_out.partition(": ")
        assert f"# left out: {left_out}\n" in done.stdout
        assert f"{argument} is left out: {reason}\n" in done.stderr
    assert "--gpu_per_node stays as it is" in done.stderr
    assert recipe_of(tmp_path, LAUNCHED, "--", "go").arguments["--lang"] == "go"


def test_a_script_that_is_started_in_another_folder_is_to_be_launched_there(
    tmp_path: Path,
) -> None:
    text = "cd code\npython src/train.py --train_file ../data/t.txt --batch_size 2 --bpe ../bpe"
    (tmp_path / "code" / "src").mkdir(parents=True)
    (tmp_path / "code" / "src" / "train.py").write_text(SCRIPT)
    done = new(tmp_path, text)
    recipe = parse(done.stdout, source="new.toml", name="new")
    assert recipe.script == "src/train.py"
    assert recipe.data.folder == "../../data"
    assert "train.py has no flag for the output folder" in done.stderr  # it was read
    assert "it is started in the folder code: launch it there" in done.stderr
    assert "# Launch it in the folder code, seen from that file: " in done.stdout


def test_bare_names_of_files_are_left_to_the_script_where_it_has_a_data_folder(
    tmp_path: Path,
) -> None:
    text = "python train.py --data_dir ../d --train_file t.txt --dev_file x/d.txt --batch_size 2"
    recipe = recipe_of(tmp_path, text)
    assert recipe.arguments == {"--data_dir": "../d", "--train_file": "t.txt"}
    assert recipe.data == model.Data("x", {"--dev_file": "d.txt"})


# The command's beginning -> the global batch, and at most per device, of a batch of 12.
CARDS = {
    "python run.py": (12, 12),
    "CUDA_VISIBLE_DEVICES=0,1,2 python run.py": (12, 4),
    "export CUDA_VISIBLE_DEVICES=0,1; python run.py": (12, 6),
    "CUDA_VISIBLE_DEVICES=0,1; python run.py": (12, 12),
    "torchrun --nproc_per_node 2 --nnodes 3 run.py": (72, 12),
    "torchrun run.py": (12, 12),
    "accelerate launch --num_processes=4 run.py": (48, 12),
    "accelerate launch run.py": (12, 12),
    "nohup python3 -u -m torch.distributed.run --nproc-per-node 2 run.py": (24, 12),
}


@pytest.mark.parametrize("start", CARDS)
def test_the_batch_is_that_of_all_cards_or_of_each_in(start: str, tmp_path: Path) -> None:
    batch = recipe_of(tmp_path, f"{start} --do_train --train_batch_size 12").batch
    assert (batch.global_batch, batch.per_device_cap) == CARDS[start]


SAID = {
    "python run.py": "without CUDA_VISIBLE_DEVICES it takes all cards",
    "CUDA_VISIBLE_DEVICES=0,1\npython run.py": "CUDA_VISIBLE_DEVICES of line 1 is not exported",
    "accelerate launch run.py": "how many processes it starts is not known (its launcher's sett",
    "torchrun --nproc_per_node $(nvidia-smi -L | wc -l) run.py": "wc -l)): read as for one",
    "for lr in 1 2; do python run.py --lr $lr": "lr is 1, the first of 2 in line 1",
    "python run.py --max_steps 90": "--max_steps is taken to be obeyed; if not, leave flags.max_s",
    "python run.py conf.yaml": "conf.yaml is left out: a recipe has arguments behind flags only",
    "python run.py --output_dir out/$(date)": "where it writes is not known (out/$(date))",
}


@pytest.mark.parametrize("start", SAID)
def test_what_is_supposed_is_said_of(start: str, tmp_path: Path) -> None:
    end = "; done" if start.startswith("for") else ""
    done = new(tmp_path, f"{start} --do_train --train_batch_size 12{end}")
    assert done.exit_code == 0, done.stderr
    assert SAID[start] in done.stderr


SCRIPT = """\
import argparse
from options import add_more
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=24)
add_more(parser)
"""
OPTIONS = """\
def add_more(parser):
    parser.add_argument("--grad-accum-steps", "-g", type=int, default=3)
    parser.add_argument("--eval-batch-size", type=int)
"""


def test_flags_and_defaults_are_looked_up_in_the_script_and_in_what_it_imports(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "options.py").write_text(OPTIONS)
    done = new(tmp_path, "CUDA_VISIBLE_DEVICES=1 python train.py --epochs 2")
    recipe = parse(done.stdout, source="new.toml", name="new")
    assert recipe.flags == model.Flags(
        train_batch="--batch-size",
        eval_batch="--eval-batch-size",
        accumulation="--grad-accum-steps",
        epochs="--epochs",
    )
    assert recipe.batch == model.Batch(global_batch=72, per_device_cap=24, eval_per_device=24)
    assert recipe.sources["batch.global_batch"].startswith("default of train.py: ")
    assert "train.py has no flag for the output folder" in done.stderr


def test_a_script_without_a_flag_is_launched_without_it_and_does_not_accumulate(
    tmp_path: Path,
) -> None:
    recipe = recipe_of(tmp_path, "torchrun train.py --train_batch_size 16 --lr 1")
    (tmp_path / "train.py").touch()
    plan = PlanRequest(recipe, tmp_path / "train.py", per_device=4).plan(3)
    assert (plan.per_device, plan.accumulation, plan.global_batch) == (4, 1, 12)
    words, _ = ScriptCall(recipe, tmp_path / "train.py", plan, tmp_path).arguments()
    assert words == ["--lr", "1", "--train_batch_size", "4"]


SEVERAL = """\
pip install torch
python prepare.py --train_file x.txt
python run.py --do_test --eval_batch_size 4
python run.py --do_train --train_batch_size 4 --seed 1
python run.py --do_train --train_batch_size 8 --seed 2
"""


def test_of_several_commands_the_first_that_trains_is_taken_and_said(tmp_path: Path) -> None:
    done = new(tmp_path, SEVERAL)
    assert "line 4 is taken, run.py" in done.stderr
    assert "line 5 trains too: --line N takes another" in done.stderr
    assert recipe_of(tmp_path, SEVERAL).arguments["--seed"] == 1
    assert recipe_of(tmp_path, SEVERAL, "--line", "5").arguments["--seed"] == 2


# Text -> the one line that says why there is no recipe.
REFUSED = {
    "echo hello": "run.sh: it starts no Python script",
    "python run.py --do_test --eval_batch_size 3": (
        "run.sh: nothing here trains (run.py in line 1); if one does, say --line N"
    ),
    "python run.py --do_train --train_batch_size $2": (
        "run.sh:1: --train_batch_size $2: it has to be known, pass the arguments of run.sh behind"
    ),
    "python run.py --do_train --train_batch_size $MY_BATCH": "set MY_BATCH in the environment",
    "python run.py --do_train --train_batch_size $(nproc)": "only a run tells it",
    "python run.py --do_train --train_batch_size all": "it takes a whole number",
    "python run.py --do_train --my_size 4": "run.sh:1: no flag of run.py is known as that of the",
    "python run.py --do_train 'x": "run.sh:1: this ' is never closed",
}


@pytest.mark.parametrize("text", REFUSED)
def test_there_is_no_recipe_and_one_line_says_why_for(text: str, tmp_path: Path) -> None:
    done = new(tmp_path, text, "--output", str(tmp_path / "mine.toml"))
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert REFUSED[text] in line
    assert not (tmp_path / "mine.toml").exists()


def test_what_is_not_set_in_the_file_is_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_BATCH", "6")
    recipe = recipe_of(tmp_path, "torchrun train.py --train_batch_size $MY_BATCH")
    assert recipe.batch.global_batch == 6


def test_a_recipe_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    options = ("--output", str(path))
    done = new(tmp_path, LAUNCHED, *options)
    assert done.stdout == ""
    assert f"Written: {path}; next: ddpfix launch --recipe {path} --dry-run" in done.stderr
    written = path.read_text()
    assert load(str(path)).batch.global_batch == 64
    again = new(tmp_path, LAUNCHED, *options)
    assert again.exit_code == 2
    assert path.read_text() == written


def test_awkward_values_come_through_the_file(tmp_path: Path) -> None:
    values = ["two words", 'a "quote"', "back\\slash", "é", "# no comment", "a=b"]
    quoted = " ".join(f"--x{place} '{value}'" for place, value in enumerate(values))
    recipe = recipe_of(tmp_path, f"torchrun train.py --train_batch_size 4 {quoted}")
    assert list(recipe.arguments.values()) == values


def test_every_role_is_a_field_of_a_recipes_flags() -> None:
    assert {*ROLES, "max_steps"} == set(model.Flags.__annotations__)


def test_on_as_many_cards_the_launch_of_a_new_recipe_is_the_command_of_the_shell_file(
    tmp_path: Path,
) -> None:
    code, data = tmp_path / "code", tmp_path / "data"
    data.mkdir()
    code.mkdir()
    (code / "run.py").touch()
    for name in ("train.txt", "valid.txt"):
        (data / name).write_text("x\n")
    told = (
        "--do_train --train_file {0}/train.txt --dev_file {0}/valid.txt --lr 5e-5 --name 'a b' "
        "--train_batch_size {1} --eval_batch_size {2} --gradient_accumulation_steps 2 "
        "--output_dir {3}"
    )
    text = f"CUDA_VISIBLE_DEVICES=0,1 python run.py {told.format('../data', 16, 32, 'out')}"
    path = code / "mine.toml"
    assert new(code, text, "--output", str(path)).exit_code == 0
    options = ("--script", code / "run.py", "--gpus", "2x T4", "--output", tmp_path / "run")
    done = run("launch", "--recipe", path, "--dry-run", *options)
    words = shlex.split(done.stdout)
    launched = parse_flags(words[words.index(str(code / "run.py")) + 1 :])
    # 16 and 32 are those of both cards, which a process has the half of.
    mine = told.format(data, 8, 16, tmp_path / "run" / "out")
    assert launched == parse_flags(shlex.split(mine))
