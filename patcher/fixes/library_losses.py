"""Losses that a model of transformers computes as a mean over tokens."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.batches.class_weights import calls_in_training
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import everywhere, keyword, within
from .masked_means import is_for_training_alone

HEADS = ("ForTokenClassification", "ForMaskedLM")
"""Heads whose labels are -100 for most kinds of tokens, so that their number differs."""
CAUSAL = ("LMHeadModel", "ForCausalLM")
"""Heads that compare each token with the one before it; their labels may all count."""
FILLS = (
    *("pad_sequence", "pad", "full", "full_like", "fill_", "masked_fill", "masked_fill_"),
    *("where", "index_fill", "index_fill_", "nan_to_num"),
)
"""Calls that may make labels -100."""
SEQ2SEQ = ("ForConditionalGeneration",)
"""Heads whose labels are -100 where the script makes them so."""


def token_means(program: Program) -> Iterator[tuple[Module, ast.Call, ast.stmt | None, str, str]]:
    """Calls in training steps that return such a mean.

    With each the statement that binds the loss, None where it is not known, the loss's name, and
    the text of the labels. Programs that have models with other heads too are left out.
    """
    heads = {name for name in program.names_of_transformers if "For" in name or "LMHead" in name}
    heads = {name for name in heads if is_used(program, name)}
    is_causal = all(name.endswith(CAUSAL) for name in heads) and pads_labels(program)
    is_seq2seq = bool(heads) and all(name.endswith(SEQ2SEQ) for name in heads)
    if not heads or not (is_causal or is_seq2seq or all(name.endswith(HEADS) for name in heads)):
        return
    is_known = not is_seq2seq or not any(
        module.last_name(base).endswith(SEQ2SEQ)
        for module in program.modules
        for each in module.nodes(ast.ClassDef)
        for base in each.bases
    )
    for module, call, code in calls_with_labels(program):
        labels = labels_of(module, call)
        if not is_seq2seq or masks_labels(module, code, labels) or pads_labels(program):
            counted = f"{labels}[..., 1:]" if is_causal else labels
            function = module.function(call)
            is_step = any(code is loop.steps.body for loop in program.train_loops)
            is_sure = is_known and (is_step or is_for_training_alone(program, function))
            yield module, call, *(binding(code, call) if is_sure else (None, "")), counted


def calls_with_labels(program: Program) -> Iterator[tuple[Module, ast.Call, list[ast.stmt]]]:
    """Calls in training steps that pass labels, each with the code around it.

    In functions that a step calls, those of what no import names and no code of the program is.
    """
    seen: set[ast.Call] = set()
    for loop in program.train_loops:
        for call in within(loop.steps.body, ast.Call):
            if labels_of(loop.module, call):
                seen.add(call)
                yield loop.module, call, loop.steps.body
    for module, call in calls_in_training(program):
        function = module.function(call)
        if call in seen or function is None or not labels_of(module, call):
            continue
        root = module.text(call.func).partition(".")[0]
        is_known = root in module.aliases or bool(program.callees(module, call))
        if not is_known and takes_loss(module, function.body, call):
            yield module, call, function.body


def takes_loss(module: Module, code: list[ast.stmt], call: ast.Call) -> bool:
    """Whether code reads or returns the loss of a call, and not what else comes of it."""
    above = module.parents[call]
    results: ast.expr = call
    if isinstance(above, ast.Assign):
        results = above.targets[0]
    if isinstance(results, ast.Tuple) or isinstance(above, ast.Return):
        return True
    parts = [*within(code, ast.Attribute), *within(code, ast.Subscript)]
    names = {results.id} if isinstance(results, ast.Name) else set()
    handed_on = [
        *(each.value for each in within(code, ast.Return)),
        *(
            each.value
            for each in within(code, ast.Assign)
            if isinstance(each.targets[0], ast.Tuple)
        ),
    ]
    return any(is_first(part, results) for part in parts) or any(
        isinstance(value, ast.Name) and value.id in names for value in handed_on
    )


def is_used(program: Program, head: str) -> bool:
    """Whether a program names a head for its loss.

    Not in a table that another program picks from, nor as the base of a class with a loss of its
    own.
    """
    return any(
        is_picked(program, module, use)
        for module in program.modules
        for local, dotted in module.aliases.items()
        if dotted == f"transformers.{head}" or dotted.endswith(f".{head}")
        for use in module.occurrences(local)
        if not replaces_forward(module, module.parents[use])
    )


def replaces_forward(module: Module, owner: ast.AST) -> bool:
    """Whether it is a class that computes all of its forward pass, and so its loss, itself."""
    return isinstance(owner, ast.ClassDef) and any(
        isinstance(each, ast.FunctionDef)
        and each.name == "forward"
        and not any(
            module.last_name(call.func) == "forward" for call in within(each.body, ast.Call)
        )
        for each in owner.body
    )


def is_picked(program: Program, module: Module, use: ast.AST) -> bool:
    """Whether the table at module level that a name stands in is read; true where it is in none."""
    above = module.parents[use]
    while isinstance(above, ast.Dict | ast.List | ast.Tuple):
        above = module.parents[above]
    if not isinstance(above, ast.Assign) or module.function(above) is not None:
        return True
    targets = [each.id for each in above.targets if isinstance(each, ast.Name)]
    return len(targets) < len(above.targets) or any(
        isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
        for where in program.modules
        for each in where.occurrences(*targets)
    )


def masks_labels(module: Module, code: list[ast.stmt], labels: str) -> bool:
    """Whether a step makes some labels -100: ``labels[labels == pad] = -100`` and the like."""
    for stmt in within(code, ast.Assign):
        targets = [each.value if isinstance(each, ast.Subscript) else each for each in stmt.targets]
        if any(module.text(each) == labels for each in targets) and ignores(stmt.value):
            return True
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "masked_fill_"
        and module.text(call.func.value) == labels
        and ignores(call)
        for call in within(code, ast.Call)
    )


def ignores(node: ast.AST) -> bool:
    """Whether ``-100`` stands in an expression."""
    return any(
        isinstance(each.op, ast.USub)
        and isinstance(each.operand, ast.Constant)
        and each.operand.value == 100
        for each in everywhere(node, ast.UnaryOp)
    )


def pads_labels(program: Program) -> bool:
    """Whether ``padding_value=-100``, ``fill_(-100)`` or the like makes what batches are made of.

    Not what a step itself makes, of which the name is known.
    """
    steps = {loop.steps for loop in program.train_loops}
    return any(
        ignores(node)
        and makes_values(module, node)
        and steps.isdisjoint(module.ancestors(node))
        and program.is_live(module, node)
        for module in program.modules
        if "100" in module.source.text
        for node in module.nodes(ast.UnaryOp)
    )


def makes_values(module: Module, number: ast.UnaryOp) -> bool:
    """Whether a number is filled in: by a call, ``x[mask] = -100``, ``[-100] * n`` or a choice.

    Also under a name: ``PADDING = [-100]``, and ``IGNORED = -100`` with ``[IGNORED] * n``.
    """
    row = module.parents[number]
    value = row if isinstance(row, ast.List) else number
    if fills_in(module, number) or is_repeated(module, value):
        return True
    stmt = module.parents[value]
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    return any(
        isinstance(use, ast.Name)
        and isinstance(use.ctx, ast.Load)
        and (fills_in(module, use) or is_repeated(module, use))
        for use in (module.occurrences(*names) if names else ())
    )


def fills_in(module: Module, number: ast.expr) -> bool:
    """Whether a number goes to ``fill_()`` or the like, into ``x[mask]``, or is one of a choice."""
    match module.parents[number]:
        case ast.Call() as call:
            return module.last_name(call.func) in FILLS
        case ast.keyword() as word:
            above = module.parents[word]
            return isinstance(above, ast.Call) and module.last_name(above.func) in FILLS
        case ast.Assign(targets=[ast.Subscript()]):
            return True
        case ast.IfExp(body=first, orelse=second):
            return number in (first, second)
    return False


def is_repeated(module: Module, value: ast.expr) -> bool:
    """``[-100] * n``, ``[IGNORED] * n`` and ``PADDING * n``."""
    row = module.parents[value]
    product = module.parents[row] if isinstance(row, ast.List) else row
    return isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult)


def labels_of(module: Module, call: ast.Call) -> str:
    """The text of the labels that a call passes, "" where it passes none."""
    word = keyword(call, "labels")
    if word is not None:
        return "" if isinstance(word.value, ast.Constant) else module.text(word.value)
    for each in call.keywords:
        if each.arg is None and isinstance(each.value, ast.Name):
            made = module.definition(each.value, call)
            keys = made.keys if isinstance(made, ast.Dict) else []
            if any(isinstance(key, ast.Constant) and key.value == "labels" for key in keys):
                return f'{each.value.id}["labels"]'
    return ""


def binding(code: list[ast.stmt], call: ast.Call) -> tuple[ast.stmt | None, str]:
    """The statement of a step that binds the first of a call's results to a name, and that name."""
    results: ast.expr = call
    for stmt in within(code, ast.Assign):
        target, value = stmt.targets[0], stmt.value
        if value is call:
            results = target
        elif is_first(value, results) or is_first_of_several(value, results):
            first = target.elts[0] if isinstance(target, ast.Tuple) else target
            return (stmt, first.id) if isinstance(first, ast.Name) else (None, "")
    return None, ""


def is_first_of_several(value: ast.expr, results: ast.expr) -> bool:
    """``results[0], results[1]``."""
    return isinstance(value, ast.Tuple) and bool(value.elts) and is_first(value.elts[0], results)


def is_first(value: ast.expr, results: ast.expr) -> bool:
    """``results[0]``, ``results[:2]``, ``results.loss`` or ``results["loss"]``."""
    if not isinstance(value, ast.Subscript | ast.Attribute):
        return False
    same = value.value is results or (
        isinstance(results, ast.Name)
        and isinstance(value.value, ast.Name)
        and value.value.id == results.id
    )
    if isinstance(value, ast.Attribute):
        return same and value.attr == "loss"
    part = value.slice
    is_head = isinstance(part, ast.Slice) and part.lower is None and part.step is None
    return same and (is_head or (isinstance(part, ast.Constant) and part.value in (0, "loss")))
