"""The audit: programs that keep their obligations, violate them, or cannot be told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from audited import READ, audited, program_of
from cases import module
from command_line import run
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import SECTIONS, Obligation, all_obligations, audit


@pytest.mark.parametrize("obligation", all_obligations(), ids=lambda each: each.code)
def test_the_docstring_of_an_obligation_is_a_whole_manual(obligation: Obligation) -> None:
    heads = [line.split("  ")[0] for line in obligation.manual.splitlines() if line[:1].strip()]
    assert heads[1:] == list(SECTIONS)
    assert run("explain", obligation.code.lower()).stdout.startswith(
        f"{obligation.code} (obligation)\n\n{obligation.title}"
    )


def test_each_row_names_an_obligation_and_all_have_rows() -> None:
    assert {code for _, _, code, _ in READ} == {
        each.code for each in all_obligations() if each.code != "O11"
    }


@pytest.mark.parametrize(
    ("text", "code", "expected"), [pytest.param(*row[1:], id=row[0]) for row in READ]
)
def test_what_an_obligation_says_of_a_program(text: str, code: str, expected: str) -> None:
    told = [(each.code, each.answer.value, each.line) for each in audit(program_of(text))]
    lines = [n for n, line in enumerate(program_of(text).script.lines, 1) if b"# here" in line]
    assert told == [(code, expected, line) for line in lines if expected != "holds"]


PATCHED = [
    (
        "a form feed is lost",
        "def main():\n\f\n    x = 1\n",
        "def main():\n\n    x = 1\n",
        "a form feed",
    ),
    ("nothing is lost", "def main():\n\f\n    x = 1\n", "def main():\n\f\n    x = 2\n", ""),
]


@pytest.mark.parametrize(
    ("before", "after", "said"), [pytest.param(*row[1:], id=row[0]) for row in PATCHED]
)
def test_what_is_told_of_a_text_and_the_one_before(before: str, after: str, said: str) -> None:
    verdicts = audit(program_of(after), program_of(before))
    assert [said in each.because for each in verdicts] == ([True] if said else [])


def test_blanks_behind_the_last_line_are_no_lost_text() -> None:
    before, after = (Program(module(f"x = {number}\n\n    ")) for number in (1, 2))
    assert list(audit(after, before)) == []


BOUND_LATE = """\
import sys

def main():
    print(os.name)
    import os

if __name__ == '__main__':
    main()
"""


def test_the_command_prints_verdicts_and_its_status_is_that_of_findings(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(BOUND_LATE)
    done = run("audit", script)
    assert done.exit_code == 1
    assert f"{script}:4: O1 violated: `os` is read, and no way to this line binds it" in done.stdout
    assert "| print(os.name)" in done.stdout
    assert done.stderr == "1 violated, 0 unknown\n"
    (item,) = json.loads(run("audit", tmp_path, "--json").stdout)
    assert item == {
        "path": str(script),
        "line": 4,
        "obligation": "O1",
        "answer": "violated",
        "because": "`os` is read, and no way to this line binds it",
    }
    script.write_text(BOUND_LATE.replace("import sys", "import os").replace("    import os\n", ""))
    assert (run("audit", script).exit_code, run("audit", script).output) == (0, "")


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_audited(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("print 'x'\n")
    (tmp_path / "run.py").write_text(BOUND_LATE)
    done = run("audit", tmp_path)
    assert done.exit_code == 2
    assert "bad.py:1: not valid Python" in done.stderr
    assert "run.py:4: O1 violated" in done.stdout
    assert run("audit", tmp_path / "gone.py").exit_code == 2


def test_audited_is_what_the_table_is_read_with() -> None:
    assert audited(BOUND_LATE) == {("O1", "violated", 4)}


@pytest.mark.parametrize(
    ("test", "told"),
    [("six.PY2", False), ("sys.version_info[0] == 2 and six", False), ("six", True)],
)
def test_a_name_of_python_2_is_told_where_python_3_comes_to_it(test: str, told: bool) -> None:
    text = f"import six, sys\nif {test}:\n    text = unicode('x')\n"
    assert (("O1", "violated", 3) in audited(text)) is told


def test_what_vars_reads_binds_no_name_of_the_function() -> None:
    text = "def main():\n    print(vars(args))\n    print(late)\n    late = 1\n"
    assert ("O1", "violated", 3) in audited(text)


@pytest.mark.parametrize("where", ["f.rate: limits.Rate", "rate: limits.Rate"])
def test_python_evaluates_no_annotation_of_an_assignment_in_a_function(where: str) -> None:
    assert ("O1", "violated", 2) not in audited(f"def f():\n    {where} = 1\n\nf()\n")
    assert ("O1", "violated", 4) in audited(f"def f():\n    pass\n\n{where} = 1\n")
