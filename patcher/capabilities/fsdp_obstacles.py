"""What keeps a script from training with sharded weights, each with the line that does.

Under FSDP a weight is a part of itself, and calls that give the whole are collectives: all ranks
have to come to them, and nothing may look at a weight or gradient in between.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.models.model_copies import COPIES
from ..analysis.models.wrapping import SHARED
from ..analysis.ranks.rank_reach import RANKS
from ..analysis.training.program import Program
from ..analysis.training.train_loops import CLIPPING, TrainLoop
from ..audit.o6_collectives_reached_alike import judge_place
from ..audit.ranks import ranks_at
from ..editing.helpers import helper_names
from ..source.module import Module
from ..source.tree import argument, below, everywhere, mentions, within
from .errors import CannotError
from .fsdp_saving import PLAIN_STATES, SAVING, gated_saves
from .fsdp_wrapper_keys import wrapper_states
from .models import DdpWrap

GATHERING = ("state_dict", "load_state_dict", "save_pretrained", "eval", "train")
REPARAMETRIZED = ("weight_norm", "spectral_norm", "register_parametrization")
HOOKS = ("register_hook", "register_full_backward_hook", "register_comm_hook")
STEP_ATTRIBUTES = {
    *("train", "eval", "training", "module", "zero_grad", "parameters", "named_parameters"),
    *("require_backward_grad_sync", "no_sync", "state_dict", "load_state_dict", "to", "config"),
    *("save_pretrained", "device"),
}


def check_script(program: Program, wrap: DdpWrap) -> None:
    """Raise CannotError where the program does what sharded weights do not allow."""
    function = wrap.module.function(wrap.stmt)
    if function is not None and function.name == SHARED:
        raise CannotError(wrap.module, wrap.stmt, "the model is wrapped for one call at a time")
    for module, node, because in obstacles(program, wrap):
        if program.is_live(module, node) and not is_helper(module, node):
            raise CannotError(module, node, because)


def is_helper(module: Module, node: ast.AST) -> bool:
    """Whether a node is in code that a patch has inserted."""
    return any(
        isinstance(up, ast.FunctionDef | ast.ClassDef) and up.name in helper_names()
        for up in module.ancestors(node)
    )


def obstacles(program: Program, wrap: DdpWrap) -> Iterator[tuple[Module, ast.expr | ast.stmt, str]]:
    """Places that stand in the way, and why."""
    names = {wrap.name, wrap.name.rpartition(".")[2]}
    yield from gated_collectives(program)
    for module, call in gated_saves(program):
        _, *parts, _ = module.text(call.func).split(".")
        last = parts[-1] if parts else ""
        if last and last not in names | {"module"} and "opt" not in last.lower():
            yield module, call, f"rank 0 alone saves {last}, a part of the model"
    for module, call in wrapper_states(program, wrap):
        yield module, call, f"keys of {module.text(call.func)}() begin with module., of the wrapper"
    for evaluation in program.evaluations:
        if evaluation.mode is evaluation.loop:
            because = f"{evaluation.name} does not put the model into eval mode"
            yield evaluation.module, evaluation.loop.iter, because
    for module, call in program.calls_to("compile"):
        if module.dotted(call.func) == "torch.compile":
            yield module, call, "the script calls torch.compile itself"
    for module, call in program.calls_to(*REPARAMETRIZED, *HOOKS):
        yield module, call, f"{module.last_name(call.func)} needs weights that are whole"
    for module, call in program.calls_to(*COPIES):
        target = argument(call, 0, "model")
        if target is None or module.text(target).rpartition(".")[2] in names | {"module"}:
            yield module, call, "a copy of the model would be a copy of its parts"
    for module, call in program.calls_to("save", "save_on_main"):
        if call.args and holds_model(module, call.args[0], names):
            yield module, call, "the whole module is saved, and not its state_dict"
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            if owner.name == "Resumable" and "states.items()" not in module.text(owner):
                yield module, owner, "its Resumable is of an earlier ddpfix: patch the original"
        for node in module.attributes("grad"):
            yield module, node, f"{module.text(node)} would be a part of a gradient"
        for loop in module.nodes(ast.While):
            if mentions(loop.test, "module") or "'module'" in module.text(loop.test):
                yield module, loop.test, "it takes wrappers off until there is none"
    for train_loop in program.train_loops:
        yield from uses_between_steps(train_loop, names)


def gated_collectives(program: Program) -> Iterator[tuple[Module, ast.expr, str]]:
    """Calls that some ranks only may come to, and that are collectives of a sharded model."""
    for module, call in program.calls_to(*GATHERING):
        if not isinstance(call.func, ast.Attribute) or is_helper(module, call):
            continue
        owner, name = module.text(call.func.value).lower(), call.func.attr
        if name in ("eval", "train") and not isinstance(call.func.value, ast.Name | ast.Attribute):
            continue
        if any(word in owner for word in PLAIN_STATES):
            continue
        for verdict in judge_place(program, module, call, [(module, call)]):
            if name in SAVING and ranks_at(program, module, call) != RANKS:
                break  # all ranks gather above the test
            # All ranks find the same file to read, or wait in vain and say so.
            if verdict.is_violated or name != "load_state_dict":
                yield module, call, f"{verdict.because} (with --fsdp it gathers weights)"
                break


def holds_model(module: Module, value: ast.expr, names: set[str]) -> bool:
    """Whether a value that is saved is the model, or has it as an item."""
    names = names | {f"{name}.module" for name in names}
    for node in [*everywhere(value, ast.Name), *everywhere(value, ast.Attribute)]:
        above = [module.parents[node]]
        while above[-1] in below(value):
            above.append(module.parents[above[-1]])
        taken = any(isinstance(up, ast.Attribute) for up in above)  # unwrap(model).state_dict()
        if module.text(node) in names and not taken:
            return True
    return False


def uses_between_steps(loop: TrainLoop, names: set[str]) -> Iterator[tuple[Module, ast.expr, str]]:
    """Uses of the model in a training loop that need whole weights, or change them."""
    module = loop.module
    for node in within(loop.steps.body, ast.Attribute):
        if isinstance(node.value, ast.Name | ast.Attribute) and module.text(node.value) in names:
            if node.attr not in STEP_ATTRIBUTES:
                yield module, node, f"{module.text(node)} is used between steps"
            elif node.attr.endswith("parameters") and not is_clipped(module, node):
                yield module, node, f"{module.text(node)}() is looked at between steps"
        elif node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
            yield module, node, "which weights are trained changes between steps"


def is_clipped(module: Module, node: ast.AST) -> bool:
    """Whether parameters are given to a function that clips their gradients."""
    return any(
        isinstance(up, ast.Call) and module.last_name(up.func) in CLIPPING
        for up in module.ancestors(node)
    )
