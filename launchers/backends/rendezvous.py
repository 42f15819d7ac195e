"""Looks up where machines meet, and which address this one has towards the others."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct

from ...errors import InputError
from .nodes import PORT, Rendezvous

_SIOCGIFADDR = 0x8915  # linux/sockios.h


def meeting(rank: int, rendezvous: str) -> Rendezvous:
    """Machine `rank`'s part in the meeting at `rendezvous`, a HOST or HOST:PORT of machine 0.

    Raises:
        InputError: it reads otherwise, is not to be found, or is not machine 0's.

    """
    match = re.fullmatch(r"(\[[^\]]+\]|[^:\s]+)(?::(\d{1,5}))?", rendezvous)
    if not match or not 0 < int(match[2] or PORT) < 1 << 16:
        raise InputError(f"--rdzv {rendezvous}: write it as HOST or HOST:PORT, such as 10.0.0.1")
    host, port = match[1].strip("[]"), int(match[2] or PORT)
    there, address = _towards(host, port)
    if ipaddress.ip_address(there.partition("%")[0]).is_loopback and host != there:
        raise InputError(
            f"--rdzv {rendezvous}: {host} is {there} here, where no other machine finds it; give "
            "the address of machine 0 in their network"
        )
    if rank == 0 and address != there:
        raise InputError(
            f"--node-rank 0: --rdzv {rendezvous} is no address of this machine, which is {address} "
            "from there; give machine 0's own"
        )
    return Rendezvous(rank, host, port, address, _interface(address))


def _towards(host: str, port: int) -> tuple[str, str]:
    """The host's address, and this machine's own towards it; nothing is sent."""
    try:
        family, kind, protocol, _, there = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(there)
            return str(there[0]), str(probe.getsockname()[0])
    except OSError as error:
        raise InputError(f"--rdzv {host}: cannot be reached: {error.strerror}") from None


def _interface(address: str) -> str | None:
    """The interface with this address, None for one that is not its first, or of IPv6."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                asked = struct.pack("256s", name.encode())
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, asked)
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
