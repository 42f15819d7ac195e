"""Find where several machines meet, and this machine's address towards the others."""

from __future__ import annotations

import fcntl
import ipaddress
import re
import socket
import struct

import attrs

from ...errors import InputError

_SIOCGIFADDR = 0x8915  # linux/sockios.h


@attrs.frozen
class Rendezvous:
    """Where the machines meet, and which of them this one is.

    `rank` is this machine's number, from 0. `address` is this machine's own address towards the
    others, `interface` the network interface that has it, if known.
    """

    rank: int
    host: str
    port: int
    address: str
    interface: str | None

    @property
    def endpoint(self) -> str:
        """The host and port as torchrun reads them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def find_rendezvous(rank: int, rendezvous: str, default_port: int) -> Rendezvous:
    """Resolve `rendezvous`, a HOST or HOST:PORT of machine 0, as seen from machine `rank`.

    Raises:
        InputError: it is malformed, cannot be resolved, or is not an address of machine 0.

    """
    match = re.fullmatch(r"(\[[^\]]+\]|[^:\s]+)(?::(\d{1,5}))?", rendezvous)
    if not match or not 0 < int(match[2] or default_port) < 1 << 16:
        raise InputError(f"--rdzv {rendezvous}: write it as HOST or HOST:PORT, such as 10.0.0.1")
    host, port = match[1].strip("[]"), int(match[2] or default_port)
    remote, local = _addresses(host, port)
    if ipaddress.ip_address(remote.partition("%")[0]).is_loopback and host != remote:
        raise InputError(
            f"--rdzv {rendezvous}: {host} is {remote} here, where no other machine finds it; give "
            "the address of machine 0 in their network"
        )
    if rank == 0 and local != remote:
        raise InputError(
            f"--node-rank 0: --rdzv {rendezvous} is no address of this machine, which is {local} "
            "from there; give machine 0's own"
        )
    return Rendezvous(rank, host, port, local, _interface(local))


def _addresses(host: str, port: int) -> tuple[str, str]:
    """The host's address, and this machine's own address towards it. Nothing is sent."""
    try:
        family, kind, protocol, _, remote = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(remote)
            return str(remote[0]), str(probe.getsockname()[0])
    except OSError as error:
        raise InputError(f"--rdzv {host}: cannot be reached: {error.strerror}") from None


def _interface(address: str) -> str | None:
    """The interface whose first IPv4 address this is; None where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                request = struct.pack("256s", name.encode())
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
