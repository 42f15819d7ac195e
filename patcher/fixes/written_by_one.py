"""What a statement that writes a file means to the other ranks, if rank 0 alone is to run it."""

from __future__ import annotations

import ast

from ..analysis.effects.file_effects import file_uses
from ..analysis.language.call_graph import reachable_functions
from ..analysis.language.conditions import tests_before
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.ranks.rank_reach import (
    RANK_NAMES,
    RANKS,
    UNKNOWN,
    Role,
    roles_reaching,
    roles_reaching_in_function,
    value_for_role,
)
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import (
    Function,
    argument_values,
    bound_names,
    everywhere,
    is_inside,
    names_within,
    parameters,
    precedes,
    same_code,
    within,
)

# Calls that a path can be passed to without the file being read.
TELLING = frozenset(
    (
        *("print", "info", "debug", "warning", "error", "log", "write", "format", "join", "str"),
        *("basename", "dirname", "abspath", "exists", "isfile", "append", "repr", "Path", "remove"),
    )
)
COUNTING = ("range", "trange")
LOOKS = ("exists", "isfile", "isdir", "is_file", "is_dir", "listdir", "glob", "iglob", "scandir")


def needs_all_ranks(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement trains, evaluates or calls a model, itself or in what it calls."""
    if calls_what_it_is_passed(module, stmt):
        return True
    loops = [
        *((loop.module, loop.steps) for loop in program.train_loops),
        *((each.module, each.loop) for each in program.evaluations),
    ]
    if any(where is module and is_inside(loop, stmt) for where, loop in loops):
        return True
    functions = {where.function(loop) for where, loop in loops}
    names = {module.last_name(call.func) for call in within(stmt, ast.Call)}
    return bool(reachable_functions(program, names) & functions)


def calls_what_it_is_passed(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement calls a parameter of its function, or an attribute that is no method.

    It may be a model: the forward pass of a wrapper is for all ranks.
    """
    function, owner = module.function(stmt), module.enclosing_class(stmt)
    if function is None:
        return False
    methods = {each.name for each in (owner.body if owner else ()) if isinstance(each, Function)}
    for call in within(stmt, ast.Call):
        func = call.func
        if isinstance(func, ast.Name) and func.id in parameters(function):
            return True
        if owner is not None and is_own(func) and getattr(func, "attr", "") not in methods:
            return True
    return False


def is_own(node: ast.expr) -> bool:
    """``self.model``."""
    base = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(base, ast.Name) and base.id == "self"


def is_read_later(module: Module, stmt: ast.stmt, path: ast.expr | None) -> bool:
    """Whether later statements of the block mention the path, or parts of it.

    Where a name holds the path, the literals of what it holds are parts too; where an object does,
    the same attribute is, or the same key.
    """
    later = statements_behind(module, stmt)
    literals = path_literals(path)
    if isinstance(path, ast.Name):
        literals |= path_literals(module.definition(path, path))
    members: list[ast.Attribute | ast.Subscript] = [
        *within(later, ast.Attribute),
        *within(later, ast.Subscript),
    ]
    mentioned: list[ast.Name | ast.Attribute | ast.Subscript] = [
        *names_within(later, path_names(module, stmt, path)),
        *(node for node in members if path and same_code(node, path)),
    ]
    parts: list[ast.expr] = [node for node in mentioned if isinstance(node.ctx, ast.Load)]
    parts += [node for node in within(later, ast.Constant) if node.value in literals]
    parts += parameters_handed_on(module, later, path)
    written = [use.path for use in file_uses(module) if use.what == "write"] if parts else []
    return any(
        not any(target and (part is target or is_inside(part, target)) for target in written)
        for part in parts
    )


def test_for_missing(module: Module, stmt: ast.stmt, path: ast.expr | None) -> ast.If | None:
    """The test that asks for a file around what writes it; None where nothing behind uses it.

    ``if not os.path.exists(path): write(path)``, and ``read(path)`` after it.
    """
    function = module.function(stmt)
    asking = [
        up
        for up in module.ancestors(stmt)
        if isinstance(up, ast.If) and module.function(up) is function and asks_for(module, up, path)
    ]
    if path is None or not asking:
        return None
    outermost = asking[-1]
    written = [use.path for use in file_uses(module) if use.what == "write"]
    is_used = any(
        same_code(node, path)
        and not any(node is target for target in written)
        and module.definition(node, node) is module.definition(path, path)
        for node in within(module.scope_statements(stmt), type(path))
        if precedes(outermost, node) and not is_inside(node, outermost)
    )
    return outermost if is_used else None


def tests_for_missing(
    program: Program, module: Module, stmt: ast.stmt, path: ast.expr | None
) -> list[tuple[Module, ast.If]]:
    """Such tests around what writes a file, there or around the calls that have it written.

    ``if not os.path.exists(path): make(data, [path])``, and ``read(path)`` after it.
    """
    if asking := test_for_missing(module, stmt, path):
        return [(module, asking)]
    function = module.function(stmt)
    if path is None or function is None:
        return []
    names = {name.id for name in everywhere(path, ast.Name)} & set(parameters(function))
    found: dict[ast.If, Module] = {}
    for where, call in program.callers(function):
        for value in (argument_for_parameter(where, function, call, name) for name in names):
            items = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
            for item in items:
                if asking := test_for_missing(where, where.statement(call), item):
                    found[asking] = where
    return [(where, asking) for asking, where in found.items()]


def asks_for(module: Module, test: ast.If, path: ast.expr | None) -> bool:
    """Whether a test asks whether there is a file: ``os.path.exists(path)``, ``path.exists()``."""
    return path is not None and any(
        same_code(asked, path)
        for call in everywhere(test.test, ast.Call)
        if module.last_name(call.func) in LOOKS
        for asked in (*call.args, getattr(call.func, "value", None))
    )


def parameters_handed_on(
    module: Module, later: list[ast.stmt], path: ast.expr | None
) -> list[ast.expr]:
    """Where a path that is a parameter itself goes to another call, which may read the file."""
    function = None if path is None else module.function(path)
    if function is None or not isinstance(path, ast.Name) or path.id not in parameters(function):
        return []
    return [
        value
        for call in within(later, ast.Call)
        if module.last_name(call.func) not in TELLING
        for value in argument_values(call)
        if isinstance(value, ast.Name) and value.id == path.id
    ]


def statements_behind(module: Module, stmt: ast.stmt) -> list[ast.stmt]:
    """What follows a statement in its block, and the blocks of ``with`` around it."""
    found: list[ast.stmt] = []
    for node in (stmt, *module.ancestors(stmt)):
        if node is not stmt and not isinstance(node, ast.With):
            break
        assert isinstance(node, ast.stmt)
        body = module.body(node)
        found += body[body.index(node) + 1 :]
    return found


def in_lock_step(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether all ranks pass ``stmt`` equally often, so that a barrier may follow it.

    They do in the training loop, which gives each equally many batches, and in a loop over what is
    the same on every rank.
    """
    training = [loop for train in program.train_loops for loop in (train.steps, train.epochs)]
    if asks_for_files(module, stmt) or runs_for_some_alone(program, module, stmt):
        return False
    if is_called_where_missing(program, module, stmt):
        return False
    function = module.function(stmt)
    if module is not program.script and function is not None and is_uncalled(program, function):
        return False
    return roles_reaching(program, module, stmt) >= RANKS and all(
        up in training or (isinstance(up, ast.For) and is_same_on_all_ranks(module, up.iter))
        for up in module.ancestors(stmt)
        if isinstance(up, ast.For | ast.While | ast.Try)
    )


def is_told_for_one(module: Module, test: ast.expr) -> bool:
    """``not self.distributed or rank == 0``, which rank 0 answers and no other rank as surely."""
    told = [value_for_role(module, test, role) is not UNKNOWN for role in (Role.MAIN, Role.OTHER)]
    return told[0] is not told[1]


def is_uncalled(program: Program, function: Function) -> bool:
    """Whether nobody is seen to call a function: it may be for rank 0."""
    return not program.callers(function) and not program.possible_callers(function)


def runs_for_some_alone(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether some ranks may come to ``stmt`` without the others, also by one of its calls.

    In a handler of exceptions, or by a call that a test leaves to some, such as a last evaluation
    on rank 0.
    """
    pending: list[tuple[Module, ast.AST]] = [(module, stmt)]
    seen: set[Function] = set()
    while pending:
        where, node = pending.pop()
        function = where.function(node)
        if any(isinstance(up, ast.ExceptHandler) for up in where.ancestors(node)):
            return True
        if len(roles_reaching(program, where, node) & RANKS) == 1:
            return True
        if any(is_told_for_one(where, test) for test in tests_before(where, node)):
            return True
        if function is not None and function not in seen:
            seen.add(function)
            pending += program.callers(function)
    return False


def runs_in_save_pretrained(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether save_pretrained() may run a place: DF601 leaves that to rank 0, where it would wait.

    Its name tells, as what it calls goes by methods of objects whose class is not known.
    """
    return module.function(node) in program.run_by_save_pretrained


def is_called_where_missing(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether a call that leads to a statement is made by the answer of a test for files.

    ``if not os.path.exists(path): fetch(path)``: a rank that comes later finds the file.
    """
    function = module.function(stmt)
    pending = [] if function is None else [*program.callers(function)]
    seen: set[Function | None] = {function}
    while pending:
        where, call = pending.pop()
        if asks_for_files(where, where.statement(call)):
            return True
        function = where.function(call)
        if function is not None and function not in seen:
            seen.add(function)
            pending += program.callers(function)
    return False


def asks_for_files(module: Module, stmt: ast.stmt) -> bool:
    """Whether a test asks for a file, which rank 0 may have made by then, and others do not come.

    A test around a statement, or one above it that returns or goes on with the next element.
    """
    above = [
        test
        for test in within(module.scope_statements(stmt), ast.If)
        if precedes(test, stmt)
        and not is_inside(stmt, test)
        and any(within(test.body, kind) for kind in (ast.Return, ast.Continue, ast.Break))
    ]
    around = [up for up in module.ancestors(stmt) if isinstance(up, ast.If | ast.While)]
    return any(depends_on_files(module, each.test) for each in (*above, *around))


def depends_on_files(module: Module, test: ast.expr) -> bool:
    """Whether a test asks which files there are, also by a name for what has been found."""
    names = [name for name in everywhere(test, ast.Name) if isinstance(name.ctx, ast.Load)]
    values = [test, *(value for name in names for value in module.alternatives(name, name))]
    return any(
        module.last_name(call.func) in LOOKS
        for value in values
        for call in everywhere(value, ast.Call)
    )


def is_same_on_all_ranks(module: Module, source: ast.expr) -> bool:
    """Whether a loop goes over lists of literals and options, which are the same on all ranks."""
    function = module.function(source)
    for name in within(source, ast.Name):
        parent = module.parents[name]
        if isinstance(parent, ast.Call) and parent.func is name:
            if name.id not in ("enumerate", "range", "zip", "len", "list", "sorted"):
                return False
            continue
        if not is_same_list_on_all_ranks(module, function, name.id):
            return False
    return True


def is_same_list_on_all_ranks(module: Module, function: Function | None, name: str) -> bool:
    """Whether all ranks assign lists to ``name``, and add literals and options only."""
    stores = module.stores.get((function, name), [])
    stmts = [module.parents[store] for store in stores]
    if not stmts or not all(
        isinstance(stmt, ast.Assign)
        and isinstance(stmt.value, ast.List)
        and roles_reaching_in_function(module, stmt) >= RANKS
        for stmt in stmts
    ):
        return False
    changes = [
        call
        for call in module.calls_to("append", "extend", "insert", "pop", "remove")
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == name
        and module.function(call) is function
    ]
    return all(roles_reaching_in_function(module, call) >= RANKS for call in changes) and all(
        is_option(arg) for call in changes for arg in call.args
    )


def is_option(node: ast.expr) -> bool:
    """``args.test_filename`` or a literal."""
    if isinstance(node, ast.Constant):
        return True
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr not in RANK_NAMES
    )


def path_names(module: Module, stmt: ast.stmt, path: ast.expr | None) -> set[str]:
    """Local variables of the function that a path is made of, and not objects that hold parts."""
    function = module.function(stmt)
    if function is None or path is None:
        return set()
    names = {
        node.id
        for node in everywhere(path, ast.Name)
        if not isinstance(module.parents[node], ast.Attribute)
        and not has_a_key(module.parents[node])
    }
    # Behind `path = open(path, "w")` the name is the file.
    names &= bound_names(function.body) - parameters(function) - bound_names([stmt])
    return {name for name in names if path_literals(path) == set() or not counts(function, name)}


def counts(function: Function, name: str) -> bool:
    """Whether a name is a number that a loop counts, such as that of an epoch in a file's name."""
    if any(bound_names(add.target) == {name} for add in within(function.body, ast.AugAssign)):
        return True
    return any(
        isinstance(loop.iter, ast.Call)
        and isinstance(loop.iter.func, ast.Name)
        and loop.iter.func.id in COUNTING
        and isinstance(loop.target, ast.Name)
        and loop.target.id == name
        for loop in within(function.body, ast.For)
    )


def has_a_key(node: ast.AST) -> bool:
    """``options["name"]``, as ``options.name`` is."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    )


def path_literals(path: ast.expr | None) -> set[object]:
    """Texts that a path is made of, without what joins them, and keys: ``options["name"]``.

    A letter alone tells no file from another: ``"_s"`` of ``name + "_s" + str(seed) + ".csv"``.
    """
    if path is None:
        return set()
    keys = {node.slice for node in everywhere(path, ast.Subscript)}
    return {
        node.value
        for node in everywhere(path, ast.Constant)
        if isinstance(node.value, str)
        and sum(map(str.isalnum, node.value)) > (node is not path)
        and node not in keys
    }
