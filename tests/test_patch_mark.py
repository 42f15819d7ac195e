"""patch --mark: what is left is one grep."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run
from ddpfix.patcher.engine.marks import mark_lines

MARKS = [
    pytest.param("x = 1\n", {1: ["DF1"]}, "x = 1  # ddpfix: DF1\n", id="one"),
    pytest.param("x = 1", {1: ["DF2", "DF1"]}, "x = 1  # ddpfix: DF1, DF2", id="two, no newline"),
    pytest.param("x = 1  # why\n", {1: ["DF1"]}, "x = 1  # why  # ddpfix: DF1\n", id="comment"),
    pytest.param("a\r\nb\r\n", {2: ["DF1"]}, "a\r\nb  # ddpfix: DF1\r\n", id="CRLF"),
    pytest.param("f(\n  1\n)\n", {2: ["DF1"]}, "f(\n  1  # ddpfix: DF1\n)\n", id="inside a call"),
    pytest.param(
        "x = '''\na\n'''\n", {1: ["DF1"]}, "x = '''\na\n'''  # ddpfix: DF1\n", id="string"
    ),
    pytest.param("x = 1 + \\\n  2\n", {1: ["DF1"]}, "x = 1 + \\\n  2  # ddpfix: DF1\n", id="break"),
    pytest.param("a = 1 \n\n\nb\n", {1: ["DF1"]}, "a = 1   # ddpfix: DF1\n\n\nb\n", id="blanks"),
]


@pytest.mark.parametrize(("text", "codes", "expected"), MARKS)
def test_marks_come_and_go_without_a_trace(
    text: str, codes: dict[int, list[str]], expected: str
) -> None:
    once = mark_lines(text, codes, others_go=True)
    assert once == expected
    assert mark_lines(once, codes, others_go=True) == once
    assert mark_lines(once, {}, others_go=True) == text
    assert mark_lines(once, {}, others_go=False) == once


def test_marks_follow_what_is_found() -> None:
    text = "x = 1  # ddpfix: DF1, DF2\ny = '# ddpfix: DF1'\n"
    assert mark_lines(text, {1: ["DF2"], 2: ["DF3"]}, others_go=True) == (
        "x = 1  # ddpfix: DF2\ny = '# ddpfix: DF1'  # ddpfix: DF3\n"
    )
    assert mark_lines(text, {1: ["DF3"]}, others_go=False).startswith(
        "x = 1  # ddpfix: DF1, DF2, DF3"
    )


# No line shows where a model is complete and could be wrapped, so that the script is refused.
REFUSED = """\
import torch
torch.distributed.init_process_group("nccl")
for b in bs: b.backward()
x = batch // args.n_gpu
"""
SOME = ["--select", "DF203,DF301"]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.py"
    path.write_text(REFUSED)
    return path


def test_a_refused_script_gets_its_marks_and_nothing_else(script: Path) -> None:
    result = run("patch", "--mark", *SOME, script)
    assert result.exit_code == 2
    assert "not patched" in result.stderr
    text = script.read_text()
    lines = text.splitlines()
    assert lines[1].endswith("  # ddpfix: DF301")
    assert lines[3] == "x = batch // args.n_gpu  # ddpfix: DF203"
    assert [line.partition("  # ddpfix: ")[0] for line in lines] == REFUSED.splitlines()
    run("patch", "--mark", *SOME, script)
    assert script.read_text() == text


def test_dry_run_shows_the_marks_and_writes_none(script: Path) -> None:
    result = run("patch", "--mark", "--dry-run", *SOME, script)
    assert "+x = batch // args.n_gpu  # ddpfix: DF203\n" in result.stdout
    assert script.read_text() == REFUSED


def test_marks_of_what_is_repaired_go(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    body = "import torch\nfor b in bs: b.backward()\nx = batch // {}{}\n"
    script.write_text(body.format("args.n_gpu", "  # ddpfix: DF203"))
    result = run("patch", "--mark", script)
    assert result.exit_code == 1
    assert script.read_text() == body.format("max(1, args.n_gpu)", "")
    again = run("patch", "--mark", script)
    assert (again.exit_code, again.stderr) == (0, "")


def test_marks_of_a_module_stay_unless_it_is_named(tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text("import torch, steps\nfor b in bs: b.backward()\nparser.parse_args()\n")
    module = tmp_path / "steps.py"
    module.write_text("import torch\nx = 1  # ddpfix: DF103\n")
    assert run("patch", "--mark", program).exit_code == 0
    assert "DF103" in module.read_text()
    assert run("patch", "--mark", tmp_path).exit_code == 1
    assert module.read_text() == "import torch\nx = 1\n"


def test_standard_input_is_marked_too(script: Path) -> None:
    source = b"import torch\nfor b in bs: b.backward()\nx = 1  # ddpfix: DF203\n"
    result = run("patch", "--mark", "-", stdin=source)
    assert result.exit_code == 1
    assert result.stdout_bytes == source.replace(b"  # ddpfix: DF203", b"")
