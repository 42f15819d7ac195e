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

import pynvml

from ...record import changed
from .model import GIB, Gpu, Inventory, Process, Slice, objection
from .topology import links
from .visibility import leave_out_hidden

BUSY_ABOVE = 1 * GIB
"""Bytes in use above which a card counts as busy.

An idle card shows a few MiB, a desktop some hundreds, a lone CUDA context 0.3 to 0.6 GiB; a
training shows several GiB. The bound is absolute because a tenth of an 80 GiB card would let
somebody's 7 GiB job pass as idle.
"""


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
    pynvml.NVML_ERROR_GPU_IS_LOST: "A card fell off the bus and NVML does not start: see "
    "`dmesg | grep -i nvrm`, then reset the card or reboot.",
    pynvml.NVML_ERROR_RESET_REQUIRED: "A card needs a reset before NVML starts: run "
    "`nvidia-smi --gpu-reset` as root, or reboot.",
}

# Errors of a machine that simply has no card, or none in use.
NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

# Why one card cannot be used, each with its way out.
CARD_ERRORS = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost: it fell off the bus, reset it or reboot",
    pynvml.NVML_ERROR_RESET_REQUIRED: "needs a reset: nvidia-smi --gpu-reset",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user has no permission to use it: ask for access to "
    "/dev/nvidia*",
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "its power cables are not attached properly: attach them",
    pynvml.NVML_ERROR_IRQ_ISSUE: "the kernel sees an interrupt problem with it: see dmesg",
    pynvml.NVML_ERROR_GPU_NOT_FOUND: "the driver no longer finds it: reset it or reboot",
    pynvml.NVML_ERROR_CORRUPTED_INFOROM: "its infoROM is corrupt: see `nvidia-smi -q`, it may have "
    "to be replaced",
}

COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive process",  # what it was, until CUDA 8
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive process",
}


def inventory(
    environ: Mapping[str, str] | None = None,
    *,
    busy_above: int | None = None,
    min_free: int | None = None,
) -> Inventory:
    """Ask NVML for every card and decide which may be used.

    `environ` (the process's own by default) is read for CUDA_VISIBLE_DEVICES and Slurm's
    assignment alone. A card with more than `busy_above` bytes in use, or less than `min_free`
    free, is left out; what is in use does not matter where `min_free` alone is given, and is
    BUSY_ABOVE where neither is. Never raises for what the machine lacks: the note then says why
    there is nothing.
    """
    environ = os.environ if environ is None else environ
    if busy_above is None and min_free is None:
        busy_above = BUSY_ABOVE
    try:
        with _nvml():
            driver = _ask(pynvml.nvmlSystemGetDriverVersion, default="")
            count = range(pynvml.nvmlDeviceGetCount())
            cards = tuple(_card(index, busy_above, min_free) for index in count)
            joined = links({gpu.index: gpu.pci for gpu in cards})
    except pynvml.NVMLError as error:
        broken = error.value not in NO_DRIVER
        return Inventory((), "", _start_note(error), broken)
    if not cards:
        note = f"The NVIDIA driver {driver} is loaded, but it sees no card."
        return Inventory((), driver, note)
    left, note = leave_out_hidden(cards, environ)
    return Inventory(left, driver, note, links=joined)


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


def _card(index: int, busy_above: int | None, min_free: int | None) -> Gpu:
    known = Gpu(index, "", "unknown", 0, 0, 0, None, None, mig=False, usable=False, why_not="")
    trouble = ""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        # Bit by bit, so that a card lost half-way keeps what it still said.
        for facts in _questions(handle):
            known = changed(known, **facts)
    except pynvml.NVMLError as error:
        trouble = CARD_ERRORS.get(error.value) or (
            f"NVML says: {error}; see `nvidia-smi -q -i {index}` and dmesg"
        )
    why_not = trouble or objection(known, busy_above, min_free)
    return changed(known, usable=not why_not, why_not=why_not)


def _questions(handle: Any) -> Iterator[dict[str, Any]]:
    """What NVML says of a card, as fields of `Gpu`."""
    yield {"uuid": _ask(pynvml.nvmlDeviceGetUUID, handle, default="")}
    yield {"name": _ask(pynvml.nvmlDeviceGetName, handle, default="unknown")}
    total, used, free = _memory(handle)
    yield {"memory_total": total, "memory_used": used, "memory_free": free}
    capability = _ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle, default=None)
    yield {"compute_capability": capability}
    rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle, default=None)
    yield {"utilization": None if rates is None else int(rates.gpu)}
    mig = _ask(pynvml.nvmlDeviceGetMigMode, handle, default=(0, 0))
    if mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
        yield {"mig": True, "slices": tuple(_slices(handle))}
    mode = _ask(pynvml.nvmlDeviceGetComputeMode, handle, default=pynvml.NVML_COMPUTEMODE_DEFAULT)
    yield {"compute_mode": COMPUTE_MODES.get(mode, f"mode {mode}")}
    yield {"processes": tuple(_processes(handle))}
    yield {"power": _watts(pynvml.nvmlDeviceGetPowerUsage, handle)}
    yield {"power_limit": _watts(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)}
    yield {"temperature": _degrees(handle)}
    address = _ask(pynvml.nvmlDeviceGetPciInfo_v3, handle, default=None)
    yield {"pci": "" if address is None else address.busId}
    yield {"minor": _ask(pynvml.nvmlDeviceGetMinorNumber, handle, default=None)}


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


def _watts(question: Callable[..., Any], handle: Any) -> float | None:
    milliwatts = _ask(question, handle, default=None)
    return None if milliwatts is None else milliwatts / 1000


def _degrees(handle: Any) -> int | None:
    # The second takes the place of the first, which CUDA 14 will not have; older pynvml lack it.
    for name in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
        question = getattr(pynvml, name, None)
        found = question and _ask(question, handle, pynvml.NVML_TEMPERATURE_GPU, default=None)
        if found is not None:
            return int(found)
    return None


def _processes(handle: Any) -> Iterator[Process]:
    # By their versions: the bare name raises an error of its own kind with an old driver.
    for question in (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
    ):
        found = _ask(question, handle, default=None)
        if found is not None:
            yield from (Process(int(one.pid), one.usedGpuMemory) for one in found)
            return


def _slices(handle: Any) -> Iterator[Slice]:
    for place in range(_ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle, default=0)):
        part = _ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place, default=None)
        if part is not None:  # places may be empty
            total, used, _ = _memory(part)
            uuid = _ask(pynvml.nvmlDeviceGetUUID, part, default="")
            yield Slice(uuid, _ask(pynvml.nvmlDeviceGetName, part, default="MIG"), total, used)
