"""One of a few values: enum takes as long to import as ten rules, and hashes in Python."""

from __future__ import annotations


class Choice:
    """A member of a class of its own; there is one object for each, so that ``is`` tells them."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"
