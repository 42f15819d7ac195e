"""Tell what a training step keeps in memory besides its model, as far as that is known."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ....recipes.flag_names import normalize_flag
from ...source.module import Module
from ...source.tree import argument, below, has_forward, is_inside, keyword, within
from ..language.passed_arguments import argument_for_parameter
from ..models.local_models import calls_per_path
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .flag_roles import options_in

MOMENTS = ("AdamW", "Adam", "BertAdam", "BertAdamW", "FusedAdam", "NAdam", "RAdam")
"""Optimizers that keep two averages of the gradient, as AdamW does."""
OTHERS = ("Adagrad", "Adadelta", "Adamax", "RMSprop", "LARS", "LAMB", "Lamb", "Adafactor", "Lion")


def optimizer_kind(program: Program) -> str:
    """``adamw``, ``sgd`` or ``momentum``; else "?" and why it cannot be told."""
    kinds: dict[str, str] = {}
    for module, call in program.calls_to(*MOMENTS, *OTHERS, "SGD", "Optimizer"):
        if not program.is_live(module, call):
            continue
        name = module.last_name(call.func)
        if name == "SGD":
            momentum = argument(call, 2, "momentum")
            plain = momentum is None or (isinstance(momentum, ast.Constant) and not momentum.value)
            kinds["sgd" if plain else "momentum"] = name
        else:
            kinds["adamw" if name in MOMENTS else name] = name
    if len(kinds) > 1:
        return f"?it has optimizers of several kinds: {', '.join(sorted(kinds.values()))}"
    kind = next(iter(kinds), "")
    if kind in ("adamw", "sgd", "momentum"):
        return kind
    return f"?what its optimizer {kind or '(none was found)'} keeps is not known"


def half_precision(program: Program, option_values: Mapping[str, str]) -> str:
    """Where the program computes in half precision with these options; "" where it does not.

    The option ``--amp`` that ``ddpfix patch --with amp`` adds is one that the launcher sets.
    """
    if "amp" in program.options:
        return ""
    for module, call in program.calls_to("autocast", "half", "bfloat16", "initialize"):
        is_amp = module.last_name(call.func) != "initialize" or "amp" in module.text(call.func)
        if not is_amp or not program.is_live(module, call):
            continue
        if not any(
            _is_off(program, module, one, option_values) for one in _conditions(module, call)
        ):
            return f"{module.source.name}:{call.lineno} computes in half precision"
    return ""


def _conditions(module: Module, call: ast.Call) -> list[ast.expr]:
    """What has to be true for a call to be made, or to do anything."""
    tests = [
        up.test
        for up in module.ancestors(call)
        if isinstance(up, ast.If) and any(is_inside(call, stmt) for stmt in up.body)
    ]
    enabled = keyword(call, "enabled")
    return [*tests, enabled.value] if enabled is not None else tests


def _is_off(
    program: Program, module: Module, test: ast.expr, option_values: Mapping[str, str]
) -> bool:
    """Whether all options that a condition reads are off, so that it is false."""
    if any(isinstance(node, ast.UnaryOp | ast.Compare) for node in below(test)):
        return False
    options = options_in(program, module, test)
    return bool(options) and not any(_is_on(option_values.get(one, "")) for one in options)


def frozen_weights(program: Program) -> str:
    """Where weights are kept from training, which have no gradients; "" if nowhere."""
    for module in program.modules:
        for stmt in module.nodes(ast.Assign):
            target, value = stmt.targets[0], stmt.value
            if (
                isinstance(target, ast.Attribute)
                and target.attr == "requires_grad"
                and not (isinstance(value, ast.Constant) and value.value)
                and program.is_live(module, stmt)
                and not _is_trained_later(program, module, stmt)
            ):
                return f"{module.source.name}:{stmt.lineno} keeps weights from training"
        for call in module.calls_to("requires_grad_"):
            if call.args and program.is_live(module, call):
                return f"{module.source.name}:{call.lineno} may keep weights from training"
    return ""


def _is_trained_later(program: Program, module: Module, stmt: ast.Assign) -> bool:
    """Whether weights that ``x.requires_grad = value`` sets are trained at some time.

    ``value`` is a parameter of its function, which some call gives True.
    """
    function, value = module.function(stmt), stmt.value
    if function is None or not isinstance(value, ast.Name):
        return False
    for where, call in program.callers(function):
        option_values = argument_for_parameter(module, function, call, value.id)
        if (
            isinstance(option_values, ast.Constant)
            and option_values.value is True
            and program.is_live(where, call)
        ):
            return True
    return False


def repeated_passes(program: Program) -> str:
    """Where a step keeps several passes for one backward pass, or others than the model's forward.

    "" if nowhere.
    """
    methods = _other_methods(program)
    for loop in program.train_loops:
        module, body = loop.module, loop.steps.body
        where = f"the step at {module.source.name}:{loop.steps.lineno} calls its model"
        trained = _trained_names(loop)
        calls = {
            call
            for call in within(body, ast.Call)
            if isinstance(call.func, ast.Name | ast.Attribute) and module.text(call.func) in trained
        }
        if calls_per_path(body, calls) > max(1, calls_per_path(body, {*loop.backwards})):
            return f"{where} repeatedly"
        for call in within(body, ast.Call):
            func = call.func
            if (
                isinstance(func, ast.Attribute)
                and func.attr in methods
                and module.text(func.value).removesuffix(".module") in trained
            ):
                return f"{where}.{func.attr}"
    return ""


def step_arguments(program: Program) -> tuple[int, tuple[str, ...]] | None:
    """How many arguments by position, and which by name, every step gives its model.

    None where that is not seen, or differs.
    """
    found = set()
    for loop in program.train_loops:
        trained = _trained_names(loop)
        for call in within(loop.steps.body, ast.Call):
            if loop.module.text(call.func) not in trained:
                continue
            spread = any(isinstance(each, ast.Starred) for each in call.args)
            if spread or any(word.arg is None for word in call.keywords):
                return None
            found.add((len(call.args), tuple(sorted(str(word.arg) for word in call.keywords))))
    return found.pop() if len(found) == 1 else None


def _trained_names(loop: TrainLoop) -> set[str]:
    """What is called a model where a loop trains: it gives parameters, or is set to training."""
    return {
        loop.module.text(call.func.value)
        for call in within(loop.scope, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("parameters", "named_parameters", "train", "zero_grad")
    }


def _other_methods(program: Program) -> set[str]:
    """The methods of the program's own models that are none of every module."""
    return {
        each.name
        for module in program.modules
        for owner in module.nodes(ast.ClassDef)
        for each in owner.body
        if isinstance(each, ast.FunctionDef) and has_forward(owner)
    } - {"forward", "train", "eval", "parameters", "named_parameters", "zero_grad", "state_dict"}


def _is_on(value: str) -> bool:
    return normalize_flag(value) not in ("", "0", "false", "no", "none", "off", "fp32", "float32")
