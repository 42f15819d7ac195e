"""What the real `accelerate launch` makes of the cards of our NVML library, left to itself.

torch asks NVML how many cards there are before it asks CUDA, but only in a build that knows CUDA.
The build that tests use may not: the function by which torch tells is lent to it, and never called.
All else is torch's, accelerate's and NVML's own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

Machine = Callable[..., dict[str, str]]

LAUNCH = """
import torch

def never():
    raise AssertionError("CUDA was asked")

if not torch.cuda._is_compiled():
    torch._C._cuda_getDeviceCount = never
from accelerate.commands.launch import main
main()
"""
# A file per rank: lines of several processes in one pipe may be written in pieces and mixed.
SCRIPT = """
import os
from pathlib import Path
Path(f"rank {os.environ.get('RANK')} of {os.environ.get('WORLD_SIZE')}").touch()
"""


def ranks(folder: Path, environment: dict[str, str]) -> tuple[set[str], str]:
    """The ranks that accelerate starts without being told how many, and all that it says."""
    folder.mkdir()
    (folder / "launch.py").write_text(LAUNCH)
    (folder / "script.py").write_text(SCRIPT)
    own = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "HF_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "launch.py", "--main_process_port", "0", "script.py"],
        cwd=folder,
        env=environment | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return {path.name for path in folder.glob("rank *")}, done.stdout


def test_accelerate_takes_its_multi_gpu_branch_and_a_busy_card_unless_it_is_hidden(
    machine: Machine, tmp_path: Path
) -> None:
    cards = "count = 3\n1.used_mib = 30000\n"
    started, said = ranks(tmp_path / "all", machine(cards))
    assert "More than one GPU was found, enabling multi-GPU training" in said
    assert started == {f"rank {rank} of 3" for rank in range(3)}

    # As `ddpfix launch` has it, which leaves card 1 out.
    started, _ = ranks(tmp_path / "idle", machine(cards, CUDA_VISIBLE_DEVICES="0,2"))
    assert started == {f"rank {rank} of 2" for rank in range(2)}
