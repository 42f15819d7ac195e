"""What training steps keep of their batches, outside of the model, and go on with."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import (
    Function,
    argument_values,
    bound_names,
    everywhere,
    first_parameter,
    is_inside,
    mentions,
    parameters,
    position,
    precedes,
    within,
)
from ..language.name_flow import Tainted, flows, names_in, reached, roots, taking
from ..language.objects import class_of, method_of
from ..language.results import handed_back
from ..training.loaders import AROUND
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .carried_state import carried_names
from .loss_names import contents, is_text, made_from, names_of_losses
from .steps_apart import leads_to_step

FILLING = {
    *("update", "enqueue", "push", "append", "add", "insert", "put", "store", "write", "fill"),
    *("extend", "dequeue"),
}
WORD = re.compile("[A-Z]?[a-z]+")  # of a method's name
MAX_METHODS = 3  # of one object, that call each other
BAR = re.compile("progress|bar$|^log|logger", re.IGNORECASE)  # what shows how far the steps are
JOINING = re.compile("gather|all_?reduce|broadcast|_share", re.IGNORECASE)

Kept = tuple[ast.stmt, str]


def kept_of_batches(program: Program, loop: TrainLoop) -> Iterator[Kept]:
    """Statements of steps that put something of their batch where later steps take it from.

    Each name once: of a tensor, a list or an object that is made before the steps, and that a loss
    is made of, or the batches of the next epoch. Not what is only added up for a log.
    """
    module, body = loop.module, loop.steps.body
    if any(joins_batches(module, call) for call in within(body, ast.Call)):
        return
    batch = names_of_batch(loop)
    known = made_of(body, batch)
    around = loop.epochs.body if loop.epochs is not None else body
    others = bound_behind(loop)
    needed = names_of_losses(loop, around, others)
    if isinstance(loop.steps, ast.For):
        needed = made_from(around, needed | names_in(loop.steps.iter), others)
        needed -= names_that_go_along(loop.steps.iter) | bars(module, loop.steps.iter)
    needed -= read_behind(loop, needed)
    batch |= own_names(body)
    found: set[str] = set()
    if read := with_gradients(body) & needed:  # what an attack adds up
        known = made_of(body, known | read)
    kept = [*filled(program, module, body, known), *bound_again(module, body, known)]
    for stmt, name in sorted(kept, key=lambda each: each[0].lineno):
        if name in needed - batch - found:
            found.add(name)
            yield stmt, name
    yield from kept_behind(loop, batch)


def kept_behind(loop: TrainLoop, batch: set[str]) -> Iterator[Kept]:
    """What a function leaves behind its steps in global names, for the losses of its next call."""
    function = loop.module.function(loop.steps)
    if function is None or not within(function.body, ast.Global):
        return
    shared = {name for each in within(function.body, ast.Global) for name in each.names}
    needed = made_from(function.body, names_of_losses(loop)) & shared
    known = made_of(function.body, batch) if needed else set()
    for stmt, targets, value in assignments(function.body):
        is_behind = position(stmt) > position(loop.steps) and not is_inside(stmt, loop.steps)
        names = taking(targets) & needed if is_behind else set[str]()
        if names and contents(value) & known:
            yield stmt, min(names)


def joins_batches(module: Module, call: ast.Call) -> bool:
    """Whether a call may bring together what ranks have of their batches, as its name says.

    Not a helper of a patched script: the share of a loss, and what an evaluation gathers.
    """
    name = module.last_name(call.func)
    is_of_patch = name == "loss_share" or (name == "gathered" and is_of_evaluation(module, call))
    return JOINING.search(name) is not None and not is_of_patch


def is_of_evaluation(module: Module, call: ast.Call) -> bool:
    """``x = gathered(x)`` right behind a loop, as a patch inserts it for an evaluation."""
    stmt = module.statement(call)
    above = module.parents[stmt]
    if isinstance(above, ast.If) and mentions(above.test, "is_initialized"):
        stmt = above
    block = module.body(stmt)
    before = block[: block.index(stmt)]
    while before and mentions(before[-1], "gathered") and not isinstance(before[-1], ast.For):
        before.pop()
    return bool(before) and isinstance(before[-1], ast.For)


def with_gradients(body: list[ast.stmt]) -> set[str]:
    """Names that a step binds and whose gradient it reads, ``noise.grad``: of its own batch."""
    read = {
        name
        for each in within(body, ast.Attribute)
        if each.attr == "grad" and isinstance(each.value, ast.Name)
        for name in (each.value.id,)
    }
    return read & made_anew(body)


def bound_behind(loop: TrainLoop) -> set[ast.expr]:
    """Values that an epoch gives to names of its steps outside of these, which bind them anew.

    ``loss = total / steps`` behind the steps is of no loss that a step goes back from, nor is it
    behind the backward pass where the next step binds it first.
    """
    body = loop.steps.body
    anew = made_anew(body)
    back = [call for call in loop.backwards if is_inside(call, loop.steps)]
    last = max(map(position, back), default=(0, 0))
    first = {name for stmt in body if position(stmt) < last for name in made_anew([stmt])}
    behind = {
        stmt.value
        for stmt in within(body, ast.Assign)
        if back and position(stmt) > last and taking(stmt.targets) <= first
    }
    return behind | {
        stmt.value
        for stmt in within([] if loop.epochs is None else loop.epochs.body, ast.Assign)
        if taking(stmt.targets) <= anew and not is_inside(stmt, loop.steps)
    }


def names_of_batch(loop: TrainLoop) -> set[str]:
    """The names of a step's own batch, also of one that it draws by ``next()``."""
    steps = loop.steps
    names = bound_names(steps.target) if isinstance(steps, ast.For) else set[str]()
    for stmt in within(steps.body, ast.Assign):
        calls = everywhere(stmt.value, ast.Call)
        if any(isinstance(call.func, ast.Name) and call.func.id == "next" for call in calls):
            names |= taking(stmt.targets)
    numbers = {loop.step_name}
    match steps:
        case ast.For(target=ast.Tuple(elts=[number, *_])) if mentions(steps.iter, "enumerate"):
            numbers |= taking([number])
    return names - numbers


def read_behind(loop: TrainLoop, names: set[str]) -> set[str]:
    """Those of some names that a step reads behind its last backward pass alone: for a log."""
    back = [call for call in loop.backwards if is_inside(call, loop.steps)]
    if not back:
        return set()
    last = max(map(position, back))
    body = loop.steps.body
    read = [
        each
        for each in within(body, ast.Name)
        if each.id in names and isinstance(each.ctx, ast.Load)
    ]
    behind = {each.id for each in read if position(each) > last}
    before = {each.id for each in read if position(each) < last}
    around = [] if loop.epochs is None else within(loop.epochs.body, ast.Name)
    elsewhere = {
        each.id
        for each in around
        if isinstance(each.ctx, ast.Load) and not any(is_inside(each, stmt) for stmt in body)
    }
    return behind - before - elsewhere


def names_that_go_along(iterated: ast.expr) -> set[str]:
    """A log that goes along with the batches, ``log.every(loader)``, and gives them as they are."""
    calls = everywhere(iterated, ast.Call)
    owners = [call.func.value for call in calls if isinstance(call.func, ast.Attribute)]
    return set().union(*map(names_in, owners))


def bars(module: Module, iterated: ast.expr) -> set[str]:
    """The names of progress bars in what a loop goes over, ``bar = tqdm(enumerate(loader))``."""
    names = everywhere(iterated, ast.Name)
    values = [(name.id, module.definition(name, name)) for name in names]
    return {
        name
        for name, value in values
        if isinstance(value, ast.Call)
        and (module.last_name(value.func) in AROUND or BAR.search(module.last_name(value.func)))
    }


def own_names(body: list[ast.stmt]) -> set[str]:
    """The names that inner loops, comprehensions and ``with`` bind anew, which keep nothing."""
    targets = [each.target for each in within(body, ast.For)]
    targets += [each.target for each in within(body, ast.comprehension)]
    targets += [
        item.optional_vars
        for each in within(body, ast.With)
        for item in each.items
        if item.optional_vars is not None
    ]
    return taking(targets)


def made_of(body: list[ast.stmt], names: set[str]) -> set[str]:
    """The names, and those that a block binds to something of them."""
    pairs = ((contents(value), taking(targets)) for targets, value in flows(body))
    return reached(pairs, names)


def filled(
    program: Program, module: Module, body: list[ast.stmt], known: set[str]
) -> Iterator[Kept]:
    """``bank[index] = features`` and ``memory.update(features)``, each with its name.

    Also ``criterion(features, index)`` of a class that does the former in its ``forward()``.
    """
    anew = made_anew(body)
    for stmt, targets, value in assignments(body):
        for target in targets:
            if isinstance(target, ast.Subscript) and contents(value) & known:
                yield from ((stmt, name) for name in roots(target) - anew)
    for call in within(body, ast.Call):
        func = call.func
        if isinstance(func, ast.Name) and func.id not in anew and keeps_rows(program, module, func):
            yield module.statement(call), func.id
        if isinstance(func, ast.Attribute) and may_fill(program, func.attr):
            if gives_another(program, module, call) or is_log(call):
                continue
            if leads_to_step(program, module, call):
                continue  # model.update(batch) is the step itself
            if func.attr == "write" and all(is_written(module, each) for each in call.args):
                continue  # of a file in a dictionary: config["log"].write(line)
            given = set().union(*map(contents, argument_values(call)))
            if given & known:
                kept = names_in(func.value) - anew - module.aliases.keys()
                yield from ((module.statement(call), name) for name in kept)


def keeps_rows(program: Program, module: Module, called: ast.Name) -> bool:
    """Whether an object puts something of its batch into a tensor of its own, and goes on with it.

    ``self.codes[index] = codes.data`` in its ``forward()``; not into a buffer, which ranks share.
    """
    owner = class_of(program, module, called)
    method = None if owner is None else method_of(program, owner, "forward")
    if method is None:
        return False
    where, function = method
    own, body = first_parameter(function), function.body
    if any(joins_batches(where, call) for call in within(body, ast.Call)):
        return False
    known = made_of(body, set(parameters(function)) - {own})
    buffers = {
        call.args[0].value
        for call in where.calls_to("register_buffer")
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    return any(
        target.value.attr not in buffers
        and contents(value) & known
        and any(
            read.attr == target.value.attr and read is not target.value
            for read in within(body, ast.Attribute)
        )
        for _, targets, value in assignments(body)
        for target in targets
        if isinstance(target, ast.Subscript)
        and isinstance(target.value, ast.Attribute)
        and owner_of(target) == own
    )


def is_log(call: ast.Call) -> bool:
    """``log.update(head="loss", total=loss)``: numbers under a heading are for who reads them."""
    return any(
        word.arg in ("head", "tag", "prefix") and isinstance(word.value, ast.Constant)
        for word in call.keywords
    )


def gives_another(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a library's method adds to what it gets, and returns it: ``x = s.add_noise(x)``."""
    words = {word.lower() for word in WORD.findall(module.last_name(call.func))}
    return (
        words & FILLING == {"add"}
        and not isinstance(module.parents[call], ast.Expr)
        and module.last_name(call.func) not in program.functions_by_name
    )


def is_written(module: Module, value: ast.expr) -> bool:
    """Whether what is written is a text, put together here or above."""
    made = module.definition(value, value) if isinstance(value, ast.Name) else value
    match made:
        case ast.BinOp(left=ast.Name() as left, right=right):
            return is_text(right) or is_written(module, left)
        case None:
            return False
    return is_text(made)


def may_fill(program: Program, name: str, depth: int = 0) -> bool:
    """Whether a method may put something into its object: by its name, and by what it does.

    One of the program's own that leaves its object as it is puts nothing in: ``data.add_noise(x)``.
    """
    if FILLING.isdisjoint(word.lower() for word in WORD.findall(name)):
        return False
    return depth >= MAX_METHODS or all(
        changes_its_object(program, where, function, depth)
        for where, function in program.functions_by_name.get(name, ())
    )


def changes_its_object(program: Program, module: Module, function: Function, depth: int) -> bool:
    """Whether a method assigns to an attribute of its object, or may fill one."""
    own = first_parameter(function)
    targets = [target for _, each, _ in assignments(function.body) for target in each]
    if any(owner_of(target) == own for target in targets):
        return True
    for call in within(function.body, ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or owner_of(func) != own:
            continue
        if module.text(func.value) == own:
            if may_fill(program, func.attr, depth + 1):
                return True
        elif func.attr.endswith("_") or FILLING & set(WORD.findall(func.attr)):
            return True
    return False


def owner_of(node: ast.expr) -> str:
    """``self`` of ``self.rows[0]``."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def bound_again(module: Module, body: list[ast.stmt], known: set[str]) -> Iterator[Kept]:
    """``threshold = 0.9 * threshold + 0.1 * mean``, and what a test of a batch changes."""
    carried = {name for name, _ in carried_names(body, Tainted(frozenset(known)))}
    carried |= carried_attributes(body)
    for stmt, targets, value in assignments(body):
        if contents(value) & known:
            same = handed_back_by(module, value)  # model, loss = step(model, batch)
            yield from ((stmt, name) for name in (taking(targets) & carried) - same)
    anew = made_anew(body)
    for test in within(body, ast.If):
        if contents(test.test) & known:
            for add in within(test.body, ast.AugAssign):
                yield from ((add, name) for name in roots(add.target) - anew)
            yield from ((stmt, name) for stmt, name in switched(body, test))


def carried_attributes(body: list[ast.stmt]) -> set[str]:
    """Attributes of ``self`` that a step reads before it assigns to them, ``self.weight``."""
    first: dict[str, ast.Assign] = {}
    for stmt in within(body, ast.Assign):
        for name in taking(stmt.targets):
            if name.startswith("self.") and name not in first:
                first[name] = stmt
    read = [each for each in within(body, ast.Attribute) if isinstance(each.ctx, ast.Load)]
    return {
        name
        for each in read if first
        for name in names_in(each) & first.keys()
        if precedes(each, first[name]) or is_inside(each, first[name].value)
    }  # fmt: skip


def switched(body: list[ast.stmt], test: ast.If) -> Iterator[Kept]:
    """What a test of a batch gives another value for good: ``if accuracy > 0.9: weight = 1.0``.

    Of names that a step binds nowhere else, nor there to anything but numbers and what they were.
    """
    inside = within([*test.body, *test.orelse], ast.Assign)
    anew = {
        name
        for stmt in inside
        for name in taking(stmt.targets)
        if not contents(stmt.value) <= {name, "min", "max"}
    }
    times = Counter(name for each in inside for name in taking(each.targets))
    in_all = Counter(name for each in within(body, ast.Assign) for name in taking(each.targets))
    for stmt in inside:
        for name in taking(stmt.targets) - anew:
            is_left = name in contents(stmt.value) or times[name] == 1
            if is_left and in_all[name] == times[name]:
                yield stmt, name


def handed_back_by(module: Module, value: ast.expr) -> set[str]:
    """The names that a call takes and gives back as they are."""
    if not isinstance(value, ast.Call) or module.graph is None:
        return set()
    given = {each.id for each in argument_values(value) if isinstance(each, ast.Name)}
    return handed_back(module.graph, module, value) & given


def assignments(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, list[ast.expr], ast.expr]]:
    """The statements of a block that assign or add, with their targets and values."""
    for stmt in within(body, ast.Assign):
        yield stmt, stmt.targets, stmt.value
    for add in within(body, ast.AugAssign):
        yield add, [add.target], add.value


def made_anew(body: list[ast.stmt]) -> set[str]:
    """The plain names that a block assigns to; in a tuple, those that its value is not made of."""
    names: set[str] = set()
    for stmt in within(body, ast.Assign):
        for target in stmt.targets:
            if isinstance(target, ast.Name):
                names.add(target.id)
            elif isinstance(target, ast.Tuple):
                parts = {part.id for part in target.elts if isinstance(part, ast.Name)}
                names |= parts - names_in(stmt.value)
    return names
