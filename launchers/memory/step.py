"""One optimizer step of a network, whatever its batch: the input of a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...recipes.model import Recipe
from ...recipes.network import PRECISIONS, Network, figure_value
from ...record import as_dict, record, replace

ATTENTION_FLAG = "--attn_implementation"
FSDP_FLAG = "--fsdp"
"""The switch that `ddpfix patch --with fsdp` adds."""
CONTRASTIVE_HEADS = ("anchor", "detector", "read")
"""Heads that hold or may hold the examples of a batch against each other."""
FOR_CONFIG = (
    *("config", "model_class", "optimizer", "sequences", "targets"),
    *("source", "lora_targets", "lora_dropout"),
)
"""Fields of Network."""
FLASH_FROM = (8, 0)
"""The compute capability from which torch has flash attention for half precision
(aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_flash_attention_hardware_support)."""


@record
class TrainingStep:
    """A network and the settings of a training step, with numbers in place of the script's flags.

    `length` is the number of tokens per sequence. `precision` is that of autocast; weights keep
    their own. `accumulates`: gradients are already allocated before a backward pass. Without
    `training` it is a step of an evaluation during the training. `capability` is the card's compute
    capability, or None for the CPU. `sharded`: weights, gradients and optimizer states are divided
    among `world` ranks by FSDP2.
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
    sharded: bool = False

    def to_json(self) -> dict[str, Any]:
        """The step as plain data; without what recipes, or steps of DDP, do not need.

        The curves that come with ddpfix are found by a hash of it.
        """
        plain = as_dict(self)
        if not self.sharded:
            del plain["sharded"]
        if not self.network.config:
            for name in FOR_CONFIG:
                if plain["network"][name] == getattr(Network, name):
                    del plain["network"][name]
        return plain

    @staticmethod
    def from_json(plain: dict[str, Any]) -> TrainingStep:
        """Restore a step from the data of `to_json`."""
        network, capability = plain["network"], plain["capability"]
        with_tuples = {
            "network": Network(**{**network, "length": tuple(network["length"])}),
            "capability": None if capability is None else tuple(capability),
        }
        return TrainingStep(**{**plain, **with_tuples})


def step_of(
    recipe: Recipe,
    arguments: Mapping[str, Any],
    *,
    precision: str = "fp32",
    world: int = 1,
    accumulates: bool = False,
    capability: tuple[int, int] | None = (8, 0),
) -> TrainingStep | None:
    """The training step of a recipe's script; None if the recipe does not describe its model.

    `arguments` are all flags with their values, the recipe's defaults included; None or True stands
    for a bare switch.

    Raises:
        ValueError: an argument is not a number, or the precision does not exist.

    """
    network = recipe.model
    if network is None:
        return None
    precision = network.precision or precision
    if precision not in PRECISIONS:
        raise ValueError(f"the precision {precision!r} is none of {', '.join(PRECISIONS)}")
    passed = {flag: value for flag, value in arguments.items() if value is not False}
    switch = network.checkpointing
    attention = passed.get(ATTENTION_FLAG)
    return TrainingStep(
        network,
        sum(figure_value(figure, passed) for figure in network.length),
        precision=precision,
        accumulates=accumulates,
        checkpointing=switch in passed if isinstance(switch, str) else switch,
        lora_rank=figure_value(network.lora, passed),
        projection=figure_value(network.projection, passed),
        attention="eager" if attention == "eager" else "sdpa",
        world=world,
        capability=capability,
        sharded=is_sharded(arguments, world),
    )


def is_sharded(arguments: Mapping[str, Any], world: int) -> bool:
    """Whether a script with these arguments divides its weights among its ranks."""
    return world > 1 and arguments.get(FSDP_FLAG, False) is not False


def canonical_step(step: TrainingStep) -> TrainingStep:
    """Reset all that a step's trace does not depend on: equal results share one trace."""
    network = replace(
        step.network,
        length=(step.length,),
        precision="",
        projection=step.projection,
        checkpointing=False,
        lora=0,
    )
    half = step.precision != "fp32"
    sharded = step.sharded and step.training and step.world > 1
    flash = step.capability is not None and (not half or step.capability >= FLASH_FROM)
    return replace(
        step,
        network=network,
        precision="bf16" if half else "fp32",
        # One trace serves both, unless gradients stay whole between micro-batches.
        accumulates=step.accumulates and sharded,
        checkpointing=step.checkpointing and step.training,
        world=step.world if sharded else 1,  # DDP's overhead is added to the peaks
        sharded=sharded,
        capability=None if step.capability is None else FLASH_FROM if flash else (0, 0),
    )
