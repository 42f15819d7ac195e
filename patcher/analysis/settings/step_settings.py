"""Precision, checkpointing and adapters of a step, as a script's options set them."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ....record import record
from ...source.module import Module
from ...source.tree import argument
from ..training.program import Program
from .setting_values import UNKNOWN, is_reached, setting
from .step_state import half_precision

PRECISIONS = {
    "torch.float32": "fp32",
    "torch.float": "fp32",
    "float32": "fp32",
    "torch.bfloat16": "bf16",
    "bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.half": "fp16",
    "float16": "fp16",
}
OLD_AUTOCAST = "torch.cuda.amp.autocast"
AUTOCASTS = ("torch.autocast", "torch.amp.autocast", OLD_AUTOCAST)
ADAPTED = ("r", "lora_alpha", "lora_dropout", "target_modules", "task_type", "bias")
"""Arguments of a LoraConfig whose effect is known; a bias other than "none" is trained too."""


@record
class StepSettings:
    """What a script sets of a step: `because` says why something cannot be told.

    `weights` and `precision` are of `recipes.network.PRECISIONS`; "" where the launcher sets it.
    `checkpointing` is the switch that does it, "always" or "never"; "" where no call does it.
    """

    weights: str = "fp32"
    precision: str = ""
    checkpointing: str = ""
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ()
    lora_dropout: float = 0.0
    because: str = ""


def step_settings(
    program: Program, module: Module, made: ast.Call, option_values: Mapping[str, str]
) -> StepSettings:
    """The settings of a step with the model that a call makes, with these values of options."""
    weights = _weights(program, module, made, option_values)
    precision = _precision(program, option_values)
    checkpointing = _checkpointing(program, option_values)
    lora = _lora(program, option_values)
    for problem in (weights, precision, checkpointing, lora):
        if isinstance(problem, str) and problem.startswith("?"):
            return StepSettings(because=problem[1:])
    assert not isinstance(lora, str)
    rank, targets, dropout = lora or (None, (), 0.0)
    return StepSettings(weights, precision, checkpointing, rank, targets, dropout)


def _weights(
    program: Program, module: Module, made: ast.Call, option_values: Mapping[str, str]
) -> str:
    given_type = argument(made, 99, "torch_dtype", "dtype")
    if given_type is None:
        return "fp32"
    value = setting(program, module, given_type, option_values)
    found = PRECISIONS.get(str(value))
    return found or f"?which precision the weights have that {_place(module, made)} makes"


def _precision(program: Program, option_values: Mapping[str, str]) -> str:
    """The precision of the program's own autocast; "" without one, or where an option sets it."""
    if not half_precision(program, option_values):
        return ""
    found = set()
    for module, call in program.calls_to("autocast", "half", "bfloat16", "initialize"):
        name = module.last_name(call.func)
        if not program.is_live(module, call) or (
            name == "initialize" and "amp" not in module.text(call.func)
        ):
            continue
        reached = is_reached(program, module, call, option_values)
        if reached and module.dotted(call.func) == OLD_AUTOCAST and call.args:
            reached = setting(program, module, call.args[0], option_values)  # its ``enabled``
        if not reached:
            continue
        if reached is UNKNOWN or module.dotted(call.func) not in AUTOCASTS or len(call.args) > 2:
            return f"?{_place(module, call)} computes in half precision"
        kind = argument(call, 1, "dtype")
        value = "torch.float16" if kind is None else setting(program, module, kind, option_values)
        found.add(PRECISIONS.get(str(value), f"?{_place(module, call)} computes in half precision"))
    strange = next((one for one in found if one.startswith("?")), "")
    if strange or len(found) > 1:
        return strange or "?it computes in several precisions"
    return found.pop() if found else ""


def _checkpointing(program: Program, option_values: Mapping[str, str]) -> str:
    """The switch that keeps only checkpoints, "always", "never"; "" without calls that do."""
    calls = [
        (module, call)
        for module, call in program.calls_to("gradient_checkpointing_enable")
        if program.is_live(module, call)
    ]
    if len(calls) == 1:
        tests = [up.test for up in calls[0][0].ancestors(calls[0][1]) if isinstance(up, ast.If)]
        if len(tests) == 1 and isinstance(tests[0], ast.Attribute):
            option = program.options.get(tests[0].attr)
            if option is not None and option.is_switch and option.flags:
                return option.flags[0]
    states = [is_reached(program, module, call, option_values) for module, call in calls]
    if any(each is UNKNOWN for each in states):
        return f"?whether {_place(*calls[0])} is run cannot be told"
    return ("always" if any(states) else "never") if states else ""


def _lora(
    program: Program, option_values: Mapping[str, str]
) -> tuple[int, tuple[str, ...], float] | str | None:
    """Rank, adapted modules and dropout of the program's own LoRA; None where it has none."""
    found = None
    for module, call in program.calls_to("get_peft_model", "inject_adapter_in_model"):
        if not program.is_live(module, call) or "lora_r" in program.options:
            continue
        reached = is_reached(program, module, call, option_values)
        unknown = f"?what {_place(module, call)} adapts cannot be told"
        if reached is UNKNOWN or found:
            return unknown
        if not reached:
            continue
        config = argument(call, 1, "peft_config")
        value = module.definition(config, config) or config if config is not None else None
        if not isinstance(value, ast.Call) or module.last_name(value.func) != "LoraConfig":
            return unknown
        if any(word.arg not in ADAPTED for word in value.keywords) or value.args:
            return unknown
        words = {str(word.arg): word.value for word in value.keywords}
        bias = setting(program, module, words["bias"], option_values) if "bias" in words else "none"
        rank = setting(program, module, words["r"], option_values) if "r" in words else 8
        dropout = words.get("lora_dropout")
        share = 0.0 if dropout is None else setting(program, module, dropout, option_values)
        targets = _texts(words.get("target_modules"))
        if not isinstance(rank, int) or not isinstance(share, int | float) or bias != "none":
            return unknown
        if targets is None:
            return unknown
        found = (rank, targets, float(share))
    return found


def _texts(node: ast.expr | None) -> tuple[str, ...] | None:
    """The strings of a list of them; () without one, None of another expression."""
    if node is None:
        return ()
    parts = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else []
    values = [each.value for each in parts if isinstance(each, ast.Constant)]
    texts = tuple(value for value in values if isinstance(value, str))
    return texts if parts and len(texts) == len(parts) else None


def _place(module: Module, call: ast.Call) -> str:
    return f"{module.source.name}:{call.lineno}"
