"""Several machines that train together: how many, which of them this is, and where they meet.

They meet by torch elastic's own c10d rendezvous, at an address of machine 0. Each runs as many
processes as the others. Torch elastic then numbers them in the order of their addresses, so rank 0
need not be on machine 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ...errors import InputError
from ..cli.supervision_options import SupervisionPolicy
from ..planning.plan import Plan

PORT = 29400
"""Where machines meet unless told otherwise: torch elastic's own choice."""

PATIENCE = 600
"""Seconds that a machine waits for the others: they may be started by hand, one by one."""


@attrs.frozen
class Rendezvous:
    """Where machines meet, and this one's part in it.

    `address` is this machine's own towards the others, `interface` what holds it, if known.
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


@attrs.frozen
class Nodes:
    """The machines of a run: one alone has no meeting, nor have those that a batch job is given."""

    count: int = 1
    meeting: Rendezvous | None = None

    @property
    def said(self) -> str:
        """One sentence, or nothing of a machine that is alone."""
        if self.meeting is None:
            return f"{self.count} machines, each with as many processes." * (self.count > 1)
        where = f"they meet at {self.meeting.endpoint}"
        return f"Machine {self.meeting.rank} of {self.count}, at {self.meeting.address}: {where}."

    @property
    def record(self) -> str:
        """The folder of this machine's log and record, below the run folder that all share."""
        return f"node-{self.meeting.rank}" if self.meeting else "."

    def here(self, plan: Plan) -> int:
        """How many of the plan's processes each machine runs."""
        return plan.world // self.count

    def backend(self, asked: str | None) -> str | None:
        """What starts the processes, where the user asked for `asked`.

        Raises:
            InputError: it is for one machine.

        """
        if self.count == 1 or asked in ("torchrun", "slurm"):
            return asked
        if asked is None:
            return "torchrun"
        raise InputError(f"--nnodes {self.count} is for torchrun, {asked} starts one machine's")

    def care(self, asked: SupervisionPolicy) -> SupervisionPolicy:
        """What is left of it on several machines, which cannot act on what one of them sees.

        Less memory on one of them would be another plan than the others'. And a machine without
        rank 0 is often silent to its end, which is no hang unless the user says so.
        """
        if self.count == 1:
            return asked
        return attrs.evolve(asked, hang_after=asked.hang_after or 0.0, retry=False, learned=False)

    def rendezvous(self, plan: Plan) -> dict[str, str]:
        """What torchrun is told of it; nothing on a machine that is alone.

        Machines with different plans never meet: each would train with another global batch than
        it says. Torch elastic names the rendezvous when it has waited in vain.
        """
        if self.meeting is None:
            return {}
        told = {
            "is_host": int(self.meeting.rank == 0),
            "join_timeout": PATIENCE,
            "read_timeout": PATIENCE,
        }
        return {
            "--nnodes": str(self.count),
            "--rdzv-endpoint": self.meeting.endpoint,
            "--rdzv-id": f"{self.count}-machines-x-{self.here(plan)}-processes-"
            f"batch-{plan.per_device}-accumulation-{plan.accumulation}-global-{plan.global_batch}",
            "--rdzv-conf": ",".join(f"{name}={value}" for name, value in told.items()),
            # The host's name often stands for 127.0.0.1 or 127.0.1.1 in /etc/hosts.
            "--local-addr": self.meeting.address,
        }

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What the processes need in their environment, unless `environ` has it.

        Gloo would take the interface that the host's name stands for. NCCL looks for itself.
        """
        if self.meeting is None or self.meeting.interface is None:
            return {}
        name = "GLOO_SOCKET_IFNAME"
        return {} if name in environ else {name: self.meeting.interface}


def nodes(count: int, rank: int | None, rendezvous: str | None, *, job: bool = False) -> Nodes:
    """The machines as the user told of them; `job`: a batch system will say the rest.

    Raises:
        InputError: something is missing or contradicts, or the rendezvous is not to be found.

    """
    told = {"--node-rank": rank, "--rdzv": rendezvous}
    if count == 1 or job:
        for flag, value in told.items():
            if value is not None:
                why = "the batch system says it" if job else "it is for --nnodes 2 or more"
                raise InputError(f"{flag} {value}: leave it out, {why}")
        return Nodes(count)
    for flag, value in told.items():
        if value is None:
            raise InputError(
                f"--nnodes {count}: {flag} is missing; run this on each machine with --rdzv and an "
                f"address of machine 0, and with --node-rank 0 to {count - 1}"
            )
    assert rank is not None
    assert rendezvous is not None
    if rank >= count:
        raise InputError(f"--node-rank {rank}: of {count} machines the last is {count - 1}")
    from .rendezvous import meeting  # with what looks into the network, for these runs alone

    return Nodes(count, meeting(rank, rendezvous))
