"""Records of cards and of a machine's inventory, free of any driver call."""

from __future__ import annotations

from ...record import record

GIB = 1 << 30


@record
class Process:
    """A compute process on a card: its id on the host, and its memory in bytes if known."""

    pid: int
    memory: int | None


@record
class Slice:
    """A MIG slice of a card; memory in bytes."""

    uuid: str
    name: str
    memory_total: int
    memory_used: int


@record
class Gpu:
    """One card as NVML sees it. Memory is in bytes, utilization in per cent.

    `power` and `power_limit` are in watts, `temperature` in degrees Celsius; `pci` is the address
    on the bus, `minor` the number in /dev/nvidia<minor>. A quantity NVML did not report is 0 for
    memory and None elsewhere. `why_not` is empty exactly when `usable` is true.
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
    power: float | None = None
    power_limit: float | None = None
    temperature: int | None = None
    pci: str = ""
    minor: int | None = None
    compute_mode: str = "default"
    processes: tuple[Process, ...] = ()
    slices: tuple[Slice, ...] = ()


@record
class Link:
    """Two cards, by index, and how they are connected in the terms of ``nvidia-smi topo -m``."""

    first: int
    second: int
    path: str


@record
class Inventory:
    """The cards of a machine: those visible to CUDA first, in CUDA's order, then the hidden ones.

    `driver` is its version, or empty without one. `note` is one sentence on the inventory as a
    whole, with a remedy if something is wrong, and empty if there is nothing to report.
    `broken` means that there may be cards, but the driver cannot be queried. `links` are the
    connections between cards that NVML reports. `simulated` cards are not of this machine.
    """

    gpus: tuple[Gpu, ...]
    driver: str
    note: str
    broken: bool = False
    links: tuple[Link, ...] = ()
    simulated: bool = False

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """The cards a training may use, in the order in which local ranks get them."""
        return tuple(gpu for gpu in self.gpus if gpu.usable)


def why_unusable(gpu: Gpu, busy_above: int | None, min_free: int | None) -> str:
    """Why a training may not use the card, or ""; for the limits see `nvml.inventory`."""
    if gpu.mig:
        count = f" into {len(gpu.slices)}" if gpu.slices else ""
        return f"split by MIG{count}, and DDP cannot join slices: nvidia-smi -mig 0 undoes it"
    if gpu.compute_mode == "prohibited":
        return "compute mode is Prohibited: nvidia-smi -c 0 allows it"
    if gpu.compute_mode == "exclusive process" and gpu.processes:
        return f"in exclusive-process mode with {_pids(gpu)} on it: nvidia-smi -c 0 lets more in"
    if not gpu.memory_total:
        return "NVML does not say how much memory it has"
    if busy_above is not None and gpu.memory_used > busy_above:
        by = f" by {_pids(gpu)}" if gpu.processes else ""
        return f"busy: {gpu.memory_used / GIB:.1f} GiB in use{by}"
    if min_free is not None and gpu.memory_free < min_free:
        wanted = f"less than --min-free {min_free / GIB:.1f} GiB"
        return f"only {gpu.memory_free / GIB:.1f} GiB free, {wanted}"
    return ""


def _pids(gpu: Gpu) -> str:
    pids = [str(process.pid) for process in gpu.processes]
    return f"process{'es'[: 2 * (len(pids) > 1)]} {', '.join(pids)}"
