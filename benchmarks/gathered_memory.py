"""Memory that gathering results takes: python benchmarks/gathered_memory.py.

Two ranks on the CPU call the `gathered` of patched scripts with lists of arrays, each with half of
the whole. Prints by how much the peak of each rank's memory grows, and by how many times the whole.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
import tempfile

SIZES = (100, 200, 400)  # MiB of the whole
RANKS = 2


def main() -> None:
    """Print the table."""
    print("| whole, MiB | rank | grows by, MiB | of the whole |\n|---|---|---|---|", flush=True)
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as folder:
            ranks = [
                subprocess.Popen(
                    [sys.executable, "-W", "ignore", __file__, folder, str(rank), str(size)],
                    env=os.environ | {"OMP_NUM_THREADS": "1"},
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for rank in range(RANKS)
            ]
            for number, rank in enumerate(ranks):
                grown = int(rank.communicate()[0])
                print(f"| {size} | {number} | {grown} | {grown / size:.2f} |", flush=True)


def gather(folder: str, rank: int, size: int) -> None:
    """Print by how many MiB the peak of this rank's memory grows."""
    import numpy
    import torch
    from ddpfix.patcher.editing.helpers import helper_code

    names = {"torch": torch, "pickle": pickle}
    exec(helper_code("gathered"), names)
    torch.distributed.init_process_group(
        "gloo", f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    share = [numpy.random.rand(1 << 16) for _ in range(2 * size // RANKS)]  # of 0.5 MiB each
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    names["gathered"](share)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        gather(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
