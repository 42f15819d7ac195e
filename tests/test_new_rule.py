"""``python -m ddpfix.patcher.rules.new``: whole files, or one line and none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from checkout import ImportedCopy

TITLE = "A model is left in eval mode"
FILES = {"patcher/rules/df998_a_model_is_left_in_eval_mode.py", "tests/test_rules_df998.py"}


def new(copy: ImportedCopy, *arguments: str) -> subprocess.CompletedProcess[str]:
    return copy.run("-m", "ddpfix.patcher.rules.new", *arguments)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> ImportedCopy:
    return ImportedCopy(tmp_path_factory.mktemp("untouched"))


def test_a_rule_is_begun_whole(tmp_path: Path) -> None:
    copy = ImportedCopy(tmp_path)
    before = copy.files()
    done = new(copy, "df998", "a model is left", "in eval mode.")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        *sorted(FILES),
        "docs/rules.md",
    ]
    after = copy.files()
    assert after.keys() - before.keys() == FILES
    assert {name for name in before if before[name] != after[name]} == {"docs/rules.md"}
    assert f"## DF998: {TITLE}\n\nerror, report\n" in after["docs/rules.md"].decode()
    assert TITLE in copy.run("-m", "ddpfix", "explain", "DF998").stdout
    assert "DF998  E  report" in copy.run("-m", "ddpfix", "rules").stdout

    # It is a rule as all others are; only its own tests are still to be filled in.
    manual = "tests/test_rules.py::test_the_docstring_is_a_whole_manual"
    page = "tests/test_packaging.py::test_the_rule_manual_is_what_the_rules_say"
    pytest_ = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert copy.run(*pytest_, manual, page).returncode == 0
    done = copy.run(*pytest_, "tests/test_rules_df998.py")
    assert done.returncode == 1
    assert "write down a script that DF998 leaves alone" in done.stdout
    for check in (["check"], ["format", "--check"]):
        done = copy.run("-m", "ruff", *check, *FILES)
        assert done.returncode == 0, done.stdout

    again = new(copy, "DF998", TITLE)
    assert again.returncode == 2
    assert "DF998 exists" in again.stderr
    assert copy.files().keys() == after.keys()


REFUSED = [
    pytest.param([], "no code: a rule's code is DF and three digits", id="no code"),
    pytest.param(["DF99", "A title"], "DF99: a rule's code is", id="two digits"),
    pytest.param(["XY998", "A title"], "XY998: a rule's code is", id="other letters"),
    pytest.param(["DF101", "A title"], "DF101 exists: `ddpfix explain DF101`", id="a known code"),
    pytest.param(["df101", "A title"], "DF101 exists", id="in small letters"),
    pytest.param(["DF998"], "DF998 needs a title", id="no title"),
    pytest.param(["DF998", " . "], "DF998 needs a title", id="a title without words"),
    pytest.param(["DF998", 'A """ title'], "no quotes", id="a title that ends a docstring"),
    pytest.param(["DF998", "A {title}"], "or braces", id="a title with a field"),
    pytest.param(["DF998", "word " * 20], "up to 80 characters", id="a long title"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_used_is_one_line_and_no_file(
    untouched: ImportedCopy, arguments: list[str], message: str
) -> None:
    before = untouched.files()
    done = new(untouched, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert untouched.files() == before


def test_an_existing_test_file_is_not_written_over(tmp_path: Path) -> None:
    copy = ImportedCopy(tmp_path)
    (copy.root / "tests" / "test_rules_df998.py").write_text("# mine\n")
    before = copy.files()
    done = new(copy, "DF998", TITLE)
    assert done.returncode == 2
    assert "test_rules_df998.py exists" in done.stderr
    assert copy.files() == before


def test_an_installed_package_is_no_place_for_a_rule(tmp_path: Path) -> None:
    copy = ImportedCopy(tmp_path)
    (copy.root / "docs" / "rules.md").unlink()
    before = copy.files()
    done = new(copy, "DF998", TITLE)
    assert done.returncode == 2
    assert "is an installed package and no checkout" in done.stderr
    assert "pip install -e ." in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert copy.files() == before


def test_nothing_is_left_where_the_manual_cannot_be_made(tmp_path: Path) -> None:
    copy = ImportedCopy(tmp_path)
    with (copy.root / "patcher" / "frontend" / "manuals.py").open("a") as file:
        file.write('\n\ndef rule_manuals() -> str:\n    raise OSError("a broken checkout")\n')
    before = copy.files()
    done = new(copy, "DF998", TITLE)
    assert done.returncode == 2
    assert "a broken checkout" in done.stderr
    assert copy.files() == before
