"""Start a command that cannot change the user's files.

    python -P -m ddpfix.launchers.verify.isolated_start VIEW.json COMMAND ...

The process enters what the file describes (`View`), and becomes the command.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

import attrs

from .landlock import allow_writes_below
from .overlay import enter_overlay
from .read_only_mounts import allow_writes_in

Barrier = Literal["landlock", "mounts", "none"]
"""What refuses a run on copies all other writes: Landlock, or read-only mounts."""
_SYSTEM = ("/dev", "/proc")  # where a process writes that leaves no file behind


@attrs.frozen
class View:
    """What a run sees of the file system, and where it may write.

    ``overlay`` is the scratch folder of an overlay mount; None where the run works on copies, and
    the ``barrier`` refuses all writes but to the ``writable`` folders.
    These are real ones. ``folder`` becomes the current one. For the rest see `enter_overlay`.
    """

    folder: str
    writable: tuple[str, ...]
    overlay: str | None = None
    in_memory: bool = False
    replacements: dict[str, str] = attrs.field(factory=dict)
    own_folders: tuple[str, ...] = ()
    start_from: str | None = None
    barrier: Barrier = "none"

    def save(self, file: Path) -> None:
        """Write the view as JSON."""
        file.write_text(json.dumps(attrs.asdict(self)), "utf-8", "surrogateescape")

    def enter(self) -> None:
        """Let this process see the file system like this. Raises OSError."""
        os.chdir(self.folder)
        if self.overlay is not None:
            enter_overlay(
                Path(self.overlay),
                self.writable,
                self.replacements,
                own_folders=self.own_folders,
                in_memory=self.in_memory,
                start_from=Path(self.start_from) if self.start_from else None,
            )
        elif self.barrier == "mounts":
            allow_writes_in(self.writable)
        elif self.barrier == "landlock":
            allow_writes_below([*self.writable, *filter(os.path.isdir, _SYSTEM)])


def main(words: Sequence[str]) -> NoReturn:
    """Enter a view and become the command; exits with 2 where that fails."""
    file, *command = words
    view = View(**json.loads(Path(file).read_text("utf-8", "surrogateescape")))
    try:
        view.enter()
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"ddpfix: the run cannot be isolated: {error.strerror}{where}", file=sys.stderr)
        sys.exit(2)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
