"""Findings for people: grouped, under their source line, in the width of a terminal."""

from __future__ import annotations

import pytest
from ddpfix.patcher.frontend.diagnostics import Diagnostic
from ddpfix.patcher.frontend.full_format import coloured, full
from ddpfix.record import replace


def finding(text: str, span: str, *, code: str = "DF203", remedy: str = "patch it") -> Diagnostic:
    """A finding at a part of a line."""
    start = text.index(span)
    return Diagnostic(
        path="run.py",
        line=12,
        column=start + 1,
        end_line=12,
        end_column=start + len(span) + 1,
        code=code,
        severity="E",
        safety="safe",
        because="it is nought",
        text=text,
        title="Division by nought",
        consequence="It ends there.",
        remedy=remedy,
    )


CARETS = [
    pytest.param("    x = a // b", "a // b", ("x = a // b", "    ^^^^^^"), id="indented"),
    pytest.param("\tx = a\t// b", "a\t// b", ("x = a // b", "    ^^^^^^"), id="tabs"),
    pytest.param("größe = a // b", "a // b", ("größe = a // b", "        ^^^^^^"), id="umlauts"),
    pytest.param("数 = a // b", "a // b", ("数 = a // b", "     ^^^^^^"), id="wide characters"),
]


@pytest.mark.parametrize(("text", "span", "shown"), CARETS)
def test_the_carets_stand_under_the_span(text: str, span: str, shown: tuple[str, str]) -> None:
    lines = full([finding(text, span)]).splitlines()
    margin = " " * len("    12:99 | ")
    source, marks = (line.partition(" | ")[2] for line in lines[3:5])
    assert (source, marks.removesuffix(" it is nought")) == shown, margin


def test_what_happens_is_said_once_for_a_rule_and_a_file() -> None:
    items = [finding("x = a // b", "a // b"), finding("yy = a // b", "a // b")]
    text = full(items)
    assert text.count("Division by nought") == text.count("It ends there.") == 1
    assert text.count("it is nought") == 2
    assert text.count("fix: patch it") == 1


def test_the_head_has_the_worst_severity_and_others_say_theirs() -> None:
    one, other = finding("x = a // b", "a // b"), finding("yy = a // b", "a // b")
    text = full([replace(one, severity="W"), other, replace(one, severity="W")])
    assert "DF203 error: Division by nought" in text
    assert text.count("^ it is nought") == 1
    assert text.count("^ warning: it is nought") == 2


def test_what_most_have_for_a_fix_comes_first_and_others_name_their_rules() -> None:
    one = finding("x = a // b", "a // b", code="DF101", remedy="Write it anew.")
    more = [finding("x = a // b", "a // b", code=code) for code in ("DF203", "DF204")]
    fixes = [line for line in full([one, *more]).splitlines() if line.startswith("  fix")]
    assert fixes == ["  fix: patch it", "  fix (DF101): Write it anew."]


@pytest.mark.parametrize(
    ("remedy", "shown"),
    [
        ("Make it so. Or so.", "Make it so. Or so."),
        ("First. " + "Then more of it. " * 20, "First. " + "Then more of it. " * 11),
        (f"All in one, {'and on, ' * 40}to the end.", f"All in one, {'and on, ' * 40}to the end."),
    ],
)
def test_a_long_remedy_is_cut_behind_a_sentence(remedy: str, shown: str) -> None:
    item = finding("x = a // b", "a // b", remedy=remedy.strip())
    (fix,) = [line for line in full([item]).splitlines() if line.startswith("  fix: ")]
    more = "" if shown == remedy else "More: `ddpfix explain DF203`"
    assert fix == f"  fix: {shown}{more}".rstrip()


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("span", ["first", "last", "first = " + "middle + " * 12 + "last"])
def test_no_line_is_wider_than_the_terminal(width: int, span: str) -> None:
    text = full([finding("first = " + "middle + " * 12 + "last", span)], width)
    assert max(map(len, text.splitlines())) <= width
    lines = text.splitlines()
    number = next(n for n, line in enumerate(lines) if "^" in line)
    marked = "".join(
        above for above, mark in zip(lines[number - 1], lines[number], strict=False) if mark == "^"
    )
    assert marked.strip("…")
    assert span.startswith(marked.rstrip("…"))


def test_colours_change_nothing_but_colour() -> None:
    import click

    items = [finding("x = a // b", "a // b")]
    assert click.unstyle(full(items, 80, coloured)) == full(items, 80)
    assert full(items, 80, coloured) != full(items, 80)
