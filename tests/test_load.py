"""Runs that write much: what is kept of it is bounded, and read without going over it again."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import pytest
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.running import output_monitor
from ddpfix.launchers.running.output_monitor import TAIL, OutputMonitor
from ddpfix.launchers.running.runner import OutputOptions, run

CHUNK = 1 << 16
BAR = b"\repoch 0:  %d%%|##  | %d/100000 [00:01<00:09, 3it/s]"


def lines_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the lines that are searched, as they come."""
    read: list[int] = []
    once = OutputMonitor._read_line

    def counted(self: OutputMonitor, line: bytes, rank: int | None) -> None:
        read.append(len(line))
        once(self, line, rank)

    monkeypatch.setattr(OutputMonitor, "_read_line", counted)
    return read


def peak_of(monitor: OutputMonitor, chunks: list[bytes], rank: int | None = 0) -> int:
    """Bytes that are allocated at most while the chunks are read."""
    tracemalloc.start()
    for chunk in chunks:
        monitor.take(1, chunk, rank)
    monitor.end()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_a_line_of_21_mb_is_neither_kept_nor_searched_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = lines_read(monkeypatch)
    monitor = OutputMonitor()
    chunks = [b"loss" + b"x" * (CHUNK - 4)] * 320 + [b"\nloss 0.25\n"]
    assert peak_of(monitor, chunks) < 8 * CHUNK
    assert sum(read) < 4 * CHUNK
    assert monitor.loss == 0.25


def test_what_is_kept_of_many_lines_is_bounded() -> None:
    monitor = OutputMonitor()
    line = b"all is well, and nothing is to be seen in this line\n"
    chunks = [line * (CHUNK // len(line))] * 640  # 40 MiB
    assert peak_of(monitor, chunks) < 2 * TAIL
    assert TAIL // 2 < len(monitor.output()) < 2 * TAIL


def test_of_a_flood_the_last_lines_of_each_chunk_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = lines_read(monkeypatch)
    monitor = OutputMonitor()
    bars = b"".join(BAR % (step // 1000, step) for step in range(1, 100_001))
    chunks = [bars[at : at + CHUNK] for at in range(0, len(bars), CHUNK)]
    for chunk in chunks:
        monitor.take(2, chunk)
    monitor.end()
    assert (monitor.step, monitor.steps) == (100_000, 100_000)
    assert sum(read) < len(bars) / 2


def test_an_error_in_the_middle_of_a_flood_is_found() -> None:
    monitor = OutputMonitor()
    text = b"[rank0]: torch.OutOfMemoryError: CUDA out of memory.\n"
    monitor.take(2, b"all is well\n" * 4000 + text + b"all is well\n" * 4000)
    assert monitor.out_of_memory


def test_a_bar_without_an_end_is_searched_in_its_last_part_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pattern of a bar goes over the rest of the line for each number with a percent sign."""
    seen: list[int] = []
    pattern = output_monitor._BAR

    class Counted:
        def search(self, line: bytes) -> object:
            seen.append(len(line))
            return pattern.search(line)

    monkeypatch.setattr(output_monitor, "_BAR", Counted())
    monitor = OutputMonitor()
    monitor.take(2, b"5%|" * 20_000 + b"\n")
    assert seen
    assert max(seen) <= 4096


@pytest.mark.parametrize("rank_logs", [True, False])
def test_all_that_is_written_is_in_the_log(rank_logs: bool, tmp_path: Path) -> None:
    script = tmp_path / "write.py"
    script.write_text(
        "import sys\n"
        "sys.stdout.buffer.write(b'x' * 20_999_999 + b'\\n')\n"
        "for number in range(200_000):\n    print('line', number)\n"
    )
    command = Command((sys.executable, str(script)), {"RANK": "0", "LOCAL_RANK": "0"})
    output = OutputOptions(quiet=True, rank_logs=rank_logs)
    assert run(command, tmp_path / "out", output=output).status == 0
    numbers = "".join(f"line {number}\n" for number in range(200_000))
    expected = b"x" * 20_999_999 + b"\n" + numbers.encode()
    assert (tmp_path / "out" / "log.txt").read_bytes() == expected
    if rank_logs:
        assert (tmp_path / "out" / "ranks" / "0.log").read_bytes() == expected
