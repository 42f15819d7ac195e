"""Find the first failure of a run of several ranks in their output.

When one rank fails the others follow, with errors about lost connections, and each launcher adds a
summary of its own. What matters is the first traceback of the rank that the launcher saw fail
first. Torch puts ``[rank1]: `` before the lines of the exception that ends a rank once it has a
process group, and torchrun puts ``[default1]:`` before every line when it logs each rank's output.
We prefix every line whose rank is known as torchrun does.

An OOM is to blame where it ended the rank: a script may catch one, print it and go on.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterator

import attrs

from .output_monitor import OUT_OF_MEMORY

_PREFIX = re.compile(r"^(?:\[(?:rank|default)(\d+)\]: ?)+")
_BEGIN = "Traceback (most recent call last):"
_HANDLING = "During handling of"
_CAUSED = "The above exception"
_CHAINED = (_HANDLING, _CAUSED)
_KILLED = "SIGKILL"
KERNEL_KILL = "SIGKILL by the kernel: the memory of the machine or of the container was full"
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
    the traceback, or without one a known message.
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
    """`uncaught`: torch says that it ended the rank."""

    rank: int | None
    lines: tuple[str, ...]
    uncaught: bool = False

    @property
    def out_of_memory(self) -> bool:
        """Whether the last exception is an OOM, or was raised from one."""
        if OUT_OF_MEMORY.search(self.lines[-1].encode()):
            return True
        chained = [number for number, line in enumerate(self.lines) if line.startswith(_CHAINED)]
        if not chained or not self.lines[chained[-1]].startswith(_CAUSED):
            return False
        return _Traceback(self.rank, self.lines[: chained[-1] - 1]).out_of_memory


def first_failure(
    output: bytes,
    *,
    how: str = "",
    recovered: Collection[int | None] = (),
    kernel_kills: int = 0,
) -> RunFailure:
    """Find the first failure in the output of a run that failed.

    `how` the run ended is used where the output does not tell how the rank did. `recovered` are the
    ranks that went on after an OOM. `kernel_kills` counts processes that the kernel has killed
    because memory was full.
    """
    text = output.decode("utf-8", "replace")
    rank, rank_how = _first_rank(text)
    how = rank_how or how
    if how == _KILLED and kernel_kills:
        return RunFailure(rank, KERNEL_KILL, out_of_memory=True)
    tracebacks = [each for each in _tracebacks(text) if "ChildFailedError" not in each.lines[-1]]
    ended_itself = how.startswith("exit") or not how
    last = {each.rank: each for each in tracebacks}

    def has_ended_it(oom: _Traceback) -> bool:
        if oom.uncaught:
            return True
        of_first = rank is None or oom.rank in (None, rank)
        return ended_itself and of_first and oom is last[oom.rank] and oom.rank not in recovered

    ooms = [each for each in tracebacks if each.out_of_memory and has_ended_it(each)]
    own = [each for each in tracebacks if rank is not None and each.rank == rank]
    # Without a process group a traceback does not show its rank. A rank that was killed has not
    # written any.
    unknown = [each for each in tracebacks if each.rank is None or rank is None]
    others = unknown if ended_itself else []
    # One that the script caught ended nothing, if there is another one.
    caught = [each for each in tracebacks if each.out_of_memory and each not in ooms]
    likely = [each for each in [*own, *others] if each not in caught]
    # An OOM first: it is never a consequence of another rank's failure.
    first = next(iter([*ooms, *likely, *own, *others]), None)
    if first is None:
        return RunFailure(
            rank,
            how,
            _known_message(text) if ended_itself else "",
            out_of_memory=ended_itself and _says_oom(text, rank, recovered),
        )
    if first.rank is not None and first.rank != rank:
        rank, how = first.rank, ""
    lines = "\n".join(first.lines)
    in_evaluation = _EVALUATES.search(lines) is not None
    return RunFailure(rank, how, first.lines[-1], lines, bool(ooms), in_evaluation)


def _known_message(text: str) -> str:
    """The first line that is a known error, as argparse's, which prints no traceback."""
    from .known_errors import sightings  # with cattrs, which a run that succeeds does not need

    known = (one.text for one in sightings(text.splitlines()) if one.error and one.error.ends_run)
    return next(known, "")


def _says_oom(text: str, rank: int | None, recovered: Collection[int | None]) -> bool:
    """Whether a rank that has no traceback wrote the words of an OOM, as sys.exit does."""
    for whole in text.splitlines():
        prefix = _PREFIX.match(whole)
        writer = int(prefix[1]) if prefix else None
        said = OUT_OF_MEMORY.match(whole[prefix.end() if prefix else 0 :].encode())
        if said and (rank is None or writer in (None, rank)) and writer not in recovered:
            return True
    return False


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
    uncaught: dict[int | None, bool] = {}
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
            yield _Traceback(rank, tuple(lines), uncaught.get(rank, False))
        if rank not in open_:
            if _BEGIN in line:  # a progress bar may stand before it on its line
                open_[rank] = [_BEGIN]
            continue
        open_[rank].append(line)
        uncaught[rank] = "[rank" in (prefix[0] if prefix else "")
        if not line.startswith((" ", _BEGIN)):
            ended[rank] = open_.pop(rank)
    for rank, lines in ended.items():
        yield _Traceback(rank, tuple(lines), uncaught.get(rank, False))
