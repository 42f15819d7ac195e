"""Losses that a model of transformers computes as a mean over tokens."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..source.module import Module
from ..source.tree import argument_values, everywhere, keyword, within

HEADS = ("ForTokenClassification", "ForMaskedLM")
"""Heads whose labels are -100 for most kinds of tokens, so that their number differs."""
CAUSAL = ("LMHeadModel", "ForCausalLM")
"""Heads that compare each token with the one before it; their labels may all count."""
FILLS = ("pad_sequence", "pad", "full", "full_like", "fill_", "masked_fill", "masked_fill_")
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
    for loop in program.train_loops:
        for call in within(loop.steps.body, ast.Call):
            labels = labels_of(loop.module, call)
            if labels and (not is_seq2seq or masks_labels(loop, labels) or pads_labels(program)):
                counted = f"{labels}[..., 1:]" if is_causal else labels
                bound = binding(loop, call) if is_known else (None, "")
                yield loop.module, call, *bound, counted


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


def masks_labels(loop: TrainLoop, labels: str) -> bool:
    """Whether a step makes some labels -100: ``labels[labels == pad] = -100`` and the like."""
    module = loop.module
    for stmt in within(loop.steps.body, ast.Assign):
        targets = [each.value if isinstance(each, ast.Subscript) else each for each in stmt.targets]
        if any(module.text(each) == labels for each in targets) and ignores(stmt.value):
            return True
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "masked_fill_"
        and module.text(call.func.value) == labels
        and ignores(call)
        for call in within(loop.steps.body, ast.Call)
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
    """Whether ``padding_value=-100`` or ``fill_(-100)`` fills up what batches are made of."""
    return any(
        ignores(value)
        for module, call in program.calls_to(*FILLS)
        if program.is_live(module, call)
        for value in argument_values(call)
        if isinstance(value, ast.UnaryOp)
    )


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


def binding(loop: TrainLoop, call: ast.Call) -> tuple[ast.stmt | None, str]:
    """The statement of a step that binds the first of a call's results to a name, and that name."""
    results: ast.expr = call
    for stmt in within(loop.steps.body, ast.Assign):
        target, value = stmt.targets[0], stmt.value
        if value is call:
            results = target
        elif is_first(value, results):
            first = target.elts[0] if isinstance(target, ast.Tuple) else target
            return (stmt, first.id) if isinstance(first, ast.Name) else (None, "")
    return None, ""


def is_first(value: ast.expr, results: ast.expr) -> bool:
    """``results[0]``, ``results[:2]`` or ``results.loss``."""
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
    return same and (is_head or (isinstance(part, ast.Constant) and part.value == 0))
