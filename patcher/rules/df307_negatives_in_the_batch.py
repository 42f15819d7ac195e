"""The other examples of the batch are the negatives, and each rank has a part of the batch.

What         A contrastive loss scores every example against every other one of its own batch: a
             product of two sets of vectors with torch.arange as labels, with torch.eye as what is
             wanted, or with a mask of equal labels; or one picks pairs by such a mask, takes the
             diagonal of the product, numbers the rows of scores that it is given, scores it by row
             and by column, or compares it with a teacher's.
At run time  With N ranks each example meets 1/N of the negatives of the global batch: another loss
             and another model than one process has at that batch, and the same goes for gradient
             accumulation. Nothing crashes.
Example      scores = torch.einsum("ab,cb->ac", nl_vec, code_vec)
             loss = loss_fct(scores, torch.arange(code_vec.size(0), device=scores.device))
Fix          Gather the vectors of all ranks, this rank's own first, so that the labels stay. A loss
             in a function of its own, in both directions or by labels, is given all ranks' vectors
             and labels. Loss and gradients are then those of one process at the global batch.
             With accumulation the negatives are those of a micro-batch of all ranks: runs are alike
             where per-device batch x world size is the same. Only reported for torch.eye, for a
             diagonal, for pairs that are picked and for a teacher's scores.
Fix safety   Unsafe: every rank must run the line equally often and with equally many examples, as
             under torch's DistributedSampler but not under --exact, and evaluation must not track
             gradients. A lone process computes what it did before. The all_gather of
             torch.distributed.nn.functional is not used: it is deprecated, and under gloo it
             returns wrong gradients where they are not contiguous (measured on torch 2.13).
Source       torch.autograd.Function (gradients of all ranks' losses are added up)
"""

import ast
from collections.abc import Iterator

from ..analysis.settings.in_batch_negatives import (
    SIMILARITY,
    TENSORS,
    Product,
    diagonals,
    distant_product,
    is_arange,
    is_of_arange,
    masked_products,
    masks_of_batches,
    products,
    whole_scores,
)
from ..analysis.training.program import Program, runs_in_training_step, trains_on_several_devices
from ..findings import Finding, Safety, Severity
from ..fixes.gathering import GATHER_VECTORS, gather_batch, gather_columns, row_source
from ..fixes.masked_means import is_of_loss
from ..source.module import Module
from ..source.tree import (
    FUNCTIONS,
    Function,
    argument,
    everywhere,
    is_inside,
    mentions,
    parameters,
    within,
)

CODE, SEVERITY, SAFETY = "DF307", Severity.NOTE, Safety.UNSAFE

DISTANCES = ("sum", "mean", "mse_loss", "l1_loss", "smooth_l1_loss", "kl_div")
REPEATING = ("repeat", "expand", "repeat_interleave")
GATHER_NAMES = ("gather", GATHER_VECTORS.lower())
MAX_ALIASES = 5  # assignments to follow from a name to its value


def findings(program: Program) -> Iterator[Finding]:
    if not trains_on_several_devices(program):
        return
    for module in program.modules:
        edited: set[Function | None] = set()
        told: set[Function | None] = set()
        numbers = module.calls_to("arange") or (
            module.calls_to("range") and module.calls_to(*TENSORS)
        )
        for call in module.nodes(ast.Call) if numbers else ():
            scores, target = argument(call, 0, "input"), argument(call, 1, "target")
            if scores is None or target is None:
                continue
            is_plain = is_arange(module, target)
            if not is_plain and not is_of_arange(module, target):
                continue
            function = module.function(call)
            near = next(products(module, scores), None)
            product = near or distant_product(module, scores)
            if product is None and is_plain and numbers_rows(program, module, call, scores, target):
                told.add(function)
                if runs_in_training_step(program, module, function):
                    because = f"the labels number the rows of {module.text(scores)}, of this rank's"
                    yield Finding(module, call, f"{because} batch only")
                continue
            if product is None or not runs_in_training_step(program, module, function):
                continue
            if is_gathered(module, product.columns):
                continue
            is_plain &= not is_similarity(module, product)
            edits = gather_columns(module, call, product) if near and is_plain else ()
            if near and is_plain and not edits and function not in edited:
                edits = gather_batch(module, function, product)
                edited.add(function)
            vectors = module.text(product.columns)
            because = (
                f"line {product.node.lineno} scores against {vectors} of this rank's batch only"
            )
            told.add(function)
            yield Finding(module, call, because, edits)
        for node, scores in diagonals(module):
            product = next(products(module, scores), None) or distant_product(module, scores)
            trains = runs_in_training_step(program, module, module.function(node))
            if product is not None and trains and not is_gathered(module, product.columns):
                vectors = module.text(product.columns)
                because = (
                    f"line {product.node.lineno} scores against {vectors} of this rank's batch"
                )
                told.add(module.function(node))
                yield Finding(module, node, f"{because} only, and the diagonal is what is wanted")
        seen: set[ast.expr] = set()
        for product, mask in masked_products(module):
            seen.add(mask.node)
            function = module.function(product.node)
            told.add(function)
            if not is_gathered(module, product.columns):
                because = f"line {mask.node.lineno} sorts the pairs of this rank's batch only"
                edits = gather_batch(module, function, product, mask.labels)
                yield Finding(module, product.node, because, edits)
        for function, mask in masks_of_batches(module):
            gathers = any(is_gathered(module, each) for each in mask.labels)
            if mask.node in seen or gathers or not runs_in_training_step(program, module, function):
                continue
            because = f"{module.text(mask.node)} compares the examples of this rank's batch only"
            told.add(function)
            yield Finding(module, mask.node, because)
        yield from scores_taken_both_ways(program, module, told)
        yield from distances_of_scores(program, module, told)


def is_square(module: Module, scores: ast.expr, labels: ast.expr) -> bool:
    """Whether labels are numbered by the rows of scores that a function is given.

    ``n = x.shape[0]``, ``cross_entropy(x, torch.arange(n))``: each row has a column of its own.
    """
    function = module.function(scores)
    root = scores
    while (value := module.definition(root, root)) is not None and isinstance(value, ast.Call):
        root = value.func.value if isinstance(value.func, ast.Attribute) else value  # x.squeeze()
    if function is None or not isinstance(root, ast.Name) or root.id not in parameters(function):
        return False
    values = [module.definition(labels, labels) or labels]
    values += [
        v for name in everywhere(values[0], ast.Name) for v in module.alternatives(name, name)
    ]
    return any(
        module.last_name(node).endswith(("shape", "size", "len")) and mentions(value, root.id)
        for value in values
        for kind in (ast.Attribute, ast.Name)
        for node in everywhere(value, kind)
    )


def numbers_rows(
    program: Program, module: Module, call: ast.Call, scores: ast.expr, labels: ast.expr
) -> bool:
    """Whether labels number the rows of scores, each of an example of the batch."""
    if is_square(module, scores, labels):
        return True
    loops = [loop for loop in program.train_loops if is_inside(call, loop.steps)]
    calls = [each for loop in loops for each in within(loop.steps.body, ast.Call)]
    if not loops or any("gather" in module.last_name(each.func) for each in calls):
        return False
    return module.last_name(call.func) == "cross_entropy" and counts_examples(module, labels)


def counts_examples(module: Module, labels: ast.expr) -> bool:
    """``torch.arange(x.size(0) // 4).repeat(3)``: which example each of several views is of."""
    made = module.definition(labels, labels) or labels
    calls = everywhere(made, ast.Call)
    if not any(module.last_name(call.func) in REPEATING for call in calls):
        return False
    for call in calls:
        if module.dotted(call.func) == "torch.arange" and len(call.args) == 1:
            number = module.definition(call.args[0], call.args[0]) or call.args[0]
            for part in everywhere(number, ast.Call):
                match part:
                    case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=0)]):
                        return True
    return False


def scores_taken_both_ways(
    program: Program, module: Module, told: set[Function | None]
) -> Iterator[Finding]:
    """Scores of all pairs whose diagonal is taken, or that are scored by row and by column."""
    for node, scores in whole_scores(module):
        function = module.function(node)
        product = (
            next(products(module, scores), None)
            or distant_product(module, scores)
            or product_of_function(program, module, scores)
        )
        if product is None or function in told or is_gathered(module, product.columns):
            continue
        if runs_in_training_step(program, module, function):
            told.add(function)
            vectors = module.text(product.columns)
            because = f"line {product.node.lineno} scores against {vectors} of this rank's batch"
            yield Finding(module, node, f"{because} only")


def product_of_function(program: Program, module: Module, scores: ast.expr) -> Product | None:
    """The call of a function, or of one that an attribute holds, that returns such a product.

    ``scores = self.sim(images, texts)``, and elsewhere ``self.sim = cosine_sim``.
    """
    call = module.definition(scores, scores)
    if not isinstance(call, ast.Call) or len(call.args) < 2:
        return None
    held = [module.attribute_values.get(module.last_name(call.func), [])]
    found = [program.resolve(module, value) for values in held for value in values]
    functions = [*program.callees(module, call), *(each for each in found if each is not None)]
    for where, function in functions:
        if isinstance(function, FUNCTIONS):
            for result in within(function.body, ast.Return):
                if result.value is not None and any(products(where, result.value)):
                    return Product(call, call.args[0], call.args[1])
    return None


def distances_of_scores(
    program: Program, module: Module, told: set[Function | None]
) -> Iterator[Finding]:
    """Losses between two matrices of scores of all pairs, as of a student's and a teacher's."""
    for call in module.calls_to(*DISTANCES):
        function = module.function(call)
        if function in told or not is_of_loss(module, call):
            continue
        sides = call.args or ([call.func.value] if isinstance(call.func, ast.Attribute) else [])
        found = [distant_product(module, each) for each in sides[:2]]
        product = next((each for each in found if each and is_of_examples(each)), None)
        if product is None or is_gathered(module, product.columns):
            continue
        if runs_in_training_step(program, module, function):
            told.add(function)
            vectors = module.text(product.columns)
            because = f"line {product.node.lineno} scores against {vectors} of this rank's batch"
            yield Finding(module, call, f"{because} only, and the loss is over all pairs")


def is_of_examples(product: Product) -> bool:
    """Whether a product is of two matrices, and not of those of each example: of no ``q @ k.T``.

    ``einsum("ab,cb->ac", x, y)``, ``x.mm(y.t())`` and ``x @ y.t()``.
    """
    match product.node:
        case ast.Call(func=ast.Attribute(attr="einsum" | "mm")):
            return True
    return any(
        isinstance(part.func, ast.Attribute) and part.func.attr == "t"
        for part in everywhere(product.node, ast.Call)
    )


def is_similarity(module: Module, product: Product) -> bool:
    """Whether a product is a call such as cosine_similarity(), whose vectors no edit gathers."""
    call = product.node
    return isinstance(call, ast.Call) and bool(SIMILARITY.search(module.last_name(call.func)))


def unpacked(module: Module, name: ast.expr) -> ast.expr | None:
    """The call whose result a name is a part of: ``images, texts = all_gather([x, y])``."""
    if not isinstance(name, ast.Name):
        return None
    stores = module.stores.get((module.function(name), name.id), ())
    stmt = module.statement(stores[0]) if len(stores) == 1 else None
    return stmt.value if isinstance(stmt, ast.Assign) else None


def is_gathered(module: Module, vectors: ast.expr) -> bool:
    """Whether the vectors come from a gathering call."""
    for _ in range(MAX_ALIASES):
        calls = [module.dotted(call.func).lower() for call in everywhere(vectors, ast.Call)]
        if any(word in name for name in calls for word in GATHER_NAMES):
            return True
        name = row_source(module, vectors)
        value = module.definition(name, name) or unpacked(module, name)
        if value is None:
            return False
        vectors = value
    return False
