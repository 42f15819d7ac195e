"""Find the first failure of a run of several ranks in their output.

When one rank fails the others follow, with errors about lost connections, and each launcher adds a
summary of its own. What matters is the first traceback of the rank that the launcher saw fail
first. Torch puts ``[rank1]: `` before the lines of a rank's traceback once it has a process group,
and torchrun puts ``[default1]:`` before every line when it logs each rank's output. We prefix every
line whose rank is known.
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
# The summary of torch elastic (elastic.multiprocessing.errors), and of our own back end.
_ROOT = re.compile(
    r"Root Cause \(first observed failure\):.*?rank\s*: (\d+).*?exitcode\s*: (-?\d+)", re.DOTALL
)
_DIRECT = re.compile(r"ddpfix: rank (\d+) ended with (?:exit status )?(\w+)")


@attrs.frozen
class RunFailure:
    """The first failure: its rank if known, how the rank ended, and its traceback if it has one.

    `how` is for instance "exit status 1" or "SIGKILL"; it may be empty. `error` is the last line of
    the traceback.
    """

    rank: int | None = None
    how: str = ""
    error: str = ""
    traceback: str = ""
    out_of_memory: bool = False
    in_evaluation: bool = False

    @property
    def sentence(self) -> str:
        """Which rank failed first, and how; empty if the output does not show it."""
        who = "The run" if self.rank is None else f"Rank {self.rank}"
        if self.error:
            return f"{who} failed first: {self.error}"
        return f"{who} failed first, with {self.how}" if self.how else ""


@attrs.frozen
class _Traceback:
    rank: int | None
    lines: tuple[str, ...]


def first_failure(output: bytes) -> RunFailure:
    """Find the first failure in the output of a run that failed."""
    text = output.decode("utf-8", "replace")
    rank, how = _first_rank(text)
    tracebacks = [each for each in _tracebacks(text) if "ChildFailedError" not in each.lines[-1]]
    ooms = [each for each in tracebacks if OUT_OF_MEMORY.search("\n".join(each.lines).encode())]
    out_of_memory = OUT_OF_MEMORY.search(output) is not None
    own = [each for each in tracebacks if rank is not None and each.rank == rank]
    # Without a process group a traceback does not show its rank. A rank that was killed has not
    # written any.
    unknown = [each for each in tracebacks if each.rank is None or rank is None]
    others = unknown if how.startswith("exit") or not how else []
    # An OOM first: it is never a consequence of another rank's failure.
    first = next(iter([*ooms, *own, *others]), None)
    if first is None:
        return RunFailure(rank, how, out_of_memory=out_of_memory)
    if first.rank is not None and first.rank != rank:
        rank, how = first.rank, ""
    lines = "\n".join(first.lines)
    in_evaluation = _EVALUATES.search(lines) is not None
    return RunFailure(rank, how, first.lines[-1], lines, out_of_memory, in_evaluation)


def _first_rank(text: str) -> tuple[int | None, str]:
    """The rank that the launcher saw fail first, and how it ended."""
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
    """Python's tracebacks in the order in which they end, chained ones as one."""
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
