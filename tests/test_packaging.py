"""What is installed, and under which name."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from checkout import ROOT, copy_checkout
from click.testing import CliRunner
from ddpfix.cli import ddpfix

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TRAINING = """\
import argparse

from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--train_batch_size", type=int, default=8)
args = parser.parse_args()
for batch in DataLoader(data, batch_size=args.train_batch_size, shuffle=True):
    model(batch).backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = copy_checkout(folder / "source")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "-w", str(folder), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_every_folder_of_modules_is_in_the_list_of_packages() -> None:
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    folders = {
        ".".join(["ddpfix", *path.parent.relative_to(ROOT).parts])
        for path in ROOT.rglob("__init__.py")
        # Elsewhere it is a package of a fixture.
        if path.parent == ROOT or (path.parent.parent / "__init__.py").exists()
        if not {"build", "tests", "benchmarks"} & set(path.relative_to(ROOT).parts)
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    }
    assert listed == folders


def test_the_wheel_has_one_top_level_name(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"ddpfix"}
    assert not any(".data/" in name for name in names)
    assert "ddpfix/fixtures/bigclonebench/run.py" in names
    assert "ddpfix/fixtures/graphcodebert/parser/flow.py" in names
    assert "ddpfix/fixtures/shapes/sibling_args/configs.py" in names
    assert "ddpfix/fixtures/shapes/data/train.txt" in names
    assert "ddpfix/recipes/codegpt-bigclonebench.toml" in names
    assert "ddpfix/launchers/backends/accelerate.yaml" in names
    assert "ddpfix/launchers/gpus/cards.toml" in names
    assert "ddpfix/launchers/report/page.html.j2" in names
    assert not any("/tests/" in name or name.startswith("tests") for name in names)


@pytest.fixture(scope="module")
def folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with ddpfix and nothing else that it does not need to check and patch."""
    folder = tmp_path_factory.mktemp("light")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", "install", "-q", *constraints, str(wheel)], check=True)
    missing = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert missing.returncode != 0
    return folder


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["demo"], "tokenizers", "train"),
        (
            ["launch", "--cpu", "--processes=1", "run.py", "--", "--train_batch_size=8"],
            "torch",
            "train",
        ),
        (["verify", "run.py", "--", "--train_batch_size=8"], "torch", "train"),
        (["report", "a.log", "--html", "p.html"], "jinja2", "report"),
        (["recipes", "new", "mine", "--from", "a.sh"], "tree-sitter", "shell"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_without_its_packages_a_command_says_in_a_line_what_to_install(
    folder: Path, tmp_path: Path, words: list[str], package: str, extra: str
) -> None:
    (tmp_path / "run.py").write_text(TRAINING)
    (tmp_path / "a.log").write_text("step 1 loss 2\n")
    (tmp_path / "a.sh").write_text("python run.py --train_batch_size 8\n")
    active = {"VIRTUAL_ENV", "CONDA_PREFIX"}  # whose Python would run the ranks
    done = subprocess.run(
        [folder / "bin" / "ddpfix", *words],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in active},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ddpfix: ")
    assert package in last
    assert last.count(f"pip install 'ddpfix[{extra}]'") == 1
    assert "Traceback" not in done.stderr


def test_without_torch_a_plan_says_why_it_predicts_no_memory(folder: Path, tmp_path: Path) -> None:
    words = ["plan", "--recipe", "codegpt-bigclonebench", "--gpus", "2x A10", "--"]
    done = subprocess.run(
        [folder / "bin" / "ddpfix", *words, "--block_size", "511"],
        cwd=tmp_path,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (
        "memory is not predicted: torch is not installed here: pip install 'ddpfix[train]'"
    ) in done.stdout


def test_check_works_in_an_environment_without_torch(folder: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [folder / "bin" / "ddpfix", "check", ROOT / "fixtures"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "bigclonebench/run.py" in done.stdout
    assert "DF101" in done.stdout
    script = tmp_path / "run.py"
    script.write_bytes((ROOT / "fixtures" / "bigclonebench" / "run.py").read_bytes())
    patched = subprocess.run(
        [folder / "bin" / "ddpfix", "patch", script], capture_output=True, text=True, check=False
    )
    assert patched.returncode == 1, patched.stderr


def test_the_rule_manual_is_what_the_rules_say() -> None:
    page = CliRunner().invoke(ddpfix, ["rules", "--markdown"]).stdout
    assert (ROOT / "docs" / "rules.md").read_text() == page


def test_the_manual_of_capabilities_is_what_they_say() -> None:
    page = CliRunner().invoke(ddpfix, ["capabilities", "--markdown"]).stdout
    assert (ROOT / "docs" / "capabilities.md").read_text() == page


def test_every_command_of_the_table_can_be_imported_and_helps() -> None:
    for name in ddpfix.list_commands(
        ddpfix.make_context("ddpfix", ["--help"], resilient_parsing=True)
    ):
        result = CliRunner().invoke(ddpfix, [name, "--help"])
        assert result.exit_code == 0, name
        assert "Usage: " in result.stdout
