"""A training loop trips over its own lines.

What         name.close() where nothing ever binds the name; a loss read with item() before mean()
             has combined what several cards returned; an evaluation in the loop, after which
             nothing puts the model back into training mode.
At run time  NameError when the step limit is reached; RuntimeError on several cards; what follows
             the first evaluation trains without dropout, which a note says: alone it does so too.
Example      train_iterator.close()
Fix          Remove the line: leaving the loop is all that it was for. mean() before item().
             model.train() behind the evaluation.
Fix safety   Safe: the line could only raise before, and the mean of one number is that number.
             Unsafe for model.train(): with dropout, one process trains differently than before.
Source       the language reference, naming and binding; torch.Tensor.item; torch.nn.Module.train
"""

import ast
import builtins
from collections.abc import Iterator

from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Insert, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.tree import bound_names, filter_within, parameters, precedes, within

CODE, SEVERITY, SAFETY = "DF706", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    for loop in program.train_loops:
        yield from stray_close(loop)
        yield from item_before_mean(loop)
        yield from left_in_eval(program, loop)


def stray_close(loop: TrainLoop) -> Iterator[Finding]:
    """``train_iterator.close()``, copied from another script."""
    module = loop.module
    for call in filter_within(loop.scope, module.calls_to("close")):
        stmt, name = module.parents[call], receiver_name(call)
        if isinstance(stmt, ast.Expr) and name and name not in known_names(loop):
            yield Finding(module, stmt, f"nothing binds {name}", (Replace(stmt, ""),))


def known_names(loop: TrainLoop) -> set[str]:
    """Names that are bound in the scope of the loop."""
    module = loop.module
    function = module.function(loop.steps)
    arguments = set() if function is None else parameters(function)
    return module.module_names | bound_names(loop.scope) | arguments | set(dir(builtins))


def receiver_name(call: ast.Call) -> str:
    """The plain name whose method is called; the empty string for anything else."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner.id if isinstance(owner, ast.Name) else ""


def item_before_mean(loop: TrainLoop) -> Iterator[Finding]:
    """``loss.item()`` above ``loss = loss.mean()``."""
    module = loop.module
    means: dict[str, ast.stmt] = {}
    for call in filter_within(loop.steps.body, module.calls_to("mean")):
        stmt = module.parents[call]
        if isinstance(stmt, ast.Assign):
            name = module.text(stmt.targets[0])
            if module.text(call) == f"{name}.mean()":
                means.setdefault(name, stmt)
    for call in filter_within(loop.steps.body, module.calls_to("item")):
        if not isinstance(call.func, ast.Attribute):
            continue
        name = module.text(call.func.value)
        if name not in means:
            continue
        bound = [s for s in within(loop.steps.body, ast.Assign) if name in bound_names(s)]
        if any(precedes(stmt, call) for stmt in bound) and precedes(call, means[name]):
            because = f"{name} has a number per card until line {means[name].lineno}"
            yield Finding(module, call, because, (Rewrite(call, f"{name}.mean().item()"),))


def left_in_eval(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """Evaluations in the loop, or between its epochs, after which the model stays in eval mode."""
    module = loop.module
    # A function that goes over two sets, queries and code, is two evaluations.
    for stmt, model in dict.fromkeys(evaluations_in_loop(program, loop)):
        if is_called(loop, model) and not returns_to_training(loop, stmt, model):
            yield Finding(
                module,
                stmt,
                f"{model} is in eval mode from here on",
                (Insert(stmt, f"{model}.train()", "after"),),
                Safety.UNSAFE,
                Severity.NOTE,
            )


def is_called(loop: TrainLoop, model: str) -> bool:
    """``model(batch)``, somewhere in the loop."""
    calls = within(loop.steps.body, ast.Call)
    return any(isinstance(call.func, ast.Name) and call.func.id == model for call in calls)


def evaluations_in_loop(program: Program, loop: TrainLoop) -> Iterator[tuple[ast.stmt, str]]:
    """Statements of the loop that evaluate, and the model that they leave in eval mode."""
    module = loop.module
    outer = loop.epochs or loop.steps
    for evaluation in program.evaluations:
        function = evaluation.function
        if function is None:
            if evaluation.module is module and outer in module.ancestors(evaluation.loop):
                yield evaluation.loop, evaluation.model
            continue
        train = filter_within(function.body, evaluation.module.calls_to("train"))
        if any(isinstance(call.func, ast.Attribute) for call in train):
            continue  # the function calls model.train() itself
        for caller, call in program.callers(function):
            if caller is not module or outer not in module.ancestors(call):
                continue
            value = argument_for_parameter(module, function, call, evaluation.model)
            stmt = module.statement(call)
            if any(isinstance(item, ast.Return) for item in module.body(stmt)):
                continue
            if isinstance(value, ast.Name) and isinstance(stmt, ast.Assign | ast.Expr):
                yield stmt, value.id


def returns_to_training(loop: TrainLoop, stmt: ast.stmt, model: str) -> bool:
    """Whether ``model.train()`` is reached between the evaluation and the next forward."""
    module = loop.module
    train_calls = [
        module.statement(call)
        for call in filter_within(loop.epochs or loop.steps, module.calls_to("train"))
        if module.text(call.func) == f"{model}.train"
    ]
    bodies = [loop.steps.body]
    if loop.epochs is not None and loop.steps not in module.ancestors(stmt):
        bodies.append(loop.epochs.body)
    if any(train in body for train in train_calls for body in bodies):
        return True
    child: ast.AST = stmt
    for up in module.ancestors(stmt):
        if isinstance(child, ast.stmt):
            body = module.body(child)
            if any(train in body[body.index(child) :] for train in train_calls):
                return True
        if up in (loop.steps, loop.epochs):
            return False
        child = up
    return False
