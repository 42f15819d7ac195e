"""What is gathered from all ranks can be pickled.

What              Objects that all_gather_object, gather_object, broadcast_object_list or
                  scatter_object_list send are of classes that pickle finds again by their name.
At run time       PicklingError on every rank, in the first evaluation.
How it is judged  The argument is followed to what is put into it: an object of a class or
                  namedtuple that a function defines, a lambda, a generator, an open file, and a
                  namedtuple whose name is not that of its variable cannot be pickled. Functions of
                  the program that pass their argument on are followed.
When unknown      Never: where what is put in cannot be followed, nothing is said.
Source            https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled
"""

import ast
from collections.abc import Iterator

from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import Function, parameters, within
from .ranks import callees, has_several_ranks
from .verdict import AuditVerdict, violated

CODE = "O9"
# Where each collective has what it sends.
SENT = {
    "all_gather_object": (1, "obj"),
    "gather_object": (0, "obj"),
    "broadcast_object_list": (0, "object_list"),
    "scatter_object_list": (1, "scatter_object_input_list"),
}
FILLERS = ("append", "extend", "insert", "add")
CLASS_MAKERS = ("namedtuple", "NamedTuple", "make_dataclass", "type")
MAX_DEPTH = 3

# The parameters that a function sends, looked at so deep below a call.
Sent = dict[tuple[Function, int], set[str]]


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    if not has_several_ranks(program):
        return
    known: Sent = {}
    for module in program.modules:
        for call in module.nodes(ast.Call):
            if not program.is_live(module, call):
                continue
            for value in sent_values(program, module, call, 0, known):
                for why in unpicklable(module, value, 0):
                    yield violated(module, call, f"what is gathered cannot be pickled: {why}")


def sent_values(
    program: Program, module: Module, call: ast.Call, depth: int, known: Sent
) -> Iterator[ast.expr]:
    """The arguments of a call that go to other ranks as objects."""
    name = module.last_name(call.func)
    if name in SENT:
        index, word = SENT[name]
        for keyword_ in call.keywords:
            if keyword_.arg == word:
                yield keyword_.value
        if len(call.args) > index:
            yield call.args[index]
        return
    if depth > MAX_DEPTH:
        return
    for where, function in callees(program, module, call):
        if (function, depth) not in known:
            known[function, depth] = sent_parameters(program, where, function, depth + 1, known)
        for parameter in sorted(known[function, depth]):
            value = argument_for_parameter(where, function, call, parameter)
            if value is not None:
                yield value


def sent_parameters(
    program: Program, module: Module, function: Function, depth: int, known: Sent
) -> set[str]:
    """The parameters of a function that it sends to other ranks, as they are or in a list."""
    found: set[str] = set()
    own = parameters(function)
    for call in within(function.body, ast.Call):
        for value in sent_values(program, module, call, depth, known):
            names = {name.id for name in within(value, ast.Name)}
            # items = value if isinstance(value, list) else [value]
            names |= names_in_values(module, function, names)
            names |= names_in_values(module, function, names - own)
            found |= names & own
    return found


def names_in_values(module: Module, function: Function, names: set[str]) -> set[str]:
    """The names in what a function assigns to some names."""
    stores = [store for name in names for store in module.stores.get((function, name), ())]
    assigned = [stmt for stmt in map(module.statement, stores) if isinstance(stmt, ast.Assign)]
    return {each.id for stmt in assigned for each in within(stmt.value, ast.Name)}


def unpicklable(module: Module, value: ast.expr, depth: int) -> Iterator[str]:
    """Why an object, or what is put into it, cannot be pickled."""
    if depth > MAX_DEPTH:
        return
    match value:
        case ast.Lambda():
            yield "a lambda"
        case ast.GeneratorExp():
            yield "a generator"
        case ast.Call():
            yield from _unpicklable_call(module, value)
        case ast.List() | ast.Tuple() | ast.Set():
            for item in value.elts:
                yield from unpicklable(module, item, depth + 1)
        case ast.ListComp():
            yield from unpicklable(module, value.elt, depth + 1)
        case ast.Dict():
            for item in value.values:
                yield from unpicklable(module, item, depth + 1)
        case ast.Name():
            for item in _put_into(module, value):
                yield from unpicklable(module, item, depth + 1)


def _put_into(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """What a function assigns to a name, and adds to it."""
    function = module.function(name)
    for store in module.stores.get((function, name.id), ()):
        stmt = module.parents[store]
        value = stmt.value if isinstance(stmt, ast.Assign | ast.AnnAssign) else None
        if value is not None and not (
            isinstance(value, ast.Call) and name in within(value, ast.Name)
        ):
            yield value
    for call in module.calls_to(*FILLERS):
        func = call.func
        if (
            isinstance(func, ast.Attribute)
            and isinstance(func.value, ast.Name)
            and func.value.id == name.id
            and module.function(call) is function
            and call.args
        ):
            added = call.args[-1]
            is_each = func.attr == "extend" and isinstance(added, ast.GeneratorExp)
            yield added.elt if is_each and isinstance(added, ast.GeneratorExp) else added


def _unpicklable_call(module: Module, call: ast.Call) -> Iterator[str]:
    if not isinstance(call.func, ast.Name):
        return
    name = call.func.id
    if name == "open":
        yield "an open file"
        return
    function = module.function(call)
    while function is not None:
        for each in within(function.body, ast.ClassDef):
            if each.name == name:
                yield f"{name} is a class inside {function.name}()"
        for store in module.stores.get((function, name), ()):
            made = getattr(module.parents[store], "value", None)
            if isinstance(made, ast.Call) and module.last_name(made.func) in CLASS_MAKERS[:3]:
                yield f"{name} is a class inside {function.name}()"
        if (function, name) in module.stores or name in parameters(function):
            return
        function = module.function(function)
    value = module.single_assignment(None, name)
    if isinstance(value, ast.Call) and module.last_name(value.func) == "namedtuple":
        called = (
            value.args[0].value if value.args and isinstance(value.args[0], ast.Constant) else 0
        )
        if isinstance(called, str) and called != name:
            yield f"the namedtuple {name} is called {called!r}, and pickle looks for that"
