"""A binary loss is given a column of scores and a row of labels.

What         Scores come from a layer with one output and have the shape (examples, 1); the labels
             are a row of shape (examples).
At run time  ValueError in the first step: early torch 1 took as many labels in another shape, with
             a warning; torch of today refuses them.
Example      self.mlp = nn.Sequential(nn.Linear(768, 1), nn.Sigmoid())
             logits = self.mlp(vectors)
             loss = nn.BCELoss()(logits, labels.float())
Fix          labels.float().view_as(logits), which is what torch 1 made of them.
Fix safety   Safe: labels that are a column stay one.
Source       torch.nn.BCELoss; torch.nn.functional.binary_cross_entropy
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import argument, parameters

CODE, SEVERITY, SAFETY = "DF906", Severity.DEGRADED, Safety.SAFE

LOSS_CLASS, LOSS_FUNCTION = "BCELoss", "binary_cross_entropy"
SHAPE_KEEPING_LAYERS = {"Dropout", "Identity", "LeakyReLU", "LogSigmoid", "ReLU", "Sigmoid", "Tanh"}
CAST_METHODS = {"cuda", "double", "float", "half", "to", "type", "type_as"}


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        for call in (*loss_calls(module), *module.calls_to(LOSS_FUNCTION)):
            scores, labels = argument(call, 0, "input"), argument(call, 1, "target")
            if scores is None or labels is None:
                continue
            if is_column(module, scores, call) and is_parameter(module, labels):
                shaped = f"{module.text(labels)}.view_as({module.text(scores)})"
                because = f"{module.text(scores)} is a column, {module.text(labels)} may be a row"
                yield Finding(module, call, because, (Rewrite(labels, shaped),))


def loss_calls(module: Module) -> Iterator[ast.Call]:
    """Calls of a loss object, whether created on the spot, a name or an attribute."""
    constructions = {id(call) for call in module.calls_to(LOSS_CLASS)}
    if not constructions:
        return
    for call in module.nodes(ast.Call):
        values = values_of(module, call.func, call)
        if values and all(id(value) in constructions for value in values):
            yield call


def values_of(module: Module, func: ast.expr, at: ast.AST) -> list[ast.expr]:
    """The values that ``func`` may have at a place."""
    if isinstance(func, ast.Attribute):
        return module.attribute_values.get(func.attr, [])
    return module.alternatives(func, at) if isinstance(func, ast.Name) else [func]


def is_column(module: Module, scores: ast.expr, at: ast.AST) -> bool:
    """Whether ``scores`` come straight from a layer with one output."""
    values = module.alternatives(scores, at) if isinstance(scores, ast.Name) else [scores]
    return bool(values) and all(
        isinstance(value, ast.Call)
        and bool(layers := values_of(module, value.func, value))
        and all(has_one_output(module, layer) for layer in layers)
        for value in values
    )


def has_one_output(module: Module, layer: ast.expr) -> bool:
    """``nn.Linear(…, 1)``, or a sequence in which only layers that keep the shape follow it."""
    if not isinstance(layer, ast.Call):
        return False
    name = module.last_name(layer.func)
    if name == "Sequential":
        rest = [part for part in layer.args if not keeps_shape(module, part)]
        return bool(rest) and has_one_output(module, rest[-1])
    size = argument(layer, 1, "out_features")
    return name == "Linear" and isinstance(size, ast.Constant) and size.value == 1


def keeps_shape(module: Module, part: ast.expr) -> bool:
    """Whether the output of a layer has the shape of its input."""
    return isinstance(part, ast.Call) and module.last_name(part.func) in SHAPE_KEEPING_LAYERS


def is_parameter(module: Module, labels: ast.expr) -> bool:
    """Whether the labels are a parameter of the function, possibly cast."""
    while (
        isinstance(labels, ast.Call)
        and isinstance(labels.func, ast.Attribute)
        and labels.func.attr in CAST_METHODS
    ):
        labels = labels.func.value
    function = module.function(labels)
    return (
        isinstance(labels, ast.Name)
        and function is not None
        and labels.id in parameters(function)
        and (function, labels.id) not in module.stores
    )
