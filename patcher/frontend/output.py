"""Format diagnostics as text or data. rich is imported only for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .diagnostics import Diagnostic, FileError, printable
from .full_format import for_terminal, full
from .severity import GITHUB_LEVELS, NAMES

if TYPE_CHECKING:
    from ..engine.patch import FileChange


def concise(item: Diagnostic) -> str:
    """``path:line:column: CODE severity: title: evidence``."""
    severity = NAMES[item.severity]
    return f"{item.where}: {item.code} {severity}: {item.title}: {item.because}"


def github(item: Diagnostic) -> str:
    """A workflow command that GitHub shows at the line."""
    place = {
        "file": item.path,
        "line": item.line,
        "col": item.column,
        "endLine": item.end_line,
        "endColumn": item.end_column,
    }
    return command(
        GITHUB_LEVELS[item.severity],
        {**place, "title": f"ddpfix ({item.code})"},
        f"{item.title}: {item.because}\n{item.consequence}",
    )


def command(name: str, properties: dict[str, object], message: str) -> str:
    """``::name key=value::message`` with separators in the parts escaped."""
    text = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    pairs = ",".join(f"{key}={escape_property(str(value))}" for key, value in properties.items())
    return f"::{name} {pairs}::{text}" if pairs else f"::{name}::{text}"


def escape_property(value: str) -> str:
    """Escape the value of a workflow command's property."""
    for plain, code in (("%", "25"), ("\r", "0D"), ("\n", "0A"), (":", "3A"), (",", "2C")):
        value = value.replace(plain, f"%{code}")
    return value


def github_error(error: FileError) -> str:
    """A workflow command for a file that cannot be checked."""
    line = {} if error.line is None else {"line": error.line}
    return command("error", {"file": error.path, **line, "title": "ddpfix"}, str(error))


def as_github(items: Sequence[Diagnostic], errors: Sequence[FileError]) -> str:
    """Workflow commands, also for files that cannot be checked."""
    return "\n".join([*map(github, items), *map(github_error, errors)])


def as_full(items: Sequence[Diagnostic], errors: Sequence[FileError]) -> str:
    """Blocks for people, coloured on a terminal; other files are reported on stderr."""
    return for_terminal(items) if sys.stdout.isatty() else full(items)


def as_json(items: Sequence[Diagnostic], errors: Sequence[FileError] = ()) -> str:
    """A list of objects, one per finding."""
    return dumps(list(map(as_object, items)))


def as_object(item: Diagnostic) -> dict[str, Any]:
    """A finding for JSON."""
    return {
        "path": printable(item.path),
        "line": item.line,
        "column": item.column,
        "end_line": item.end_line,
        "end_column": item.end_column,
        "code": item.code,
        "severity": NAMES[item.severity],
        "title": item.title,
        "because": item.because,
        "safety": item.safety,
    }


def as_sarif(items: Sequence[Diagnostic], errors: Sequence[FileError]) -> str:
    """A SARIF 2.1.0 log."""
    from .sarif import log  # reads all rules' manuals

    return dumps(log(items, errors))


def dumps(value: Any) -> str:
    """``value`` as indented JSON."""
    import json  # not needed for text

    return json.dumps(value, indent=2)


def lines_of(show: Callable[[Diagnostic], str]) -> Callable[..., str]:
    """A format with one text per finding; files that cannot be checked are reported on stderr."""
    return lambda items, errors: "\n".join(map(show, items))


FORMATS: dict[str, Callable[[Sequence[Diagnostic], Sequence[FileError]], str]] = {
    "full": as_full,
    "concise": lines_of(concise),
    "json": as_json,
    "github": as_github,
    "sarif": as_sarif,
}


class Count:
    """Number of a rule's findings."""

    def __init__(self, item: Diagnostic) -> None:
        self.code = item.code
        self.title = item.title
        self.count = self.fixable = 0

    def row(self) -> dict[str, object]:
        """The count as data for JSON."""
        return {
            "code": self.code,
            "title": self.title,
            "count": self.count,
            "fixable": self.fixable,
        }


def statistics(items: Iterable[Diagnostic], output_format: str) -> str:
    """Findings per code, most frequent first: a line each, or JSON."""
    counts: dict[str, Count] = {}
    for item in items:
        one = counts.setdefault(item.code, Count(item))
        one.count += 1
        one.fixable += item.is_fixable
    rows = sorted(counts.values(), key=lambda one: (-one.count, one.code))
    if output_format == "json":
        return dumps([one.row() for one in rows])
    return "\n".join(
        f"{one.count:6}  {one.code}  {one.fixable:6} fixable  {one.title}" for one in rows
    )


def show_diff(changes: Iterable[FileChange]) -> None:
    """Print a diff, coloured on a terminal; elsewhere in the encodings of the files."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(b"".join(change.diff_data() for change in changes))
        sys.stdout.buffer.flush()
        return
    text = "".join(change.diff() for change in changes)
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax(text, "diff", background_color="default"))
