"""What running a function does, also in the functions it calls: collectives, files, exits.

``effects_of(program, function)`` answers, for each effect that may happen between a call of the
function and its return:

- ``effect.kind``: COLLECTIVE (all ranks have to come), BACKWARD, WRITE, READ, TEST (asks whether a
  file exists), MAKE_FOLDER, REMOVE (or rename), EXIT (ends the process), UNREAD (runs code that was
  not found, so that it may do anything);
- ``effect.module`` and ``effect.node``: where it is written;
- ``roles``: which processes may come to it once the function is entered;
- ``always``: whether each rank of a group that enters comes to it. False is "maybe";
- ``path`` and ``path_module``: the file's path as an expression; a plain parameter is replaced by
  what the nearest caller passes, so that in ``effects_of(program, caller)`` it is the caller's;
- ``path_kind``: MEMORY (an io buffer or os.devnull), RANK (differs between ranks), CONSTANT, OPTION
  (of the command line, or a parameter), UNKNOWN;
- ``call``: the call in this function through which it happens; None where it is written in it.

``effects_of(program, None)`` is about the script's module level, ``effects_of_call`` about a call.
"May" is conservative: a call of a function that cannot be told has no effects here; ask
``program.possible_callees``. It is a fixpoint over the call graph, each function once per change.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from enum import Enum

from ....record import record, replace
from ...source.module import Module
from ...source.tree import Function, everywhere, is_inside, locate, parameters, within
from ..language.first_rounds import first_round_comes_to
from ..language.names import answered_once
from ..language.objects import class_of, method_of
from ..language.passed_arguments import argument_for_parameter
from ..language.process_exits import EXITS
from ..ranks.rank_reach import RANKS, Role, roles_reaching_in_function, value_for_role
from ..training.frameworks import COLLECTIVE_METHODS, COLLECTIVES
from ..training.program import Program
from .file_effects import SAVED_PARTS, FileUse, PathKind, file_uses, path_kind

NO_MEETING = (  # though all ranks have to come
    "init_process_group",
    "destroy_process_group",
    "DistributedDataParallel",
    "new_group",
)
MAX_PATHS = 4  # path expressions that one effect is followed with, per function


class Kind(Enum):
    """What an effect does."""

    COLLECTIVE = "collective"
    BACKWARD = "backward"
    WRITE = "write"
    READ = "read"
    TEST = "test"
    MAKE_FOLDER = "make folder"
    REMOVE = "remove"
    EXIT = "exit"
    UNREAD = "unread"


@record
class Effect:
    """One place of the program that does something outside of its own variables."""

    kind: Kind
    module: Module
    node: ast.Call | ast.Raise


@record
class Reached:
    """An effect as seen from a function that may cause it; see the module's docstring."""

    effect: Effect
    roles: frozenset[Role]
    always: bool
    path: ast.expr | None = None
    path_module: Module | None = None
    path_kind: PathKind = PathKind.UNKNOWN
    call: ast.Call | None = None


def is_other_function(module: Module, call: ast.Call) -> bool:
    """Whether a function of another library, by a bare name, only has the name of a method."""
    is_method = module.last_name(call.func) in COLLECTIVE_METHODS
    is_bare = is_method and isinstance(call.func, ast.Name)
    return is_bare and not module.dotted(call.func).startswith(
        ("torch.distributed.", "accelerate.")
    )


def is_collective(effect: Effect) -> bool:
    """Whether an effect is a collective at which ranks wait for each other amid their work."""
    return (
        effect.kind is Kind.COLLECTIVE
        and isinstance(effect.node, ast.Call)
        and effect.module.last_name(effect.node.func) not in NO_MEETING
    )


Scope = Function | ast.Module
# The effects of a function by their node and their path.
Summary = dict[ast.AST, dict[ast.expr | None, Reached]]


def effects_of(program: Program, function: Function | None) -> list[Reached]:
    """All effects of a function (None: the script's module level), in no special order."""
    return effects_in(program, program.script.tree if function is None else function)


def effects_in(program: Program, scope: Scope) -> list[Reached]:
    """All effects of a function, or of a module's top level, which is named by its tree."""
    return _flat(_all_effects(program).get(scope, {}))


@answered_once
def effects_of_call(program: Program, module: Module, call: ast.Call) -> list[Reached]:
    """All effects of one call, with paths as this call passes them; ``call`` is it."""
    found: Summary = {}
    for effect in _direct_effects_by_node(program, module).get(call, ()):
        _merge(found, effect)
    for where, callee in _callees(program, module, call):
        for inner in effects_of(program, callee):
            _merge(found, _seen_from(program, module, call, where, callee, inner))
    return _flat(found)


def direct_effects(program: Program, module: Module) -> dict[Scope, list[Reached]]:
    """The effects that are written in each function of a module, or at its top level."""
    answers = module.program_answers
    if direct_effects not in answers:
        found: dict[Scope, list[Reached]] = defaultdict(list)
        for effect, use in _written_in(program, module):
            roles = roles_reaching_in_function(module, effect.node)
            path = None if use is None else use.path
            kind = PathKind.UNKNOWN if path is None else path_kind(module, path)
            found[module.function(effect.node) or module.tree].append(
                Reached(
                    effect, roles, is_always_reached(module, effect.node), path, module, kind, None
                )
            )
        answers[direct_effects] = found
    result: dict[Scope, list[Reached]] = answers[direct_effects]
    return result


def _direct_effects_by_node(program: Program, module: Module) -> dict[ast.AST, list[Reached]]:
    answers = module.program_answers
    if _direct_effects_by_node not in answers:
        found: dict[ast.AST, list[Reached]] = defaultdict(list)
        for effects in direct_effects(program, module).values():
            for each in effects:
                found[each.effect.node].append(each)
        answers[_direct_effects_by_node] = found
    result: dict[ast.AST, list[Reached]] = answers[_direct_effects_by_node]
    return result


def _written_in(program: Program, module: Module) -> Iterator[tuple[Effect, FileUse | None]]:
    for call in module.calls_to(*COLLECTIVES):
        if module.dotted(call.func).startswith(("torch.distributed.", "dist.", "horovod.", "hvd.")):
            yield Effect(Kind.COLLECTIVE, module, call), None
    own = COLLECTIVE_METHODS & program.functions_by_name.keys()  # a model's own get_state_dict()
    for call in module.calls_to("DistributedDataParallel", *COLLECTIVE_METHODS - own):
        if not is_other_function(module, call):
            yield Effect(Kind.COLLECTIVE, module, call), None
    for call in module.calls_to("backward"):
        if isinstance(call.func, ast.Attribute):
            yield Effect(Kind.BACKWARD, module, call), None
    own_parts = SAVED_PARTS & program.functions_by_name.keys()
    for use in file_uses(module):
        if program.callees(module, use.call):
            continue  # the program's own save_model: what it does is read there
        if module.last_name(use.call.func) in own_parts:
            continue  # of a library's copy beside the script
        yield Effect(Kind(use.what), module, use.call), use
    for call in module.calls_to("exit", "_exit", "quit"):
        if module.dotted(call.func) in EXITS:
            yield Effect(Kind.EXIT, module, call), None
    for stmt in module.nodes(ast.Raise):
        if stmt.exc is not None and any(n.id == "SystemExit" for n in everywhere(stmt, ast.Name)):
            yield Effect(Kind.EXIT, module, stmt), None
    unread = {
        name.rpartition(".")[2] for file, _, name in program.unread if file == module.source.name
    }
    for call in module.nodes(ast.Call) if unread else ():
        if unread & set(module.dotted(call.func).split(".")):
            yield Effect(Kind.UNREAD, module, call), None


def is_always_reached(module: Module, node: ast.AST) -> bool:
    """Whether each rank of a group that enters the function around ``node`` comes to it."""
    function = module.function(node)
    child: ast.AST = node
    for up in module.ancestors(node):
        if up is function or isinstance(up, ast.Module):
            break
        if isinstance(up, ast.For | ast.AsyncFor | ast.While):
            inside = any(child is item for item in (*up.body, *up.orelse))
            if inside and not first_round_comes_to(module, up, node):
                return False
        elif isinstance(up, ast.ExceptHandler | ast.Lambda | ast.comprehension | ast.ListComp):
            return False
        elif isinstance(up, ast.If | ast.IfExp) and child is not up.test:
            in_body = (
                any(child is item for item in up.body)
                if isinstance(up, ast.If)
                else child is up.body
            )
            if any(value_for_role(module, up.test, role) is not in_body for role in RANKS):
                return False
        elif isinstance(up, ast.BoolOp) and child is not up.values[0]:
            return False
        child = up
    table, number = locate(node)
    return not any(
        table.ends[locate(stmt)[1]] <= number
        for kind in (ast.Return, ast.Raise)
        for stmt in within(module.scope_statements(node), kind)
        if roles_reaching_in_function(module, stmt) & RANKS
    )


def _callees(program: Program, module: Module, call: ast.Call) -> list[tuple[Module, Function]]:
    """The functions that a call runs: by name, and the forward of a model of the program's."""
    found = program.callees(module, call)
    if (
        not found
        and isinstance(call.func, ast.Name | ast.Attribute)
        and _objects_have_effects(program)
    ):
        owner = class_of(program, module, call.func)
        for name in ("__call__", "forward") if owner is not None else ():
            method = owner and method_of(program, owner, name)
            if method:
                return [method]
    return found


def _objects_have_effects(program: Program) -> bool:
    """Whether the call of an object may have an effect; else nobody needs to know its class."""
    answers = program.script.program_answers
    if _objects_have_effects not in answers:
        answers[_objects_have_effects] = any(
            function in direct_effects(program, module)
            for module, function in _functions_of_objects(program)
        )
    answer: bool = answers[_objects_have_effects]
    return answer


def _functions_of_objects(program: Program) -> Iterator[tuple[Module, Function]]:
    """What calls of objects run, and all that these functions may call by name."""
    by_name = program.functions_by_name
    pending = [*by_name.get("forward", ()), *by_name.get("__call__", ())]
    seen: set[Function] = set()
    while pending:
        module, function = pending.pop()
        if function not in seen:
            seen.add(function)
            yield module, function
            for call in everywhere(function, ast.Call):
                pending += program.callees(module, call)


def _all_effects(program: Program) -> dict[Scope, Summary]:
    """The effects of all functions and module levels of a program: the fixpoint."""
    answers = program.script.program_answers
    if _all_effects not in answers:
        answers[_all_effects] = _fixpoint(program)
    result: dict[Scope, Summary] = answers[_all_effects]
    return result


def _fixpoint(program: Program) -> dict[Scope, Summary]:
    summaries: dict[Scope, Summary] = defaultdict(dict)
    calls_in: dict[Scope, list[tuple[Module, ast.Call, Module, Function]]] = defaultdict(list)
    called_in: dict[Scope, set[Scope]] = defaultdict(set)
    for module in program.modules:
        for scope, effects in direct_effects(program, module).items():
            for effect in effects:
                _merge(summaries[scope], effect)
        for call in module.nodes(ast.Call):
            scope = module.function(call) or module.tree
            for where, callee in _callees(program, module, call):
                calls_in[scope].append((module, call, where, callee))
                called_in[callee].add(scope)
    pending = dict.fromkeys(_callees_first(calls_in))
    while pending:
        scope = next(iter(pending))
        del pending[scope]
        has_changed = False
        for module, call, where, callee in calls_in[scope]:
            for inner in _flat(summaries[callee]):
                seen = _seen_from(program, module, call, where, callee, inner)
                has_changed |= _merge(summaries[scope], seen)
        if has_changed:
            pending.update(dict.fromkeys(called_in[scope]))
    return summaries


def _callees_first(
    calls_in: dict[Scope, list[tuple[Module, ast.Call, Module, Function]]],
) -> list[Scope]:
    """The functions with calls, those that are called before those that call them."""
    order: list[Scope] = []
    seen: set[Scope] = set()
    for start in list(calls_in):
        stack: list[tuple[Scope, bool]] = [(start, False)]
        while stack:
            scope, is_done = stack.pop()
            if is_done:
                order.append(scope)
            elif scope not in seen:
                seen.add(scope)
                stack.append((scope, True))
                stack += [(callee, False) for *_, callee in calls_in.get(scope, ())]
    return order


def _seen_from(
    program: Program,
    module: Module,
    call: ast.Call,
    where: Module,
    callee: Function,
    inner: Reached,
) -> Reached:
    """An effect of a callee, as one of the function around the call."""
    roles = inner.roles & roles_reaching_in_function(module, call)
    always = inner.always and is_always_reached(module, call)
    path, path_module, kind = inner.path, inner.path_module, inner.path_kind
    if path is not None and path_module is where and is_within_function(where, path, callee):
        for name in everywhere(path, ast.Name):
            value = argument_for_parameter(where, callee, call, name.id)
            if value is None or is_bound_between(where, name, callee):
                continue
            if name is path:
                path, path_module = value, module
                kind = path_kind(module, value)
            elif path_kind(module, value) in (PathKind.RANK, PathKind.MEMORY):
                kind = path_kind(module, value)
    return replace(
        inner,
        roles=roles,
        always=always,
        path=path,
        path_module=path_module,
        path_kind=kind,
        call=call,
    )


def is_within_function(module: Module, node: ast.AST, function: Function) -> bool:
    """Whether a node is in a function, or in one that is defined there."""
    around = module.function(node)
    return around is function or (around is not None and is_inside(around, function))


def is_bound_between(module: Module, name: ast.Name, function: Function) -> bool:
    """Whether a function that is defined in another one binds a name for itself."""
    around = module.function(name)
    while around is not None and around is not function:
        if name.id in parameters(around) or (around, name.id) in module.stores:
            return True
        around = module.function(around)
    return False


def _merge(summary: Summary, new: Reached) -> bool:
    """Add an effect to those of a function; whether that changed them."""
    if not new.roles:
        return False
    by_path = summary.setdefault(new.effect.node, {})
    path = new.path
    if path not in by_path and len(by_path) >= MAX_PATHS:
        path = None
        new = replace(new, path=None, path_kind=PathKind.UNKNOWN)
    old = by_path.get(path)
    if old is None:
        by_path[path] = new
        return True
    roles, always = old.roles | new.roles, old.always or new.always
    if (roles, always) == (old.roles, old.always):
        return False
    by_path[path] = replace(old, roles=roles, always=always)
    return True


def _flat(summary: Summary) -> list[Reached]:
    return [effect for by_path in summary.values() for effect in by_path.values()]
