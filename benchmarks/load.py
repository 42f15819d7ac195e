"""Measure a launch under load: the rate at which output is copied, and status with many runs.

    python -m ddpfix.benchmarks.load

Output is that of one process through a run of its own: 500 MB of short lines with a loss in each
tenth, the same in one line, and lines of 21 MB. Rates are in 10^6 bytes a second, memory is the
growth of this process's resident set, in MiB. The terminal is /dev/null.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.running.run_record import RunRecord, initial_content
from ddpfix.launchers.running.runner import OutputOptions, run

SIZE = 500_000_000  # bytes
RUNS = 10_000

WRITE = """
import sys
piece, count = {piece}, {count}
for _ in range(count):
    sys.stdout.buffer.write(piece)
"""
LINES = b"".join(
    b"step %d of 2000: %s\n" % (n, b"all is well" if n % 10 else b"loss 0.25") for n in range(2000)
)
KINDS = {
    "short lines": LINES,
    "one line": b"x" * 65536,
    "lines of 21 MB": b"x" * 20_999_999 + b"\n",
    "progress bars": b"".join(
        b"\repoch 0:  %d%%|##  | %d/2000 [00:01<00:09, 3it/s]" % (n // 20, n) for n in range(2000)
    ),
}


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory(prefix="ddpfix-load-") as name:
        folder = Path(name)
        for kind, piece in KINDS.items():
            for rank_logs in (True, False):
                rate, memory = copy_rate(folder, piece, rank_logs)
                streams = "sockets" if rank_logs else "a pipe"
                print(f"output, {kind}, by {streams}: {rate:.0f} MB/s, {memory:.0f} MiB more")
        print(f"status, {RUNS} runs: {status_seconds(folder):.2f} s")


def copy_rate(folder: Path, piece: bytes, rank_logs: bool) -> tuple[float, float]:
    """Run a process that writes SIZE bytes; 10^6 bytes a second, and MiB of memory."""
    script, out = folder / "write.py", folder / "out"
    count = SIZE // len(piece)
    source = folder / "piece"
    source.write_bytes(piece)
    script.write_text(WRITE.format(piece=f"open({str(source)!r}, 'rb').read()", count=count))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with silence():
        command = Command((sys.executable, str(script)), {"RANK": "0", "LOCAL_RANK": "0"})
        outcome = run(command, out, output=OutputOptions(rank_logs=rank_logs))
    seconds = time.monotonic() - began
    assert outcome.status == 0
    assert (out / "log.txt").stat().st_size == count * len(piece)
    shutil.rmtree(out)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return count * len(piece) / seconds / 1e6, memory / 1024


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Send standard output to /dev/null."""
    sys.stdout.flush()
    stdout = os.dup(1)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def status_seconds(folder: Path) -> float:
    """Wall seconds of `ddpfix status` with RUNS runs that have ended."""
    runs = folder / "ddpfix" / "runs"
    for number in range(RUNS):
        own = runs / f"20260101-{number:06}-own"
        own.mkdir(parents=True)
        record = RunRecord(own / "run.json", initial_content(Command(("true",), {}), "1", {}))
        losses = [[float(at), at, 0.5] for at in range(200)]
        record.update(attempts=[{"step": 5, "steps": 6, "loss": 0.5, "losses": losses}])
        record.close(exit_status=0, cause="finished")
        (own / "log.txt").write_bytes(LINES)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ddpfix", "status"],
        env=os.environ | {"XDG_STATE_HOME": str(folder)},
        capture_output=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == RUNS
    return time.monotonic() - began


if __name__ == "__main__":
    main()
