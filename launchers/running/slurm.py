"""Hands a job script over to Slurm."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError
from .runner import LOG

JOB = "job.sh"


def submit(text: str, folder: Path, words: Sequence[str] = ()) -> str:
    """Queue the job script `text`, kept as `folder`/job.sh; its output goes to `folder`/log.txt.

    `words` are more options for sbatch, and win over those of the script. Returns the job's id.

    Raises:
        InputError: there is no sbatch, it refuses the job, or the folder has one.

    """
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise InputError("--submit: there is no sbatch here; --emit sbatch prints the job instead")
    job = folder / JOB
    if job.exists():
        raise InputError(f"{job}: is the job of another run; choose another --output")
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    job.write_bytes(os.fsencode(text))
    job.chmod(0o755)
    # Slurm would replace %j and the like.
    log = str(folder / LOG).replace("%", "%%")
    command = [sbatch, "--parsable", f"--output={log}", *words, str(job)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        job.unlink()
        if made:
            folder.rmdir()
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise InputError(f"sbatch refuses the job: {said[-1].removeprefix('sbatch: error: ')}")
    # "id;cluster" where there are several clusters
    return done.stdout.strip().partition(";")[0]
