"""Submit a job script to Slurm."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ...errors import InputError
from ..private_files import make_private_folder, open_private
from .runner import LOG

_JOB = "job.sh"


def submit(
    text: str,
    folder: Path,
    words: Sequence[str] = (),
    *,
    is_new: bool = False,
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Save the job script `text` as `folder`/job.sh and submit it; the job's id.

    Its output goes to `folder`/log.txt. `words` are more options for sbatch; they override those of
    the script. `secrets` are variables that the job script takes from its environment. `is_new`:
    the folder was made for this job, so it goes with a job that is refused.

    Raises:
        InputError: there is no sbatch, it refuses the job, or the folder has a job already.

    """
    is_new = is_new or not folder.exists()
    try:
        return _submit(text, folder, words, secrets)
    except InputError:
        if is_new:
            with contextlib.suppress(OSError):  # never made
                folder.rmdir()
        raise


def _submit(text: str, folder: Path, words: Sequence[str], secrets: Mapping[str, str]) -> str:
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise InputError("--submit: there is no sbatch here; --emit sbatch prints the job instead")
    job = folder / _JOB
    make_private_folder(folder)
    try:
        with open_private(job, "xb") as file:
            file.write(os.fsencode(text))
    except FileExistsError:
        raise InputError(f"{job}: is the job of another run; choose another --output") from None
    job.chmod(0o700)
    # A single % would begin a pattern such as %j.
    log = str(folder / LOG).replace("%", "%%")
    command = [sbatch, "--parsable", f"--output={log}", *words, str(job)]
    environment = {**os.environ, **secrets}  # which sbatch hands on to the job
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        job.unlink()
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        raise InputError(f"sbatch refuses the job: {lines[-1].removeprefix('sbatch: error: ')}")
    # "id;cluster" where there are several clusters
    return result.stdout.strip().partition(";")[0]
