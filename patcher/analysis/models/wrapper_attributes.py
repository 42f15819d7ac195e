"""Attributes that are asked of a wrapped model, and that the wrapper does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import (
    Function,
    argument_values,
    everywhere,
    is_inside,
    parameters,
    precedes,
    same_code,
)
from ..language.conditions import plain_test
from ..language.training_calls import GRADLESS
from ..training.program import Program, runs_in_training_step

WRAPPERS = ("DataParallel", "DistributedDataParallel")
WRAPPER_HAS = {  # what torch.nn.Module, DataParallel and DistributedDataParallel have
    *("T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children"),
    *("compile", "cpu", "cuda", "device", "device_ids", "device_mesh", "device_type", "dim"),
    *("double", "dump_patches", "eval", "extra_repr", "float", "forward", "gather", "get_buffer"),
    *("get_extra_state", "get_parameter", "get_submodule", "half", "ipu", "join", "join_device"),
    *("join_hook", "join_process_group", "load_state_dict", "logger", "mixed_precision", "module"),
    *("modules", "modules_buffers", "mtia", "named_buffers", "named_children", "named_modules"),
    *("named_module_buffers", "named_parameters", "no_sync", "output_device", "parallel_apply"),
    *("parameters", "parameters_to_ignore", "process_group", "reducer", "replicate", "scatter"),
    *("require_backward_grad_sync", "require_forward_param_sync", "requires_grad_"),
    *("set_submodule", "register_backward_hook", "register_buffer", "register_comm_hook"),
    *("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"),
    *("register_module", "state_dict"),
    *("register_full_backward_pre_hook", "register_load_state_dict_post_hook", "static_graph"),
    *("register_load_state_dict_pre_hook", "register_parameter", "register_state_dict_post_hook"),
    *("register_state_dict_pre_hook", "set_extra_state", "share_memory", "to", "to_empty", "train"),
    *("training", "type", "will_sync_module_buffers", "xpu", "zero_grad", "broadcast_buffers"),
    *("bucket_bytes_cap", "find_unused_parameters", "gradient_as_bucket_view", "allreduce_params"),
}

MODULE_HAS = {  # what a class may have another one of
    *("_apply", "_call_impl", "_get_name", "_load_from_state_dict", "_named_members"),
    *("_register_load_state_dict_pre_hook", "_register_state_dict_hook", "_save_to_state_dict"),
    *("_replicate_for_data_parallel", "_slow_forward", "_set_static_graph", "_version"),
}

ENGINE_HAS = {  # what DeepSpeed's engine has, and no torch.nn.Module
    *("backward", "step", "save_checkpoint", "load_checkpoint", "save_16bit_model", "global_steps"),
    *("gradient_accumulation_steps", "is_gradient_accumulation_boundary", "get_global_grad_norm"),
}


def is_of_engine(program: Program, use: ast.Attribute) -> bool:
    """Whether an attribute is one of DeepSpeed's engine, and of no class of the program."""
    return use.attr in ENGINE_HAS and not any(
        function.name == use.attr and isinstance(module.parents[function], ast.ClassDef)
        for module in program.modules
        for function in module.nodes(ast.FunctionDef)
    )


def is_lacking(program: Program, module: Module, use: ast.Attribute) -> bool:
    """Whether an attribute of a name is read that no wrapper has, and nobody sets.

    Of names with an underscore, which modules have many of, those of the program's own methods.
    """
    name = use.value
    return (
        isinstance(name, ast.Name)
        and isinstance(use.ctx, ast.Load)
        and use.attr not in WRAPPER_HAS
        and (not use.attr.startswith("_") or is_own_method(program, use.attr))
        and not any(isinstance(up, ast.Try) for up in module.ancestors(use))
        and not other_branch_unwraps(module, use)
        and not any(
            isinstance(other.ctx, ast.Store)
            and isinstance(other.value, ast.Name)
            and other.value.id == name.id
            for other in module.attributes(use.attr)
        )
    )


def is_own_method(program: Program, name: str) -> bool:
    """Whether a class of the program has a method of its own, and torch.nn.Module none."""
    return (name not in MODULE_HAS and not name.startswith("__")) and any(
        isinstance(where.parents[function], ast.ClassDef)
        for where, function in program.functions_by_name.get(name, ())
    )


def is_torch_wrap(module: Module, wrap: ast.stmt) -> bool:
    """Whether a statement wraps in a class of torch: one of the program's may hand all on."""
    return any(
        module.last_name(call.func) in WRAPPERS
        and module.dotted(call.func).startswith(("torch.", "apex."))
        for call in everywhere(wrap, ast.Call)
    )


def may_be_engine(module: Module, scope: Function | None, name: str, wrap: ast.stmt) -> bool:
    """Whether a name may stand for the engine of another library where ``wrap`` did not wrap it.

    ``engine, *_ = deepspeed.initialize(model=engine)`` in the other branch of a test, or later.
    """
    return any(
        hands_over(module, module.statement(store), name)
        for store in module.stores.get((scope, name), ())
        if exclusive(store, wrap) or precedes(wrap, store)
    )


def hands_over(module: Module, stmt: ast.stmt, name: str) -> bool:
    """Whether a statement binds a name to what a function that is not torch's makes of it.

    Or to a FullyShardedDataParallel, which has attributes that DistributedDataParallel lacks.
    """
    value = stmt.value if isinstance(stmt, ast.Assign) else None
    if isinstance(value, ast.Call) and module.last_name(value.func) == "FullyShardedDataParallel":
        return True
    return (
        isinstance(value, ast.Call)
        and not module.dotted(value.func).startswith(("torch.", "apex."))
        and any(
            isinstance(passed, ast.Name) and passed.id == name for passed in argument_values(value)
        )
    )


def other_branch_unwraps(module: Module, use: ast.Attribute) -> bool:
    """``model.module.f() if distributed else model.f()``: the test tells where the wrapper is."""
    child: ast.AST = use
    for up in module.ancestors(use):
        if isinstance(up, ast.If | ast.IfExp) and child is not up.test:
            branches = [up.body, up.orelse] if isinstance(up, ast.IfExp) else [*up.body, *up.orelse]
            if any(
                each.attr == "module" and same_code(each.value, use.value)
                for branch in branches
                for each in everywhere(branch, ast.Attribute)
            ):
                return True
        child = up
    return False


def is_of_scope(module: Module, name: ast.Name, scope: Function | None) -> bool:
    """Whether a name is the scope's variable, and not one of a function inside of it."""
    function = module.function(name)
    while function is not scope and function is not None:
        if name.id in parameters(function) or (function, name.id) in module.stores:
            return False
        function = module.function(function)
    return function is scope


def is_otherwise(module: Module, use: ast.AST, wrap: ast.AST, where: Module | None = None) -> bool:
    """Whether a place is reached only where a test has the answer under which nothing wraps.

    ``where``: the module of the wrap, if it is another one.
    """
    wanted = list(tests_around(where or module, wrap))
    return any(
        same_code(test, other) and holds is not also
        for test, holds in tests_around(module, use)
        for other, also in wanted
    )


def tests_around(module: Module, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The tests around a place, without ``not``, each with its answer there."""
    child = node
    for up in module.ancestors(node):
        if isinstance(up, ast.If | ast.IfExp) and child is not up.test:
            test, holds, _ = plain_test(module, up.test)
            body = up.body if isinstance(up, ast.If) else [up.body]
            yield test, holds is any(child is each for each in body)
        child = up


def makes_loss(program: Program, module: Module, use: ast.Attribute) -> bool:
    """Whether a training step may compute its loss by a call of this, around the wrapper."""
    call = call_of(module, use)
    if call is None or is_gradless(module, call):
        return False
    function = module.function(use)
    loops = [loop for loop in program.train_loops if loop.module is module]
    around = [loop for loop in loops if is_inside(use, loop.steps)]
    if around:
        return any(
            not is_inside(backward, loop.steps) or not precedes(backward, use)
            for loop in around
            for backward in loop.backwards
        )
    if any(module.function(loop.steps) is function for loop in loops):
        return False
    return runs_in_training_step(program, module, function)


def call_of(module: Module, use: ast.Attribute) -> ast.Call | None:
    """The call of ``model.head(x)`` or ``model.head.score(x)`` whose value is used."""
    node: ast.AST = use
    while isinstance(around := module.parents[node], ast.Attribute | ast.Subscript):
        if around.value is not node:
            return None
        node = around
    if not (isinstance(around, ast.Call) and around.func is node):
        return None
    if isinstance(node, ast.Attribute) and node.attr in WRAPPER_HAS - {"forward"}:
        return None  # model.head.state_dict()
    return None if isinstance(module.parents[around], ast.Expr) else around


def is_gradless(module: Module, node: ast.AST) -> bool:
    """Whether a place computes no gradients."""
    return any(
        module.last_name(call.func) in GRADLESS
        for up in module.ancestors(node)
        if isinstance(up, ast.With)
        for item in up.items
        for call in everywhere(item.context_expr, ast.Call)
    )
