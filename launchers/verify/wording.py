"""Lists and findings of several runs, put into words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def became(first: object, second: object) -> str:
    """What stood there, and what stands there now."""
    texts = [str(getattr(each, "sum", each)) for each in (first, second)]
    return f"{texts[0]} became {texts[1]}"


def some(items: Sequence[object], most: int = 5) -> str:
    """The first of them, and how many are left unsaid."""
    rest = len(items) - most
    separator = "; " if items and isinstance(items[0], str) and " " in items[0] else ", "
    shown = separator.join(str(each) for each in items[:most])
    return shown + (f" and {rest} more" if rest > 0 else "")


def grouped(problems: Sequence[tuple[str, str]], most: int = 3) -> str:
    """One sentence for what is wrong in several runs alike."""
    runs: dict[str, list[str]] = {}
    for name, problem in problems:
        runs.setdefault(problem, []).append(name)
    return some([f"{' and '.join(names)}: {text}" for text, names in runs.items()], most)


def listed(items: Iterable[object]) -> str:
    """All of them."""
    return ", ".join(str(each) for each in items)


def counted(number: int, what: str) -> str:
    """How many of what."""
    return f"{number} {what}"
