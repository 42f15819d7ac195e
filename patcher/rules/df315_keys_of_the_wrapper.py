"""A checkpoint has the wrapper's keys, and a bare model loads it.

What         On ranks, state_dict() of a model in DistributedDataParallel goes into a file that the
             script itself loads into another model, which has no wrapper. Or where an option has a
             lone process wrap its model, and the state of the module is saved by that option alone.
At run time  All keys in the file begin with "module.": RuntimeError, Missing key(s) in state_dict;
             with strict=False nothing is loaded, and nothing says so.
Example      torch.save(model.state_dict(), path); Net().load_state_dict(torch.load(path))
Fix          Save the state of the module inside.
Fix safety   Safe: a process without a group saves what it saved. Only where each load of that file
             in the script is into a bare model; O12 of the audit tells of other files.
Source       torch.nn.parallel.DistributedDataParallel (module)
"""

import ast
from collections.abc import Iterator

from ..analysis.effects.path_text import text_of_path
from ..analysis.effects.written_paths import names_rank
from ..analysis.models.saved_wrappers import SAVERS, is_wrap, is_wrapped
from ..analysis.ranks.rank_reach import Role, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import unwrapped_model
from ..source.module import Module
from ..source.tree import argument, everywhere, is_within, mentions, precedes, within

CODE, SEVERITY, SAFETY = "DF315", Severity.ERROR, Safety.SAFE

Place = tuple[str, str]  # a file's path as text, and the key in it; "" for all of it


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("DistributedDataParallel") or strips_keys(program):
        return
    loads: dict[Place, list[tuple[Module, ast.Call]]] = {}
    for module, call in program.calls_to("load_state_dict"):
        place = place_of_load(program, module, call)
        if place is not None:
            loads.setdefault(place, []).append((module, call))
    for module, call in program.calls_to("state_dict") if loads else ():
        place = place_of_save(program, module, call)
        readers = loads.get(place, []) if place is not None else []
        model = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not (readers and isinstance(model, ast.Name) and is_wrapped(program, module, model)):
            continue
        if all(is_bare(where, load, model.id) for where, load in readers):
            because = f"line {readers[0][1].lineno} loads it into a model without a wrapper"
            yield Finding(module, call, because, inside(program, model))
    asked = tests_of_lone_wraps(program)
    for module, call in program.calls_to("state_dict") if asked else ():
        model = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(model, ast.Name) or not is_wrapped(program, module, model):
            continue
        other = saved_inside(module, call, model.id, asked)
        if other is not None and is_saved_as_it_is(program, module, call):
            because = f"line {other.lineno} saves that of the module, where a lone process wraps it"
            yield Finding(module, call, because, inside(program, model))


def inside(program: Program, model: ast.Name) -> tuple[Edit, ...]:
    """Edits by which ranks take the state of the module inside."""
    bare = unwrapped_model(model.id)
    if program.calls_to("DataParallel"):
        bare = f"({bare} if torch.distributed.is_initialized() else {model.id})"
    return (Rewrite(model, bare), *((Import("torch"),) if "torch." in bare else ()))


def tests_of_lone_wraps(program: Program) -> set[str]:
    """The tests under which a lone process wraps its model in DataParallel, as they are written."""
    return {
        module.text(part)
        for module, wrap in program.calls_to("DataParallel")
        for up in module.ancestors(wrap)
        if isinstance(up, ast.If)
        for part in (up.test, *(up.test.values if isinstance(up.test, ast.BoolOp) else ()))
        if not mentions(part, "is_initialized")
    }


def saved_inside(module: Module, state: ast.Call, model: str, asked: set[str]) -> ast.Call | None:
    """``model.module.state_dict()`` in the branch of a lone wrapper, of which ``state`` is else."""
    tests = [up for up in module.ancestors(state) if isinstance(up, ast.If)]
    for test in tests:
        if module.text(test.test) in asked and is_within(state, test.orelse):
            for call in within(test.body, ast.Call):
                if module.text(call.func) == f"{model}.module.state_dict":
                    return call
    return None


def is_saved_as_it_is(program: Program, module: Module, state: ast.Call) -> bool:
    """Whether a state goes into a file, and rank 0 comes to it."""
    calls = (up for up in module.ancestors(state) if isinstance(up, ast.Call))
    saves = any(module.last_name(up.func) in SAVERS for up in calls)
    return saves and Role.MAIN in roles_reaching(program, module, state)


def strips_keys(program: Program) -> bool:
    """Whether the program deals with ``module.`` in keys itself."""
    return any(
        isinstance(node.value, str) and node.value.startswith("module.")
        for module in program.modules
        for node in module.nodes(ast.Constant)
    )


def place_of_save(program: Program, module: Module, state: ast.Call) -> Place | None:
    """The file that a state goes into, and its key there."""
    up, key = module.parents[state], ""
    if isinstance(up, ast.Dict):
        keys = dict(zip(up.values, up.keys, strict=True))
        name = keys.get(state)
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            return None
        key, up = name.value, module.parents[up]
    if not isinstance(up, ast.Call) or module.last_name(up.func) not in SAVERS:
        return None
    return place_of(program, module, argument(up, 1, "f", "path"), key)


def place_of_load(program: Program, module: Module, call: ast.Call) -> Place | None:
    """The file that ``load_state_dict`` reads, through names, and the key of the state in it."""
    read: ast.expr | None = argument(call, 0, "state_dict")
    key = ""
    for _ in range(4):
        if isinstance(read, ast.Name):
            values = module.alternatives(read, read)
            read = values[0] if len(values) == 1 else None
        elif isinstance(read, ast.Subscript) and not key:
            name = read.slice
            if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
                return None
            key, read = name.value, read.value
    if not isinstance(read, ast.Call) or module.dotted(read.func) != "torch.load":
        return None
    return place_of(program, module, argument(read, 0, "f"), key)


def place_of(program: Program, module: Module, path: ast.expr | None, key: str) -> Place | None:
    """A file that is the same on all ranks and for the whole run, by its path alone."""
    if path is None or names_rank(program, module, path):
        return None
    if isinstance(path, ast.Name):
        path = module.single_assignment(module.function(path), path.id) or path
    text = text_of_path(program, module, path)
    return None if "{" in text else (text, key)


def is_bare(module: Module, load: ast.Call, saved: str) -> bool:
    """Whether a state is loaded into a model that is certainly without a wrapper.

    Not into one that is called as the one that is saved: it may be that one, of which DF305 tells.
    """
    model = load.func.value if isinstance(load.func, ast.Attribute) else None
    if not isinstance(model, ast.Name) or model.id == saved:
        return False
    function = module.function(load)
    stores = module.stores.get((function, model.id), [])
    above = [each for each in stores if precedes(each, load)]
    made = [module.parents[each] for each in above]
    in_loop = any(isinstance(up, ast.For | ast.While) for up in module.ancestors(load))
    return (
        bool(made)
        and (not in_loop or len(above) == len(stores))
        and all(
            isinstance(stmt, ast.Assign)
            and not is_wrap(module, stmt.value)
            and not any(
                module.last_name(call.func) == "DataParallel"
                for call in everywhere(stmt.value, ast.Call)
            )
            for stmt in made
        )
    )
