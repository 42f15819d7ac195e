"""Family A, launched: a rank is out of memory in mid-run, and it ends as if nothing was."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from ddpfix.fixtures.tiny import build_clone_data, build_model, copy_family
from ddpfix.patcher.capabilities import chosen
from ddpfix.patcher.engine import patch
from faults import Place

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

# Runs run.py beside it. With more than one example at a time, rank 1 is out of memory in its third
# optimizer step.
DISTURBED = """
import os, runpy, sys
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

steps = 0
batch = int(sys.argv[sys.argv.index("--train_batch_size") + 1])


def disturb(*_):
    global steps
    steps += 1
    if steps == 3 and batch > 1:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


if os.environ.get("FAULT") and os.environ["RANK"] == "1":
    register_optimizer_step_pre_hook(disturb)
runpy.run_path(os.path.join(os.path.dirname(__file__), "run.py"), run_name="__main__")
"""


def final(folder: Path) -> dict[str, Any]:
    """The last checkpoint of a run."""
    path = max((folder / "made" / "resumable").glob("step-*.pt"))
    state: dict[str, Any] = torch.load(path, weights_only=True)
    assert state["finished"]
    return state


def test_out_of_memory_it_ends_with_the_parameters_of_an_undisturbed_run(tmp_path: Path) -> None:
    place = Place(tmp_path)
    script = copy_family("bigclonebench", tmp_path / "script")
    result = patch(script, capabilities=chosen(["resume"]))
    assert (result.refusal, result.lacking) == ("", ())
    result.write()
    place.script = script.with_name("disturbed.py")
    place.script.write_text(DISTURBED)
    # Without dropout, whose draws depend on how a batch is split.
    model = build_model(tmp_path / "model", "gpt2", dropout=0.0)
    build_clone_data(tmp_path / "data", train=24, valid=2, test=2)
    (tmp_path / "own.toml").write_text(RECIPE.replace("MODEL", str(model)))

    backend = ("--backend", "direct")
    assert place.launch("undisturbed", *backend).status == 0
    ended = place.launch("disturbed", *backend, fault="memory")
    assert ended.status == 0, ended.talk
    assert [attempt["exit_status"] for attempt in ended.attempts] == [1, 0]
    assert "Rank 1 failed first: torch.OutOfMemoryError" in ended.talk
    plans = [ended.record["plan"], *(attempt["plan"] for attempt in ended.attempts[1:])]
    assert [plan["per_device"] for plan in plans] == [2, 1]
    assert {plan["global_batch"] for plan in plans} == {8}
    log = (tmp_path / "disturbed" / "log.txt").read_text()
    assert re.search(r"going on from .*/step-000002\.pt", log)
    assert "--resume" not in ended.record["argv"]

    one, other = final(tmp_path / "undisturbed"), final(tmp_path / "disturbed")
    assert one["step"] == other["step"] == 6
    weights = one["parts"]["model"]
    assert weights.keys() == other["parts"]["model"].keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(other["parts"]["model"][name], tensor, rtol=1e-5, atol=1e-6)
