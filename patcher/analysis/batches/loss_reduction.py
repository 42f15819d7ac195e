"""Whether a loss is a sum over the examples of a batch or a mean of them, as far as its text tells.

Averaging gradients over ranks is right for means. A sum comes out smaller by the number of ranks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum
from functools import reduce

from ...source.module import Module
from ...source.tree import (
    argument,
    argument_values,
    everywhere,
    keyword,
    parameters,
    precedes,
    within,
)
from ..language.listed import elements_of
from ..language.literal_arguments import is_possible
from ..language.passed_arguments import argument_for_parameter
from ..language.results import unpacked_result
from ..language.settled_tests import is_never_reached
from ..models.model_results import forward_of
from ..settings.in_batch_negatives import transposed_operand
from ..training.frameworks import SEES_PARAMETERS
from ..training.program import Program
from .loss_factors import counts_examples, is_batch_size, is_factor

MAX_DEPTH = 24
MAX_MAKERS = 4  # names through which a loss is followed
LOSS = re.compile(r"loss|nll|criterion|cost|elbo", re.IGNORECASE)
FUNCTIONS_OF_LOSS = frozenset(
    [
        "cross_entropy",
        "nll_loss",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "poisson_nll_loss",
        "gaussian_nll_loss",
        "hinge_embedding_loss",
        "margin_ranking_loss",
        "soft_margin_loss",
        "multilabel_margin_loss",
        "multilabel_soft_margin_loss",
        "cosine_embedding_loss",
        "triplet_margin_loss",
        "multi_margin_loss",
    ]
)
CLASSES_OF_LOSS = frozenset(
    [
        "CrossEntropyLoss",
        "NLLLoss",
        "NLLLoss2d",
        "MSELoss",
        "L1Loss",
        "SmoothL1Loss",
        "HuberLoss",
        "BCELoss",
        "BCEWithLogitsLoss",
        "KLDivLoss",
        "PoissonNLLLoss",
        "GaussianNLLLoss",
        "HingeEmbeddingLoss",
        "MarginRankingLoss",
        "SoftMarginLoss",
        "MultiLabelMarginLoss",
        "MultiLabelSoftMarginLoss",
        "CosineEmbeddingLoss",
        "TripletMarginLoss",
        "MultiMarginLoss",
    ]
)
FIELDS = ("torchcrf.CRF",)
OLDER_WORDS = ("size_average", "reduce")
SCALING = ("mul", "mul_", "multiply", "div", "div_", "divide", "neg", "neg_")
WEIGHTS = ("weight", "bias")
SAME_VALUE = ("to", "cuda", "cpu", "float", "double", "half", "squeeze", "contiguous", "clone")
RESHAPING = ("unsqueeze", "view", "reshape")
JOINING = ("torch.cat", "torch.concat")


class Reduction(Enum):
    """What a loss does with its examples."""

    SUM = "sum"
    MEAN = "mean"
    MIXED = "a sum and a mean"
    PARTLY = "a sum and what is not read"
    TIMES = "a mean times the number of examples in a batch"
    UNKNOWN = "unknown"


def reduction_of(
    program: Program,
    module: Module,
    node: ast.expr,
    accumulation: str = "",
    depth: int = 0,
    place: int | None = None,
) -> Reduction:
    """The reduction of a loss; division by ``accumulation``, a text, does not count as one.

    ``place``: which element the loss is of the tuple that ``node`` stands for.
    """

    def of(part: ast.expr, place: int | None = place) -> Reduction:
        return reduction_of(program, module, part, accumulation, depth + 1, place)

    def changed(kind: Reduction, change: ast.AugAssign) -> Reduction:
        match change.op:
            case ast.Add() | ast.Sub():
                return added(kind, of(change.value, None))
            case ast.Div() if is_batch_size(program, change.value):
                return over_batch(kind)
            case ast.Mult() | ast.Div() if is_factor(program, change.value):
                return kind
            case ast.Div() if module.text(change.value) == accumulation or kind is Reduction.MEAN:
                return kind
        return Reduction.UNKNOWN

    if depth > MAX_DEPTH:
        return Reduction.UNKNOWN
    match node:
        case ast.Name():
            if values := module.alternatives(node, node):
                if place is not None:
                    values = [each for each in values if is_put_before(each, node)] or values
                kind = together([of(value) for value in values])
                for change in changes_in_place(module, node, values):
                    kind = changed(kind, change)
                return kind
            unpacked = None if place is not None else unpacked_result(module, node)
            return of(*unpacked) if unpacked else Reduction.UNKNOWN
        case ast.Subscript(slice=ast.Constant(value=int(index))) if place is None:
            return of(node.value, index)
        case ast.Tuple() if place is not None and place < len(node.elts):
            return of(node.elts[place], None)
        case ast.BinOp(op=ast.Add(), left=ast.Tuple() as first) if place is not None:
            return of(first)
        case ast.Call():
            return of_call(program, module, node, accumulation, depth, place)
        case _ if place is not None:
            return Reduction.UNKNOWN
        case ast.UnaryOp():
            return of(node.operand)
        case ast.IfExp():
            return together([of(node.body), of(node.orelse)])
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return added(of(node.left), of(node.right))
        case ast.BinOp(op=ast.Mult()):
            if is_factor(program, node.left):
                return of(node.right)
            if is_factor(program, node.right):
                return of(node.left)
            return times(program, [(node.left, of(node.left)), (node.right, of(node.right))])
        case ast.BinOp(op=ast.Div()):
            kind = of(node.left)
            if is_batch_size(program, node.right):
                return over_batch(kind)
            if is_factor(program, node.right) or module.text(node.right) == accumulation:
                return kind
            return Reduction.UNKNOWN if kind is not Reduction.MEAN else kind
    return Reduction.UNKNOWN


def changes_in_place(
    module: Module, name: ast.Name, values: list[ast.expr]
) -> Iterator[ast.AugAssign]:
    """``loss += penalty`` and ``loss /= count`` between what a name is bound to and its use."""
    for store in module.stores.get((module.function(name), name.id), ()):
        stmt = module.parents[store]
        is_between = precedes(stmt, name) and any(precedes(value, stmt) for value in values)
        if isinstance(stmt, ast.AugAssign) and is_between:
            yield stmt


def of_call(
    program: Program,
    module: Module,
    call: ast.Call,
    accumulation: str,
    depth: int,
    place: int | None,
) -> Reduction:
    """The reduction of what a call returns."""
    if place is not None:
        return of_results(program, module, call, depth, place)
    name = module.last_name(call.func)
    inputs = argument_values(call)
    if isinstance(call.func, ast.Attribute) and not module.dotted(call.func).startswith("torch."):
        inputs.append(call.func.value)  # loss.sum()
    if name in ("sum", "mean") and len(inputs) == 1:
        (summed,) = inputs
        if (terms := added_terms(module, call, summed)) is not None:
            kinds = [reduction_of(program, module, term, accumulation, depth + 1) for term in terms]
            return reduce(added, kinds) if kinds else Reduction.UNKNOWN
        if (kind := of_joined(program, module, summed, accumulation, depth)) is not None:
            return kind
        if is_of_weights(module, summed):
            return Reduction.MEAN
        before = reduction_of(program, module, summed, accumulation, depth + 1)
        if before is not Reduction.UNKNOWN:
            return before  # of one number
        if name == "sum" and may_be_one_number(module, summed):
            return Reduction.UNKNOWN
        return of_elements(program, module, summed) if name == "sum" else Reduction.MEAN
    if name == "einsum" and sums_all(inputs):
        return Reduction.SUM
    if name in (*SAME_VALUE, *RESHAPING) and isinstance(call.func, ast.Attribute):
        return reduction_of(program, module, call.func.value, accumulation, depth + 1)
    if is_scaled(program, call):
        assert isinstance(call.func, ast.Attribute)
        return reduction_of(program, module, call.func.value, accumulation, depth + 1)
    if name in FUNCTIONS_OF_LOSS or is_asked(call):
        kind = asked_for(call)
        weights = argument(call, 2, "weight") if kind is Reduction.SUM else None
        if name.startswith("binary") and isinstance(weights, ast.Name):
            return Reduction.UNKNOWN if is_divided(program, module, weights) else kind
        return kind
    if isinstance(call.func, ast.Name):
        made = makers_of(program, module, call.func)
    elif isinstance(call.func, ast.Attribute):
        made = module.attribute_values.get(call.func.attr, [])
    else:
        made = [call.func]
    made = [maker_of(each) for each in made]
    if made and all(isinstance(e, ast.Call) and module.dotted(e.func) in FIELDS for e in made):
        return of_field(call)
    classes = [
        each
        for each in made
        if isinstance(each, ast.Call)
        and (module.last_name(each.func) in CLASSES_OF_LOSS or is_asked(each))
    ]
    if classes and len(classes) == len(made):
        return together([asked_for(each) for each in classes])
    return of_results(program, module, call, depth, None)


def sums_all(inputs: list[ast.expr]) -> bool:
    """``einsum("bi,bi->", x, y)``."""
    rule = inputs[0] if inputs else None
    text = rule.value if isinstance(rule, ast.Constant) else None
    return isinstance(text, str) and text.replace(" ", "").endswith("->") and "," in text


def is_of_weights(module: Module, tensor: ast.expr) -> bool:
    """Whether a tensor is made of weights alone, which all ranks have alike: ``p ** 2``.

    The sum of its elements is no sum over examples: ``sum(p.abs().sum() for p in m.parameters())``.
    Nor is one with what a table has for each, ``(p - before[name]) ** 2``.
    """
    names = [name for name in everywhere(tensor, ast.Name) if name.id not in module.aliases]
    others = [name for name in names if not is_weight(module, name)]
    return len(others) < len(names) and all(is_kept_for_weights(module, each) for each in others)


def is_kept_for_weights(module: Module, name: ast.Name) -> bool:
    """``before`` of ``before[name]`` for ``name, p in model.named_parameters()``."""
    up = module.parents[name]
    if not isinstance(up, ast.Subscript) or up.value is not name:
        return False
    keys = everywhere(up.slice, ast.Name)
    return bool(keys) and all(is_weight(module, each) for each in keys)


def is_weight(module: Module, name: ast.Name) -> bool:
    """``p`` of ``for _, p in model.named_parameters()``, and the object in ``layer.weight``."""
    for up in module.ancestors(name):
        if isinstance(up, ast.Attribute) and up.attr in WEIGHTS:
            return True
        if isinstance(up, ast.stmt) and not isinstance(up, ast.For):
            continue
        generators = getattr(up, "generators", [up] if isinstance(up, ast.For) else [])
        for each in generators:
            bound = {target.id for target in everywhere(each.target, ast.Name)}
            if name.id in bound:
                calls = everywhere(each.iter, ast.Call)
                return any(module.last_name(call.func) in SEES_PARAMETERS for call in calls)
    return False


def of_elements(program: Program, module: Module, tensor: ast.expr, depth: int = 0) -> Reduction:
    """What the sum of a tensor's elements is over the examples; a mean for that of ``(…).mean(0)``.

    Unknown where the elements are divided by what may be the number of examples.
    """

    def of(part: ast.expr) -> Reduction:
        return of_elements(program, module, part, depth + 1)

    match tensor:
        case ast.Name() if is_divided(program, module, tensor):
            return Reduction.UNKNOWN
        case ast.Name() if depth < MAX_DEPTH and (values := module.alternatives(tensor, tensor)):
            return together([of(value) for value in values])
        case ast.Call() if (parts := averaged_dimensions(module, tensor)) is not None:
            inner, dimensions = parts
            if dimensions is None:
                return Reduction.UNKNOWN
            return Reduction.MEAN if 0 in dimensions else of(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr="sum")):
            return of(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in SAME_VALUE:
            return of(inner)
        case ast.UnaryOp(operand=inner):
            return of(inner)
        case (
            ast.BinOp(op=ast.Pow(), left=inner)
            | ast.Call(func=ast.Attribute(value=inner, attr="pow" | "square" | "abs"))
        ) if not (isinstance(inner, ast.Name) and inner.id in module.aliases):
            return Reduction.SUM if of(inner) is Reduction.SUM else Reduction.UNKNOWN
        case ast.BinOp(op=ast.MatMult(), left=left) if transposed_operand(left) is not None:
            return Reduction.UNKNOWN  # its elements are sums over the examples
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return together([of(tensor.left), of(tensor.right)])
        case ast.BinOp(op=ast.Mult()):
            kinds = [of(tensor.left), of(tensor.right)]
            others = [kind for kind in kinds if kind is not Reduction.SUM]
            return others[0] if others else Reduction.SUM
        case ast.BinOp(op=ast.Div()):
            by_number = is_factor(program, tensor.right) or is_of_each_example(tensor.right)
            return of(tensor.left) if by_number else Reduction.UNKNOWN
    return Reduction.SUM


def is_divided(program: Program, module: Module, tensor: ast.Name) -> bool:
    """Whether a statement has divided a tensor by what may be a number of examples.

    ``weights /= weights.sum()``, after which a sum that they weigh is a mean.
    """
    return any(
        isinstance(change.op, ast.Div)
        and not is_factor(program, change.value)
        and not is_of_each_example(change.value)
        for change in changes_in_place(module, tensor, module.alternatives(tensor, tensor))
    )


def is_of_each_example(node: ast.expr) -> bool:
    """``torch.norm(y, dim=1)``, by which the loss of each example is divided."""
    return isinstance(node, ast.Call) and any(
        word.arg == "dim" and isinstance(word.value, ast.Constant) and word.value.value == 1
        for word in node.keywords
    )


def averaged_dimensions(
    module: Module, call: ast.Call
) -> tuple[ast.expr, tuple[int, ...] | None] | None:
    """The tensor of ``tensor.mean(0)`` and its dimensions; None for those that are not written."""
    if module.last_name(call.func) != "mean" or not isinstance(call.func, ast.Attribute):
        return None
    tensor, place = call.func.value, 0
    if module.dotted(call.func) == "torch.mean" and call.args:
        tensor, place = call.args[0], 1
    dimensions = argument(call, place, "dim")
    if dimensions is None:
        return None
    try:
        value = ast.literal_eval(dimensions)
    except ValueError:
        return tensor, None
    return tensor, tuple(value) if isinstance(value, tuple | list) else (value,)


def maker_of(loss: ast.expr) -> ast.expr:
    """``BCELoss(reduction="sum")`` in ``BCELoss(reduction="sum").cuda()``."""
    match loss:
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if (
            name in SAME_VALUE and isinstance(inner, ast.Call)
        ):
            return maker_of(inner)
    return loss


def added_terms(module: Module, call: ast.Call, summed: ast.expr) -> list[ast.expr] | None:
    """What a call adds up that need not be examples: ``sum(losses.values())``, a stack of losses.

    None where it adds up the elements of one tensor; nothing where the terms are not written out.
    """
    is_stack = isinstance(summed, ast.Call) and module.dotted(summed.func) == "torch.stack"
    match summed:
        case ast.Call(args=[parts, *_]) if is_stack:
            return added_terms(module, call, parts) or []
        case ast.List() | ast.Tuple():
            return summed.elts
        case ast.ListComp() | ast.GeneratorExp():
            return [summed.elt]
    return [] if module.dotted(call.func) == "sum" else None


def of_joined(
    program: Program, module: Module, summed: ast.expr, accumulation: str, depth: int
) -> Reduction | None:
    """What ``torch.cat([loss(each, y).view(1) for each in heads])`` adds up, where all are losses.

    None where it joins anything else, such as the losses of examples.
    """
    joined = module.definition(summed, summed) or summed
    if not isinstance(joined, ast.Call) or module.dotted(joined.func) not in JOINING:
        return None
    parts = elements_of(program, module, joined.args[0]) if joined.args else None
    kinds = [
        reduction_of(program, where, part, accumulation, depth + 1) for where, part in parts or ()
    ]
    return reduce(added, kinds) if kinds and Reduction.UNKNOWN not in kinds else None


def makers_of(program: Program, module: Module, name: ast.Name, depth: int = 0) -> list[ast.expr]:
    """What may have made the loss of a name, in its function or in those that pass it on.

    One that its name moves, ``criterion = criterion.cuda()``, is what it was. None where a part is
    not seen.
    """
    makers: list[ast.expr] = []
    for where, value in values_passed(program, module, name):
        made = value
        while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
            if made.func.attr not in SAME_VALUE:
                break
            made = made.func.value
        found = [made] if made is not None and not isinstance(made, ast.Name) else []
        if isinstance(made, ast.Name) and depth < MAX_MAKERS:
            found = makers_of(program, where, made, depth + 1)
        if not found:
            return []
        makers += found
    return makers


def values_passed(
    program: Program, module: Module, name: ast.Name
) -> list[tuple[Module, ast.expr | None]]:
    """What a name is bound to, or what all callers pass for it; None for what one does not."""
    function = module.function(name)
    values = module.alternatives(name, name) or of_the_module(module, name)
    if values or function is None or name.id not in parameters(function):
        return [(module, value) for value in values]
    if (function, name.id) in module.stores:
        return []
    return [
        (where, argument_for_parameter(module, function, caller, name.id))
        for where, caller in program.callers(function)
    ]


def of_the_module(module: Module, name: ast.Name) -> list[ast.expr]:
    """The one value of a name of the module, read in a function that does not bind it."""
    function = module.function(name)
    if function is None or (function, name.id) in module.stores or name.id in parameters(function):
        return []
    value = module.single_assignment(None, name.id)
    return [] if value is None else [value]


def is_scaled(program: Program, call: ast.Call) -> bool:
    """``loss.mul_(-0.5)``: a value is multiplied or divided by a number of the script's."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in SCALING
        and all(is_factor(program, each) for each in argument_values(call))
    )


def of_results(
    program: Program, module: Module, call: ast.Call, depth: int, place: int | None
) -> Reduction:
    """The reduction of what a function, or a model's forward pass, of the program returns."""
    called = program.callees(module, call)
    if not called and (forward := forward_of(program, module, call.func)) is not None:
        called = [forward]
    returned = [
        reduction_of(program, where, result.value, "", depth + 1, place)
        for where, function in called
        for result in within(function.body, ast.Return)
        if result.value is not None
        and is_possible(where, function, result, ((module, call),))
        and not is_never_reached(program, where, result, call)
    ]
    return together(returned)


def may_be_one_number(module: Module, node: ast.expr, name: str = "", depth: int = 0) -> bool:
    """Whether a value may be a loss already: an unknown call's result that is called one."""
    match node:
        case ast.Name() if depth < MAX_DEPTH:
            values = module.alternatives(node, node)
            unpacked = unpacked_result(module, node)
            values += [unpacked[0]] if unpacked and not values else []
            return any(may_be_one_number(module, each, node.id, depth + 1) for each in values)
        case ast.Attribute():
            return node.attr == "loss"
        case ast.Subscript(slice=ast.Constant()):
            return may_be_one_number(module, node.value, name, depth + 1)
        case ast.Call():
            own = isinstance(node.func, ast.Name) or module.text(node.func).startswith("self.")
            called = f"{name} {module.last_name(node.func)}"
            is_torch = module.dotted(node.func).startswith("torch.")
            return own and not is_torch and LOSS.search(called) is not None
    return False


def asked_for(call: ast.Call) -> Reduction:
    """The reduction that a loss of torch is asked for; it is a mean where nothing is said."""
    word = keyword(call, "reduction")
    if word is not None:
        text = word.value.value if isinstance(word.value, ast.Constant) else None
        return Reduction(text) if text in ("sum", "mean") else Reduction.UNKNOWN
    old = {word.arg: word.value for word in call.keywords if word.arg in OLDER_WORDS}
    if not all(isinstance(value, ast.Constant) for value in old.values()):
        return Reduction.UNKNOWN
    asked = {arg for arg, value in old.items() if isinstance(value, ast.Constant) and value.value}
    if "reduce" in old.keys() - asked:
        return Reduction.UNKNOWN  # a loss of each example
    return Reduction.SUM if "size_average" in old.keys() - asked else Reduction.MEAN


def of_field(call: ast.Call) -> Reduction:
    """The reduction of a conditional random field's log-likelihood: a sum where nothing is said."""
    word = argument(call, 3, "reduction")
    text = word.value if isinstance(word, ast.Constant) else "sum" if word is None else ""
    return Reduction(text) if text in ("sum", "mean") else Reduction.UNKNOWN


def is_put_before(value: ast.expr, name: ast.Name) -> bool:
    """``(loss,) + outputs`` of ``outputs``, in whose place nothing else stood."""
    match value:
        case ast.BinOp(op=ast.Add(), left=ast.Tuple(), right=ast.Name(id=joined)):
            return joined == name.id
    return False


def is_asked(call: ast.Call) -> bool:
    """Whether a loss, torch's or not, is told by name to sum or to average: ``reduction="sum"``."""
    words = keyword(call, "reduction"), keyword(call, "size_average")
    return any(
        word is not None
        and isinstance(word.value, ast.Constant)
        and word.value.value in ("sum", "mean", False)
        for word in words
    )


def together(kinds: list[Reduction]) -> Reduction:
    """What all of several values are."""
    return kinds[0] if len(set(kinds)) == 1 else Reduction.UNKNOWN


def added(first: Reduction, second: Reduction) -> Reduction:
    """What two losses are that are added."""
    if first is second:
        return first
    kinds = {first, second}
    if Reduction.PARTLY in kinds or (Reduction.UNKNOWN in kinds and Reduction.MEAN not in kinds):
        return Reduction.PARTLY
    return Reduction.UNKNOWN if Reduction.UNKNOWN in kinds else Reduction.MIXED


def over_batch(kind: Reduction) -> Reduction:
    """What a loss is that is divided by the number of examples of one rank's batch."""
    known = (Reduction.SUM, Reduction.MEAN, Reduction.TIMES)
    return Reduction.MEAN if kind in known else Reduction.UNKNOWN


def times(program: Program, factors: list[tuple[ast.expr, Reduction]]) -> Reduction:
    """What a product is: a sum again, where a mean is multiplied by the examples of its batch."""
    kinds = {kind for _, kind in factors}
    if kinds == {Reduction.MEAN, Reduction.UNKNOWN} and any(
        kind is Reduction.UNKNOWN
        and (
            counts_examples(node)
            or (isinstance(node, ast.Attribute) and is_batch_size(program, node))
        )
        for node, kind in factors
    ):
        return Reduction.TIMES
    return Reduction.UNKNOWN
