"""A shell file that cannot be read is refused in one line, soon, and nothing of it is run."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import run
from ddpfix.recipes.from_shell import repairs
from ddpfix.recipes.from_shell.convert import MOST

TRAIN = "python run.py --do_train --train_batch_size "
WAY_OUT = "pass the lines that train as a file of their own"
NINES = "9" * 5000
SHOWN = "9" * 300  # as many characters of a word as a sentence has

# What the file holds, and the line that there is.
REFUSALS: dict[str, tuple[str | bytes, str]] = {
    "a no-break space between words": (
        "python\u00a0run.py",
        "run.sh:1: the character U+00A0, which bash takes for part of a word: put a blank in its "
        "place, or quote it",
    ),
    "a character without width in a flag": (
        f"a=1\n{TRAIN}4 --lr\u200b 1",
        "run.sh:2: the character U+200B, which bash takes for part of a word: put a blank in its "
        "place, or quote it",
    ),
    "a control character": (
        f"{TRAIN}4\x01",
        "run.sh:1: the character U+0001, which bash takes for part of a word: put a blank in its "
        "place, or quote it",
    ),
    "a NUL byte": (
        f"{TRAIN}4\n# \0\n",
        "run.sh:2: a NUL byte, so this is no text: pass a shell file",
    ),
    "a variable that doubles sixty times": (
        "A=ab\n" + "A=$A$A\n" * 60 + TRAIN + "$A",
        "run.sh:18: a word grows beyond 131,072 characters, which Linux passes to no program: "
        + WAY_OUT,
    ),
    "an array that doubles sixty times": (
        "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60,
        f"run.sh:11: more than 2,000 words: {WAY_OUT}",
    ),
    "arguments that double with each call": (
        "".join(f'f{i}() {{ f{i + 1} "$@" "$@"; }}\n' for i in range(60)) + "f0 a",
        f"run.sh:11: more than 2,000 words: {WAY_OUT}",
    ),
    "functions that call each other ten times": (
        "".join(f"f{i}() {{ {f'f{i + 1};' * 10} }}\n" for i in range(9)) + "f0",
        f"run.sh:8: what is expanded here grows without end: {WAY_OUT}",
    ),
    "functions that call each other too deep": (
        "".join(f"f{i}() {{ f{i + 1}; }}\n" for i in range(3000)) + "f0",
        f"run.sh:51: followed more than 100 deep: {WAY_OUT}",
    ),
    "a variable that gathers what is not known": (
        "".join(f"A=$A$b{i}\n" for i in range(7000)),
        f"run.sh:820: what is expanded here grows without end: {WAY_OUT}",
    ),
    "a file of five million bytes": (
        "echo a b c\n" * 500_000,
        f"run.sh: larger than 100,000 bytes: {WAY_OUT}",
    ),
    "a batch of 5,000 digits": (
        TRAIN + NINES,
        f"run.sh:1: --train_batch_size {SHOWN}…: it takes a whole number",
    ),
    "a computed batch of 5,000 digits": (
        f"{TRAIN}$(({NINES}))",
        f"run.sh:1: --train_batch_size $(({SHOWN[3:]}…: it has to be known, only a run tells it",
    ),
    "a slice of 5,000 digits": (
        TRAIN + "${A:" + NINES + "}",
        "run.sh:1: --train_batch_size ${A:" + SHOWN[4:] + "…: it has to be known, only a run "
        "tells it",
    ),
    "a batch beyond the numbers of bash": (
        f"{TRAIN}$((9223372036854775807 * 2))",
        "run.sh:1: --train_batch_size $((9223372036854775807 * 2)): it has to be known, only a run "
        "tells it",
    ),
    "a batch that only looks like a digit": (
        f"if [ ² -gt 1 ]; then a=1; fi\n{TRAIN}²",
        "run.sh:2: --train_batch_size ²: it takes a whole number",
    ),
    "a single quote that is not closed": ("a=1\n'4\nb\n", "run.sh:2: this ' is never closed"),
    "a double quote that is not closed": ('a=1\n"4\nb\n', 'run.sh:2: this " is never closed'),
    "a quote in an if that is not closed": (
        'if a; then\n python "x\nfi\n',
        'run.sh:2: this " is never closed',
    ),
    "a backquote that is not closed": ("a=1\nx `b\nc\n", "run.sh:2: this ` is never closed"),
    "a command's output that is not closed": (
        "a=1\nx $(b\nc\n",
        "run.sh:2: this ( is never closed",
    ),
    "an expansion that is not closed": ("a=1\nx ${b\nc\n", "run.sh:2: this { is never closed"),
    "arithmetic that is not closed": ("a=1\nx $((1 +\nc\n", "run.sh:2: this ( is never closed"),
    "a subshell that is not closed": ("a=1\n(b\nc\n", "run.sh:2: this ( is never closed"),
    "a function that is not closed": ("a=1\nf() {\nc\n", "run.sh:2: this { is never closed"),
    "an array that is not closed": ("a=1\nA=(b\nc\n", "run.sh:2: this ( is never closed"),
    "a test that is not closed": (
        "a=1\nif [[ b; then\nc\nfi\n",
        "run.sh:2: this [[ is never closed",
    ),
    "a here-document that is not closed": (
        "a=1\ncat <<END\nc\n",
        "run.sh:2: this <<END is never closed",
    ),
    "an if that is not closed": ("a=1\nif b; then\nc\n", "run.sh:2: this if is never closed"),
    "a loop that is not closed": (
        "a=1\nfor b in 1; do\nc\n",
        "run.sh:2: this do is never closed",
    ),
    "a case that is not closed": (
        "a=1\ncase b in\nc) d\n",
        "run.sh:2: this case is never closed",
    ),
    "outputs in outputs that are not closed": (
        "x " + "$( " * 5000,
        "run.sh:1: this ( is never closed",
    ),
    "outputs in outputs": (
        "x " + "$( a " * 5000 + ")" * 5000,
        f"run.sh:1: nested more than 100 deep: {WAY_OUT}",
    ),
    "parentheses in parentheses that are not closed": (
        "(" * 20_000,
        "run.sh:1: this ( is never closed",
    ),
    "parentheses in parentheses": (
        "x $((" + "(" * 5000 + "1" + ")" * 5000 + "))",
        f"run.sh:1: nested more than 100 deep: {WAY_OUT}",
    ),
    "defaults in defaults": (
        "x " + "${a:-" * 5000 + "1" + "}" * 5000,
        f"run.sh:1: nested more than 100 deep: {WAY_OUT}",
    ),
    "a parenthesis that nothing opens": (
        "a=1\nb )\n",
        f"run.sh:2: cannot be read: 'b )': mend it, or {WAY_OUT}",
    ),
    "a chain without its end": (
        "a=1\nb &&\n",
        f"run.sh:2: cannot be read: 'b &&': mend it, or {WAY_OUT}",
    ),
    "arguments in parentheses": (
        "a=1\nprint(b)\n",
        f"run.sh:2: cannot be read: 'print(b)': mend it, or {WAY_OUT}",
    ),
    "bytes that are not UTF-8": (
        b"a=1\necho caf\xe9\n",
        "run.sh:2: not UTF-8 at byte 12: save it as UTF-8",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_shell_file_is_refused_in_one_line_for(name: str, tmp_path: Path) -> None:
    content, line = REFUSALS[name]
    path = tmp_path / "run.sh"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    start = time.monotonic()
    done = run("recipes", "new", "--from", path)
    assert time.monotonic() - start < 60
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.replace(str(path), "run.sh") == f"ddpfix: {line}\n"


def test_a_file_that_the_grammar_is_too_slow_with_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "SECONDS", 0)
    path = tmp_path / "run.sh"
    path.write_text("a | b | c\nd && e | f | g\n" * 4000)
    done = run("recipes", "new", "--from", path)
    assert done.exit_code == 2
    line = rf"ddpfix: {path}:\d+: not parsed within 0 seconds: {WAY_OUT}\n"
    assert re.fullmatch(line, done.stderr)


# What the file holds, of which the recipe has a batch of 4.
READ = {
    "lines that end in two characters": f"a=4\r\n{TRAIN}$a \\\r\n  --lr 1\r\n",
    "lines that end in the other": f"a=4\r{TRAIN}$a\r",
    "a mark of its encoding": f"\ufeff#!/bin/bash\n{TRAIN}4\n",
    "a backslash at its end": f"{TRAIN}4 \\\n",
    "a backslash as its end": f"{TRAIN}4 \\",
    "no-break spaces in quotes and comments": f"# a\u00a0b\necho 'a\u00a0b' \"\u3000\"\n{TRAIN}4\n",
    "a chain of ten thousand": "a && " * 10_000 + TRAIN + "4",
    "ninety nested groups": "{ " * 90 + TRAIN + "4" + "; }" * 90,
    "a shift by 5,000 digits": f"shift {NINES}\n{TRAIN}4",
    "a test of 5,000 digits": f"if [ {NINES} -gt 1 ]; then a=1; fi\n{TRAIN}4",
    "a test of --5": f"if [ --5 -gt 1 ]; then a=1; fi\n{TRAIN}4",
}


@pytest.mark.parametrize("name", READ)
def test_a_shell_file_is_read_with(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(READ[name].encode())
    done = run("recipes", "new", "--from", path)
    assert done.exit_code == 0, done.stderr
    assert "global_batch = 4\n" in done.stdout


def test_what_steers_a_terminal_or_ends_a_line_is_spelt_out(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(TRAIN + "4 --tags a $'\\n[batch]\\nglobal_batch = 1' '\x1b[31m'\n")
    done = run("recipes", "new", "--from", path)
    assert done.exit_code == 0, done.stderr
    omission = r"--tags a \n[batch]\nglobal_batch = 1 \x1b[31m"
    assert f"# left out: {omission}: it takes several values" in done.stdout
    assert f"run.sh: {omission} is left out: " in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_the_limit_of_a_file_is_in_its_complaint() -> None:
    _, complaint = REFUSALS["a file of five million bytes"]
    assert f"{MOST:,} bytes" in complaint


def test_nothing_of_a_shell_file_is_run(tmp_path: Path) -> None:
    touch = "touch ran"
    (tmp_path / "run.sh").write_text(
        f"{touch}\na=$({touch})\n: `{touch}` <({touch})\ntrap '{touch}' EXIT\n{TRAIN}4 --x $a\n"
    )
    assert run("recipes", "new", "--from", tmp_path / "run.sh").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run.sh"]


WITHOUT_GRAMMAR = """\
import sys
sys.modules["tree_sitter"] = sys.modules["tree_sitter_bash"] = None
from ddpfix.cli import ddpfix
ddpfix.main(sys.argv[1:])
"""


def test_a_light_installation_says_what_it_lacks_and_does_the_rest(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{TRAIN}4\n")
    command = [sys.executable, "-c", WITHOUT_GRAMMAR, "recipes"]
    new = [*command, "new", "--from", "run.sh"]
    done = subprocess.run(new, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "ddpfix: tree-sitter-bash, which reads shell files, is not installed here: "
        "pip install 'ddpfix[shell]'\n"
    )
    show = [*command, "show", "codegpt-bigclonebench"]
    assert subprocess.run(show, cwd=tmp_path, capture_output=True, check=False).returncode == 0
