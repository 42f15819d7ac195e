"""A probe of a script whose model cannot be told: memory and time at batches that were not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from ddpfix.launchers.gpus.select import Devices
from ddpfix.launchers.gpus.simulated import simulate_inventory
from ddpfix.launchers.planning.planner import PlanRequest, make_plan
from ddpfix.launchers.planning.probed import ProbedBatch, line_through
from ddpfix.launchers.planning.throughput import Throughput
from ddpfix.launchers.planning.training_steps import Horizon, steps_per_epoch
from ddpfix.launchers.running.run_record import RECORD
from ddpfix.launchers.running.throughput_log import record_throughput
from ddpfix.recipes.load import load
from ddpfix.record import replace

SCRIPT = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader

MODEL

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--save_dir", default="out")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Model(args.width)
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(100):
        for x in DataLoader(torch.zeros(1024), batch_size=args.batch_size):
            model(len(x)).backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.save(model.state_dict(), args.save_dir)


if __name__ == "__main__":
    main()
"""
MODELS = {
    "convolutions": """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3)
        )

    def forward(self, batch):
        return self.layers(torch.rand(batch, 3, 48, 48)).square().mean()
""",
    "a recurrent network": """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(2000, width)
        self.layers = nn.LSTM(width, 2 * width, 2, batch_first=True)
        self.out = nn.Linear(2 * width, 2000)

    def forward(self, batch):
        ids = torch.randint(0, 2000, (batch, 40))
        scores = self.out(self.layers(self.embed(ids))[0])
        return nn.functional.cross_entropy(scores.flatten(0, 1), ids.flatten())
""",
    "two towers": """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        layer = nn.TransformerEncoderLayer(2 * width, 2, 8 * width, batch_first=True)
        self.one = nn.TransformerEncoder(layer, 2)
        self.other = nn.TransformerEncoder(layer, 1)
        self.wide = 2 * width

    def forward(self, batch):
        x = torch.rand(batch, 48, self.wide)
        one, other = self.one(x).mean(1), self.other(x).mean(1)
        return nn.functional.cross_entropy(one @ other.T, torch.arange(batch))
""",
}
STEPS = 3


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def plan(*words: object, probe: bool = False, command: tuple[str, ...] = ()) -> dict[str, Any]:
    """The plan of one process on the CPU, after a probe if one is asked for."""
    options = ("--cpu", "--processes", 1, "--json", *(("--probe", STEPS) if probe else ()))
    done = run("plan", *options, "train.py", "--", *command, "--batch_size", *words)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("model", MODELS)
def test_memory_at_a_third_batch_is_told_within_three_per_cent(model: str, here: Path) -> None:
    (here / "train.py").write_text(SCRIPT.replace("MODEL", MODELS[model]))
    assert plan(96)["memory"] is None
    probed = plan(64, probe=True)["memory"]["main_memory"]
    assert probed["source"] == "--probe: real steps of 32 and 64 examples a process"
    told = plan(96)["memory"]["main_memory"]
    measured = plan(96, probe=True)["memory"]["main_memory"]
    assert told["total"] == pytest.approx(measured["total"], rel=0.03)
    # What grows with the batch is a part of it that an error would show in.
    assert 32 * told["per_example"] > 0.05 * told["total"]
    assert {path.name for path in here.iterdir()} == {"train.py", "state"}


CONSTANT = SCRIPT.replace("batch_size=args.batch_size", "batch_size=12")


def test_a_batch_that_nobody_can_change_is_measured_alone(here: Path) -> None:
    (here / "train.py").write_text(CONSTANT.replace("MODEL", MODELS["a recurrent network"]))
    words = ("--cpu", "--processes", 1, "--json", "--probe", 2, "train.py")
    done = run("plan", *words)
    assert done.exit_code == 0, done.output
    memory = json.loads(done.stdout)["memory"]["main_memory"]
    assert memory["source"] == "--probe: real steps of 12 examples a process"
    assert (memory["total"] > 0, memory["per_example"]) == (True, 0)


TOO_LARGE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, batch):
        if batch > 9:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return self.weight.sum()
"""


def test_a_batch_that_is_too_large_is_halved(here: Path) -> None:
    (here / "train.py").write_text(SCRIPT.replace("MODEL", TOO_LARGE))
    found = plan(16, probe=True)
    assert found["memory"]["main_memory"]["source"].endswith(
        "real steps of 4 and 8 examples a process"
    )
    assert found["plan"]["per_device"] == 16
    (here / "train.py").write_text(SCRIPT.replace("MODEL", TOO_LARGE.replace("> 9", "> 0")))
    words = ("--cpu", "--processes", 1, "--probe", 1, "train.py", "--", "--batch_size", 2)
    done = run("plan", *words)
    assert done.exit_code == 2
    assert "CUDA out of memory" in done.stderr


def test_another_model_is_another_training(here: Path) -> None:
    (here / "train.py").write_text(SCRIPT.replace("MODEL", MODELS["a recurrent network"]))
    plan(4, probe=True)
    assert plan(8)["memory"] is not None
    assert plan(8, "--save_dir", "elsewhere")["memory"] is not None
    assert plan(8, "--width", "32")["memory"] is None


CODEGPT = load("codegpt-bigclonebench")
RECIPE = replace(CODEGPT, model=None, sources={}, batch=replace(CODEGPT.batch, cap_memory=80))
GIB = 1 << 30


def probed(folder: Path, cards: str, *batches: tuple[int, float]) -> tuple[PlanRequest, Devices]:
    """A request whose probe took so many GiB, and a second for each, at batches."""
    script = folder / "run.py"
    script.write_text("")
    request = PlanRequest(RECIPE, script)
    gpus = simulate_inventory([cards]).gpus
    devices = Devices(len(gpus), gpus, "")
    found = tuple(ProbedBatch(batch, int(size * GIB), size) for batch, size in batches)
    pace = Throughput("2026-01-01", len(gpus), *(batches[-1][0], 2, batches[-1][1]), probed=found)
    request.throughput_history(devices).store(pace, "fp32")
    return request, devices


def test_the_batch_is_the_largest_that_fits_by_the_probe(here: Path) -> None:
    request, devices = probed(here, "2x T4", (1, 5.0), (2, 7.0))
    found = make_plan(request, devices)
    # 3 GiB and 2 for each example, of 13.8; 4 examples take 11, and what is around them 0.9.
    assert (found.plan.per_device, found.plan.accumulation) == (4, 8)
    assert found.memory_fit is not None
    assert found.memory_fit.candidate.peak.measured == 11 * GIB
    assert "memory rests on --probe: real steps of 1 and 2 examples a process" in found.summary
    # 3 seconds and 2 for each example took two micro-batches.
    assert found.estimate is not None
    assert found.estimate.step == pytest.approx((3 + 2 * 4) / 2 * 8)


def test_without_a_probe_the_plan_says_what_gives_it(here: Path) -> None:
    (here / "train.py").write_text(SCRIPT.replace("MODEL", MODELS["convolutions"]))
    said = run("plan", "--gpus", "2x T4", "train.py").stdout
    line = (
        "memory is not predicted: the script makes no model by from_pretrained; --probe N measures "
        "it"
    )
    assert line in said.splitlines()


def test_a_run_afterwards_keeps_the_probe_and_tells_the_time_anew(here: Path) -> None:
    request, devices = probed(here, "2x T4", (1, 5.0), (2, 7.0))
    plan = make_plan(request, devices)
    horizon = Horizon(6400, 1.0, 100, 100, "")
    plan = replace(plan, settings=replace(plan.settings, horizon=horizon))
    folder = here / "ran"
    folder.mkdir()
    bars = {str(steps_per_epoch(horizon.examples, plan.plan)): [50, 400.0]}
    (folder / RECORD).write_text(json.dumps({"attempts": [{"units": bars}]}))
    record_throughput(request, devices, plan, folder)
    after = make_plan(request, devices)
    assert after.memory_fit == plan.memory_fit
    assert after.estimate is not None
    assert after.estimate.step == pytest.approx(8.0)


def test_a_line_never_falls_and_meets_the_larger_batch() -> None:
    rising, falling = line_through([(4, 10.0), (2, 6.0)]), line_through([(2, 9.0), (4, 8.0)])
    assert (rising.at(4), rising.at(8), rising.per_example) == (10.0, 18.0, 2.0)
    assert (falling.at(1), falling.at(8)) == (9.0, 9.0)
    assert line_through([(4, 10.0)]).at(4) == 10.0
