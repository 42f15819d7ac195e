"""The picture of the house in CONTRIBUTING.md: every package, and the sentence it begins with.

``python docs/rooms.py`` writes it; with ``--check`` it ends with 1 where it would change.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "CONTRIBUTING.md"
START, END = "<!-- rooms, by docs/rooms.py -->\n", "<!-- end of rooms -->\n"
COLUMN = 22  # where the sentences begin


def picture() -> str:
    """The packages as a tree, in a block of Markdown."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = sorted(listed["tool"]["setuptools"]["packages"])
    lines = [line(packages, name) for name in packages]
    return "\n".join(["```text", *lines, "```\n"])


def line(packages: list[str], name: str) -> str:
    """One package, drawn below the one that holds it."""
    *parents, last = name.split(".")
    levels = [".".join([*parents, last][: depth + 1]) for depth in range(1, len(parents) + 1)]
    branches = ["    " if is_last(packages, level) else "│   " for level in levels[:-1]]
    if levels:
        branches.append("└── " if is_last(packages, name) else "├── ")
    return (
        f"{''.join(branches) + last + '/':{COLUMN}}{sentence(ROOT.joinpath(*name.split('.')[1:]))}"
    )


def is_last(packages: list[str], name: str) -> bool:
    """Whether no other package of the same parent comes after it."""
    parent = name.rpartition(".")[0]
    return [other for other in packages if other.rpartition(".")[0] == parent][-1] == name


def sentence(folder: Path) -> str:
    """The first sentence of a package's docstring."""
    tree = ast.parse((folder / "__init__.py").read_text("utf-8"))
    text = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
    first, _, _ = text.partition(". ")
    return first.rstrip(".") + "."


def drawn(page: str) -> str:
    """The page with the picture as it is now."""
    above, start, rest = page.partition(START)
    _, end, below = rest.partition(END)
    if not (start and end):
        sys.exit(f"{PAGE} lacks the lines {START.strip()} and {END.strip()}")
    return above + start + picture() + end + below


if __name__ == "__main__":
    before = PAGE.read_text("utf-8")
    after = drawn(before)
    if "--check" in sys.argv[1:]:
        sys.exit(before != after)
    PAGE.write_text(after, "utf-8")
