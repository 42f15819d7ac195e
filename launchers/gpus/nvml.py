"""Query NVML for the cards of this machine, and decide which of them a training may use.

NVML (through ``pynvml``) needs no CUDA context, so a query takes no memory on any card and works
where torch is not installed. Source of the calls and their error codes: the NVML API reference
(docs.nvidia.com/deploy/nvml-api).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pynvml

from ...record import replace
from .model import GIB, Gpu, Inventory, Process, Slice, why_unusable
from .topology import find_links
from .visibility import leave_out_hidden

BUSY_ABOVE = 1 * GIB
"""Bytes in use above which a card counts as busy.

An idle card shows a few MiB, a desktop some hundreds, a lone CUDA context 0.3 to 0.6 GiB; a
training shows several GiB. The limit is absolute: a tenth of an 80 GiB card would let somebody's
7 GiB job pass as idle.
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

# Errors of a machine that has no card, or whose driver is not loaded.
NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

# Why one card cannot be used, and what to do about it.
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
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive process",  # its name until CUDA 8
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive process",
}


def inventory(
    environ: Mapping[str, str] | None = None,
    *,
    busy_above: int | None = None,
    min_free: int | None = None,
) -> Inventory:
    """Query NVML for every card and decide which may be used.

    `environ` (default: os.environ) is read only for CUDA_VISIBLE_DEVICES and Slurm's assignment.
    A card with more than `busy_above` bytes in use, or less than `min_free` bytes free, is marked
    unusable; without either limit, `busy_above` is BUSY_ABOVE. Raises nothing if the machine has no
    card or driver: the note of the empty inventory then says why.
    """
    environ = os.environ if environ is None else environ
    if busy_above is None and min_free is None:
        busy_above = BUSY_ABOVE
    try:
        with _nvml():
            driver = _query(pynvml.nvmlSystemGetDriverVersion, default="")
            count = range(pynvml.nvmlDeviceGetCount())
            cards = tuple(_card(index, busy_above, min_free) for index in count)
            found_links = find_links({gpu.index: gpu.pci for gpu in cards})
    except pynvml.NVMLError as error:
        broken = error.value not in NO_DRIVER
        return Inventory((), "", _start_note(error), broken)
    if not cards:
        note = f"The NVIDIA driver {driver} is loaded, but it sees no card."
        return Inventory((), driver, note)
    marked, note = leave_out_hidden(cards, environ)
    return Inventory(marked, driver, note, links=found_links)


@contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _start_note(error: pynvml.NVMLError) -> str:
    return START_ERRORS.get(error.value) or f"NVML could not be asked ({error}): see `nvidia-smi`."


def _query(function: Callable[..., Any], *arguments: Any, default: Any) -> Any:
    """Call an NVML function; `default` if this card or this driver does not support it."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in CARD_ERRORS:
            raise
        return default


def _card(index: int, busy_above: int | None, min_free: int | None) -> Gpu:
    gpu = Gpu(index, "", "unknown", 0, 0, 0, None, None, mig=False, usable=False, why_not="")
    failure = ""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        # One query at a time, so that a card lost half-way keeps what it reported before.
        for fields in _query_fields(handle):
            gpu = replace(gpu, **fields)
    except pynvml.NVMLError as error:
        failure = CARD_ERRORS.get(error.value) or (
            f"NVML says: {error}; see `nvidia-smi -q -i {index}` and dmesg"
        )
    why_not = failure or why_unusable(gpu, busy_above, min_free)
    return replace(gpu, usable=not why_not, why_not=why_not)


def _query_fields(handle: Any) -> Iterator[dict[str, Any]]:
    """Query a card for the fields of `Gpu`, one after the other."""
    yield {"uuid": _query(pynvml.nvmlDeviceGetUUID, handle, default="")}
    yield {"name": _query(pynvml.nvmlDeviceGetName, handle, default="unknown")}
    total, used, free = _memory(handle)
    yield {"memory_total": total, "memory_used": used, "memory_free": free}
    capability = _query(pynvml.nvmlDeviceGetCudaComputeCapability, handle, default=None)
    yield {"compute_capability": capability}
    rates = _query(pynvml.nvmlDeviceGetUtilizationRates, handle, default=None)
    yield {"utilization": None if rates is None else int(rates.gpu)}
    mig = _query(pynvml.nvmlDeviceGetMigMode, handle, default=(0, 0))
    if mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
        yield {"mig": True, "slices": tuple(_slices(handle))}
    mode = _query(pynvml.nvmlDeviceGetComputeMode, handle, default=pynvml.NVML_COMPUTEMODE_DEFAULT)
    yield {"compute_mode": COMPUTE_MODES.get(mode, f"mode {mode}")}
    yield {"processes": tuple(_processes(handle))}
    yield {"power": _watts(pynvml.nvmlDeviceGetPowerUsage, handle)}
    yield {"power_limit": _watts(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)}
    yield {"temperature": _degrees(handle)}
    address = _query(pynvml.nvmlDeviceGetPciInfo_v3, handle, default=None)
    yield {"pci": "" if address is None else address.busId}
    yield {"minor": _query(pynvml.nvmlDeviceGetMinorNumber, handle, default=None)}


def _memory(handle: Any) -> tuple[int, int, int]:
    """Total, used and free bytes; zeros if the card does not report them.

    Version 2 of the call reports memory reserved by the driver separately; version 1 adds it to
    `used`, which makes an idle card look busier. Drivers before 510 have version 1 only.
    """
    info = _query(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2, default=None)
    info = info or _query(pynvml.nvmlDeviceGetMemoryInfo, handle, default=None)
    if info is None:
        return 0, 0, 0
    return int(info.total), int(info.used), int(info.free)


def _watts(function: Callable[..., Any], handle: Any) -> float | None:
    milliwatts = _query(function, handle, default=None)
    return None if milliwatts is None else milliwatts / 1000


def _degrees(handle: Any) -> int | None:
    # The second replaces the first, which CUDA 14 drops; older versions of pynvml lack it.
    for name in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
        function = getattr(pynvml, name, None)
        degrees = function and _query(function, handle, pynvml.NVML_TEMPERATURE_GPU, default=None)
        if degrees is not None:
            return int(degrees)
    return None


def _processes(handle: Any) -> Iterator[Process]:
    # By version: the unversioned name raises an error of another type with an old driver.
    for function in (
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
        pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
    ):
        processes = _query(function, handle, default=None)
        if processes is not None:
            yield from (Process(int(one.pid), one.usedGpuMemory) for one in processes)
            return


def _slices(handle: Any) -> Iterator[Slice]:
    for index in range(_query(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle, default=0)):
        part = _query(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index, default=None)
        if part is not None:  # there may be gaps
            total, used, _ = _memory(part)
            uuid = _query(pynvml.nvmlDeviceGetUUID, part, default="")
            yield Slice(uuid, _query(pynvml.nvmlDeviceGetName, part, default="MIG"), total, used)
