"""Files that other ranks read before rank 0 has surely written them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...record import replace
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import (
    argument,
    bound_names,
    everywhere,
    is_inside,
    keyword,
    parameters,
    precedes,
    within,
)
from .effects import Kind, Reached, effects_in, effects_of_call, is_collective
from .passed_arguments import argument_for_parameter
from .path_text import options_in, text_of_path
from .program import Program
from .rank_reach import RANKS, Role, roles_reaching, values_by_role

# Each process gets a file of its own from these.
OWN_FILES = ("SummaryWriter",)
# These look at whatever is in a folder, rather than at one file.
LOOKING = ("listdir", "scandir", "glob")
# What from_pretrained(folder) reads in a folder, by its name or by transformers' names for it.
MODEL_FILES = (
    *("pytorch_model.bin", "model.safetensors", "config.json"),
    *("{WEIGHTS_NAME}", "{SAFE_WEIGHTS_NAME}", "{CONFIG_NAME}"),
)
# Helpers of patched scripts by which rank 0 writes, with the place of the path.
HELPERS = {"save_on_main": 1, "write_on_main": 0}


def early_reads(
    program: Program, module: Module, body: list[ast.stmt]
) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Calls by which other ranks read what rank 0 writes above, with no collective in between.

    Each with the call of the same function, or module level, by which rank 0 writes.
    """
    if not writes_and_reads(program, module, body):
        return
    written: dict[str, ast.Call] = {}
    calls = within(body, ast.Call)
    for call in sorted(calls, key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0)):
        effects = effects_of_call(program, module, call)
        if not effects:
            continue
        roles = roles_reaching(program, module, call) & RANKS
        meets = [each for each in effects if is_collective(each.effect)]
        reads = [each for each in effects if is_of_file(each, Kind.READ)]
        writes = [by_one_rank(each) for each in effects if is_of_file(each, Kind.WRITE)]
        for read in reads:
            found = write_of(written, path_key(program, module, read, call))
            if found is None or never_both(module, found, call):
                continue
            if Role.OTHER in read.roles & roles:
                yield call, found
        if meets:
            written.clear()
        for write in writes:
            key = path_key(program, module, write, call)
            is_waited_for = any(
                each.effect.module is write.effect.module
                and precedes(write.effect.node, each.effect.node)
                for each in meets
            )
            if key and write.roles & roles == {Role.MAIN} and not is_waited_for:
                written[key] = call
        if key := helpers_path(program, module, call):
            written[key] = call


def write_of(written: dict[str, ast.Call], path: str) -> ast.Call | None:
    """The call that writes what is read from a path: that file, or a model's in that folder."""
    if path in written:
        return written[path]
    folder, _, name = path.rpartition("/")
    if name in MODEL_FILES and folder in written:
        return written[folder]
    files = (f"{path}/{name}" for name in MODEL_FILES if path)
    return next((written[file] for file in files if file in written), None)


def helpers_path(program: Program, module: Module, call: ast.Call) -> str:
    """The path that a helper of patched scripts writes on rank 0 alone, as text; or ""."""
    place = HELPERS.get(module.last_name(call.func))
    path = None if place is None else argument(call, place, "path")
    if path is None:
        return ""
    value = module.definition(path, call) if isinstance(path, ast.Name) else None
    return text_of_path(program, module, value or path)


def writes_and_reads(program: Program, module: Module, body: list[ast.stmt]) -> bool:
    """Whether the function of a body, or those that it calls, write a file and read one."""
    effects = effects_in(program, module.function(body[0]) or module.tree) if body else []
    return all(any(is_of_file(each, kind) for each in effects) for kind in (Kind.WRITE, Kind.READ))


def never_both(module: Module, first: ast.Call, second: ast.Call) -> bool:
    """Whether one call of the function makes only one of two calls: no loop comes back to them."""
    loops = (ast.For, ast.While, ast.AsyncFor)
    return exclusive(first, second) and not any(
        isinstance(up, loops) and is_inside(second, up) for up in module.ancestors(first)
    )


def is_of_file(reached: Reached, kind: Kind) -> bool:
    """Whether an effect reads or writes one file that it names."""
    node = reached.effect.node
    return (
        reached.effect.kind is kind
        and isinstance(node, ast.Call)
        and reached.effect.module.last_name(node.func) not in (*OWN_FILES, *LOOKING)
    )


def by_one_rank(write: Reached) -> Reached:
    """A write to ``path if is_main_process() else os.devnull``, as rank 0's to that path."""
    path, where = write.path, write.path_module
    if isinstance(path, ast.Name) and where is not None:
        path = where.definition(path, path) or path
    if not isinstance(path, ast.IfExp) or where is None:
        return write
    _, main, other = values_by_role(where, path.test)
    if main is not True or other is not False or where.dotted(path.orelse) != "os.devnull":
        return write
    return replace(write, path=path.body, roles=write.roles & {Role.MAIN})


def path_key(program: Program, module: Module, reached: Reached, call: ast.Call) -> str:
    """A path as text, if it means the same in the function around the call; else ""."""
    path, where = reached.path, reached.path_module
    if path is None or where is None:
        return ""
    if where is module and module.function(path) is module.function(call):
        value = module.definition(path, call) if isinstance(path, ast.Name) else None
        return text_of_path(program, module, value or path)
    if passed := text_for_caller(program, module, reached, call):
        return passed
    if composed := text_of_composed(program, module, where, path, call):
        return composed
    names = {
        name
        for node in options_in(program, where, path)
        for name in everywhere(node.value, ast.Name)
    }
    is_alike = all(name in names or name.id in where.aliases for name in everywhere(path, ast.Name))
    return text_of_path(program, where, path) if is_alike else ""


def text_of_composed(
    program: Program, module: Module, where: Module, path: ast.expr, call: ast.Call
) -> str:
    """A path that the called function puts together from parameters, with what the call passes.

    ``join("data", name)`` for ``save(name, words)``; "" where it holds anything else.
    """
    function = where.function(path)
    if function is None or not any(f is function for _, f in program.callees(module, call)):
        return ""
    value = where.definition(path, path) or path if isinstance(path, ast.Name) else path
    text, own = text_of_path(program, where, value), parameters(function)
    rebound = {name for stmt in function.body for name in bound_names(stmt)}
    names = [name.id for name in everywhere(value, ast.Name) if name.id not in where.aliases]
    for name in dict.fromkeys(names):
        passed = argument_for_parameter(where, function, call, name)
        if name not in own or name in rebound or passed is None:
            return ""
        if text.count(f"{{{name}}}") != names.count(name):
            return ""  # in an expression, rather than a part of the path
        part = module.definition(passed, call) or passed
        text = text.replace(f"{{{name}}}", text_of_path(program, module, part))
    return text if names else ""


def text_for_caller(program: Program, module: Module, reached: Reached, call: ast.Call) -> str:
    """A path of attributes of a parameter, ``config.path``, as the caller would write it.

    "" where the call does not pass a name for the parameter, or runs another function first.
    """
    path, where = reached.path, reached.path_module
    if where is None or not isinstance(path, ast.Attribute):
        return ""
    root: ast.expr = path
    while isinstance(root, ast.Attribute):
        root = root.value
    function = where.function(path)
    if not isinstance(root, ast.Name) or function is None or root.id not in parameters(function):
        return ""
    if any(root.id in bound_names(stmt) for stmt in function.body):
        return ""
    if not any(callee is function for _, callee in program.callees(module, call)):
        return ""
    passed = argument_for_parameter(where, function, call, root.id)
    if not isinstance(passed, ast.Name):
        return ""
    if (made_with := argument_of_maker(module, passed, path)) is not None:
        value = module.definition(made_with, call) or made_with
        return text_of_path(program, module, value)
    return f"{{{passed.id}{where.text(path).removeprefix(root.id)}}}"


def argument_of_maker(module: Module, instance: ast.Name, path: ast.Attribute) -> ast.expr | None:
    """The argument ``path=…`` of the call that made an object whose ``path`` is read."""
    made = module.definition(instance, instance)
    if not isinstance(made, ast.Call) or not isinstance(path.value, ast.Name):
        return None
    word = keyword(made, path.attr)
    return None if word is None else word.value
