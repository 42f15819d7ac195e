"""Each backward of a scaled loop is scaled, and each loss is weighed once.

What              Where a GradScaler scales one backward of a loop, it scales all that the same
                  optimizer steps on; it steps the optimizer, unscales before clipping, and is
                  updated. A loss is divided by the number of accumulated micro-batches once, also
                  where a function that computes it has divided it already.
At run time       An unscaled gradient is some 65,536 times smaller than the others and is lost; a
                  clipped scaled one has the norm of noise; step() without update() raises. A loss
                  that is divided twice trains at a fraction of the learning rate.
How it is judged  Per training loop, for calls that one pass can come to together: branches of one
                  test exclude each other, and what stands under a test of the precision is left
                  out. Divisors are compared by what they stand for, not by their names.
When unknown      Never: where tests may exclude each other, nothing is said.
Source            https://docs.pytorch.org/docs/stable/notes/amp_examples.html
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..analysis.training.train_loops import CLIPPING, TrainLoop, loop_around
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import everywhere, is_inside, position, precedes, within
from .quantities import meaning
from .ranks import callees
from .verdict import AuditVerdict, violated

CODE = "O3"


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    for loop in program.train_loops:
        if not program.is_live(loop.module, loop.steps):
            continue
        yield from scaling(loop)
        yield from weighing(program, loop)


def scaling(loop: TrainLoop) -> Iterator[AuditVerdict]:
    """What a loop with a gradient scaler leaves out."""
    module = loop.module
    scaled = [call for call in loop.backwards if is_scaled(module, call)]
    if not scaled:
        return
    first = scaled[0]
    around: ast.AST = loop.epochs or loop.steps
    calls = everywhere(around, ast.Call)
    steps = [c for c in calls if method(c) == "step" and not c.keywords]
    by_scaler = [c for c in steps if c.args]
    direct = [c for c in steps if not c.args and is_optimizer(module, c)]
    for call in loop.backwards:
        if call not in scaled and not direct and meet(loop, first, call):
            yield violated(
                module, call, f"this backward is not scaled, and that of line {first.lineno} is"
            )
    for call in direct:
        if not by_scaler and meet(loop, first, call):
            yield violated(
                module, call, "the optimizer steps on scaled gradients; the scaler is to step it"
            )
    if by_scaler and not any(method(c) == "update" and is_scaler(module, c) for c in calls):
        yield violated(module, by_scaler[0], "the scaler is never updated: its next step raises")
    unscaled = [c for c in calls if method(c) == "unscale_"]
    for call in calls:
        if (
            module.last_name(call.func) in CLIPPING
            and meet(loop, first, call)
            and not any(precedes(each, call) and not exclusive(each, call) for each in unscaled)
            and not is_spent(loop, call, by_scaler)
        ):
            yield violated(module, call, "gradients are clipped while they are scaled")


def is_spent(loop: TrainLoop, clip: ast.Call, steps: list[ast.Call]) -> bool:
    """Whether the clipped gradients have been stepped on: the next batch begins without them."""
    return any(
        precedes(step, clip)
        and not any(precedes(step, b) and precedes(b, clip) for b in loop.backwards)
        for step in steps
        if is_inside(step, loop.steps) and tests_in(loop, step) <= tests_in(loop, clip)
    )


def method(call: ast.Call) -> str:
    """The name of the method that is called, or the empty string."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def is_scaled(module: Module, call: ast.Call) -> bool:
    """``scaler.scale(loss).backward()``."""
    inner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(inner, ast.Call) and method(inner) == "scale" and is_scaler(module, inner)


def is_scaler(module: Module, call: ast.Call) -> bool:
    """Whether a method is of a GradScaler that the module makes, or of what is called so."""
    return isinstance(call.func, ast.Attribute) and (
        "scaler" in module.text(call.func.value).lower()
    )


def is_optimizer(module: Module, call: ast.Call) -> bool:
    """Whether ``x.step()`` is of an optimizer, by its name."""
    assert isinstance(call.func, ast.Attribute)
    return "optim" in module.text(call.func.value).lower()


def meet(loop: TrainLoop, first: ast.Call, second: ast.Call) -> bool:
    """Whether one pass can come to both: no test tells them apart."""
    if exclusive(first, second):
        return False
    return tests_in(loop, second) <= tests_in(loop, first) | step_tests(loop)


def tests_in(loop: TrainLoop, node: ast.AST) -> set[ast.AST]:
    """The tests around a node inside of the loop."""
    return {
        up
        for up in loop.module.ancestors(node)
        if isinstance(up, ast.If | ast.IfExp | ast.Try) and is_inside(up, loop.steps)
    }


def step_tests(loop: TrainLoop) -> set[ast.AST]:
    """The test that waits for the last micro-batch of a step."""
    return set() if loop.step_test is None else {loop.step_test}


def weighing(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """A loss that is divided by the accumulation twice."""
    module = loop.module
    if loop.accumulation is None:
        return
    wanted = meaning(program, module, loop.accumulation)
    divisions = [
        node
        for node in within(loop.steps.body, ast.BinOp)
        if isinstance(node.op, ast.Div) and meaning(program, module, node.right) == wanted
    ]
    stmts = [
        stmt
        for stmt in within(loop.steps.body, ast.AugAssign)
        if isinstance(stmt.op, ast.Div) and meaning(program, module, stmt.value) == wanted
    ]
    places: list[tuple[str, ast.stmt | ast.BinOp]] = []
    for stmt in stmts:
        places.append((module.text(stmt.target), stmt))
    for node in divisions:
        around = module.statement(node)
        if loop_around(module, around) is loop.steps and is_weighing(loop, around, node):
            places.append((module.text(node.left), node))
    places.sort(key=lambda each: position(each[1]))
    for index, (name, second) in enumerate(places):
        for other, first in places[:index]:
            if (
                name == other
                and not exclusive(first, second)
                and not rebound(module, loop, name, first, second)
            ):
                text = module.text(loop.accumulation)
                because = f"`{name}` is divided by {text} already, in line {first.lineno}"
                yield violated(module, second, because)
        inner = divided_by_callee(program, loop, name, second, wanted)
        if inner:
            yield violated(
                module,
                second,
                f"`{name}` is divided by {module.text(loop.accumulation)} already, by {inner}()",
            )


def is_weighing(loop: TrainLoop, stmt: ast.stmt, node: ast.BinOp) -> bool:
    """Whether a division makes the loss smaller that is back-propagated, rather than a message."""
    module = loop.module
    left = module.text(node.left)
    if any(is_inside(node, call) for call in loop.backwards):
        return True
    return (
        isinstance(stmt, ast.Assign)
        and stmt.value is node
        and [module.text(target) for target in stmt.targets] == [left]
    )


def rebound(module: Module, loop: TrainLoop, name: str, first: ast.AST, second: ast.AST) -> bool:
    """Whether a name gets another value between two places."""
    return any(
        precedes(first, stmt) and precedes(stmt, second) and name in map(module.text, stmt.targets)
        for stmt in within(loop.steps.body, ast.Assign)
    )


def divided_by_callee(
    program: Program, loop: TrainLoop, name: str, at: ast.AST, wanted: str
) -> str:
    """The function of the program that returns a loss divided already; "" if none does."""
    module = loop.module
    values = [
        stmt.value
        for stmt in within(loop.steps.body, ast.Assign)
        if module.text(stmt.targets[0]) == name and precedes(stmt, at)
    ]
    if not values or not isinstance(values[-1], ast.Call):
        return ""
    for where, function in callees(program, module, values[-1]):
        results = [stmt.value for stmt in within(function.body, ast.Return) if stmt.value]
        if results and all(
            isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.Div)
            and meaning(program, where, value.right) == wanted
            for value in results
        ):
            return function.name
    return ""
