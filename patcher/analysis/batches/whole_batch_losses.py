"""Losses that are no mean over examples: of statistics of a batch, or of pairs of its examples."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import (
    Function,
    argument,
    bound_names,
    everywhere,
    is_false,
    keyword,
    names_within,
    parameters,
    precedes,
    same_code,
    within,
)
from ..settings.in_batch_negatives import (
    all_pairs_products,
    crossed_operands,
    is_within_examples,
    transposed_operand,
)
from ..training.train_loops import TrainLoop
from .batch_scales import MOMENTS, SPREADS, is_over_examples, weights_by_batch
from .loss_names import names_of_losses
from .pairs_in_loops import pairs_in_function, pairs_of_examples

LOGARITHMS = ("log", "log2", "log10", "log1p")
COMPARES = re.compile(r"p_?dist|pair|kernel|mmd|relation|dist_?mat", re.IGNORECASE)
LOSS = re.compile(
    r"loss|criteri|coral|mmd|barlow|twins|corr|cov|redundan|vic_?reg|whiten", re.IGNORECASE
)
PREDICTION = re.compile("softmax|prob|logit|pred", re.IGNORECASE)
WEIGHTS = re.compile("param|weight|theta", re.IGNORECASE)
ENTROPY = re.compile("entropy", re.IGNORECASE)
WATCHED = re.compile("perplex|usage|util", re.IGNORECASE)  # of a codebook, which is printed
GATHERS = re.compile("gather|all_reduce", re.IGNORECASE)
SHARES = ("softmax", "log_softmax")
SPECTRA = ("svd", "svdvals", "matrix_norm", "norm")
RANKED = ("topk", "sort", "argsort", "kthvalue", "quantile")
ASKED = (*MOMENTS, *SPREADS, *RANKED, *SPECTRA, "cdist", "mm", "matmul", "unsqueeze", "logsumexp")
# Of pytorch_metric_learning: what compares the pairs of a batch. Others look at one example each.
PAIRED = re.compile(
    r"^pytorch_metric_learning\.(miners\.|losses\.(Angular|Centroid|Circle|Contrastive|Dynamic|"
    r"FastAP|Generalized|Histogram|IntraPair|Lifted|Margin|MultiSim|NCA|NPairs|NTXent|P2SGrad|"
    r"ProxyAnchor|Ranked|SignalTo|SupCon|Triplet|Tuplet|VICReg))"
)

Evidence = tuple[ast.expr, str]


def losses_of_whole_batches(module: Module) -> Iterator[tuple[Function | None, Evidence]]:
    """Functions with such a loss, each with the first place that tells so and why."""
    if module.calls_to(*ASKED) or "@" in module.source.text:
        for function in module.all_functions:
            calls = within(function.body, ast.Call)
            if any(GATHERS.search(module.last_name(call.func)) for call in calls):
                continue
            evidence = next(evidences(module, function, calls), None)
            if evidence is not None:
                yield function, evidence
    for function in module.all_functions:
        evidence = next(pairs_in_function(module, function), None)
        if evidence is not None:
            yield function, evidence
    for call in module.nodes(ast.Call) if "pytorch_metric_learning" in module.source.text else ():
        if PAIRED.match(module.dotted(call.func)):
            name = module.last_name(call.func)
            yield module.function(call), (call, f"{name} compares the examples of a batch")


def evidences_in_steps(loop: TrainLoop) -> Iterator[Evidence]:
    """The same in a step itself, of what its losses are made of."""
    module, body = loop.module, loop.steps.body
    calls = within(body, ast.Call)
    if any(GATHERS.search(module.last_name(call.func)) for call in calls):
        return
    of_losses = names_of_losses(loop)
    yield from pairs_of_examples(module, body, of_losses)
    for node in calls:
        if not of_losses.intersection(bound_names(module.statement(node))):
            continue
        name = module.last_name(node.func)
        over_examples = is_over_examples(module, node)
        if name in MOMENTS and over_examples and is_in_logarithm(module, node):
            yield node, f"the logarithm of {module.text(node)[:60]} is of the whole batch"
        elif name in SPREADS and (over_examples or is_of_losses(module, node)):
            yield node, f"{name} is that of the whole batch"
        elif name in SHARES and over_examples:
            yield node, f"{name} shares out among the whole batch"
        elif name in RANKED and is_of_losses(module, node):
            yield node, f"{name} chooses by their losses among the examples of this rank alone"
        elif is_spectrum(module, node):
            yield node, f"{module.text(node)[:60]} has the singular values of the whole batch"
    for call in calls:
        if gives_twice(call) and of_losses & bound_names(module.statement(call)):
            text = ", ".join(map(module.text, call.args[: len(call.args) // 2]))
            yield call, f"{module.last_name(call.func)}() compares {text[:60]} with itself"
    for product in within(body, ast.BinOp):
        is_sum = isinstance(product.op, ast.MatMult) and is_turned(product.left)
        if is_sum and of_losses.intersection(bound_names(module.statement(product))):
            yield product, f"{module.text(product)[:60]} sums over the batch"


def gives_twice(call: ast.Call) -> bool:
    """``criterion(vectors, labels, vectors, labels)``."""
    half = len(call.args) // 2
    is_even = half > 1 and len(call.args) == 2 * half
    return is_even and all(map(same_code, call.args[:half], call.args[half:]))


def steps_within(loop: TrainLoop) -> Iterator[Evidence]:
    """A step inside a step: of a copy, by gradients of this rank's batch, which losses go through.

    Not of each task of a batch, as in a loop of its own.
    """
    module = loop.module
    for call in within(loop.steps.body, ast.Call):
        graph = keyword(call, "create_graph")
        is_kept = graph is not None and not is_false(graph.value)
        if module.last_name(call.func) != "grad" or not is_kept:
            continue
        weights = argument(call, 1, "inputs")
        made = None if weights is None else module.definition(weights, weights)
        texts = [module.text(each) for each in (weights, made) if each is not None]
        around = next(up for up in module.ancestors(call) if isinstance(up, ast.For | ast.While))
        if around is loop.steps and any(WEIGHTS.search(text) for text in texts):
            yield call, "a step within the step goes by the gradients of this rank's batch alone"


def evidences(module: Module, function: Function, calls: list[ast.Call]) -> Iterator[Evidence]:
    """What in a function is computed of the batch as a whole, and no mean of what examples give."""
    owner = module.parents[function]
    named = function.name + (owner.name if isinstance(owner, ast.ClassDef) else "")
    for call in calls:
        name = module.last_name(call.func)
        if name in MOMENTS and is_over_examples(module, call) and is_in_logarithm(module, call):
            yield call, f"the logarithm of {module.text(call)[:60]} is of the whole batch"
        elif LOSS.search(named) and name in SPREADS and is_over_examples(module, call):
            yield call, f"{name} is that of the whole batch"
        elif (mean := mean_prediction(module, call)) is not None:
            yield call, f"{name} is that of {module.text(mean)[:60]}, a mean over the batch"
        elif name == "logsumexp" and is_over_examples(module, call):
            yield call, "it is a sum over the whole batch"
        elif name == "cdist" and len(call.args) > 1 and same_code(*call.args[:2]):
            yield call, "it has the distances of all pairs of a batch"
        elif name in RANKED and is_of_losses(module, call):
            yield call, f"{name} chooses by their losses among the examples of this rank alone"
        elif LOSS.search(named) and is_spectrum(module, call):
            yield call, f"{module.text(call)[:60]} has the singular values of the whole batch"
    if LOSS.search(named):
        yield from weights_by_batch(module, function)
        for turned in turned_around(module, calls):
            yield turned, f"{module.text(turned)[:60]} scores the examples of a batch"
    for product in pairs_of_features(module, function) if LOSS.search(named) else ():
        yield product, f"{module.text(product)[:60]} sums over the batch"
    yield from relations(module, function, bool(COMPARES.search(named)))
    for each in all_pairs_products(module, function) if LOSS.search(named) else ():
        shared = origins(module, each.rows) & origins(module, each.columns)
        is_whole = not is_within_examples(each.node) and not same_code(each.rows, each.columns)
        if is_whole and shared & {*parameters(function)} and "self" not in shared:
            yield each.node, f"{module.text(each.rows)[:60]} is scored against the whole batch"


def is_of_losses(module: Module, call: ast.Call) -> bool:
    """``losses.topk(k)`` and ``np.argsort(losses.cpu())`` of a batch; not of each example's own."""
    is_function = module.dotted(call.func).startswith(("torch.", "numpy."))
    owner = call.func.value if isinstance(call.func, ast.Attribute) and not is_function else None
    ranked = owner if owner is not None else argument(call, 0, "input")
    place = int(is_function) + (module.last_name(call.func) in ("topk", "kthvalue", "quantile"))
    axis = argument(call, place, "dim") or argument(call, place, "axis")
    if ranked is None or not (axis is None or (isinstance(axis, ast.Constant) and axis.value == 0)):
        return False
    made = module.definition(ranked, ranked) or ranked
    if any(
        module.last_name(each.func) in ("view", "reshape", "flatten") and len(each.args) > 1
        for value in (ranked, made)
        for each in everywhere(value, ast.Call)
    ):
        return False
    return is_of_each(made) or any(
        "loss" in name.id.lower() or is_of_each(module.definition(name, name))
        for name in everywhere(ranked, ast.Name)
    )


def is_of_each(value: ast.expr | None) -> bool:
    """Whether a value is the losses of all examples: ``mse_loss(x, y, reduction="none")``."""
    word = keyword(value, "reduction") if isinstance(value, ast.Call) else None
    return word is not None and isinstance(word.value, ast.Constant) and word.value.value == "none"


def is_spectrum(module: Module, call: ast.Call) -> bool:
    """``torch.svd(probs)`` and ``torch.norm(x, "nuc")``; not of a matrix of each example."""
    name = module.last_name(call.func)
    if name not in SPECTRA or not module.dotted(call.func).startswith("torch."):
        return False
    if name.startswith("svd") and call.args:
        made = module.definition(call.args[0], call.args[0])
        texts = [module.text(each) for each in (call.args[0], made) if each is not None]
        return any(PREDICTION.search(text) for text in texts)
    values = [*call.args, *(word.value for word in call.keywords)]
    is_nuclear = any(isinstance(each, ast.Constant) and each.value == "nuc" for each in values)
    return is_nuclear and argument(call, 2, "dim") is None


def mean_prediction(module: Module, call: ast.Call) -> ast.expr | None:
    """``x.mean(0)`` of ``entropy(x.mean(0))``, whose logarithm another function takes."""
    if not ENTROPY.search(module.last_name(call.func)):
        return None
    for value in call.args:
        made = module.definition(value, value) or value
        if (
            isinstance(made, ast.Call)
            and module.last_name(made.func) in MOMENTS
            and is_over_examples(module, made)
        ):
            return made
    return None


def is_in_logarithm(module: Module, node: ast.expr, through_name: bool = True) -> bool:
    """Whether the logarithm is taken of a value, with something added perhaps, or of its name."""
    below: ast.AST = node
    for up in module.ancestors(node):
        if isinstance(up, ast.Call):
            is_logarithm = module.last_name(up.func) in LOGARITHMS
            if is_logarithm or module.last_name(up.func) not in ("clamp", "clamp_min", "clip"):
                stmt = module.statement(up)
                targets = stmt.targets if isinstance(stmt, ast.Assign) else []
                return is_logarithm and not any(WATCHED.search(module.text(t)) for t in targets)
        elif isinstance(up, ast.Assign) and through_name and below is up.value:
            (target, *_) = up.targets
            return isinstance(target, ast.Name) and any(
                precedes(up, use) and is_in_logarithm(module, use, through_name=False)
                for use in names_within(module.scope_statements(up), {target.id})
                if isinstance(use.ctx, ast.Load)
            )
        elif not isinstance(up, ast.BinOp | ast.Attribute):
            return False
        below = up
    return False


def pairs_of_features(module: Module, function: Function) -> Iterator[ast.expr]:
    """``x.t() @ y`` and ``torch.mm(x.T, y)``, sums over the examples of a batch."""
    for node in within(function.body, ast.BinOp):
        if isinstance(node.op, ast.MatMult) and is_turned(node.left):
            yield node
    for call in within(function.body, ast.Call):
        if module.last_name(call.func) not in ("mm", "matmul"):
            continue
        if module.dotted(call.func).startswith("torch."):
            left = argument(call, 0, "input")
        else:
            left = call.func.value if isinstance(call.func, ast.Attribute) else None
        if left is not None and is_turned(left):
            yield call


def turned_around(module: Module, calls: list[ast.Call]) -> Iterator[ast.Call]:
    """``torch.matmul(z, z.transpose(1, 2))`` of ``z = z.transpose(0, 1)``: pairs of examples."""
    for call in calls:
        match call:
            case ast.Call(
                args=[
                    ast.Name(id=name) as rows,
                    ast.Call(func=ast.Attribute(value=ast.Name(id=columns), attr="transpose")),
                ]
            ) if name == columns and module.last_name(call.func) in ("matmul", "bmm"):
                made = module.definition(rows, rows)
                if made is not None and changes_place_of_examples(made):
                    yield call


def changes_place_of_examples(value: ast.expr) -> bool:
    """``z.transpose(0, 1)`` and ``z.permute(1, 0, 2)``."""
    match value:
        case ast.Call(func=ast.Attribute(attr="transpose" | "permute"), args=axes):
            numbers = [each.value for each in axes if isinstance(each, ast.Constant)]
            return numbers[:2] in ([0, 1], [1, 0])
    return False


def is_turned(node: ast.expr) -> bool:
    """Whether a value is a name's, transposed."""
    return isinstance(transposed_operand(node), ast.Name)


def relations(module: Module, function: Function, compares: bool) -> Iterator[Evidence]:
    """What compares a batch with itself: two such products, or one where the function's name says.

    A lone product in another function may be that of one picture's features, or of weights.
    """
    alone = [
        product
        for product in all_pairs_products(module, function)
        if same_code(product.rows, product.columns) and not is_within_examples(product.node)
    ]
    if alone and (compares or not all(same_code(alone[0].rows, each.rows) for each in alone)):
        yield alone[0].node, f"{module.text(alone[0].rows)[:60]} is compared with itself"
    for node in within(function.body, ast.BinOp) if compares else ():
        sides = (
            crossed_operands(*(stretched(module, each) for each in (node.left, node.right)))
            if isinstance(node.op, ast.Sub)
            else None
        )
        if sides is not None and same_code(*sides):
            yield node, f"{module.text(sides[0])[:60]} is compared with itself"


def origins(module: Module, node: ast.expr) -> set[str]:
    """The names that a value is made of, as far back as the function binds them."""
    pending, names, seen = [node], set(), set()
    for each in pending:  # grows
        for name in everywhere(each, ast.Name):
            values = [value for value in module.alternatives(name, name) if value not in seen]
            seen.update(values)
            pending += values
            names |= set() if values else {name.id}
    return names


def stretched(module: Module, node: ast.expr) -> ast.expr:
    """``x.unsqueeze(0)`` of ``x.unsqueeze(0).expand(…)``, also by a name."""
    value = module.definition(node, node) or node
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("expand", "repeat")
    ):
        value = value.func.value
    return value
