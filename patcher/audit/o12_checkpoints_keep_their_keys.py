"""Checkpoints keep their keys: what was loadable is loadable.

What              What rank 0 saves of a model has the names that a lone process gives it: the state
                  of the module inside DistributedDataParallel or DataParallel, not that of the
                  wrapper, whose names begin with `module.`, and not the wrapper itself.
At run time       The file cannot be loaded into the bare model: every key is missing and every
                  key is unexpected; with strict=False nothing is loaded and nobody is told.
How it is judged  Each state_dict() that goes into a save is followed to what ranks have under that
                  name there: wrapped above it in the same function, or passed so by all callers.
                  It is a violation if a lone process does not wrap the model, or if the file is
                  loaded into the bare one. Where DataParallel has wrapped it whatever the cards,
                  the keys had `module.` before; where it has for several cards, only a file that is
                  loaded into the bare model is a violation.
When unknown      Never: where the name may stand for the bare model, nothing is said.
Source            https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

import ast
from collections.abc import Iterator

from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.models.saved_wrappers import is_wrap, saved_wrappers
from ..analysis.models.wrapping import one_process_wraps
from ..analysis.ranks.rank_reach import Role, roles_reaching
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import argument, mentions, parameters, precedes
from .ranks import has_several_ranks, is_certain, is_managed, ranks_at
from .verdict import AuditVerdict, violated

CODE = "O12"
SAVERS = ("save", "save_on_main", "save_checkpoint", "dump")
MAX_DEPTH = 3


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    if not has_several_ranks(program) or is_managed(program):
        return
    for module, name in saved_wrappers(program):
        if program.is_live(module, name):
            text = module.text(name)
            because = f"`{text}` is wrapped here: without a process group nothing can load it"
            yield violated(module, name, because)
    if one_process_wraps(original or program):
        return  # which has put `module.` into the keys before
    for module in program.modules:
        for call in module.calls_to("state_dict"):
            func = call.func
            if (
                isinstance(func, ast.Attribute)
                and is_saved(program, module, call)
                and is_wrapped(program, module, func.value, call, 0)
                and is_bare_elsewhere(program, module, call)
            ):
                text = module.text(func.value)
                yield violated(
                    module, call, f"`{text}` is wrapped here: its keys are saved with `module.`"
                )


def is_bare_elsewhere(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a lone process saves the bare model, or the file is loaded into a bare one."""
    wraps = program.calls_to("DistributedDataParallel")
    if not program.calls_to("DataParallel") and not any(
        Role.SINGLE in roles_reaching(program, *wrap) for wrap in wraps
    ):
        return True
    saves = [
        up
        for up in module.ancestors(call)
        if isinstance(up, ast.Call) and module.last_name(up.func) in SAVERS
    ]
    paths = {module.text(path) for save in saves if (path := argument(save, 1, "f")) is not None}
    for where, load in program.calls_to("load_state_dict"):
        func, read = load.func, load.args[0] if load.args else None
        if (
            isinstance(func, ast.Attribute)
            and isinstance(read, ast.Call)
            and where.last_name(read.func) == "load"
            and read.args
            and where.text(read.args[0]) in paths
            and isinstance(func.value, ast.Name)
            and not is_wrapped(program, where, func.value, load, 0)
        ):
            return True
    return False


def is_saved(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a state goes into a file as it is, and the program comes to it on rank 0."""
    if not program.is_live(module, call) or Role.MAIN not in ranks_at(program, module, call):
        return False
    if strips(module):
        return False
    for up in module.ancestors(call):
        if isinstance(up, ast.Call) and module.last_name(up.func) in SAVERS:
            return True
        if isinstance(up, ast.Assign):
            target = up.targets[0]
            return isinstance(target, ast.Name) and goes_into_save(module, target)
        if isinstance(up, ast.stmt | ast.comprehension):
            return False
    return False


def goes_into_save(module: Module, target: ast.Name) -> bool:
    """Whether the value of a name is an argument of a save in the same function."""
    return any(
        isinstance(value, ast.Name) and value.id == target.id
        for call in module.calls_to(*SAVERS)
        if module.function(call) is module.function(target)
        and precedes(module.statement(target), call)
        for value in call.args
    )


def strips(module: Module) -> bool:
    """Whether the module takes `module.` away from keys somewhere, or asks for it."""
    return any(
        isinstance(node.value, str) and node.value in ("module.", "module")
        for node in module.nodes(ast.Constant)
        if isinstance(module.parents[node], ast.Call)
        and module.last_name(module.parents[node].func)  # type: ignore[attr-defined]
        in ("replace", "startswith", "removeprefix", "lstrip")
    )


def is_wrapped(program: Program, module: Module, node: ast.expr, at: ast.AST, depth: int) -> bool:
    """Whether ranks certainly have a wrapper under this name at a place."""
    if depth > MAX_DEPTH or not isinstance(node, ast.Name | ast.Attribute):
        return False
    text, function = module.text(node), module.function(at)
    if isinstance(node, ast.Attribute):
        return text.startswith("self.") and is_wrapped_attribute(program, module, node)
    stores = [
        store
        for store in module.stores.get((function, node.id), ())
        if precedes(module.statement(store), at) and Role.MAIN in ranks_at(program, module, store)
    ]
    if stores:
        last = module.parents[stores[-1]]
        return (
            isinstance(last, ast.Assign)
            and is_wrap(module, last.value)
            and is_certain(module, last, Role.MAIN)
        )
    if function is None or node.id not in parameters(function):
        return False
    callers = program.callers(function)
    values = [
        (where, call, argument_for_parameter(module, function, call, node.id))
        for where, call in callers
        if Role.MAIN in ranks_at(program, where, call)
    ]
    return bool(values) and all(
        value is not None and is_wrapped(program, where, value, call, depth + 1)
        for where, call, value in values
    )


def is_wrapped_attribute(program: Program, module: Module, node: ast.Attribute) -> bool:
    """Whether the class around a place gives ``self.model`` a wrapper last, and once."""
    owner = module.enclosing_class(node)
    if owner is None:
        return False
    values = [
        value
        for value in module.attribute_values.get(node.attr, ())
        if module.enclosing_class(value) is owner
    ]
    return (
        bool(values)
        and is_wrap(module, values[-1])
        and is_certain(module, values[-1], Role.MAIN)
        and all(not mentions(value, "module") for value in values)
    )
