"""``-``: a script on standard input."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import LEGACY, run

FIXED = LEGACY.replace("// args.n_gpu", "// max(1, args.n_gpu)")
CLEAN = b"import torch\n"


def test_check_names_the_finding_as_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    result = run("check", "--stdin-filename", path, "-", stdin=LEGACY.encode())
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{path}\n  DF203 error: ")
    assert run("check", "-", stdin=LEGACY.encode()).stdout.startswith("-\n  DF203 error: ")


@pytest.mark.parametrize("encode", [str.encode, lambda text: text.replace("\n", "\r\n").encode()])
def test_patch_sends_the_fixed_source_and_writes_nothing(tmp_path: Path, encode: object) -> None:
    assert callable(encode)
    path = tmp_path / "run.py"
    path.write_text("untouched")
    result = run("patch", "--stdin-filename", path, "-", stdin=encode(LEGACY))
    assert (result.exit_code, result.stdout_bytes) == (1, encode(FIXED))
    assert "repaired 1 findings (DF203)" in result.stderr
    assert path.read_text() == "untouched"
    again = run("patch", "-", stdin=result.stdout_bytes)
    assert (again.exit_code, again.stdout_bytes, again.stderr) == (0, encode(FIXED), "")


def test_patch_sends_clean_source_as_it_is() -> None:
    result = run("patch", "-", stdin=CLEAN)
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, CLEAN, "")


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_patch_sends_the_diff_in_place_of_the_source(option: str) -> None:
    result = run("patch", option, "-", stdin=LEGACY.encode())
    assert result.exit_code == 1
    assert result.stdout.startswith("--- a/-\n+++ b/-\n")
    assert "+x = batch // max(1, args.n_gpu)\n" in result.stdout


def test_modules_are_looked_for_beside_the_name(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("import torch\ndef f(args):\n    return 8 // args.n_gpu\n")
    program = b"import torch, steps\nfor b in bs: b.backward()\nif __name__ == '__main__': main()\n"
    name = tmp_path / "run.py"
    found = run("check", "--output-format", "concise", "--stdin-filename", name, "-", stdin=program)
    assert found.stdout.startswith(f"{tmp_path / 'steps.py'}:3:12: DF203")
    before = (tmp_path / "steps.py").read_bytes()
    result = run("patch", "--stdin-filename", name, "-", stdin=program)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "steps.py beside it changes too" in result.stderr
    assert (tmp_path / "steps.py").read_bytes() == before


BAD = [
    pytest.param(["check", "-", "run.py"], b"", "cannot be mixed", id="with another path"),
    pytest.param(["check", "--stdin-filename", "x.py", "."], b"", "give `-`", id="name without -"),
    pytest.param(["check", "-"], b"import torch\nx = = 1\n", "-:2: not valid", id="not Python"),
    pytest.param(["patch", "-"], b"import torch\nx = = 1\n", "-:2: not valid", id="patching that"),
]


@pytest.mark.parametrize(("arguments", "stdin", "message"), BAD)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], stdin: bytes, message: str) -> None:
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line
