"""Whether ranks may part on the way to an optimizer's step: by what each sees of its batch.

Followed are the batch of the loop, what is computed of it, also by functions that get it, and the
attributes of objects that these fill.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set

from ...source.module import Module
from ...source.tree import Function, bound_names, everywhere, mentions, parameters, within
from ..language.name_flow import flows, names_in, reached, spread, taking
from ..language.passed_arguments import argument_for_parameter, default_value
from ..models.trained_models import LOSS
from ..training.loaders import loader_of
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .batch_sizes import names_beside, sizes_in
from .batch_taint import TOGETHER, NotDealtError, apart, is_made_together
from .loss_names import contents
from .other_batches import made_of_batch

MAX_ROUNDS = 5  # in which attributes are followed from function to function

SAVES = {"save", "save_pretrained"}
COUNTED = ("range", "trange")
TAKES = ("next", "__next__")  # a batch of an iterator

Test = ast.If | ast.While
Code = tuple[Module, list[ast.stmt], frozenset[str]]  # a body, and its names that hang on the batch


def refuse_steps_apart(program: Program, loop: TrainLoop) -> None:
    """Raise NotDealtError where a test of the batch decides whether a rank takes a step."""
    module, body = loop.module, loop.steps.body
    of_batch = names_of_batch(loop)
    sizes, asked = sizes_in(loop, of_batch)
    names = made_of_batch(body, of_batch) - sizes
    for attempt in within(body, ast.Try):
        if any(apart(program, module, loop.steps, parts_of_try(attempt), leads_beyond_saves)):
            raise NotDealtError(f"line {attempt.lineno} may skip a step on one rank alone")
    tests = [test for test in tests_in(body) if names_beside(test.test, asked) & names]
    refuse_tests(program, module, loop.steps, tests)
    refuse_own_rounds(rounds_by_batches(program, loop))
    refuse_drawn_tests(module, body)
    for function, own in tainted_functions(program, loop, of_batch).items():
        where = program.module_of(function)
        if not any(leads_to_step(program, where, each) for each in within(function.body, ast.Call)):
            continue  # whichever way ranks take through it, they meet again behind it
        refuse_drawn_tests(where, function.body)
        for attempt in within(function.body, ast.Try):
            calls = within(parts_of_try(attempt), ast.Call)
            if any(leads_beyond_saves(program, where, call) for call in calls):
                raise NotDealtError(f"line {attempt.lineno} may skip a step on one rank alone")
        tests = [
            test
            for test in tests_in(function.body)
            if names_in(test.test) & own and not asks_whether_passed(function, test.test)
        ]
        refuse_tests(program, where, function, tests)
        passed = (own & parameters(function)) | attributes(own)
        refuse_own_rounds(own_rounds(program, where, function, function.body, passed))


def asks_whether_passed(function: Function, test: ast.expr) -> bool:
    """``loss is not None`` of ``def step(loss=None)``, which all ranks answer alike."""
    match test:
        case ast.Compare(
            left=ast.Name(id=name),
            ops=[ast.Is() | ast.IsNot()],
            comparators=[ast.Constant(value=None)],
        ):
            default = default_value(function, name)
            return isinstance(default, ast.Constant) and default.value is None
    return False


def parts_of_try(attempt: ast.Try) -> list[ast.stmt]:
    """All statements that a ``try`` may run."""
    handlers = [stmt for handler in attempt.handlers for stmt in handler.body]
    return [*attempt.body, *handlers, *attempt.orelse, *attempt.finalbody]


def tests_in(body: list[ast.stmt]) -> list[Test]:
    """The statements of a block that test."""
    return [*within(body, ast.If), *within(body, ast.While)]


def refuse_tests(program: Program, module: Module, around: ast.stmt, tests: list[Test]) -> None:
    """Raise where tests that hang on the batch lead to a step, or past it."""
    for test in tests:
        inside = [*test.body, *test.orelse]
        together = next(apart(program, module, around, inside, leads_to_step), None)
        if together is not None:
            raise NotDealtError(
                f"ranks would not all come to line {together.lineno}, which hangs on the"
                f" test in line {test.lineno}"
            )


def refuse_own_rounds(found: Iterable[tuple[ast.For, ast.stmt]]) -> None:
    """Raise where what is in a batch decides how often a step goes back."""
    for rounds, together in found:
        raise NotDealtError(
            f"ranks would come to line {together.lineno} as often as their own batches say in"
            f" line {rounds.lineno}"
        )


def rounds_by_batches(program: Program, loop: TrainLoop) -> Iterator[tuple[ast.For, ast.stmt]]:
    """Such rounds of a training loop, which may be one itself, below that over the loader."""
    module = loop.module
    for up in (loop.steps, *module.ancestors(loop.steps)):
        if isinstance(up, Function):
            return
        if isinstance(up, ast.For) and loader_of(program, module, up) is not None:
            names = names_of_batch(loop) if up is loop.steps else bound_names(up.target)
            if isinstance(up.target, ast.Tuple) and mentions(up.iter, "enumerate"):
                names = names - bound_names(up.target.elts[0])  # its number, as on all ranks
            yield from own_rounds(program, module, up, up.body, names)


def own_rounds(
    program: Program, module: Module, around: ast.stmt, body: list[ast.stmt], names: Set[str]
) -> Iterator[tuple[ast.For, ast.stmt]]:
    """``for _ in range(n): loss.backward()`` whose number is made of what is in a batch.

    Each with what all ranks have to run. The size of a batch decides nothing: all ranks' is one.
    """
    for rounds in within(body, ast.For):
        counted = rounds.iter
        if (
            isinstance(counted, ast.Call)
            and module.last_name(counted.func) in COUNTED
            and contents(counted) & made_by_values(body, names)
        ):
            together = next(apart(program, module, around, rounds.body, leads_to_step), None)
            if together is not None:
                yield rounds, together


def made_by_values(body: list[ast.stmt], names: Set[str]) -> set[str]:
    """The names, and all that hang on more of them than their shape, also by a test."""
    pairs = [(contents(value), taking(targets)) for targets, value in flows(body)]
    for test in within(body, ast.If):
        bound = [each for targets, _ in flows([*test.body, *test.orelse]) for each in targets]
        pairs.append((contents(test.test), taking(bound)))
    return reached(pairs, names)


def leads_beyond_saves(program: Program, module: Module, call: ast.Call) -> bool:
    """The same, where a file that one rank could not write keeps no other waiting."""
    return leads_to_step(program, module, call, TOGETHER - SAVES)


def leads_to_step(
    program: Program, module: Module, call: ast.Call, steps: Set[str] = TOGETHER
) -> bool:
    """Whether a call steps or goes back, or runs code of the program that may do so."""
    callees = [*program.callees(module, call), *program.possible_callees(module, call)]
    if not callees:
        name = module.last_name(call.func)
        is_other = name in TOGETHER - steps or LOSS.search(name) is not None
        return is_made_together(module, call) and not is_other
    below = {*callees}.union(*(program.functions_below(*callee) for callee in callees))
    return any(
        isinstance(inner.func, ast.Attribute) and inner.func.attr in steps
        for _, function in below
        for inner in within(function.body, ast.Call)
    )


def names_of_batch(loop: TrainLoop) -> set[str]:
    """The names of a step's batch; of batches that ranks take in turns, its number is one."""
    target = loop.steps.target if isinstance(loop.steps, ast.For) else None
    names = bound_names(target) if target else set()
    if loop.loader is None or not isinstance(loop.steps, ast.For):
        return names | {loop.step_name}
    around = {loop.module.last_name(call.func) for call in everywhere(loop.steps.iter, ast.Call)}
    numbers = {loop.step_name}
    if "enumerate" in around and isinstance(target, ast.Tuple):
        numbers |= bound_names(target.elts[0])
    elif "range" in around:
        numbers |= names
    taken = {
        name
        for assign in within(loop.steps.body, ast.Assign)
        if any(loop.module.last_name(each.func) in TAKES for each in everywhere(assign, ast.Call))
        for name in bound_names(assign)
    }
    return (names - numbers) | taken


def refuse_drawn_tests(module: Module, body: list[ast.stmt]) -> None:
    """Raise where a random number decides whether to step: ranks may draw other ones."""
    for test in within(body, ast.If):
        steps = any(
            isinstance(call.func, ast.Attribute) and call.func.attr in ("step", "backward")
            for stmt in test.body
            for call in within(stmt, ast.Call)
        )
        if steps and "rand" in module.text(test.test):
            raise NotDealtError(f"line {test.lineno} draws by chance whether to step")


def tainted_functions(
    program: Program, loop: TrainLoop, of_batch: set[str]
) -> dict[Function, frozenset[str]]:
    """The functions that a step runs, each with its names that hang on the batch."""
    known: dict[Function, frozenset[str]] = {}
    shared: set[str] = set()  # attributes, and functions whose result hangs on the batch
    for _ in range(MAX_ROUNDS):
        before = (dict(known), set(shared))
        names = made_of_batch(loop.steps.body, of_batch | shared)
        shared |= attributes(names)
        pending: list[Code] = [(loop.module, loop.steps.body, names)]
        seen: set[Function] = set()
        while pending:
            module, body, names = pending.pop()
            for call in within(body, ast.Call):
                for where, function in program.callees(module, call):
                    passed = passed_names(where, function, call, names)
                    own = known.get(function, frozenset()) | passed | shared
                    known[function] = spread(function.body, own).names
                    shared |= attributes(known[function])
                    if returns_one_of(function, known[function]):
                        shared |= {function.name, f"self.{function.name}"}
                    if function not in seen:
                        seen.add(function)
                        pending.append((where, function.body, known[function]))
        if before == (known, shared):
            break
    return known


def attributes(names: frozenset[str]) -> set[str]:
    """Those of the names that are attributes, which other methods read as well."""
    return {name for name in names if name.startswith("self.")}


def passed_names(
    module: Module, function: Function, call: ast.Call, names: frozenset[str]
) -> set[str]:
    """The parameters of a function that a call gives something of these names."""
    passed = (
        (name, argument_for_parameter(module, function, call, name))
        for name in parameters(function)
    )
    return {name for name, value in passed if value is not None and names_in(value) & names}


def returns_one_of(function: Function, names: frozenset[str]) -> bool:
    """Whether a function returns something of these names."""
    returned = [each.value for each in within(function.body, ast.Return) if each.value]
    return any(names_in(value) & names for value in returned)
