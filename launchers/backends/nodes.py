"""Several machines that train together: how many, which of them this is, and where they meet.

They meet by torch elastic's c10d rendezvous, at an address of machine 0. Each runs the same number
of processes. Torch elastic numbers the machines by their addresses, so rank 0 need not run on
machine 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from ...errors import InputError
from ..planning.plan import Plan

if TYPE_CHECKING:
    from .rendezvous import Rendezvous

PORT = 29400
"""The port of the rendezvous unless the user names one: torch elastic's own default."""

_JOIN_TIMEOUT = 600
"""Seconds that a machine waits for the others: they may be started by hand, one by one."""


@attrs.frozen
class Nodes:
    """The machines of a run.

    `meeting` is None for a single machine, and for the machines of a batch job, which find each
    other by the job's own variables.
    """

    count: int = 1
    meeting: Rendezvous | None = None

    @property
    def summary(self) -> str:
        """The machines in one sentence; empty for a single machine."""
        if self.meeting is None:
            return f"{self.count} machines, each with as many processes." * (self.count > 1)
        where = f"they meet at {self.meeting.endpoint}"
        return f"Machine {self.meeting.rank} of {self.count}, at {self.meeting.address}: {where}."

    @property
    def record_folder(self) -> str:
        """The folder of this machine's log and record, relative to the shared run folder."""
        return f"node-{self.meeting.rank}" if self.meeting else "."

    def processes_per_node(self, plan: Plan) -> int:
        """The number of the plan's processes on each machine."""
        return plan.world // self.count

    def backend_for(self, requested: str | None) -> str | None:
        """The back end that these machines need, if the user requested for `requested`.

        Raises:
            InputError: several machines, and `requested` starts the processes of one machine only.

        """
        if self.count == 1 or requested in ("torchrun", "slurm"):
            return requested
        if requested is None:
            return "torchrun"
        raise InputError(f"--nnodes {self.count} is for torchrun, {requested} starts one machine's")

    def torchrun_options(self, plan: Plan) -> dict[str, str]:
        """The options that tell torchrun of the rendezvous; empty without one.

        The id contains the batch plan, so that machines with different plans never meet: each would
        train with another global batch than it says. Torch elastic prints the id when it gives up.
        """
        if self.meeting is None:
            return {}
        settings = {
            "is_host": int(self.meeting.rank == 0),
            "join_timeout": _JOIN_TIMEOUT,
            "read_timeout": _JOIN_TIMEOUT,
        }
        return {
            "--nnodes": str(self.count),
            "--rdzv-endpoint": self.meeting.endpoint,
            "--rdzv-id": f"{self.count}-machines-x-{self.processes_per_node(plan)}-processes-"
            f"batch-{plan.per_device}-accumulation-{plan.accumulation}-global-{plan.global_batch}",
            "--rdzv-conf": ",".join(f"{name}={value}" for name, value in settings.items()),
            # The host's name often stands for 127.0.0.1 or 127.0.1.1 in /etc/hosts.
            "--local-addr": self.meeting.address,
        }

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Environment variables that the processes need, unless `environ` has them already.

        Gloo would take the interface that the host's name stands for. NCCL looks for itself.
        """
        if self.meeting is None or self.meeting.interface is None:
            return {}
        name = "GLOO_SOCKET_IFNAME"
        return {} if name in environ else {name: self.meeting.interface}


def nodes_from_options(
    count: int, rank: int | None, rendezvous: str | None, *, job: bool = False
) -> Nodes:
    """The machines by --nnodes, --node-rank and --rdzv; `job`: a batch system supplies the rest.

    Raises:
        InputError: an option is missing or out of place, or the rendezvous cannot be found.

    """
    options = {"--node-rank": rank, "--rdzv": rendezvous}
    if count == 1 or job:
        for flag, value in options.items():
            if value is not None:
                why = "the batch system says it" if job else "it is for --nnodes 2 or more"
                raise InputError(f"{flag} {value}: leave it out, {why}")
        return Nodes(count)
    for flag, value in options.items():
        if value is None:
            raise InputError(
                f"--nnodes {count}: {flag} is missing; run this on each machine with --rdzv and an "
                f"address of machine 0, and with --node-rank 0 to {count - 1}"
            )
    assert rank is not None
    assert rendezvous is not None
    if rank >= count:
        raise InputError(f"--node-rank {rank}: of {count} machines the last is {count - 1}")
    from .rendezvous import find_rendezvous  # only several machines need the network modules

    return Nodes(count, find_rendezvous(rank, rendezvous, PORT))
