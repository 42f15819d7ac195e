"""What failed first in a run of several ranks, told from their output.

When one rank fails the others follow, with errors about lost connections, and each launcher adds a
summary of its own. What matters is the first traceback of the rank that its launcher saw fail
first. Torch puts ``[rank1]: `` before a rank's traceback once its process group is there, and its
launcher ``[default1]:`` before every line where it keeps each rank's output; so do we before every
line of a rank that is told from the others.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import attrs

from .output_monitor import OUT_OF_MEMORY

_PREFIX = re.compile(r"^(?:\[(?:rank|default)(\d+)\]: ?)+")
_BEGIN = "Traceback (most recent call last):"
_CHAINED = ("During handling of", "The above exception")
_EVALUATES = re.compile(
    r'^ *File "(?!.*-packages).*, in (?:do_|run_)?(?:eval|test|valid|predict|infer)', re.MULTILINE
)
# Torch elastic's summary (elastic.multiprocessing.errors), and that of our own back end.
_ROOT = re.compile(
    r"Root Cause \(first observed failure\):.*?rank\s*: (\d+).*?exitcode\s*: (-?\d+)", re.DOTALL
)
_DIRECT = re.compile(r"ddpfix: rank (\d+) ended with (?:exit status )?(\w+)")


@attrs.frozen
class RunFailure:
    """The first failure: its rank if known, how that ended, and its traceback if there was one.

    `how` is such as "exit status 1" or "SIGKILL", or empty. `error` is the traceback's last line.
    """

    rank: int | None = None
    how: str = ""
    error: str = ""
    traceback: str = ""
    out_of_memory: bool = False
    in_evaluation: bool = False

    @property
    def sentence(self) -> str:
        """Who failed first and how; empty where the output does not tell."""
        who = "The run" if self.rank is None else f"Rank {self.rank}"
        if self.error:
            return f"{who} failed first: {self.error}"
        return f"{who} failed first, with {self.how}" if self.how else ""


@attrs.frozen
class _Traceback:
    rank: int | None
    lines: tuple[str, ...]


def first_failure(output: bytes) -> RunFailure:
    """What the output of a run that failed says of the first failure."""
    text = output.decode("utf-8", "replace")
    rank, how = _first_rank(text)
    found = [one for one in _tracebacks(text) if "ChildFailedError" not in one.lines[-1]]
    memory = [one for one in found if OUT_OF_MEMORY.search("\n".join(one.lines).encode())]
    out_of_memory = OUT_OF_MEMORY.search(output) is not None
    own = [one for one in found if rank is not None and one.rank == rank]
    # Whose they are is not told before there is a process group, or where there is none. A rank
    # that was killed has written nothing.
    any_ones = [one for one in found if one.rank is None or rank is None]
    others = any_ones if how.startswith("exit") or not how else []
    # Memory first: it is never a consequence of another rank's failure.
    chosen = next(iter([*memory, *own, *others]), None)
    if chosen is None:
        return RunFailure(rank, how, out_of_memory=out_of_memory)
    if chosen.rank is not None and chosen.rank != rank:
        rank, how = chosen.rank, ""
    lines = "\n".join(chosen.lines)
    in_evaluation = _EVALUATES.search(lines) is not None
    return RunFailure(rank, how, chosen.lines[-1], lines, out_of_memory, in_evaluation)


def _first_rank(text: str) -> tuple[int | None, str]:
    root, direct = _ROOT.search(text), _DIRECT.search(text)
    if root:
        code = int(root[2])
        return int(root[1]), _ending(code)
    if direct:
        return int(direct[1]), f"exit status {direct[2]}" if direct[2].isdigit() else direct[2]
    return None, ""


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _tracebacks(text: str) -> Iterator[_Traceback]:
    """Python's tracebacks in the order of their ends, each with those that it is chained to."""
    open_: dict[int | None, list[str]] = {}
    ended: dict[int | None, list[str]] = {}
    for whole in re.split(r"[\r\n]+", text):
        prefix = _PREFIX.match(whole)
        rank = int(prefix[1]) if prefix else None
        line = whole[prefix.end() :] if prefix else whole
        if not line:
            continue
        if rank in ended:
            lines = ended.pop(rank)
            if line.startswith(_CHAINED):
                open_[rank] = [*lines, "", line, ""]
                continue
            yield _Traceback(rank, tuple(lines))
        if rank not in open_:
            if _BEGIN in line:  # a progress bar may stand before it on its line
                open_[rank] = [_BEGIN]
            continue
        open_[rank].append(line)
        if not line.startswith((" ", _BEGIN)):
            ended[rank] = open_.pop(rank)
    yield from (_Traceback(rank, tuple(lines)) for rank, lines in ended.items())
