"""Files that other ranks read before rank 0 has surely written them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ....record import replace
from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import (
    argument,
    bound_names,
    everywhere,
    is_inside,
    keyword,
    mentions,
    parameters,
    precedes,
    within,
)
from ..language.call_graph import Callee
from ..language.names import answered_once
from ..language.objects import ClassOf
from ..language.passed_arguments import argument_for_parameter, default_value
from ..ranks.barrier_turns import goes_in_turn
from ..ranks.rank_reach import RANKS, Role, roles_reaching, values_by_role
from ..training.program import Program
from .effects import Kind, Reached, effects_in, effects_of_call, is_collective
from .met_between import waits_a_round
from .path_text import bound_at_top, options_in, parts_left, text_of_path, texts_in_loops

# Each process gets a file of its own from these.
OWN_FILES = ("SummaryWriter",)
# These look at whatever is in a folder, rather than at one file.
LOOKING = ("listdir", "scandir", "glob")
# These ask whether there is one.
EXISTS = ("exists", "isfile", "isdir", "is_file", "is_dir", "lexists")
# What from_pretrained(folder) reads in a folder, by its name or by transformers' names for it.
MODEL_FILES = (
    *("pytorch_model.bin", "model.safetensors", "config.json"),
    *("{WEIGHTS_NAME}", "{SAFE_WEIGHTS_NAME}", "{CONFIG_NAME}"),
)
RENAMING = ("replace", "rename")
# Helpers of patched scripts by which rank 0 writes, with the place of the path.
HELPERS = {"save_on_main": 1, "write_on_main": 0}
NAMED_PART = re.compile(r"\{[^{}<>]*\}")  # of a path as text, and none that an option tells
MAX_CALLS = 3  # between the call that passes the parts of a path and the one that puts it together


def early_reads(
    program: Program, module: Module, body: list[ast.stmt], *, doubtful: bool = False
) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Calls by which other ranks read what rank 0 writes above, with no collective in between.

    Each with the call of the same function, or module level, by which rank 0 writes. ``doubtful``:
    checkpoints that may be the same, as their paths are told by names that differ.
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
        writes = [by_one_rank(each) for each in effects if is_written(each)]
        saves = [each for each in writes if is_checkpoint(each)]
        for read in reads if written else ():
            keys = [key for key in path_keys(program, module, read, call) if key]
            found = next((each for key in keys if (each := write_of(written, key))), None)
            if doubtful:
                is_other = found is not None or saves or not is_checkpoint(read)
                alike = (like(written, key) for key in keys or [""])
                found = None if is_other else next(filter(None, alike), None)
            if found is None or never_both(module, found, call):
                continue
            if waits_a_round(program, module, found, call):
                continue
            if Role.OTHER not in read.roles & roles or not program.is_live(module, call):
                continue
            if not goes_in_turn(program, module, call):  # else rank 0 is through
                yield call, found
        if meets:
            written.clear()
        late = [
            write
            for write in writes
            if write.roles & roles == {Role.MAIN}
            and not any(
                each.effect.module is write.effect.module
                and precedes(write.effect.node, each.effect.node)
                for each in meets
            )
        ]
        if doubtful and not any(write in saves for write in late):
            late = []  # a checkpoint is no other file
        keys = [key for write in late for key in path_keys(program, module, write, call)]
        keys = [key for key in (*keys, *helpers_paths(program, module, call)) if key]
        if doubtful and not keys and late:
            written[""] = call
        written.update(dict.fromkeys(keys, call))


def write_of(written: dict[str, ast.Call], path: str) -> ast.Call | None:
    """The call that writes what is read from a path: that file, or a model's in that folder."""
    if path in written:
        return written[path]
    folder, _, name = path.rpartition("/")
    if name in MODEL_FILES and folder in written:
        return written[folder]
    files = (f"{path}/{name}" for name in MODEL_FILES if path)
    return next((written[file] for file in files if file in written), None)


def is_checkpoint(reached: Reached) -> bool:
    """Whether an effect is that of torch.load or torch.save."""
    node = reached.effect.node
    return isinstance(node, ast.Call) and reached.effect.module.dotted(node.func) in (
        "torch.load",
        "torch.save",
    )


def like(written: dict[str, ast.Call], path: str) -> ast.Call | None:
    """The call that writes to a path which may be this one, by what its parts may stand for."""
    for other, call in written.items():
        if not path or not other or may_stand_for(path, other) or may_stand_for(other, path):
            return call
    return None


def may_stand_for(path: str, other: str) -> bool:
    """Whether some text for each part of a path that a name tells makes it another path."""
    pieces = NAMED_PART.split(path)
    pattern = ".*".join(map(re.escape, pieces))
    return len(pieces) > 1 and re.fullmatch(pattern, NAMED_PART.sub("?", other)) is not None


def helpers_paths(program: Program, module: Module, call: ast.Call) -> list[str]:
    """The paths that a helper of patched scripts writes on rank 0 alone, as text."""
    place = HELPERS.get(module.last_name(call.func))
    path = None if place is None else argument(call, place, "path")
    return [] if path is None else own_texts(program, module, path, call)


def writes_and_reads(program: Program, module: Module, body: list[ast.stmt]) -> bool:
    """Whether the function of a body, or those that it calls, write a file and read one."""
    effects = effects_in(program, module.function(body[0]) or module.tree) if body else []
    return any(map(is_written, effects)) and any(is_of_file(each, Kind.READ) for each in effects)


def never_both(module: Module, first: ast.Call, second: ast.Call) -> bool:
    """Whether one call of the function makes only one of two calls: no loop comes back to them.

    Also where a loop does, if a rank comes to the second once it has found what appears whole.
    """
    loops = (ast.For, ast.While, ast.AsyncFor)
    if module.last_name(first.func) in HELPERS and where_it_is_found(module, first, second):
        return True
    return exclusive(first, second) and not any(
        isinstance(up, loops) and is_inside(second, up) for up in module.ancestors(first)
    )


def where_it_is_found(module: Module, first: ast.Call, second: ast.Call) -> bool:
    """Whether a test for a file leads to one of two calls, and else to the other.

    A barrier before the second would wait for ranks that have not found the file.
    """
    around = [up for up in module.ancestors(first) if is_inside(second, up)]
    return (
        exclusive(first, second)
        and isinstance(around[0], ast.If | ast.IfExp)
        and any(
            module.last_name(call.func) in EXISTS for call in everywhere(around[0].test, ast.Call)
        )
    )


def is_of_file(reached: Reached, kind: Kind) -> bool:
    """Whether an effect reads or writes one file that it names."""
    node = reached.effect.node
    return (
        reached.effect.kind is kind
        and isinstance(node, ast.Call)
        and reached.effect.module.last_name(node.func) not in (*OWN_FILES, *LOOKING)
    )


def is_written(reached: Reached) -> bool:
    """Whether an effect writes one file that it names, or gives a file that name."""
    node = reached.effect.node
    return is_of_file(reached, Kind.WRITE) or (
        is_of_file(reached, Kind.REMOVE)
        and isinstance(node, ast.Call)
        and reached.effect.module.last_name(node.func) in RENAMING
    )


def by_one_rank(write: Reached) -> Reached:
    """A write to ``path if is_main_process() else os.devnull``, as rank 0's to that path."""
    path, where = write.path, write.path_module
    if isinstance(path, ast.Name) and where is not None:
        path = where.definition(path, path) or path
    if not isinstance(path, ast.IfExp) or where is None:
        return write
    _, main, other = values_by_role(where, path.test)
    if main is not True or other is not False or not mentions(path.orelse, "devnull"):
        return write
    return replace(write, path=path.body, roles=write.roles & {Role.MAIN})


def own_texts(program: Program, module: Module, path: ast.expr, call: ast.Call) -> list[str]:
    """A path of the function around a call as text, also for each value of a loop around it."""
    value = module.definition(path, call) if isinstance(path, ast.Name) else None
    text = text_of_path(program, module, value or path)
    return list(dict.fromkeys([text, *texts_in_loops(module, text, path)]))


def path_keys(program: Program, module: Module, reached: Reached, call: ast.Call) -> list[str]:
    """A path as text, where it means the same in the function around the call."""
    path, where = reached.path, reached.path_module
    if path is None or where is None:
        return []
    if where is module and module.function(path) is module.function(call):
        return own_texts(program, module, path, call)
    if passed := text_for_caller(program, module, reached, call):
        return [passed]
    if is_of_own_object(program, module, where, path, call):
        return [text_of_path(program, where, path)]
    if composed := texts_of_composed(program, module, where, path, call):
        return composed
    if kept := text_of_attributes(program, module, where, path, call):
        return [kept]
    names = {
        name
        for node in options_in(program, where, path)
        for name in everywhere(node.value, ast.Name)
    }
    is_alike = all(
        name in names or name.id in where.aliases or bound_at_top(where, name) is not None
        for name in everywhere(path, ast.Name)
    )
    return [text_of_path(program, where, path)] if is_alike else []


def is_of_own_object(
    program: Program, module: Module, where: Module, path: ast.expr, call: ast.Call
) -> bool:
    """Whether a path is of attributes that a method and the one that it calls both have.

    ``join(self.folder, self.name)`` in ``load()``, for ``self.load()``.
    """
    match call.func:
        case ast.Attribute(value=ast.Name(id="self")):
            method = where.function(path)
            names = {name.id for name in everywhere(path, ast.Name)} - {*where.aliases}
            return names == {"self"} and any(
                function is method for _, function in program.callees(module, call)
            )
    return False


def texts_of_composed(
    program: Program, module: Module, where: Module, path: ast.expr, call: ast.Call
) -> list[str]:
    """A path that a called function puts together from parameters, with what the call passes.

    ``join("data", name)`` for ``save(name, words)``, also where the function that is called passes
    it on, and for each value of a loop over names; nothing where it holds anything else. Of
    options and texts it means the same anywhere.
    """
    function = where.function(path)
    value = where.definition(path, path) or path if isinstance(path, ast.Name) else path
    text = text_of_path(program, where, value)
    if function is None:
        return []
    if not parts_left(where, text):
        return [text] if "<" in text else []
    texts = texts_in_loops(where, text, path)
    maker = (where, function)
    found = [text_from_call(program, module, call, maker, each, MAX_CALLS) for each in texts]
    return [each for each in found if each]


@answered_once
def text_from_call(
    program: Program, module: Module, call: ast.Call, maker: Callee, text: str, calls: int
) -> str:
    """The path that a function makes, as one call passes its parts, through others maybe; or ""."""
    callees = program.callees(module, call)
    if any(function is maker[1] for _, function in callees):
        return with_arguments(program, module, call, maker, text)
    found = {
        with_arguments(program, module, call, (where, function), passed)
        for where, function in (callees if calls else ())
        for inner in within(function.body, ast.Call)
        if (passed := text_from_call(program, where, inner, maker, text, calls - 1))
    }
    return found.pop() if len(found) == 1 else ""


def with_arguments(
    program: Program, module: Module, call: ast.Call, callee: Callee, text: str
) -> str:
    """A path of a function with what a call passes for its parameters; "" if it holds others."""
    where, function = callee
    rebound = {name for stmt in function.body for name in bound_names(stmt)}
    for name in dict.fromkeys(parts_left(where, text)):
        passed = argument_for_parameter(where, function, call, name)
        if name not in parameters(function) or name in rebound or passed is None:
            return ""
        part = module.definition(passed, call) or passed
        text = text.replace(f"{{{name}}}", text_of_path(program, module, part))
    return text


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


def text_of_attributes(
    program: Program, module: Module, where: Module, path: ast.expr, call: ast.Call
) -> str:
    """A path of what an object keeps, ``self.folder + "/best"``, as ``call``'s function has it.

    "" where it holds anything else.
    """
    text = text_of_path(program, where, path)
    owner, parts = where.enclosing_class(path), parts_left(where, text)
    if owner is None or not parts or not all(part.startswith("self.") for part in parts):
        return ""
    for part in dict.fromkeys(parts):
        kept = text_kept(program, module, (where, owner), part.removeprefix("self."), call)
        if not kept:
            return ""
        text = text.replace(f"{{{part}}}", kept)
    return text


def text_kept(program: Program, module: Module, owner: ClassOf, name: str, call: ast.Call) -> str:
    """The path in an attribute, which the only call that makes such an object passes; or ""."""
    where, definition = owner
    values = [
        value
        for value in where.attribute_values.get(name, ())
        if where.enclosing_class(value) is definition
    ]
    made_in = where.function(values[0]) if len(values) == 1 else None
    callers = [] if made_in is None else program.callers(made_in)
    if made_in is None or not isinstance(values[0], ast.Name) or len(callers) != 1:
        return ""
    maker, made = callers[0]
    passed = argument_for_parameter(where, made_in, made, values[0].id)
    if passed is None:
        default = default_value(made_in, values[0].id)
        return "" if default is None else own_text(program, where, default)
    if maker is module and module.function(made) is module.function(call):
        return text_of_path(program, module, module.definition(passed, made) or passed)
    return own_text(program, maker, passed)


def own_text(program: Program, module: Module, path: ast.expr) -> str:
    """The text of a path that has no names of a function in it; or ""."""
    text = text_of_path(program, module, path)
    return "" if parts_left(module, text) else text


def argument_of_maker(module: Module, instance: ast.Name, path: ast.Attribute) -> ast.expr | None:
    """The argument ``path=…`` of the call that made an object whose ``path`` is read."""
    made = module.definition(instance, instance)
    if not isinstance(made, ast.Call) or not isinstance(path.value, ast.Name):
        return None
    word = keyword(made, path.attr)
    return None if word is None else word.value
