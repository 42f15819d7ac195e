"""Messages name the modules of a script as its user names the script."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run

FILES = {
    "run.py": """
import torch
from lib.steps import train
{start}(torch.nn.Linear(4, 2).cuda()))
""",
    "lib/steps.py": """
import torch
from torch.utils.data import DataLoader, TensorDataset
def train(model):
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        x = torch.nn.BatchNorm1d(4).cuda()(x.cuda())
        torch.nn.functional.mse_loss(model(x), y.cuda()).backward()
        optimizer.step()
    open("log.txt", "w").write("done")
""",
}
WRAPPED = "torch.distributed.init_process_group()\ntrain(torch.nn.parallel.DistributedDataParallel"
COMMANDS = [
    pytest.param(("patch", "--dry-run"), "train(torch.nn.DataParallel", id="patch"),
    pytest.param(("audit",), WRAPPED, id="audit"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def written(folder: Path, start: str) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("{start}", start))


@pytest.mark.parametrize(("command", "start"), COMMANDS)
def test_modules_are_named_from_the_current_folder(
    command: tuple[str, ...], start: str, folder: Path
) -> None:
    written(folder, start)
    shown = run(*command, "run.py")
    assert "lib/steps.py:" in shown.stdout + shown.stderr
    assert str(folder) not in shown.stdout + shown.stderr


@pytest.mark.parametrize(("command", "start"), COMMANDS)
def test_modules_keep_whole_paths_where_the_script_has_one(
    command: tuple[str, ...], start: str, folder: Path
) -> None:
    written(folder, start)
    shown = run(*command, folder / "run.py")
    assert f"{folder}/lib/steps.py:" in shown.stdout + shown.stderr


def test_modules_outside_the_current_folder_keep_whole_paths(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(folder, "train(torch.nn.DataParallel")
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    assert f"left alone: {folder}/lib/steps.py:" in run("patch", "--dry-run", "../run.py").stderr
