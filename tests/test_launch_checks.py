"""A launch checks the script first: unpatched, it trains one model per process."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from command_line import run
from launched import RECIPE

# Each process would train a model of its own on all of the data.
UNPATCHED = """
import argparse, os
import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--eval_batch", type=int, default=4)
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--out")
args = parser.parse_args()
with open(os.environ["SEEN"], "a") as file:
    file.write("trained\\n")
model = torch.nn.Linear(2, 1)
if torch.cuda.device_count() > 1:
    model = torch.nn.DataParallel(model)
loader = DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=args.batch, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1):
    for (x,) in loader:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "run.py").write_text(UNPATCHED)
    return tmp_path / "run.py"


def launch(*options: str) -> Result:
    words = ["--recipe", "own.toml", "--script", "run.py", "--backend", "direct", "--cpu"]
    return run("launch", *words, *options)


def trained(script: Path) -> int:
    """How many processes have trained."""
    seen = script.with_name("seen")
    return len(seen.read_text().splitlines()) if seen.exists() else 0


def test_an_unpatched_script_is_not_launched(script: Path) -> None:
    done = launch("--processes", "2")
    assert done.exit_code == 1
    assert done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("run.py:")]
    assert errors
    assert [line.split()[1] for line in errors[:-1]] == ["DF201"]
    assert "trains a model of its own" in errors[-1]
    assert f"run.py: {len(errors)} error" in done.stderr
    assert "--unchecked launches it as it is" in done.stderr
    assert trained(script) == 0
    assert not (script.parent / "state").exists()


def test_unchecked_it_is(script: Path) -> None:
    done = launch("--processes", "2", "--unchecked")
    assert done.exit_code == 0, done.output
    assert trained(script) == 2


def test_one_process_trains_as_it_always_did(script: Path) -> None:
    assert run("launch", "--recipe", "own.toml", "--cpu", "--processes", "1").exit_code == 0
    assert trained(script) == 1


@pytest.mark.parametrize("option", ["--dry-run", "--emit=bash"])
def test_what_trains_nothing_shows_the_errors_and_goes_on(option: str, script: Path) -> None:
    done = launch("--processes", "2", option)
    assert done.exit_code == 0
    assert "--unchecked launches it as it is" in done.stderr
    assert "run.py" in done.stdout


def test_neither_a_probe_nor_the_background_is_a_way_around(script: Path) -> None:
    probed = launch("--processes", "2", "--probe", "2")
    assert probed.exit_code == 1, probed.output
    assert launch("--processes", "2", "--detach").exit_code == 1
    assert trained(script) == 0


JOINED = UNPATCHED.replace(
    "model = torch.nn.Linear",
    "torch.distributed.init_process_group('gloo')\nmodel = torch.nn.Linear",
)


def test_the_settings_of_the_project_hold(script: Path) -> None:
    script.write_text(JOINED)
    done = launch("--processes", "2", "--dry-run")
    codes = {line.split()[1] for line in done.stderr.splitlines() if " error: " in line}
    assert codes >= {"DF301", "DF401"}
    assert "of its own" not in done.stderr
    names = ", ".join(f'"{code}"' for code in sorted(codes))
    (script.parent / "pyproject.toml").write_text(f"[tool.ddpfix]\nignore = [{names}]\n")
    assert "--unchecked" not in launch("--processes", "2", "--dry-run").stderr


def test_a_patched_script_is_launched_without_a_word(script: Path) -> None:
    done = run("patch", "--unsafe-fixes", "run.py")
    assert done.exit_code in (0, 1), done.output
    assert "init_process_group" in script.read_text()
    done = launch("--processes", "2", "--dry-run")
    assert "--unchecked" not in done.stderr, done.stderr


FRAMEWORK = """
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model, data = accelerator.prepare(torch.nn.Linear(2, 1), [torch.zeros(1, 2)])
for x in data:
    accelerator.backward(model(x).sum())
"""


def test_what_a_framework_joins_is_left_to_it(script: Path) -> None:
    script.write_text(FRAMEWORK)
    assert "of its own" not in launch("--processes", "2", "--dry-run").stderr


def test_a_script_that_is_no_python_ends_with_one_line(script: Path) -> None:
    script.write_text("def broken(:\n")
    done = launch("--processes", "2")
    assert done.exit_code == 2
    [line] = [line for line in done.stderr.splitlines() if "run.py" in line]
    assert "run.py:1" in line
