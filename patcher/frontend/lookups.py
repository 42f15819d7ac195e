"""The modules that a script looks for, folder by folder, and whether they are as they were.

A script of a large project asks for thousands of places, as each import may be a module or a name
in one, in each folder of the path. Most of them do not exist: those of one folder are compared with
its names at once, and those in a folder that does not exist are that folder's absence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

# A folder relative to the script's, its modules with their digests (None: cannot be read), and the
# names that it lacks.
Lookup = tuple[str, frozenset[tuple[str, str | None]], frozenset[str]]


class Folders:
    """Names in folders, and modules in them, each asked for once in a run.

    ``digest`` tells a file's digest by its absolute path, None without a file.
    """

    def __init__(self, digest: Callable[[str], str | None]) -> None:
        self.digest = digest
        self.listings: dict[str, frozenset[str]] = {}
        self.homes: dict[str, str] = {}
        self.places: dict[tuple[str, str], str] = {}
        self.compared: dict[tuple[str, Lookup], bool] = {}

    def home(self, script: str) -> str:
        """The real folder of a script, where its imports begin."""
        folder = os.path.dirname(script)
        if os.path.islink(script):
            return os.path.dirname(os.path.realpath(script))
        if folder not in self.homes:
            self.homes[folder] = os.path.realpath(folder)
        return self.homes[folder]

    def names(self, folder: str) -> frozenset[str]:
        """Names in a folder; none where it cannot be listed."""
        if folder not in self.listings:
            self.listings[folder] = names_in(folder)
        return self.listings[folder]

    def place(self, folder: str, relative: str) -> str:
        """The absolute path of a folder that is relative to another."""
        if (folder, relative) not in self.places:
            self.places[folder, relative] = os.path.abspath(os.path.join(folder, relative))
        return self.places[folder, relative]

    def probe(self, folder: str, name: str) -> str | None:
        """Digest of a module that a script in ``folder`` looks for; None where there is none."""
        parent, file = os.path.split(name)
        place = self.place(folder, parent)
        return self.digest(os.path.join(place, file)) if file in self.names(place) else None

    def lookups(self, folder: str, probes: Mapping[str, str | None]) -> tuple[Lookup, ...]:
        """What a script in ``folder`` has found and missed, by folder."""
        files: dict[str, set[tuple[str, str | None]]] = {}
        missing: dict[str, set[str]] = {}
        for path, digest in probes.items():
            parent, name = self.nearest(folder, path)
            if name in self.names(self.place(folder, parent)):
                files.setdefault(parent, set()).add((sys.intern(name), digest))
            else:
                missing.setdefault(parent, set()).add(sys.intern(name))
        return tuple(
            (
                sys.intern(parent),
                frozenset(files.get(parent, ())),
                frozenset(missing.get(parent, ())),
            )
            for parent in {**files, **missing}
        )

    def nearest(self, folder: str, path: str) -> tuple[str, str]:
        """The innermost folder on a path that exists, and the path's next name in it."""
        parent, name = os.path.split(path)
        while parent and not self.exists(folder, parent):
            parent, name = os.path.split(parent)
        return parent, name

    def exists(self, folder: str, relative: str) -> bool:
        """Whether a folder exists below ``folder``, or is one above it."""
        parent, name = os.path.split(relative)
        return name == os.pardir or name in self.names(self.place(folder, parent))

    def are_unchanged(self, folder: str, lookups: tuple[Lookup, ...]) -> bool:
        """Whether a script in ``folder`` would find and miss the same."""
        return all(self.is_unchanged(self.place(folder, each[0]), each) for each in lookups)

    def is_unchanged(self, place: str, lookup: Lookup) -> bool:
        """Whether one folder has the same modules and lacks the same names."""
        if (place, lookup) not in self.compared:
            _, files, missing = lookup
            self.compared[place, lookup] = self.names(place).isdisjoint(missing) and all(
                self.digest(os.path.join(place, name)) == digest for name, digest in files
            )
        return self.compared[place, lookup]


def names_in(folder: str) -> frozenset[str]:
    """Names in a folder; none where it cannot be listed."""
    try:
        return frozenset(os.listdir(folder or "."))
    except OSError:
        return frozenset()
