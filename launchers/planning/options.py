"""What `ddpfix plan` and `ddpfix launch` are asked for alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...errors import InputError
from ...recipes.model import Recipe
from ...record import as_dict, record
from ..gpus.select import Devices, GpuRequest, choose_cpu, choose_devices, choose_for_job
from .planner import FullPlan, PlanRequest


@record
class PlanOptions:
    """The user's wishes for a plan.

    None stands for the recipe's own number, or for as many processes as there are usable cards.
    `probe` is how many real optimizer steps are timed first.
    `is_command`: the recipe was made from the user's own command, whose variables are `environment`
    on which `remarks` are sentences, and which names the interpreter `command_python`, or "", and
    the script as a `module`, or "". `unknown_model` says why it tells no model, where it does not.
    """

    recipe: Recipe
    script: Path
    gpus: GpuRequest
    global_batch: int | None = None
    per_device: int | None = None
    processes: int | None = None
    cpu: bool = False
    exact: bool = False
    precision: str = "auto"
    probe: int | None = None
    extra: tuple[str, ...] = ()
    environment: Mapping[str, str] = MappingProxyType({})
    is_command: bool = False
    command_python: str = ""
    module: str = ""
    remarks: tuple[str, ...] = ()
    unknown_model: str = ""

    def devices(self, *, job: bool = False) -> Devices:
        """Where the processes go; `job`: where those of a batch job will."""
        if self.cpu:
            return choose_cpu(self.processes, named=self.gpus.card_names or self.gpus.kinds)
        choose = choose_for_job if job else choose_devices
        return choose(self.gpus.take_inventory(), self.processes, named=self.gpus.card_names)

    def refuse_simulated(self) -> None:
        """Raise InputError where cards are meant on which nothing can run."""
        if self.gpus.kinds:
            raise InputError(
                f"--gpus {','.join(self.gpus.kinds)!r}: nothing can run on simulated cards; see "
                "what would with --dry-run or --emit"
            )

    def request(self, *, shared: bool, machines: int = 1) -> PlanRequest:
        """The plan to ask for. `shared`: ranks share each batch out."""
        return PlanRequest(
            self.recipe,
            self.script,
            self.global_batch,
            self.per_device,
            self.precision,
            self.extra,
            shared,
            machines,
            self.unknown_model,
            self.is_command,
        )

    def facts(self, devices: Devices, plan: FullPlan) -> dict[str, Any]:
        """What is decided, as JSON can hold it."""
        cards = [as_dict(gpu) for gpu in devices.cards]
        return {"recipe": self.recipe.name, **plan.facts(), "cards": cards}
