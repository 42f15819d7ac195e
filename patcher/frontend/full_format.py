"""Findings for people: one block per file and rule, a source line with a caret per finding.

What a rule's hazard does at run time is said once per file, and so is what repairs the findings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from .diagnostics import Diagnostic
from .severity import NAMES

Paint = Callable[[str, str], str]
"""Text, and what it is (a key of STYLES) -> the text for the terminal."""

MAX_REMEDY = 200  # characters; a manual of some rule has 700
ORDER = [*NAMES.values()]  # the worst first
STYLES = {
    "path": {"bold": True, "underline": True},
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "note": {"fg": "cyan", "bold": True},
    "place": {"fg": "blue"},
    "fix": {"fg": "green"},
}


def full(items: Sequence[Diagnostic], width: int | None = None, paint: Paint | None = None) -> str:
    """The findings as blocks, by file and then by rule; ``width`` is that of the terminal."""
    paint = paint or plain
    blocks = []
    for path, in_file in grouped(items, lambda item: item.path):
        blocks.append(paint(path, "path"))
        for _, of_rule in grouped(in_file, lambda item: item.code):
            blocks.append(rule_block(of_rule, width, paint))
        blocks.append("".join(fix_lines(in_file, width, paint)))
    return "\n".join(blocks)


def plain(text: str, _: str) -> str:
    """Text without colour."""
    return text


def coloured(text: str, kind: str) -> str:
    """Text with the colour of what it is."""
    import click  # loaded already where there is a terminal

    return click.style(text, **STYLES[kind])  # type: ignore[arg-type]  # of mixed values


def grouped(
    items: Sequence[Diagnostic], key: Callable[[Diagnostic], str]
) -> list[tuple[str, list[Diagnostic]]]:
    """Items by a key, groups in the order of their first item."""
    groups: dict[str, list[Diagnostic]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())


def rule_block(items: Sequence[Diagnostic], width: int | None, paint: Paint) -> str:
    """A rule's findings in one file: what is wrong, what it does at run time, and where.

    The head has the worst severity of them; those of another one say theirs.
    """
    first, severity = items[0], min((NAMES[item.severity] for item in items), key=ORDER.index)
    name = f"{first.code} {severity}"
    head = wrapped(f"{name}: {first.title}", "  ", width).replace(name, paint(name, severity), 1)
    gutter = max(len(place(item)) for item in items)
    return "".join(
        [
            head,
            wrapped(first.consequence, "    ", width),
            *(finding_lines(item, gutter, width, paint, severity) for item in items),
        ]
    )


def place(item: Diagnostic) -> str:
    """``line:column``, which terminals make a link below a line with the path."""
    return f"{item.line}:{item.column}"


def finding_lines(
    item: Diagnostic, gutter: int, width: int | None, paint: Paint, severity: str
) -> str:
    """The source line, a caret under the span, and the evidence behind or below it."""
    own = NAMES[item.severity]
    because = item.because if own == severity else f"{own}: {item.because}"
    margin = f"    {'':{gutter}} | "
    source, start, end = in_view(item, None if width is None else width - len(margin))
    length = max(cells(source[start:end]), 1)
    before = " " * cells(source[:start])
    marks = paint("^" * length, NAMES[item.severity])
    lines = f"    {paint(f'{place(item):>{gutter}}', 'place')} | {source}\n"
    used = len(margin) + len(before) + length + 1
    if width is None or used + cells(because) <= width:
        return f"{lines}{margin}{before}{marks} {because}\n"
    return f"{lines}{margin}{before}{marks}\n{wrapped(because, margin, width)}"


def in_view(item: Diagnostic, room: int | None) -> tuple[str, int, int]:
    """The source line as far as there is room for it, and where the span begins and ends in it."""
    source = item.text.lstrip().expandtabs(1)
    indentation = len(item.text) - len(item.text.lstrip())
    start = max(item.column - 1 - indentation, 0)
    end = item.end_column - 1 - indentation if item.end_line == item.line else len(source)
    if room is None or cells(source) <= room:
        return source, start, end
    cut = 0 if end < room else min(start, max(len(source) - room + 1, 0))
    shown = f"{'…' if cut else ''}{source[cut + bool(cut) :]}"
    while cells(shown) > room:
        shown = f"{shown[:-2]}…"
    return shown, start - cut, min(end - cut, len(shown))


def fix_lines(items: Sequence[Diagnostic], width: int | None, paint: Paint) -> list[str]:
    """What repairs a file's findings, each way once: first that of most, then of single rules."""
    ways = sorted(grouped(items, lambda item: item.remedy), key=lambda way: -len(way[1]))
    found = []
    for number, (remedy, same) in enumerate(ways):
        codes = sorted({item.code for item in same})
        is_most = number == 0 and 2 * len(same) > len(items)
        who = "" if is_most else f" ({', '.join(codes)})"
        text = wrapped(f"fix{who}: {in_short(remedy, codes[0])}", "  ", width)
        found.append(text.replace("fix", paint("fix", "fix"), 1))
    return found


def in_short(remedy: str, code: str) -> str:
    """The first sentences of a remedy, and where the rest of a long one is found."""
    if len(remedy) <= MAX_REMEDY:
        return remedy
    first, *more = remedy.split(". ")
    while more and len(first) + len(more[0]) < MAX_REMEDY:
        first = f"{first}. {more.pop(0)}"
    return f"{first}. More: `ddpfix explain {code}`" if more else remedy


def wrapped(text: str, indent: str, width: int | None) -> str:
    """Text in lines of a terminal's width, each ended; one line where there is no width."""
    if width is None or len(indent) + len(text) <= width:
        return f"{indent}{text}\n"
    import textwrap  # not needed where output goes to a file

    room = max(width, len(indent) + 20)
    # Neither paths nor options are taken apart.
    return "".join(
        f"{line}\n"
        for line in textwrap.wrap(
            text,
            room,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def for_terminal(items: Sequence[Diagnostic]) -> str:
    """The findings in the width of the terminal, coloured unless NO_COLOR is set (no-color.org)."""
    width = os.get_terminal_size().columns
    return full(items, width, plain if os.environ.get("NO_COLOR") else coloured)
