"""Which cards this machine has, and which of them a training may use, asked of NVML alone.

NVML (through ``pynvml``) answers without creating a CUDA context, so looking costs no memory on
any card and works where torch is not installed. Source of the calls and their error codes: the
NVML API reference (docs.nvidia.com/deploy/nvml-api).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import pynvml

GIB = 1 << 30
BUSY_ABOVE = 1 * GIB
"""Bytes in use above which a card counts as busy.

An idle card shows a few MiB, a desktop some hundreds, a lone CUDA context 0.3 to 0.6 GiB; a
training shows several GiB. The bound is absolute because a tenth of an 80 GiB card would let
somebody's 7 GiB job pass as idle.
"""


@attrs.frozen
class Gpu:
    """One card as NVML sees it. Memory is in bytes, utilization in per cent.

    A quantity NVML did not give is 0 for memory and None elsewhere. `why_not` is empty exactly
    when `usable` is true.
    """

    index: int
    uuid: str
    name: str
    memory_total: int
    memory_used: int
    memory_free: int
    compute_capability: tuple[int, int] | None
    utilization: int | None
    mig: bool
    usable: bool
    why_not: str


@attrs.frozen
class Inventory:
    """The cards, those visible to CUDA first and in CUDA's order, then the hidden ones.

    `driver` is its version, or empty without one. `note` is one sentence on the inventory as a
    whole, with a way out where something is wrong, and empty when there is nothing to say.
    `broken` means that there may well be cards, but the driver cannot be asked about them.
    """

    gpus: tuple[Gpu, ...]
    driver: str
    note: str
    broken: bool = False

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """The cards a training may use, in the order in which local ranks get them."""
        return tuple(gpu for gpu in self.gpus if gpu.usable)


# Why NVML could not start, and what to do about it.
START_ERRORS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "No NVIDIA driver was found (libnvidia-ml.so.1 is "
    "missing): install the driver, or start the container with --gpus all.",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "The NVIDIA driver is installed but not loaded: "
    "run `sudo modprobe nvidia`, or reboot.",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "The NVIDIA driver was updated while its old "
    "kernel module is still loaded: reboot, or reload the nvidia modules.",
    pynvml.NVML_ERROR_NO_PERMISSION: "This user may not talk to the NVIDIA driver: ask for "
    "access to /dev/nvidia* (often the group `video` or `render`).",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "The NVIDIA driver is too old for NVML to be asked "
    "(it lacks nvmlInitWithFlags): update the driver.",
}

# Errors of a machine that simply has no card, or none in use.
NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

# Why one card cannot be used.
CARD_ERRORS = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost: it fell off the bus, reset it or reboot",
    pynvml.NVML_ERROR_RESET_REQUIRED: "needs a reset: nvidia-smi --gpu-reset",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user has no permission to use it",
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "its power cables are not attached properly",
    pynvml.NVML_ERROR_IRQ_ISSUE: "the kernel sees an interrupt problem with it",
}


def inventory(
    environ: Mapping[str, str] | None = None, *, busy_above: int = BUSY_ABOVE
) -> Inventory:
    """Ask NVML for every card and decide which may be used.

    `environ` (the process's own by default) is read for CUDA_VISIBLE_DEVICES alone; `busy_above`
    is in bytes. Never raises for what the machine lacks: the note then says why there is nothing.
    """
    environ = os.environ if environ is None else environ
    try:
        with _nvml():
            driver = _ask(pynvml.nvmlSystemGetDriverVersion, default="")
            cards = tuple(_card(index, busy_above) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        broken = error.value not in NO_DRIVER
        return Inventory((), "", _start_note(error), broken)
    if not cards:
        note = f"The NVIDIA driver {driver} is loaded, but it sees no card."
        return Inventory((), driver, note)
    return _apply_visibility(Inventory(cards, driver, ""), environ.get("CUDA_VISIBLE_DEVICES"))


def hides_every_card(visible_devices: str | None) -> bool:
    """Whether a value of CUDA_VISIBLE_DEVICES asks for the CPU: empty, or beginning with -1."""
    if visible_devices is None:
        return False
    first = visible_devices.split(",")[0].strip()
    return not first or (first.startswith("-") and first[1:].isdigit())


@contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _start_note(error: pynvml.NVMLError) -> str:
    return START_ERRORS.get(error.value) or f"NVML could not be asked ({error}): see `nvidia-smi`."


def _ask(question: Callable[..., Any], *arguments: Any, default: Any) -> Any:
    """The answer, or `default` where this card or this driver cannot give one."""
    try:
        return question(*arguments)
    except pynvml.NVMLError as error:
        if error.value in CARD_ERRORS:
            raise
        return default


def _card(index: int, busy_above: int) -> Gpu:
    known: dict[str, Any] = {
        "uuid": "",
        "name": "unknown",
        "total": 0,
        "used": 0,
        "free": 0,
        "compute_capability": None,
        "utilization": None,
        "mig": False,
        "prohibited": False,
    }
    trouble = ""
    try:
        # Filled in step by step, so that a card lost half-way keeps what it still said.
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        known["uuid"] = _ask(pynvml.nvmlDeviceGetUUID, handle, default="")
        known["name"] = _ask(pynvml.nvmlDeviceGetName, handle, default="unknown")
        known["total"], known["used"], known["free"] = _memory(handle)
        capability = _ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle, default=None)
        known["compute_capability"] = capability
        rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle, default=None)
        known["utilization"] = None if rates is None else int(rates.gpu)
        mig = _ask(pynvml.nvmlDeviceGetMigMode, handle, default=(0, 0))
        known["mig"] = mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        mode = _ask(pynvml.nvmlDeviceGetComputeMode, handle, default=None)
        known["prohibited"] = mode == pynvml.NVML_COMPUTEMODE_PROHIBITED
    except pynvml.NVMLError as error:
        trouble = CARD_ERRORS.get(error.value) or f"NVML says: {error}"
    why_not = trouble or _objection(known, busy_above)
    return Gpu(
        index=index,
        uuid=known["uuid"],
        name=known["name"],
        memory_total=known["total"],
        memory_used=known["used"],
        memory_free=known["free"],
        compute_capability=known["compute_capability"],
        utilization=known["utilization"],
        mig=known["mig"],
        usable=not why_not,
        why_not=why_not,
    )


def _memory(handle: Any) -> tuple[int, int, int]:
    """Total, used and free bytes; zeros where the card does not say.

    Version 2 of the call counts what the driver reserves for itself apart from `used`; version 1
    adds it, which makes an idle card look busier. Drivers before 510 have version 1 only.
    """
    answer = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2, default=None)
    answer = answer or _ask(pynvml.nvmlDeviceGetMemoryInfo, handle, default=None)
    if answer is None:
        return 0, 0, 0
    return int(answer.total), int(answer.used), int(answer.free)


def _objection(known: Mapping[str, Any], busy_above: int) -> str:
    if known["mig"]:
        return "split by MIG, and DDP cannot join slices"
    if known["prohibited"]:
        return "compute mode is Prohibited: nvidia-smi -c 0 allows it"
    if not known["total"]:
        return "NVML does not say how much memory it has"
    if known["used"] > busy_above:
        return f"busy: {known['used'] / GIB:.1f} GiB in use"
    return ""


def _apply_visibility(found: Inventory, value: str | None) -> Inventory:
    if value is None:
        return found
    visible, complaint = _visible(found.gpus, value)
    hidden = [
        attrs.evolve(gpu, usable=False, why_not="hidden by CUDA_VISIBLE_DEVICES")
        for gpu in found.gpus
        if gpu not in visible
    ]
    return Inventory((*visible, *hidden), found.driver, complaint)


def _visible(gpus: tuple[Gpu, ...], value: str) -> tuple[list[Gpu], str]:
    """The cards CUDA would show for this CUDA_VISIBLE_DEVICES, in its order, and a note.

    As the CUDA programming guide has it: indices or unique prefixes of UUIDs, and whatever
    follows the first entry that names no card is ignored; a card named twice leaves none.
    Indices are counted in PCI order, as nvidia-smi shows them; a launched run is told so.
    """
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
