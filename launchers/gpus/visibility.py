"""Find the cards that the environment leaves visible, and those that the user names.

CUDA_VISIBLE_DEVICES is read as CUDA reads it. Slurm sets it too; if a job has unset it again,
SLURM_STEP_GPUS or SLURM_JOB_GPUS still lists the cards of the job (Slurm's manuals of srun and
sbatch, output environment variables).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ...record import replace

if TYPE_CHECKING:
    from .model import Gpu, Inventory

HIDDEN = "hidden by CUDA_VISIBLE_DEVICES"
LOCAL_CARD = re.compile(r"\d+|(GPU-|MIG-)[\w/-]*|[0-9a-f-]+", re.IGNORECASE)
"""Matches names of cards of this machine: an index, or the beginning of a UUID."""
NO_FILES = "NoDevFiles"  # set by older versions of Slurm for a job without cards


def are_kinds(names: Sequence[str]) -> bool:
    """Whether these values of ``--gpus`` name kinds of cards, such as "2x T4" or "RTX 4090".

    A name that could begin a UUID, such as A10 or A100, needs a count before it.
    """
    return any(not LOCAL_CARD.fullmatch(name) for name in names)


def leave_out_hidden(
    gpus: tuple[Gpu, ...], environ: Mapping[str, str]
) -> tuple[tuple[Gpu, ...], str]:
    """Sort the cards in CUDA's order, the hidden ones last and marked unusable; also a note."""
    value = environ.get("CUDA_VISIBLE_DEVICES")
    job = environ.get("SLURM_JOB_ID", "")
    assigned = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS", "")
    if value is None and job and assigned:
        visible, note = _cards_of_slurm_job(gpus, job, assigned)
        why_not = f"not given to Slurm job {job}"
    elif value is None:
        return gpus, ""
    else:
        visible, note = _cards_visible_to_cuda(gpus, value)
        why_not = HIDDEN
        if job and not visible:
            ask = "ask for some with `--gres=gpu:N` or `--gpus=N`"
            note = f"{note} This is Slurm job {job}: if it was given no cards, {ask}."
        elif job and assigned:
            note = " ".join(filter(None, [note, _slurm_note(job, visible)]))
    rest = (_hide(gpu, why_not) for gpu in gpus if gpu not in visible)
    return (*visible, *rest), note


def hides_every_card(visible_devices: str | None) -> bool:
    """Whether a value of CUDA_VISIBLE_DEVICES asks for the CPU: empty, or beginning with -1."""
    if visible_devices is None:
        return False
    first = visible_devices.split(",")[0].strip()
    return not first or (first.startswith("-") and first[1:].isdigit())


def pick(inventory: Inventory, names: Sequence[str]) -> Inventory:
    """Put the named cards first, in that order, and mark all others unusable.

    A name is an index as nvidia-smi shows it, or the beginning of a UUID, with or without `GPU-`.

    Raises:
        InputError: a name matches no card, or several, or a card is named twice.

    """
    picked: list[Gpu] = []
    for name in names:
        gpu = _card_named(inventory.gpus, name)
        if gpu in picked:
            raise InputError(f"--gpus: {name} is card {gpu.index} again: name each card once")
        picked.append(gpu)
    rest = (_hide(gpu, "not among --gpus") for gpu in inventory.gpus if gpu not in picked)
    return replace(inventory, gpus=(*picked, *rest))


def _card_named(gpus: Sequence[Gpu], name: str) -> Gpu:
    if name.isdigit() and len(name) < 4:  # with four digits or more, it begins a UUID
        matches = [gpu for gpu in gpus if gpu.index == int(name)]
    else:
        prefix = name.removeprefix("GPU-") or name
        matches = [gpu for gpu in gpus if gpu.uuid.removeprefix("GPU-").startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    there = ", ".join(str(index) for index in sorted(gpu.index for gpu in gpus))
    what = f"fits {len(matches)} cards" if matches else "is no card"
    raise InputError(f"--gpus: {name!r} {what}: there are {there or 'none'} (see `ddpfix gpus`)")


def _hide(gpu: Gpu, why_not: str) -> Gpu:
    # For a lost card that it is lost is the more useful reason.
    lost = not gpu.memory_total and gpu.why_not
    return gpu if lost else replace(gpu, usable=False, why_not=why_not)


def _cards_of_slurm_job(gpus: tuple[Gpu, ...], job: str, assigned: str) -> tuple[list[Gpu], str]:
    """The cards of a Slurm job that has unset CUDA_VISIBLE_DEVICES, and a note.

    Slurm numbers cards by their device files, over the whole node. A job confined by cgroups sees
    only its own cards, whatever their numbers inside.
    """
    numbers = [int(word) for word in assigned.split(",") if word.strip().isdigit()]
    if len(gpus) <= len(numbers):
        return list(gpus), _slurm_note(job, gpus)
    by_file = {gpu.index if gpu.minor is None else gpu.minor: gpu for gpu in gpus}
    chosen = [by_file[number] for number in numbers if number in by_file]
    if len(chosen) != len(numbers) or not chosen:
        note = f"Slurm gave job {job} the cards {assigned!r}, of which this machine shows others: "
        return [], note + "set CUDA_VISIBLE_DEVICES to the ones that are yours."
    return chosen, _slurm_note(job, chosen)


def _slurm_note(job: str, gpus: Sequence[Gpu]) -> str:
    names = ", ".join(str(gpu.index) for gpu in gpus)
    return f"Slurm gave job {job} card{'s'[: len(gpus) > 1]} {names}."


def _cards_visible_to_cuda(gpus: tuple[Gpu, ...], value: str) -> tuple[list[Gpu], str]:
    """The cards that CUDA shows for this value of CUDA_VISIBLE_DEVICES, in its order, and a note.

    By the CUDA programming guide, entries are indices or unique prefixes of UUIDs; the first entry
    that names no card ends the list; a card named twice leaves no cards. Indices are in PCI order,
    as nvidia-smi shows them; a launched run gets CUDA_DEVICE_ORDER accordingly.
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
