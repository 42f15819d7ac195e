"""Scripts of a package, which import from it: started as modules, and traced as such."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from command_line import run
from ddpfix.launchers.trace.main_module import package_of, run_as_main
from ddpfix.recipes.pasted_command import read_command

TRAIN = """
import argparse
import sys
import torch
from torch.utils.data import DataLoader
{imported}

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    args = parser.parse_args()
    model, optimizer = make()
    for x in DataLoader(torch.ones(16, 2), batch_size=args.batch_size):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    print(__name__, __package__, __file__.rpartition("/")[2], sys.argv)

if __name__ == "__main__":
    main()
"""
MODELS = """
import torch

def make():
    model = torch.nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)
"""
IMPORTS = {
    "relative": "from .parts.models import make",
    "absolute": "from work.parts.models import make",
}


@pytest.fixture
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the package `work`, whose script imports from it."""
    (tmp_path / "work" / "parts").mkdir(parents=True)
    (tmp_path / "work" / "__init__.py").touch()
    (tmp_path / "work" / "parts" / "models.py").write_text(MODELS)
    (tmp_path / "work" / "train.py").write_text(TRAIN.format(imported=request.param))
    return tmp_path


@pytest.mark.parametrize(
    ("root", "package"),
    [(IMPORTS["relative"], "work"), (IMPORTS["absolute"], "None")],
    indirect=["root"],
    ids=IMPORTS,
)
def test_a_script_is_run_as_its_package_needs(root: Path, package: str) -> None:
    script = root / "work" / "train.py"
    code = f"from {run_as_main.__module__} import run_as_main; run_as_main({str(script)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"__main__ {package} train.py ")


@pytest.mark.parametrize(
    ("text", "script", "found"),
    [
        ("from .models import Net", "a/b/run.py", ("a", "b.run")),
        ("from ..models import Net", "a/b/run.py", ("", "a.b.run")),
        ("from a.models import Net", "a/b/run.py", ("", None)),
        ("from models import Net", "a/b/run.py", None),
        ("from b.models import Net", "a/b/run.py", None),  # b.py lies beside it
        ("from .models import Net", "v1.0/run.py", None),
    ],
)
def test_the_package_of_a_script(
    text: str, script: str, found: tuple[str, str | None] | None, tmp_path: Path
) -> None:
    path = tmp_path / script
    path.parent.mkdir(parents=True)
    (path.parent / "b.py").touch()
    expected = ("", "")
    if found is not None:
        expected = (str(tmp_path / found[0]).rstrip("/"), found[1] or "")
    assert package_of(str(path), text.encode()) == expected


@pytest.mark.parametrize("words", ["python -m work.train", "torchrun --module work.train"])
@pytest.mark.parametrize("root", [IMPORTS["relative"]], indirect=True)
def test_a_module_is_launched_as_one(
    words: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    assert read_command(words.split()).module == "work.train"
    cards = ("launch", "--gpus", "1x T4", "--emit", "bash", "--unchecked")
    done = run(*cards, "--", *words.split(), "--batch_size", "4")
    assert done.exit_code == 0, done.output
    assert "exec python -m work.train \\\n    --batch_size 4\n" in done.stdout
    assert "work/train.py" not in done.stdout
