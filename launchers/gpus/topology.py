"""How each two cards of a machine are joined: by NVLinks, or else by which part of the PCI tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import pynvml

from .model import Link

# The words of `nvidia-smi topo -m` for nvmlGpuTopologyLevel_t, the nearest first.
PATHS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",  # two chips on one board
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
MEANING = {
    "NV": "that many NVLinks",
    "PIX": "one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "the host bridge of one CPU",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the interconnect between NUMA nodes",
}
SWITCH = "switch"


def links(addresses: Mapping[int, str]) -> tuple[Link, ...]:
    """How the cards with these indices and PCI addresses are joined; call it while NVML is up.

    A pair of which NVML tells nothing, as one card is lost or the driver too old, is left out.
    """
    handles = {
        index: handle
        for index in addresses
        if (handle := _told(pynvml.nvmlDeviceGetHandleByIndex, index)) is not None
    }
    ends = {index: Counter(_ends(handle, addresses)) for index, handle in handles.items()}
    found = []
    for first, second in combinations(sorted(handles), 2):
        lanes = ends[first][second] or min(ends[first][SWITCH], ends[second][SWITCH])
        path = f"NV{lanes}" if lanes else _path(handles[first], handles[second])
        if path:
            found.append(Link(first, second, path))
    return tuple(found)


def _path(one: Any, other: Any) -> str:
    level = _told(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return PATHS.get(level, "")


def _ends(handle: Any, addresses: Mapping[int, str]) -> Iterator[int | str]:
    """What each NVLink that is up leads to: a card's index, or a switch, which joins all on it."""
    cards = {address: index for index, address in addresses.items() if address}
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if not _told(pynvml.nvmlDeviceGetNvLinkState, handle, link):
            continue  # down, or not there
        remote = _told(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        card = cards.get(remote.busId) if remote is not None else None
        if card is not None:
            yield card
        elif _told(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link) == (
            pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        ):
            yield SWITCH


def _told(question: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None
