"""Wording for lists, and for problems that several runs share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def describe_change(first: object, second: object) -> str:
    """Describe the change of a value."""
    texts = [str(getattr(each, "sum", each)) for each in (first, second)]
    return f"{texts[0]} became {texts[1]}"


def first_few(items: Sequence[object], most: int = 5) -> str:
    """The first ``most`` items, and how many more there are."""
    rest = len(items) - most
    separator = "; " if items and isinstance(items[0], str) and " " in items[0] else ", "
    shown = separator.join(str(each) for each in items[:most])
    return shown + (f" and {rest} more" if rest > 0 else "")


def group_by_problem(problems: Sequence[tuple[str, str]], most: int = 3) -> str:
    """One sentence for each problem, naming all runs that have it."""
    runs: dict[str, list[str]] = {}
    for name, problem in problems:
        runs.setdefault(problem, []).append(name)
    return first_few([f"{' and '.join(names)}: {text}" for text, names in runs.items()], most)


def comma_list(items: Iterable[object]) -> str:
    """All items, separated by commas."""
    return ", ".join(str(each) for each in items)
