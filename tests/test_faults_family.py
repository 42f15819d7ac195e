"""Family A, launched: something happens to a rank in mid-run, and it ends as if nothing was."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.fixtures.tiny import build_clone_data, build_model
from ddpfix.patcher.capabilities import select_capabilities
from ddpfix.patcher.engine.patch import patch
from faults import Place
from lone_copies import lone_copy

RECIPE = """
description = "for tests"
family = "bigclonebench"
script = "disturbed.py"
task = "to be disturbed"
[flags]
train_batch = "--train_batch_size"
eval_batch = "--eval_batch_size"
accumulation = "--gradient_accumulation_steps"
output = "--output_dir"
[batch]
global_batch = 8
per_device_cap = 2
eval_per_device = 4
[data]
folder = "../data"
beside = ["data.jsonl"]
files = { "--train_data_file" = "train.txt", "--eval_data_file" = "valid.txt" }
[output]
folder = "made"
[arguments]
"--model_type" = "gpt2"
"--config_name" = "MODEL"
"--model_name_or_path" = "MODEL"
"--tokenizer_name" = "MODEL"
"--do_train" = true
"--evaluate_during_training" = true
"--epoch" = 2
"--block_size" = 64
"--learning_rate" = "5e-3"
"--adam_epsilon" = "1e-5"
"--save_steps" = 1
"--save_total_limit" = 2
"""

# Runs run.py beside it. In the third optimizer step of rank 1: with more than one example at a time
# it is out of memory; or it is killed, once.
DISTURBED = """
import os, runpy, signal, sys
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

steps = 0
batch = int(sys.argv[sys.argv.index("--train_batch_size") + 1])
fault, struck = os.environ.get("FAULT"), os.path.join(os.environ["HERE"], "struck")


def disturb(*_):
    global steps
    steps += 1
    if steps != 3:
        return
    if fault == "memory" and batch > 1:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    if fault == "kill" and not os.path.exists(struck):
        open(struck, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


if fault and os.environ["RANK"] == "1":
    register_optimizer_step_pre_hook(disturb)
runpy.run_path(os.path.join(os.path.dirname(__file__), "run.py"), run_name="__main__")
"""
DIRECT = ("--backend", "direct")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Where the patched script has been launched once, undisturbed."""
    folder = tmp_path_factory.mktemp("family")
    place = Place(folder)
    script = lone_copy(folder / "script")
    result = patch(script, capabilities=select_capabilities(["resume"]))
    assert (result.refusal, result.capability_failures) == ("", ())
    result.write()
    place.script = script.with_name("disturbed.py")
    place.script.write_text(DISTURBED)
    # Without dropout, whose draws depend on how a batch is split.
    model = build_model(folder / "model", "gpt2", dropout=0.0)
    build_clone_data(folder / "data", train=24, valid=2, test=2)
    (folder / "own.toml").write_text(RECIPE.replace("MODEL", str(model)))
    assert place.launch("undisturbed", *DIRECT).status == 0
    return place


def final(place: Place, name: str) -> dict[str, torch.Tensor]:
    """The parameters in the last checkpoint of a run."""
    path = max((place.folder / name / "made" / "resumable").glob("step-*.pt"))
    state: dict[str, Any] = torch.load(path, weights_only=True)
    assert state["finished"]
    assert state["step"] == 6
    weights: dict[str, torch.Tensor] = state["parts"]["model"]
    return weights


def test_out_of_memory_it_ends_with_the_parameters_of_an_undisturbed_run(place: Place) -> None:
    ended = place.launch("memory", *DIRECT, fault="memory")
    assert ended.status == 0, ended.talk
    assert [attempt["exit_status"] for attempt in ended.attempts] == [1, 0]
    assert "Rank 1 failed first: torch.OutOfMemoryError" in ended.talk
    plans = [ended.record["plan"], *(attempt["plan"] for attempt in ended.attempts[1:])]
    assert [plan["per_device"] for plan in plans] == [2, 1]
    assert {plan["global_batch"] for plan in plans} == {8}
    log = (place.folder / "memory" / "log.txt").read_text()
    assert re.search(r"going on from .*/step-000002\.pt", log)
    assert "--resume" not in ended.record["argv"]

    weights, others = final(place, "undisturbed"), final(place, "memory")
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(others[name], tensor, rtol=1e-5, atol=1e-6)


def test_killed_and_started_again_by_torch_elastic_it_ends_with_the_same_parameters(
    place: Place,
) -> None:
    words = ["--recipe", place.folder / "own.toml", "--script", place.script, "--cpu"]
    words += ["--output", place.folder / "killed", "--backend", "torchrun"]
    words += ["--max-restarts", "1", "--emit", "bash"]
    emitted = CliRunner().invoke(ddpfix, ["launch", *map(str, words)])
    assert emitted.exit_code == 0, emitted.stderr
    file = place.folder / "killed.sh"
    file.write_text(emitted.stdout)
    done = subprocess.run(
        ["bash", file], env=place.environ | {"FAULT": "kill"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (place.here / "struck").exists()
    assert re.search(r"going on from .*/step-000002\.pt", done.stdout)

    weights, others = final(place, "undisturbed"), final(place, "killed")
    assert weights.keys() == others.keys()
    assert all(torch.equal(others[name], tensor) for name, tensor in weights.items())
