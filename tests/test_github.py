"""What GitHub reads: the workflow, the action, the issue forms, and the README's snippets."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import ROOT

FOLDER = ROOT / ".github"
FORMS = sorted(path for path in (FOLDER / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
KINDS = {"checkboxes", "dropdown", "input", "markdown", "textarea"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = read(FOLDER / "workflows" / "ci.yml")
    assert set(workflow[True]) == {"push", "pull_request"}  # "on" is a boolean in YAML 1.1
    (job,) = workflow["jobs"].values()
    assert [step["run"].split()[-1] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & stat.S_IXUSR


def test_the_action_s_own_lines_check_the_paths_that_it_is_given(tmp_path: Path) -> None:
    action = read(FOLDER / "actions" / "check" / "action.yml")
    assert action["runs"]["using"] == "composite"
    assert all("uses" in step or step["shell"] == "bash" for step in action["runs"]["steps"])
    install, check = (step for step in action["runs"]["steps"] if "run" in step)
    source = install["env"]["SOURCE"].replace("${{ github.action_path }}", "actions/check")
    assert os.path.normpath(FOLDER / source) == str(ROOT)
    assert check["env"] == {"PATHS": "${{ inputs.paths }}"}
    command = tmp_path / "ddpfix" / "bin" / "ddpfix"
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/bash\nprintf "%s\\n" "$@"; exit 1\n')
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", check["run"]],
        env={**os.environ, "RUNNER_TEMP": str(tmp_path), "PATHS": "a.py b;c"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (
        1,
        ["check", "--output-format", "github", "a.py", "b;c"],
    )


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_github_asks_of_it(path: Path) -> None:
    form = read(path)
    assert form["name"]
    assert form["description"]
    names = [item["id"] for item in form["body"]]
    assert len(set(names)) == len(names) > 2
    for item in form["body"]:
        assert set(item) <= {"type", "id", "attributes", "validations"}
        assert item["type"] in KINDS
        assert item["attributes"]["label"]


def test_the_snippet_for_pre_commit_names_a_hook_that_exists() -> None:
    hooks = {hook["id"] for hook in read(ROOT / ".pre-commit-hooks.yaml")}
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        (block,) = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
        (repository,) = yaml.safe_load(block)["repos"]
        assert {hook["id"] for hook in repository["hooks"]} <= hooks


def test_the_readme_is_short_and_ci_runs_its_command() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 75
    command = text.partition("<!-- test command -->")[2].partition("<!-- end -->")[0]
    assert re.findall(r"\.venv/bin/(\S+)", command) == [
        "pip", "ruff", "ruff", "lint-imports", "mypy", "pytest",
    ]  # fmt: skip
