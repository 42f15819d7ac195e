"""Which cards the environment leaves a process, and which of them its user names.

CUDA_VISIBLE_DEVICES is read as CUDA reads it. Slurm sets it too; where a job has unset it again,
SLURM_STEP_GPUS or SLURM_JOB_GPUS still tells what the job was given (Slurm's manuals of srun and
sbatch, output environment variables).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ...record import changed

if TYPE_CHECKING:
    from .model import Gpu, Inventory

HIDDEN = "hidden by CUDA_VISIBLE_DEVICES"
OF_HERE = re.compile(r"\d+|(GPU-|MIG-)[\w/-]*|[0-9a-f-]+", re.IGNORECASE)
"""What names a card of this machine: an index, or the beginning of a UUID."""
NO_FILES = "NoDevFiles"  # what older versions of Slurm give a job without cards


def are_kinds(names: Sequence[str]) -> bool:
    """Whether these words of ``--gpus`` tell kinds of cards, such as "2x T4" or "RTX 4090".

    A name that could begin a UUID, as A10 or A100 could, needs a count before it.
    """
    return any(not OF_HERE.fullmatch(name) for name in names)


def leave_out_hidden(
    gpus: tuple[Gpu, ...], environ: Mapping[str, str]
) -> tuple[tuple[Gpu, ...], str]:
    """The cards in CUDA's order, the hidden ones last and with that reason, and a note."""
    value = environ.get("CUDA_VISIBLE_DEVICES")
    job = environ.get("SLURM_JOB_ID", "")
    given = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS", "")
    if value is None and job and given:
        visible, note = _given_by_slurm(gpus, job, given)
        why_not = f"not given to Slurm job {job}"
    elif value is None:
        return gpus, ""
    else:
        visible, note = _visible(gpus, value)
        why_not = HIDDEN
        if job and not visible:
            ask = "ask for some with `--gres=gpu:N` or `--gpus=N`"
            note = f"{note} This is Slurm job {job}: if it was given no cards, {ask}."
        elif job and given:
            note = " ".join(filter(None, [note, _said(job, visible)]))
    rest = (_hidden(gpu, why_not) for gpu in gpus if gpu not in visible)
    return (*visible, *rest), note


def hides_every_card(visible_devices: str | None) -> bool:
    """Whether a value of CUDA_VISIBLE_DEVICES asks for the CPU: empty, or beginning with -1."""
    if visible_devices is None:
        return False
    first = visible_devices.split(",")[0].strip()
    return not first or (first.startswith("-") and first[1:].isdigit())


def pick(found: Inventory, names: Sequence[str]) -> Inventory:
    """The inventory with the named cards first, in that order, and all others left out.

    A name is an index as nvidia-smi shows it, or the beginning of a UUID, with or without `GPU-`.

    Raises:
        InputError: a name fits no card, or several, or a card is named twice.

    """
    chosen: list[Gpu] = []
    for name in names:
        gpu = _only(found.gpus, name)
        if gpu in chosen:
            raise InputError(f"--gpus: {name} is card {gpu.index} again: name each card once")
        chosen.append(gpu)
    rest = (_hidden(gpu, "not among --gpus") for gpu in found.gpus if gpu not in chosen)
    return changed(found, gpus=(*chosen, *rest))


def _only(gpus: Sequence[Gpu], name: str) -> Gpu:
    if name.isdigit() and len(name) < 4:  # a UUID that begins in digits takes four to be told
        matches = [gpu for gpu in gpus if gpu.index == int(name)]
    else:
        matches = [gpu for gpu in gpus if gpu.uuid.removeprefix("GPU-").startswith(_bare(name))]
    if len(matches) == 1:
        return matches[0]
    there = ", ".join(str(index) for index in sorted(gpu.index for gpu in gpus))
    what = f"fits {len(matches)} cards" if matches else "is no card"
    raise InputError(f"--gpus: {name!r} {what}: there are {there or 'none'} (see `ddpfix gpus`)")


def _bare(name: str) -> str:
    return name.removeprefix("GPU-") or name


def _hidden(gpu: Gpu, why_not: str) -> Gpu:
    # A card that is lost stays so: that is the more useful thing to know.
    lost = not gpu.memory_total and gpu.why_not
    return gpu if lost else changed(gpu, usable=False, why_not=why_not)


def _given_by_slurm(gpus: tuple[Gpu, ...], job: str, given: str) -> tuple[list[Gpu], str]:
    """The cards of a job whose CUDA_VISIBLE_DEVICES is gone.

    Slurm counts cards by the numbers of their device files, over the whole node. A job that is
    shut in by cgroups sees no others, whatever they are called in there.
    """
    numbers = [int(word) for word in given.split(",") if word.strip().isdigit()]
    if len(gpus) <= len(numbers):
        return list(gpus), _said(job, gpus)
    by_file = {gpu.index if gpu.minor is None else gpu.minor: gpu for gpu in gpus}
    chosen = [by_file[number] for number in numbers if number in by_file]
    if len(chosen) != len(numbers) or not chosen:
        note = f"Slurm gave job {job} the cards {given!r}, of which this machine shows others: "
        return [], note + "set CUDA_VISIBLE_DEVICES to the ones that are yours."
    return chosen, _said(job, chosen)


def _said(job: str, gpus: Sequence[Gpu]) -> str:
    names = ", ".join(str(gpu.index) for gpu in gpus)
    return f"Slurm gave job {job} card{'s'[: len(gpus) > 1]} {names}."


def _visible(gpus: tuple[Gpu, ...], value: str) -> tuple[list[Gpu], str]:
    """The cards CUDA would show for this CUDA_VISIBLE_DEVICES, in its order, and a note.

    As the CUDA programming guide has it: indices or unique prefixes of UUIDs, and whatever
    follows the first entry that names no card is ignored; a card named twice leaves none.
    Indices are counted in PCI order, as nvidia-smi shows them; a launched run is told so.
    """
    if value.strip() == NO_FILES:
        return [], f"CUDA_VISIBLE_DEVICES={value!r} says that there are no cards for this job."
    if hides_every_card(value):
        return [], f"CUDA_VISIBLE_DEVICES={value!r} hides every card: unset it to use them."
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in value.split(",")):
        matches = [gpu for gpu in gpus if _names(entry, gpu)]
        if len(matches) != 1:
            return chosen, _bad_entry(entry, len(matches), gpus)
        if matches[0] in chosen:
            return [], f"CUDA_VISIBLE_DEVICES names card {matches[0].index} twice: CUDA shows none."
        chosen.append(matches[0])
    return chosen, ""


def _names(entry: str, gpu: Gpu) -> bool:
    if entry.isdigit():
        return int(entry) == gpu.index
    return entry.startswith("GPU-") and gpu.uuid.startswith(entry)


def _bad_entry(entry: str, matches: int, gpus: tuple[Gpu, ...]) -> str:
    if entry.startswith("-") and entry[1:].isdigit():
        return ""  # the documented way to end the list
    if entry.startswith("MIG-"):
        return f"CUDA_VISIBLE_DEVICES names the MIG slice {entry}, which is not used: name a card."
    what = "fits several cards" if matches else f"names none of the cards 0-{gpus[-1].index}"
    return f"CUDA_VISIBLE_DEVICES: {entry!r} {what}, so CUDA ignores it and all that follow."
