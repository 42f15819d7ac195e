"""Whether ranks may part on the way to an optimizer's step: by what each sees of its batch.

Followed are the batch of the loop, what is computed of it, also by functions that get it, and the
attributes of objects that these fill.
"""

from __future__ import annotations

import ast

from ..source.module import Module
from ..source.tree import Function, bound_names, parameters, within
from .batch_taint import NotDealtError, apart, refuse_turns_that_part
from .name_flow import names_in, spread
from .passed_arguments import argument_for_parameter
from .program import Program
from .train_loops import TrainLoop

MAX_ROUNDS = 5  # in which attributes are followed from function to function

Code = tuple[Module, list[ast.stmt], frozenset[str]]  # a body, and its names that hang on the batch


def refuse_steps_apart(program: Program, loop: TrainLoop) -> None:
    """Raise NotDealtError where a test of the batch decides whether a rank takes a step."""
    target = loop.steps.target if isinstance(loop.steps, ast.For) else None
    of_batch = (bound_names(target) if target else set()) - {loop.step_name}
    taint = spread(loop.module, loop.steps.body, of_batch)
    refuse_turns_that_part(program, loop, taint)
    refuse_drawn_tests(loop.module, loop.steps.body)
    for function, names in tainted_functions(program, loop, of_batch).items():
        module = program.module_of(function)
        refuse_drawn_tests(module, function.body)
        tests: list[ast.If | ast.While] = [*within(function.body, ast.If)]
        for test in (*tests, *within(function.body, ast.While)):
            inside = [*test.body, *test.orelse]
            together = next(apart(program, module, function, inside), None)
            if names & names_in(test.test) and together is not None:
                raise NotDealtError(
                    f"ranks would not all come to line {together.lineno}, which hangs on the"
                    f" test in line {test.lineno}"
                )


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
        names = spread(loop.module, loop.steps.body, of_batch | shared).names
        shared |= attributes(names)
        pending: list[Code] = [(loop.module, loop.steps.body, names)]
        seen: set[Function] = set()
        while pending:
            module, body, names = pending.pop()
            for call in within(body, ast.Call):
                for where, function in program.callees(module, call):
                    passed = passed_names(where, function, call, names)
                    own = known.get(function, frozenset()) | passed | shared
                    known[function] = spread(where, function.body, own).names
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
