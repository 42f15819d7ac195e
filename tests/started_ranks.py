"""Scripts started in processes of their own, alone or by torchrun, without a card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def results(script: Path, of_ranks: Path, batch: int) -> tuple[Any, list[Any]]:
    """What a script writes alone with a batch, and what each of two ranks does with half of it.

    Both take the batch and where to write; a rank adds its number. So that the second writes as
    well, its test for rank 0 is taken out of ``of_ranks``.
    """
    text = of_ranks.read_text().replace("if is_main_process():", "if True:")
    of_ranks.write_text(text)
    folder = of_ranks.parent
    run(str(script), str(batch), str(folder / "alone"))
    run(*TORCHRUN, str(of_ranks), str(batch // 2), str(folder / "rank"))
    alone, *ranks = (
        json.loads((folder / name).read_text()) for name in ("alone", "rank0", "rank1")
    )
    return alone, ranks
