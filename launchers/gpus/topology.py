"""Query NVML for the connections between cards: NVLink, or else a level of the PCIe tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import pynvml

from .model import Link

# The terms of `nvidia-smi topo -m` for nvmlGpuTopologyLevel_t, the nearest first.
PATHS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",  # two chips on one board
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
PATH_MEANINGS = {
    "NV": "that many NVLinks",
    "PIX": "one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "the host bridge of one CPU",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the interconnect between NUMA nodes",
}
NVSWITCH = "switch"


def find_links(addresses: Mapping[int, str]) -> tuple[Link, ...]:
    """Find the link between each two cards, given by index and PCI address; NVML must be running.

    A pair is left out if NVML does not report it: a card is lost, or the driver too old.
    """
    handles = {
        index: handle
        for index in addresses
        if (handle := _query(pynvml.nvmlDeviceGetHandleByIndex, index)) is not None
    }
    ends = {index: Counter(_nvlink_ends(handle, addresses)) for index, handle in handles.items()}
    result = []
    for first, second in combinations(sorted(handles), 2):
        lanes = ends[first][second] or min(ends[first][NVSWITCH], ends[second][NVSWITCH])
        path = f"NV{lanes}" if lanes else _path(handles[first], handles[second])
        if path:
            result.append(Link(first, second, path))
    return tuple(result)


def _path(one: Any, other: Any) -> str:
    level = _query(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return PATHS.get(level, "")


def _nvlink_ends(handle: Any, addresses: Mapping[int, str]) -> Iterator[int | str]:
    """The remote end of each active NVLink: a card's index, or NVSWITCH."""
    cards = {address: index for index, address in addresses.items() if address}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if not _query(pynvml.nvmlDeviceGetNvLinkState, handle, link):
            continue  # inactive, or not there
        remote = _query(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        card = cards.get(remote.busId) if remote is not None else None
        if card is not None:
            yield card
        elif _query(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link) == (
            pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        ):
            yield NVSWITCH


def _query(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call an NVML function; None if it fails."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None
