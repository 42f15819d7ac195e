"""noqa comments: what they silence, and which are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run
from ddpfix.patcher.source.comments import comments, open_rows

HEAD = "import torch\nfor b in bs: b.backward()\n"
LINE = "x = batch // args.n_gpu"


def codes(*arguments: object) -> list[str]:
    text = run("check", "--output-format", "json", *arguments).stdout
    return [row["code"] for row in json.loads(text)]


SILENT = [
    pytest.param(f"{LINE}  # noqa: DF203\n", id="its code"),
    pytest.param(f"{LINE}  # noqa: DF2\n", id="a prefix"),
    pytest.param(f"{LINE}  # noqa\n", id="all codes"),
    pytest.param(f"{LINE}  # NOQA:df203\n", id="any case"),
    pytest.param(f"{LINE}  # noqa: E501, DF203\n", id="among others"),
    pytest.param(f"{LINE}  # why  # noqa: E501 DF203\n", id="after a comment, by blanks"),
    pytest.param("x = (\n    batch // args.n_gpu  # noqa: DF203\n)\n", id="inside a statement"),
    pytest.param("x = (\n    batch // args.n_gpu\n)  # noqa: DF203\n", id="at its closing line"),
    pytest.param("x = batch // args.n_gpu, '''\n'''  # noqa\n", id="after a long string"),
]
LOUD = [
    pytest.param(f"{LINE}  # noqa: DF202\n", id="another code"),
    pytest.param(f"{LINE}  # noqa: E501\n", id="another tool's code"),
    pytest.param(f"{LINE}  # noqa: because\n", id="no code after the colon"),
    pytest.param(f"{LINE}  # noqable\n", id="another word"),
    pytest.param(f"{LINE}; y = '# noqa: DF203'\n", id="in a string"),
    pytest.param(f"# noqa: DF203\n{LINE}\n", id="in the line above"),
    pytest.param("x = (  # noqa: DF203\n    batch // args.n_gpu\n)\n", id="at the first line only"),
    pytest.param(f"if x:  # noqa: DF203\n    {LINE}\n", id="at the head around it"),
]


@pytest.mark.parametrize("text", SILENT)
def test_a_noqa_of_its_code_silences_a_finding(tmp_path: Path, text: str) -> None:
    script = tmp_path / "run.py"
    script.write_text(HEAD + text)
    assert codes("--select", "DF203", script) == []
    before = script.read_bytes()
    result = run("patch", script)
    assert (result.exit_code, result.stderr) == (0, "")
    assert script.read_bytes() == before


@pytest.mark.parametrize("text", LOUD)
def test_a_noqa_elsewhere_or_of_another_code_silences_nothing(tmp_path: Path, text: str) -> None:
    script = tmp_path / "run.py"
    script.write_text(HEAD + text)
    assert codes("--select", "DF203", script) == ["DF203"]


# With a main guard: DF100 leaves modules to the programs that import them.
GUARD = "if __name__ == '__main__':\n    main()\n"
UNUSED = [
    pytest.param("y = 1  # noqa: DF203\n", "DF203 finds nothing here", id="nothing to silence"),
    pytest.param(f"{LINE}  # noqa: DF203, DF4\n", "DF4 finds nothing here", id="one of two"),
    pytest.param("y = 1  # noqa: DF987\n", "there is no rule DF987", id="no such rule"),
]
USED = [
    pytest.param(f"{LINE}  # noqa: DF203\n", [], id="needed"),
    pytest.param("y = 1  # noqa: E501\n", [], id="another tool's"),
    pytest.param("y = 1  # noqa\n", [], id="without codes"),
    pytest.param("y = 1  # noqa: DF203\n", ["--ignore", "DF203"], id="its rule did not run"),
    pytest.param("y = 1  # noqa: DF2\n", ["--ignore", "DF202"], id="not all of its rules ran"),
    pytest.param("y = 1  # noqa: DF203\n", ["--ignore", "DF100"], id="not asked for"),
    pytest.param("y = 1  # noqa: DF203, DF100\n", [], id="silenced itself"),
]


@pytest.mark.parametrize(("text", "because"), UNUSED)
def test_a_noqa_that_silences_nothing_is_noted(tmp_path: Path, text: str, because: str) -> None:
    script = tmp_path / "run.py"
    script.write_text(HEAD + text + GUARD)
    rows = json.loads(run("check", "--notes", "--output-format", "json", script).stdout)
    assert [(row["code"], row["line"], row["because"]) for row in rows] == [("DF100", 3, because)]
    assert run("check", script).exit_code == 0


@pytest.mark.parametrize(("text", "options"), USED)
def test_used_codes_and_those_that_cannot_be_judged_are_not(
    tmp_path: Path, text: str, options: list[str]
) -> None:
    script = tmp_path / "run.py"
    script.write_text(HEAD + text + GUARD)
    assert codes("--notes", *options, script) == []


def test_a_module_keeps_the_comments_that_its_programs_need(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(f"import torch, steps\n{HEAD}{GUARD}")
    (tmp_path / "steps.py").write_text(f"import torch\ndef f(batch, args):\n    {LINE}\n")
    assert codes(tmp_path) == ["DF203"]
    text = (tmp_path / "steps.py").read_text()
    (tmp_path / "steps.py").write_text(text.replace(LINE, f"{LINE}  # noqa: DF203"))
    assert codes("--notes", tmp_path) == []


def test_comments_know_their_lines_whatever_ends_them() -> None:
    text = "a = 1  # one\r\nb = (  # two\r\n  3)  # three\r\n# alone\r\nc = '# no'\r\n"
    found = [(one.row, one.text, list(one.lines)) for one in comments(text)]
    assert found == [
        (1, "# one", [1]),
        (2, "# two", [2]),
        (3, "# three", [2, 3]),
        (4, "# alone", [4]),
    ]


def test_comments_may_not_stand_in_strings_or_before_a_backslash_break() -> None:
    assert open_rows("a = '''\n'''\nb = 1 + \\\n  2\nc = (\n)\n\n") == {2, 4, 5, 6, 7}
