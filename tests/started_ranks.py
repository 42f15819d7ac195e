"""Scripts started in processes of their own, alone or by torchrun, without a card."""

from __future__ import annotations

import os
import subprocess
import sys

from ddpfix.launchers.backends.command import STALE_PREFIXES, STALE_VARIABLES

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def run(*words: str) -> str:
    """What python prints, started with these words; a failure shows what it wrote to stderr."""
    environment = {k: v for k, v in os.environ.items() if k not in STALE_VARIABLES}
    environment = {k: v for k, v in environment.items() if not k.startswith(STALE_PREFIXES)}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
