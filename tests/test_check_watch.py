"""``check --watch`` sees changes, and a long check says how far it is."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

HARMLESS = "import torch\nprint('nothing')\n"


@pytest.mark.parametrize("changed", ["run.py", "helper.py"])
def test_a_change_is_checked_until_ctrl_c(tmp_path: Path, changed: str) -> None:
    script, helper = tmp_path / "run.py", tmp_path / "helper.py"
    script.write_text("import torch\nimport helper\n")
    helper.write_text(HARMLESS)
    command = [sys.executable, "-P", "-m", "ddpfix", "check", "--watch", "--no-cache", "run.py"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        assert next(watching.stderr) == "0 findings in 1 file\n"
        assert next(watching.stderr) == "ddpfix: waiting for a change; Ctrl-C ends it\n"
        (tmp_path / changed).write_text("x = (\n")
        line = next(watching.stderr)
        assert line.startswith(f"ddpfix: {changed}:1: ") or "0 findings" in line, line
        while "waiting" not in line:
            line = next(watching.stderr)
        (tmp_path / changed).write_text("import torch\n")
        assert next(watching.stderr) == "0 findings in 1 file\n"
        assert "waiting" in next(watching.stderr)
        watching.send_signal(signal.SIGINT)
        watching.wait(60)
    assert watching.returncode == 130


def test_standard_input_cannot_be_watched() -> None:
    result = run("check", "--watch", "-")
    assert result.exit_code == 2
    assert "--watch: standard input does not change" in result.stderr


SLOW = """
import sys, time
from ddpfix.patcher.frontend.progress import shown_progress
with shown_progress() as progress:
    for number in range(1, 5):
        progress.checked(number, 4)
        time.sleep(0.6)
print("done", file=sys.stderr)
"""


def test_a_terminal_sees_how_far_a_long_check_is_and_then_nothing_of_it() -> None:
    leader, follower = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", "CI": ""}
    done = subprocess.run([sys.executable, "-c", SLOW], stderr=follower, env=variables)
    os.close(follower)
    text = b""
    while chunk := read(leader):
        text += chunk
    assert done.returncode == 0
    *lines, last = text.decode().split("\r\x1b[K")
    assert lines == ["", "checked 3 of 4 files", "checked 4 of 4 files"]
    assert last.strip() == "done"


def read(leader: int) -> bytes:
    try:
        return os.read(leader, 4096)
    except OSError:  # the other end is closed
        return b""


def test_a_pipe_sees_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True)
    assert done.stderr == "done\n"
