"""CONTRIBUTING.md, followed to the letter, and held to the code it speaks of."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import module
from checkout import ROOT, ImportedCopy
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.editing import edits
from ddpfix.patcher.editing.apply import apply_edits

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TABLES = re.compile(r"^# A sentence, and a script .*?(?=\n\n\ndef )", re.DOTALL | re.MULTILINE)


def section(title: str) -> str:
    """The text below a heading, to the next one of its kind."""
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """What the blocks below comments are for, of which file, and their text."""
    pattern = r"<!-- (run|file|tables|set up)(?:: (\S+))? -->\n```\w+\n(.*?)```\n"
    yield from re.findall(pattern, text, re.DOTALL)


def follow(copy: ImportedCopy, text: str) -> list[subprocess.CompletedProcess[str]]:
    """Do what the text says, in its order."""
    runs = []
    for kind, name, body in blocks(text):
        path = copy.root / name
        if kind == "run":
            runs.append(copy.command(["bash", "-euo", "pipefail", "-c", body]))
            assert runs[-1].returncode == 0, runs[-1].stdout + runs[-1].stderr
        elif kind == "file":
            assert path.is_file(), "a file that nothing has begun"
            path.write_text(body)
        elif kind == "tables":
            (tables,) = TABLES.findall(path.read_text())
            path.write_text(path.read_text().replace(tables, body.rstrip("\n")))
    return runs


def test_a_rule_is_added_by_this_page_alone(tmp_path: Path) -> None:
    copy = ImportedCopy(tmp_path)
    example = section("A rule in 15 minutes")
    before = copy.files()
    begun, facts, checked = follow(copy, example)
    rule, tests = (
        "patcher/rules/df507_training_goes_on_in_eval_mode.py",
        "tests/test_rules_df507.py",
    )
    assert begun.stdout.splitlines() == [rule, tests, "docs/rules.md"]
    assert "epoch loop          for epoch in range(opt.epochs)" in facts.stdout
    assert "9 passed" in checked.stdout
    assert "DF507 (warning, unsafe)\n\nTraining goes on in eval mode.\n" in checked.stdout
    after = copy.files()
    assert {name for name in after if before.get(name) != after[name]} == {
        rule,
        tests,
        "docs/rules.md",
    }

    # What a user has of it.
    script = tmp_path / "run.py"
    script.write_text(
        "import torch\nmodel.train()\nfor epoch in range(3):\n    for batch in loader:\n"
        "        model(batch).backward()\n    model.eval()\n"
    )
    told = copy.run("-m", "ddpfix", "check", "--output-format", "concise", str(script))
    assert told.stdout == (
        f"{script}:6:5: DF507 warning: Training goes on in eval mode: "
        "nothing in the loop of line 3 calls model.train()\n"
    )
    repaired = copy.run("-m", "ddpfix", "patch", "--diff", "--unsafe-fixes", str(script))
    added = [line for line in repaired.stdout.splitlines() if re.match(r"[-+](?![-+])", line)]
    assert added == ["+    model.train()"], repaired.stderr
    copy.run("-m", "ddpfix", "patch", "--unsafe-fixes", str(script))
    assert copy.run("-m", "ddpfix", "check", str(script)).returncode == 0


def test_who_follows_it_opens_three_files() -> None:
    example = section("A rule in 15 minutes")
    opened = ["CONTRIBUTING.md", *re.findall(r"\*\*Open\*\* `([^`]+)`", example)]
    assert opened == [
        "CONTRIBUTING.md",
        "patcher/rules/df507_training_goes_on_in_eval_mode.py",
        "tests/test_rules_df507.py",
    ]
    written = {name for kind, name, _ in blocks(example) if kind in ("file", "tables")}
    assert written == set(opened[1:])


def test_the_picture_is_that_of_the_code() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "rooms.py", "--check"], check=False, capture_output=True
    )
    assert done.returncode == 0, "python docs/rooms.py draws it"
    rooms = section("The house").partition("```text\n")[2].partition("```")[0]
    names = [re.sub(r"^[│├└─\s]*", "", line).partition("/")[0] for line in rooms.splitlines()]
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert names == [name.rpartition(".")[2] for name in sorted(packages["packages"])]
    assert all(re.search(r"/ +[A-Z].*\.$", line) for line in rooms.splitlines())


ROWS = re.findall(
    r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \|$",
    PAGE.partition("<!-- edits -->")[2].partition("<!-- end of edits -->")[0],
    re.MULTILINE,
)


def test_every_kind_of_edit_has_a_row() -> None:
    kinds = {kind.__name__ for kind in edits.Edit.__args__}
    assert {edit.partition("(")[0] for edit, _, _ in ROWS} == kinds


@pytest.mark.parametrize(("edit", "before", "after"), ROWS, ids=[row[0] for row in ROWS])
def test_an_edit_does_what_its_row_says(edit: str, before: str, after: str) -> None:
    script = module(before.replace("\\n", "\n") + "\n")
    calls = script.nodes(ast.Call)
    names = {**vars(edits), "stmt": script.tree.body[0], "call": calls[0]}
    new = apply_edits(script, [eval(edit, names)])
    # The body of a function that is brought is dots in the table.
    new = re.sub(r"^(def .*:)\n(?:    .*\n|\n)+", r"\1 ...\n", new, flags=re.MULTILINE)
    lines = [line for line in new.splitlines() if line]
    assert lines == after.replace("\\n", "\n").splitlines()


def test_what_a_rule_asks_is_there() -> None:
    text = "import torch\nfor batch in loader:\n    model(batch).backward()\n"
    program = Program(module(text))
    objects = {"program": program, "module": program.script, "loop": program.train_loops[0]}
    table = section("What a rule asks")
    asked = re.findall(r"\b(program|module|loop)\.(\w+)", table)
    assert len(asked) > 15
    assert [pair for pair in asked if not hasattr(objects[pair[0]], pair[1])] == []
    paths = re.findall(r"`((?:patcher|docs|launchers|tests)/[\w/.]+)`", PAGE)
    assert [path for path in paths if not (ROOT / path).exists() and "df507" not in path] == []


def test_dependencies_are_those_that_it_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    *names, last = sorted(re.split(r"[<>=]", one)[0] for one in project["dependencies"])
    sentence = f"needs {', '.join(names)} and {last}, all small"
    assert sentence in " ".join(section("Conventions").split())


def test_unusual_lines_are_those_that_it_explains() -> None:
    """Hard exits, private modules of the standard library and the like."""
    unusual = r"import _[a-z]|TYPE_CHECKING = False|os\._exit\(|vars\(\)|gc\.set_threshold"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    named = {
        name
        for name in filter(None, listed.split("\0"))
        if not name.startswith(("tests/", "fixtures/"))
        if re.search(unusual, (ROOT / name).read_text("utf-8"))
    }
    rows = re.findall(r"^\| `([\w/]+\.py)` \|", section("Conventions"), re.MULTILINE)
    assert sorted(rows) == sorted(named)
