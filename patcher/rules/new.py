"""Start a rule: ``python -m ddpfix.patcher.rules.new DF507 "What is wrong"``.

Writes the rule's file, the file of its tests, and docs/rules.md. No rule itself: rules are the
files whose names begin with ``df``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click

from ...errors import InputError
from ...record import record
from ..codes import all_codes
from ..source.files import decode
from ..source.replacement import replace_all

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 80  # characters of a title; it is the first line of the rule's docstring

RULE = '''\
"""{title}.

What         Which scripts this is about, in one or two sentences.
At run time  What it does to their user: a crash, a hang, a wrong number, lost time.
Example      the_line(that_is_wrong)
Fix          What patch writes, or what the user has to do.
Fix safety   Report only. With edits, either "Safe: ..." and why one process computes bit for bit
             what it did, or "Unsafe: ..." and what it computes instead.
Source       The documentation of the library, or where it was seen.
"""

from collections.abc import Iterator

from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "{code}", Severity.ERROR, Safety.REPORT


def findings(program: Program) -> Iterator[Finding]:
    yield from ()  # Instead of this line, for instance:
    # for module in program.modules:
    #     for call in module.calls_to("name"):
    #         yield Finding(module, call, f"the evidence, as in: {{module.text(call)}}")
'''

TESTS = '''\
"""{code}: {title}."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    # ("nothing is called", """
    #     name = 1
    #     """),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    # ("it is called", """
    #     name()
    #     """, """
    #     other_name()
    #     """),
]  # fmt: skip


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that {code} leaves alone"
    assert FIX, "write down a script that {code} finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("{code}", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("{code}", before)
    assert fixed("{code}", before) == textwrap.dedent(after).lstrip("\\n")
    assert found("{code}", after) == []
'''


@record
class NewRule:
    """A rule that is about to be written: its code, and the first line of its manual."""

    code: str
    title: str

    @property
    def stem(self) -> str:
        """The name of its file without the suffix: the code and the words of the title."""
        words = re.findall(r"[a-z0-9]+", self.title.lower())
        return "_".join([self.code.lower(), *words])

    @property
    def texts(self) -> dict[Path, str]:
        """The new files, by their path in the checkout."""
        return {
            Path("patcher", "rules", f"{self.stem}.py"): RULE.format(**self.__dict__),
            Path("tests", f"test_rules_{self.code.lower()}.py"): TESTS.format(**self.__dict__),
        }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("code", default="")
@click.argument("title", nargs=-1)
def new(code: str, title: tuple[str, ...]) -> None:
    """Write the files of a rule CODE, of which TITLE says what is wrong with a script."""
    try:
        written = write(rule_of(code, " ".join(title)), ROOT)
    except InputError as error:
        click.echo(f"ddpfix: {error}", err=True)
        sys.exit(2)
    for path in written:
        click.echo(os.path.relpath(path))


def rule_of(code: str, title: str) -> NewRule:
    """What the command line asks for. Raises InputError."""
    code, title = code.upper(), " ".join(title.split()).rstrip(".")
    if not re.fullmatch(r"DF[0-9]{3}", code):
        raise InputError(f"{code or 'no code'}: a rule's code is DF and three digits, as DF507")
    if code in all_codes():
        raise InputError(f"{code} exists: `ddpfix explain {code}` prints it; take another number")
    if not re.search(r"[a-z]", title, re.IGNORECASE):
        raise InputError(f'{code} needs a title that says what is wrong, as in {code} "What ..."')
    if len(title) > LONGEST or not re.fullmatch(r"[^\"\\{}]+", title) or not title.isprintable():
        raise InputError(
            f"{code}: a title has up to {LONGEST} characters and no quotes, backslashes or braces"
        )
    return NewRule(code, title[0].upper() + title[1:])


def write(rule: NewRule, root: Path) -> list[Path]:
    """Write all files of a rule into the checkout ``root``, or none. Raises InputError."""
    manual = root / "docs" / "rules.md"
    if not (manual.is_file() and (root / "tests").is_dir()):
        raise InputError(
            f"{root} is an installed package and no checkout: clone the repository, "
            "run `pip install -e .` in it, and begin again there"
        )
    texts = {root / path: text for path, text in rule.texts.items()}
    for path in texts:
        if path.exists():
            raise InputError(f"{path} exists: move it away or take another number")
    try:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        replace_all([(decode(str(manual), manual.read_bytes()), all_manuals())])
    except BaseException as error:
        for path in texts:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"{rule.code} is not written: {error}") from error
        raise
    return [*texts, manual]


def all_manuals() -> str:
    """The text of docs/rules.md, from a process of its own, which finds a rule just written."""
    done = subprocess.run(
        [sys.executable, "-m", "ddpfix", "rules", "--markdown"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise InputError(f"`ddpfix rules --markdown` fails: {done.stderr.strip()[-300:]}")
    return done.stdout


if __name__ == "__main__":
    new()
