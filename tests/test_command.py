"""From a plan to an argv, and what really arrives at a script started by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from ddpfix.errors import InputError
from ddpfix.launchers.backends import command as commands
from ddpfix.launchers.backends.command import Command, ProcessOptions, ScriptCall, build
from ddpfix.launchers.backends.registry import NEUTRAL_CONFIG
from ddpfix.launchers.cpu import available_cores
from ddpfix.launchers.planning.plan import solve, solve_shared
from ddpfix.launchers.script.arguments import parse_flags, requested_batch
from ddpfix.recipes.load import load

RECIPE = load("codegpt-bigclonebench")
# Everything a shell would take apart.
AWKWARD = [
    "two words",
    "it's",
    '"quoted"',
    "line\nbreak",
    "a;b",
    "$(id)",
    "`id`",
    "$$",
    "$local_rank ${local_rank}",
    "*",
    "",
    "é",
    "\\",
]

DUMP = """
import json, os, sys
rank = os.environ.get("RANK")
names = ("RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
         "ACCELERATE_MIXED_PRECISION", "ACCELERATE_DYNAMO_BACKEND", "ACCELERATE_DEBUG_MODE")
heard = {"argv": sys.argv[1:], "env": {name: os.environ.get(name) for name in names}}
with open(os.path.join(os.environ["HEARD"], f"{rank}.json"), "w") as file:
    json.dump(heard, file)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that writes down what it was given, with its data where the recipe expects it."""
    for name in ("train.txt", "valid.txt", "test.txt", "data.jsonl"):
        (tmp_path / "dataset").mkdir(exist_ok=True)
        (tmp_path / "dataset" / name).touch()
    (tmp_path / "code").mkdir()
    path = tmp_path / "code" / "run.py"
    path.write_text(DUMP)
    return path


def make(
    script: Path,
    world: int = 2,
    *,
    cards: Sequence[int] | None = (),
    extra: Sequence[str] = (),
    module_prefix: Sequence[str] = (),
    settings: Mapping[str, str | None] | None = None,
    environ: dict[str, str] | None = None,
) -> Command:
    plan = solve(world, 16, 8)
    call = ScriptCall(RECIPE, script, plan, Path("/runs/a"), extra, settings or {})
    processes = ProcessOptions(cards, module_prefix=module_prefix)
    return build(call, processes, environ=environ)


def heard(
    folder: Path, argv: Sequence[str], environ: dict[str, str]
) -> dict[str, dict[str, object]]:
    """What each rank's dump says after the argv has run."""
    folder.mkdir()
    environ = environ | {"HEARD": str(folder)}
    subprocess.run(argv, env=environ, check=True, capture_output=True)
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.iterdir())}


def arguments_of(built: Command, script: Path) -> list[str]:
    """What the script is to hear: torch elastic halves $$, which it is therefore told twice."""
    words = built.argv[built.argv.index(str(script)) + 1 :]
    return [*words[: -len(AWKWARD)], *AWKWARD]


def own_path() -> dict[str, str]:
    """An environment whose shell finds the programs of the Python that runs the tests."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return dict(os.environ) | {"PATH": path, "OMP_NUM_THREADS": "1"}


def test_the_reference_line_for_two_cards_has_every_choice_in_it(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", own_path()["PATH"])
    plan = solve(2, RECIPE.batch.global_batch, RECIPE.batch.per_device_cap)
    environ = {"OMP_NUM_THREADS": "4"}
    call = ScriptCall(RECIPE, script, plan, Path("/runs/a"))
    built = build(call, ProcessOptions([0, 1]), environ=environ)
    data = script.parents[1] / "dataset"
    assert built.line == (
        "env CUDA_VISIBLE_DEVICES=0,1 CUDA_DEVICE_ORDER=PCI_BUS_ID OMP_NUM_THREADS=4 "
        "PYTHONUNBUFFERED=1 accelerate launch --multi_gpu "
        f"--config_file {NEUTRAL_CONFIG} --num_processes 2 --num_machines 1 --machine_rank 0 "
        "--gpu_ids all --mixed_precision no --dynamo_backend no --main_process_port 0 "
        f"--num_cpu_threads_per_process 4 --log_dir /dev/null {script} "
        "--model_type gpt2 --config_name microsoft/CodeGPT-small-java-adaptedGPT2 "
        "--model_name_or_path microsoft/CodeGPT-small-java-adaptedGPT2 "
        "--tokenizer_name microsoft/CodeGPT-small-java-adaptedGPT2 "
        "--do_train --do_eval --do_test --epoch 2 --block_size 1024 --learning_rate 5e-5 "
        "--max_grad_norm 1.0 --evaluate_during_training --save_steps 500 --seed 3 "
        f"--train_data_file {data}/train.txt --eval_data_file {data}/valid.txt "
        f"--test_data_file {data}/test.txt "
        "--train_batch_size 8 --eval_batch_size 32 --gradient_accumulation_steps 4 "
        "--output_dir /runs/a/saved_models"
    )


# Cards -> per device, accumulation, global batch, and words of the plan.
GRAPH = {
    1: (16, 4, 64, "global batch 64 = 16 per device x 4 accumulated x 1 process"),
    2: (16, 2, 64, "global batch 64 = 16 per device x 2 accumulated x 2 processes"),
    3: (7, 3, 63, "64 itself is out of reach here, the nearest that can be had are 63 and 66"),
    4: (16, 1, 64, "global batch 64 = 16 per device x 1 accumulated x 4 processes"),
    8: (8, 1, 64, "global batch 64 = 8 per device x 1 accumulated x 8 processes"),
}


@pytest.mark.parametrize("world", GRAPH, ids=lambda world: f"{world} cards")
def test_the_reference_line_of_graphcodebert_on(
    world: int, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", own_path()["PATH"])
    recipe = load("graphcodebert")
    per_device, accumulation, global_batch, words = GRAPH[world]
    data = script.parent / "dataset"
    (script.parents[1] / "dataset").rename(data)
    plan = solve(world, recipe.batch.global_batch, recipe.batch.per_device_cap)
    built = build(
        ScriptCall(recipe, script, plan, Path("/runs/a")),
        ProcessOptions(range(world)),
        environ={"OMP_NUM_THREADS": "4"},
    )
    assert plan.global_batch == global_batch
    assert words in plan.why
    start = (
        "python "
        if world == 1
        else f"accelerate launch --multi_gpu --config_file {NEUTRAL_CONFIG} "
        f"--num_processes {world} --num_machines 1 --machine_rank 0 --gpu_ids all "
        "--mixed_precision no --dynamo_backend no --main_process_port 0 "
        "--num_cpu_threads_per_process 4 --log_dir /dev/null "
    )
    assert built.line == (
        f"env CUDA_VISIBLE_DEVICES={','.join(map(str, range(world)))} "
        f"CUDA_DEVICE_ORDER=PCI_BUS_ID OMP_NUM_THREADS=4 PYTHONUNBUFFERED=1 {start}{script} "
        "--config_name microsoft/graphcodebert-base "
        "--model_name_or_path microsoft/graphcodebert-base "
        "--tokenizer_name microsoft/graphcodebert-base "
        "--do_train --do_eval --do_test --epochs 1 --code_length 400 --data_flow_length 128 "
        "--learning_rate 2e-5 --max_grad_norm 1.0 --evaluate_during_training --seed 123456 "
        f"--train_data_file {data}/train.txt --eval_data_file {data}/valid.txt "
        f"--test_data_file {data}/test.txt "
        f"--train_batch_size {per_device} --eval_batch_size 32 "
        f"--gradient_accumulation_steps {accumulation} --output_dir /runs/a/saved_models"
    )


def test_a_script_whose_ranks_share_batches_is_given_what_they_take_together(
    script: Path,
) -> None:
    script.write_text(f"class SharedBatchSampler(object): ...\n{DUMP}")
    argv = build(ScriptCall(RECIPE, script, solve_shared(3, 64, 16), Path("/runs/a"))).argv
    flags = ("--train_batch_size", "--gradient_accumulation_steps")
    assert [argv[argv.index(flag) + 1] for flag in flags] == ["32", "2"]


def test_a_script_that_divides_its_batch_by_the_accumulation_is_given_that_of_a_step(
    script: Path,
) -> None:
    divides = "args.train_batch_size//args.gradient_accumulation_steps"
    script.write_text(f"{DUMP}\ndef loader(args):\n    return {divides}\n")
    argv = build(ScriptCall(RECIPE, script, solve(2, 64, 8), Path("/runs/a"))).argv  # 8 x 4
    flags = ("--train_batch_size", "--gradient_accumulation_steps")
    assert [argv[argv.index(flag) + 1] for flag in flags] == ["32", "4"]
    script.write_text(f"class SharedBatchSampler(object): ...\n{script.read_text()}")
    argv = build(
        ScriptCall(RECIPE, script, solve_shared(3, 64, 16), Path("/runs/a"))
    ).argv  # 32 x 2
    assert [argv[argv.index(flag) + 1] for flag in flags] == ["64", "2"]


def test_settings_of_the_plan_are_passed_and_the_users_own_win(script: Path) -> None:
    settings = {"--amp": "bf16", "--compile": None}
    built = make(script, settings=settings, extra=["--amp", "no"])
    assert "--compile" in built.argv
    assert built.replaced_arguments == ("--amp bf16",)
    assert built.argv[-2:] == ("--amp", "no")


def test_one_process_is_plain_python_that_sees_its_card_alone(script: Path) -> None:
    built = make(script, world=1, cards=[3])
    assert "launch" not in built.argv
    assert built.argv[1] == str(script)
    assert built.env["CUDA_VISIBLE_DEVICES"] == "3"


def test_without_cards_all_of_them_are_hidden(script: Path) -> None:
    assert make(script).env["CUDA_VISIBLE_DEVICES"] == ""


def test_cards_go_to_the_ranks_in_the_order_given(script: Path) -> None:
    assert make(script, cards=[2, 0]).env["CUDA_VISIBLE_DEVICES"] == "2,0"


def test_as_many_cards_as_processes_are_asked_for(script: Path) -> None:
    with pytest.raises(InputError, match="2 processes need as many cards, but 1"):
        make(script, cards=[0])


@pytest.mark.parametrize("world", [1, 2])
def test_a_module_can_be_put_before_the_script(script: Path, world: int) -> None:
    prefix = ("-m", "json.tool", "--out", "-m")
    argv = make(script, world=world, module_prefix=prefix).argv
    at = argv.index(str(script))
    word = "-m" if world == 1 else "--module"
    assert argv[at - 4 : at] == (word, "json.tool", "--out", "-m")


@pytest.mark.parametrize(
    ("extra", "dropped"),
    [
        (["--epoch", "5"], ["--epoch 2"]),
        (["--epoch=5"], ["--epoch 2"]),
        (["--do_train"], ["--do_train"]),
        (["--unheard_of", "--epoch"], ["--epoch 2"]),
        (["--output_dir", "x"], ["--output_dir /runs/a/saved_models"]),
        (["--epochs", "5"], []),
        ([], []),
    ],
    ids=str,
)
def test_the_users_flag_wins_and_the_recipes_is_dropped_and_shown(
    extra: list[str], dropped: list[str], script: Path
) -> None:
    built = make(script, extra=extra)
    assert list(built.replaced_arguments) == dropped
    assert list(built.argv[len(built.argv) - len(extra) :]) == extra
    flags = [word.partition("=")[0] for word in built.argv if word.startswith("--")]
    assert len(flags) == len(set(flags))


def test_flags_are_read_with_their_last_value() -> None:
    extra = ["--a", "1", "--b", "--c=2=3", "x", "--a", "-1", "--", "--d"]
    assert parse_flags(extra) == {"--a": "-1", "--b": None, "--c": "2=3", "--d": None}
    assert parse_flags([]) == {}


def test_a_users_batch_and_accumulation_are_whole_numbers_or_refused() -> None:
    assert requested_batch(RECIPE, ["--train_batch_size", "4"]) == (4, None)
    assert requested_batch(RECIPE, ["--gradient_accumulation_steps=3"]) == (None, 3)
    with pytest.raises(InputError, match="--train_batch_size many: it takes a whole number"):
        requested_batch(RECIPE, ["--train_batch_size", "many"])


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"run\.py: no such script; pass the right one with --script"
    ):
        make(tmp_path / "run.py")


@pytest.mark.parametrize("name", ["train.txt", "test.txt", "data.jsonl"])
def test_missing_data_is_named_before_anything_runs(name: str, script: Path) -> None:
    missing = script.parents[1] / "dataset" / name
    missing.unlink()
    with pytest.raises(InputError, match=str(missing)):
        make(script)


def test_data_passed_by_the_user_is_looked_for_where_the_user_says(
    script: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    with pytest.raises(InputError, match=f"--test_data_file: your {other} is no file"):
        make(script, extra=["--test_data_file", str(other)])
    other.touch()
    assert make(script, extra=["--test_data_file", str(other)]).argv[-1] == str(other)


def test_threads_are_the_users_or_the_cores_shared_out() -> None:
    count = commands.threads_per_process
    assert count(4, {"OMP_NUM_THREADS": "3"}) == 3
    for useless in ("", "0", "many"):
        assert count(10**6, {"OMP_NUM_THREADS": useless}) == 1
    assert count(1, {}) == min(commands.MOST_THREADS, available_cores())


def test_one_process_hears_every_argument_as_given_and_nothing_of_a_stale_rank(
    script: Path, tmp_path: Path
) -> None:
    stale = own_path() | {"RANK": "3", "WORLD_SIZE": "8", "PET_NNODES": "2"}
    built = make(script, world=1, extra=AWKWARD, environ=stale)
    ran = heard(tmp_path / "run", built.argv, built.environment(stale))
    printed = heard(tmp_path / "printed", ["sh", "-c", built.line], stale)
    assert ran == printed
    assert ran["None"]["argv"] == list(built.argv[built.argv.index(str(script)) + 1 :])
    assert built.argv[-len(AWKWARD) :] == tuple(AWKWARD)
    assert ran["None"]["env"] == {
        "RANK": None,
        "WORLD_SIZE": None,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_MIXED_PRECISION": None,
        "ACCELERATE_DYNAMO_BACKEND": None,
        "ACCELERATE_DEBUG_MODE": None,
    }


def test_under_a_users_contrary_accelerate_config_printed_and_run_are_the_same_two_ranks(
    script: Path, tmp_path: Path
) -> None:
    config = tmp_path / "hf" / "accelerate" / "default_config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\n"
        "mixed_precision: fp16\ngpu_ids: 0,1,2\ndebug: true\nmain_process_port: 1\n"
        "dynamo_config: {dynamo_backend: INDUCTOR}\n"
    )
    environ = own_path() | {"HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path)}

    built = make(script, extra=AWKWARD, environ=environ)
    ran = heard(tmp_path / "run", built.argv, built.environment(environ))
    printed = heard(tmp_path / "printed", ["sh", "-c", built.line], environ)

    assert ran == printed
    assert set(ran) == {"0", "1"}
    for rank in ("0", "1"):
        assert ran[rank]["argv"] == arguments_of(built, script)
        assert ran[rank]["env"] == {
            "RANK": rank,
            "WORLD_SIZE": "2",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "ACCELERATE_MIXED_PRECISION": "no",
            "ACCELERATE_DYNAMO_BACKEND": "NO",
            "ACCELERATE_DEBUG_MODE": None,
        }

    # Left to itself, accelerate would have listened: the config is one that matters.
    bare = [*built.argv[:2], "--main_process_port", "0", str(script)]
    assert set(heard(tmp_path / "bare", bare, environ)) == {"0", "1", "2", "3"}


def test_a_module_before_the_script_really_gets_it_on_every_rank(
    script: Path, tmp_path: Path
) -> None:
    (tmp_path / "observer.py").write_text(DUMP)
    environ = own_path() | {"PYTHONPATH": str(tmp_path)}
    prefix = ("-m", "observer", "--out", "a folder")
    for world, ranks in ((1, {"None"}), (2, {"0", "1"})):
        built = make(script, world=world, module_prefix=prefix, environ=environ)
        ran = heard(tmp_path / f"of {world}", built.argv, built.environment(environ))
        assert set(ran) == ranks
        tail = list(built.argv[built.argv.index(str(script)) :])
        for dump in ran.values():
            assert dump["argv"] == ["--out", "a folder", *tail]


def test_the_plan_is_told_to_the_script_and_to_accelerate(script: Path) -> None:
    argv = build(ScriptCall(RECIPE, script, solve(3, 64, 16), Path("/runs/a"))).argv
    flags = ("--num_processes", "--train_batch_size", "--gradient_accumulation_steps")
    assert [argv[argv.index(flag) + 1] for flag in flags] == ["3", "7", "3"]
