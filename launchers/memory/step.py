"""What is asked: one optimizer step of a network, whatever its batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...recipes.model import Recipe
from ...recipes.network import PRECISIONS, Network, number
from ...record import as_dict, changed, record

ATTENTION_FLAG = "--attn_implementation"
MEETING = ("anchor", "detector")  # heads in which all examples of a batch meet
FLASH_FROM = (8, 0)
"""The compute capability from which torch has flash attention for half precision
(aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_flash_attention_hardware_support)."""


@record
class TrainingStep:
    """A network with numbers in the place of all flags, and how a step of it is made.

    `length` counts the tokens of one sequence. `precision` is what products are computed in under
    autocast, weights keep their own. `accumulates` is whether gradients are there before a
    backward pass; without `training` it is a step of an evaluation during the training.
    `capability` is the card's compute capability; None stands for the CPU.
    """

    network: Network
    length: int
    precision: str = "fp32"
    training: bool = True
    accumulates: bool = False
    checkpointing: bool = False
    lora_rank: int = 0
    projection: int = 0
    attention: str = "sdpa"
    world: int = 1
    capability: tuple[int, int] | None = (8, 0)

    def to_json(self) -> dict[str, Any]:
        """The step as plain data."""
        return as_dict(self)

    @staticmethod
    def from_json(plain: dict[str, Any]) -> TrainingStep:
        """The step that `to_json` told of."""
        network, capability = plain["network"], plain["capability"]
        of_tuples = {
            "network": Network(**{**network, "length": tuple(network["length"])}),
            "capability": None if capability is None else tuple(capability),
        }
        return TrainingStep(**{**plain, **of_tuples})


def step_of(
    recipe: Recipe,
    arguments: Mapping[str, Any],
    *,
    precision: str = "fp32",
    world: int = 1,
    accumulates: bool = False,
    capability: tuple[int, int] | None = (8, 0),
) -> TrainingStep | None:
    """The training step that a recipe's script takes with these arguments, defaults included.

    `arguments` are flags with their values, None or True for a bare switch. None where the recipe
    does not tell its model.

    Raises:
        ValueError: a number that is none, or a precision that there is not.

    """
    network = recipe.model
    if network is None:
        return None
    precision = network.precision or precision
    if precision not in PRECISIONS:
        raise ValueError(f"the precision {precision!r} is none of {', '.join(PRECISIONS)}")
    told = {flag: value for flag, value in arguments.items() if value is not False}
    switch = network.checkpointing
    attention = told.get(ATTENTION_FLAG)
    return TrainingStep(
        network,
        sum(number(figure, told) for figure in network.length),
        precision=precision,
        accumulates=accumulates,
        checkpointing=switch in told if isinstance(switch, str) else switch,
        lora_rank=number(network.lora, told),
        projection=number(network.projection, told),
        attention="eager" if attention == "eager" else "sdpa",
        world=world,
        capability=capability,
    )


def essence(step: TrainingStep) -> TrainingStep:
    """What a step's operations depend on: steps with the same essence have the same trace."""
    network = changed(
        step.network,
        length=(step.length,),
        precision="",
        projection=step.projection,
        checkpointing=False,
        lora=0,
    )
    half = step.precision != "fp32"
    flash = step.capability is not None and (not half or step.capability >= FLASH_FROM)
    return changed(
        step,
        network=network,
        precision="bf16" if half else "fp32",
        accumulates=False,  # one trace tells both
        checkpointing=step.checkpointing and step.training,
        world=1,  # what ranks need is added to the peaks
        capability=None if step.capability is None else FLASH_FROM if flash else (0, 0),
    )
