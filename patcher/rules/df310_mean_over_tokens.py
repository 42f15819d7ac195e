"""The loss is a mean over tokens or class weights, which differ from rank to rank.

What         A cross entropy leaves padding out, by a mask or by ignore_index: it is a mean over as
             many tokens as the rank's own micro-batch happens to have. So is a sum that the script
             divides by the sum of a mask, or of the lengths of sentences, and so does a model of
             transformers that tags tokens or fills masks, where it gets labels, or translates,
             where the script makes some -100. Where classes have weights, a cross entropy divides
             by those of its targets, unless the targets are probabilities. A Dice loss is a ratio
             of two sums over the batch. A mean is also over unequally many where torch.cat joins
             the rows of examples, one list of each, where sequences are packed, or where padding
             counts that a mask has made 0.
At run time  DistributedDataParallel averages the ranks' gradients as if all had as many tokens:
             those of a rank with short examples count for more. One process at the global batch
             trains another model, by some 1e-4 of the loss in a step. Nothing crashes.
Example      loss = loss_fct(logits[active_loss], labels[active_loss])
Fix          Weigh each rank's mean by its share of all ranks' tokens, in training alone: their
             average is then the mean over the tokens of all.
             With accumulation each micro-batch of all ranks counts as much as the next one, as in
             one process: runs are alike where per-device batch x world size is the same.
             Class weights are only noted: multiply the loss by s * world size / S in training,
             where s is weight[target].sum() and S the sum of all ranks' s (all_reduce). So are
             means whose targets are left out elsewhere: there s is the number of those left in.
             A Dice loss takes the ratio of sums over all ranks: all_reduce each, with its gradient.
Fix safety   Safe: a lone process computes what it did before, and all ranks run the line equally
             often, as DistributedDataParallel requires. Only reported where an evaluation does not
             call model.eval(). Only noted under --exact, which weights ranks by their examples.
Source       torch.nn.CrossEntropyLoss (reduction), torch.nn.parallel.DistributedDataParallel
             (gradients are averaged)
"""

import ast
import re
from collections.abc import Iterator

from ..analysis.batches.class_weights import (
    bound_to,
    class_weighted_losses,
    losses_with_ignored_targets,
    makers,
)
from ..analysis.batches.loss_reduction import Reduction, asked_for
from ..analysis.ranks.own_tests import own_test_around
from ..analysis.training.program import Program, runs_in_training_step, trains_on_several_devices
from ..editing.edits import Define, Edit, Insert
from ..findings import Finding, Safety, Severity
from ..fixes.counted_sums import sums_by_own_counts
from ..fixes.joined_rows import means_over_joined_rows, rows_joined_by_collating
from ..fixes.library_losses import token_means
from ..fixes.masked_means import (
    is_for_training_alone,
    masked_count,
    means_over_masks,
    means_over_selections,
    ratios_of_sums,
)
from ..fixes.packed_steps import means_over_packed_steps
from ..fixes.padded_means import means_over_padding
from ..fixes.process_group import BATCH_SAMPLER
from ..source.module import Module
from ..source.tree import Function, argument, below, everywhere, is_none, keyword

CODE, SEVERITY, SAFETY = "DF310", Severity.DEGRADED, Safety.SAFE

LOSS_CLASSES = ("CrossEntropyLoss", "NLLLoss", "NLLLoss2d")
LOSS_FUNCTIONS = ("cross_entropy", "nll_loss")
DEFAULT_IGNORE_INDEX = "-100"  # of torch
WEIGHT_HELPER = "weighed_by_tokens"


def findings(program: Program) -> Iterator[Finding]:
    if not trains_on_several_devices(program):
        return
    is_exact = any(
        node.name == BATCH_SAMPLER
        for module in program.modules
        for node in module.nodes(ast.ClassDef)
    )
    for each in means_of_a_rank(program):
        yield noted(each) if is_exact else each


def noted(finding: Finding) -> Finding:
    """A finding of a script patched with --exact, which weighs each loss already."""
    because = f"{finding.because}; --exact weighs ranks by their examples"
    return Finding(finding.module, finding.at, because, (), Safety.REPORT, Severity.NOTE)


def means_of_a_rank(program: Program) -> Iterator[Finding]:
    """Losses of a training step that are means over what a rank's own batch leaves in."""
    yield from losses_of_the_library(program)
    yield from losses_that_weigh_classes(program)
    yield from losses_that_are_only_noted(program)
    for module in program.modules:
        weighted = {
            (module.function(call), module.text(call.args[0]))
            for call in module.calls_to(WEIGHT_HELPER)
        }
        for stmt, tokens, names in means_over_tokens(program, module):
            function = module.function(stmt)
            loss = stmt.targets[0]
            assert isinstance(loss, ast.Name)
            if (
                (function, loss.id) not in weighted
                and runs_in_training_step(program, module, function)
                and not is_evaluated(program, module, stmt)
            ):
                because = f"the mean is over {tokens} tokens"
                test = left_by_some(program, module, stmt)
                edits = (
                    weight_by_tokens(program, module, stmt, loss.id, tokens)
                    if not test and loss.id not in names
                    else ()
                )
                yield Finding(module, stmt.value, because + test, edits)


def means_over_tokens(
    program: Program, module: Module
) -> Iterator[tuple[ast.Assign, str, set[str]]]:
    """Statements that bind such a mean, how many tokens it is over, and names in that number."""
    has_losses = any(True for _ in program.calls_to(*LOSS_CLASSES, *LOSS_FUNCTIONS))
    for stmt in module.nodes(ast.Assign):
        if not isinstance(stmt.targets[0], ast.Name):
            continue
        filtered = (
            filtered_labels(program, module, stmt.value)
            if has_losses and isinstance(stmt.value, ast.Call)
            else None
        )
        if filtered is not None:
            labels, ignored = filtered
            names = {name.id for name in everywhere(labels, ast.Name)}
            yield stmt, f"{module.text(labels)}.ne({ignored}).sum()", names
        elif count := masked_count(module, stmt):
            yield stmt, module.text(count), {name.id for name in everywhere(count, ast.Name)}


def losses_of_the_library(program: Program) -> Iterator[Finding]:
    """Losses of a training step that a model of transformers makes of the labels it gets."""
    for module, call, stmt, loss, labels in token_means(program):
        if any(is_weighed(module, call, each) for each in module.calls_to(WEIGHT_HELPER)):
            continue
        tokens = f"{labels}.ne({DEFAULT_IGNORE_INDEX}).sum()"
        code = f"{loss} = {WEIGHT_HELPER}({loss}, {tokens})"
        test = left_by_some(program, module, stmt) if stmt else ""
        edits = (Insert(stmt, code, "after"), Define(WEIGHT_HELPER)) if stmt and not test else ()
        yield Finding(module, call, f"the model's mean is over {tokens} tokens{test}", edits)


def left_by_some(program: Program, module: Module, stmt: ast.stmt) -> str:
    """A test by which some ranks may not come to a loss, in words; empty where all do.

    The edit sums over the ranks, which wait for each other there.
    """
    test = own_test_around(program, module, stmt)
    return f"; ranks may answer the test of line {test.lineno} differently" if test else ""


def losses_that_weigh_classes(program: Program) -> Iterator[Finding]:
    """Losses of a training step that divide by the weights of the classes that a rank has."""
    for loss in class_weighted_losses(program):
        text = loss.module.text(loss.weights)
        named = f" ({text})" if isinstance(loss.weights, ast.Name | ast.Attribute) else ""
        unsure = "" if loss.sure else ", unless they are None"
        because = (
            f"it divides by the class weights{named} of a rank's own targets{unsure}:"
            f" weigh ranks by their sum, as `ddpfix explain {CODE}` says"
        )
        yield Finding(loss.module, loss.call, because, (), Safety.REPORT, Severity.NOTE)


def losses_that_are_only_noted(program: Program) -> Iterator[Finding]:
    """Means over some targets, where the function that computes them does not show which."""
    told: set[ast.AST | None] = {loss.call for loss in class_weighted_losses(program)}
    for module in program.modules:
        for stmt, _, _ in means_over_tokens(program, module):
            told.update(below(stmt))
            if isinstance(stmt.value, ast.Call):
                told.add(loss_definition(module, stmt.value))
                told.update(losses_passed(program, module, stmt.value.func))
    how = f"weigh ranks by their number, as `ddpfix explain {CODE}` says"
    for module, call in losses_with_ignored_targets(program):
        word = keyword(call, "ignore_index")
        ignored = DEFAULT_IGNORE_INDEX if word is None else module.text(word.value)
        if call not in told:
            because = f"the mean leaves out targets that are {ignored}: {how}"
            yield Finding(module, call, because, (), Safety.REPORT, Severity.NOTE)
    for module in program.modules:
        masks = (*means_over_masks(module), *means_over_selections(program, module))
        means = [(node, f"what {module.text(mask)} leaves in") for node, mask in masks]
        sums = sums_by_own_counts(program, module)
        means += [
            (node, f"{module.text(count)}, a sum over a rank's batch") for node, count in sums
        ]
        joined = means_over_joined_rows(program, module)
        means += [(node, f"all rows of {module.text(rows)}") for node, rows in joined]
        padded = means_over_padding(program, module)
        means += [
            (node, f"what {module.text(mask)} leaves out as well, as much as a rank has to pad")
            for node, mask in padded
        ]
        packs = means_over_packed_steps(program, module)
        means += [(node, f"all steps that line {pack.lineno} packs") for node, pack in packs]
        for node, over in means:
            trains = runs_in_training_step(program, module, module.function(node))
            if node not in told and trains and not is_evaluated(program, module, node):
                because = f"the mean is over {over}: {how}"
                yield Finding(module, node, because, (), Safety.REPORT, Severity.NOTE)
                told.add(node)
        for node, part in ratios_of_sums(module):
            trains = runs_in_training_step(program, module, module.function(node))
            if node not in told and trains and not is_evaluated(program, module, node):
                because = (
                    f"a ratio of sums over a rank's own batch, of {module.text(part)}: that of all"
                    " ranks' sums is another one (torch.distributed.nn.functional.all_reduce)"
                )
                yield Finding(module, node, because, (), Safety.REPORT, Severity.NOTE)
    for loop in program.train_loops:
        for where, stmt, rows in rows_joined_by_collating(program, loop):
            if stmt not in told:
                because = (
                    f"batches join all rows of {where.text(rows)}, which examples have unequally"
                    f" many of: where the loss is a mean over them, {how}"
                )
                yield Finding(where, stmt, because, (), Safety.REPORT, Severity.NOTE)
                told.add(stmt)


def is_weighed(module: Module, call: ast.Call, weighing: ast.Call) -> bool:
    """Whether a loss is weighed in the function of the call that computes it."""
    return module.function(weighing) is module.function(call)


def filtered_labels(
    program: Program, module: Module, call: ast.Call
) -> tuple[ast.expr, str] | None:
    """The labels of a mean that leaves some of them out, and the text of the ignored label."""
    labels = argument(call, 1, "target")
    if labels is None:
        return None
    loss = loss_definition(module, call)
    if loss is None:
        losses = losses_passed(program, module, call.func)
        is_sure = losses and all(is_mean(each, 0) and ignored_label(each) for each in losses)
        return (labels, f"{module.text(call.func)}.ignore_index") if is_sure else None
    ignored = ignored_label(loss)
    place = 2 if module.last_name(loss.func) in LOSS_FUNCTIONS else 0
    if not is_mean(loss, place) or (ignored is None and not is_masked(labels)):
        return None
    return labels, module.text(ignored) if ignored else DEFAULT_IGNORE_INDEX


def is_mean(loss: ast.Call, place: int) -> bool:
    """Whether a cross entropy, which takes weights at a place, is a mean over classes alike."""
    weight = argument(loss, place, "weight")
    return (weight is None or is_none(weight)) and asked_for(loss) is Reduction.MEAN


def ignored_label(loss: ast.Call) -> ast.expr | None:
    """The value of ``ignore_index``."""
    option = keyword(loss, "ignore_index")
    return None if option is None else option.value


def loss_definition(module: Module, call: ast.Call) -> ast.Call | None:
    """The call with a cross entropy's options: of the function, or of the loss's class."""
    if module.last_name(call.func) in LOSS_FUNCTIONS:
        return call
    made = call.func if isinstance(call.func, ast.Call) else module.definition(call.func, call)
    values: list[ast.expr | None] = [*module.alternatives(call.func, call)]
    entropies = [
        each
        for each in values or [made]
        if isinstance(each, ast.Call) and module.last_name(each.func) in LOSS_CLASSES
    ]
    return entropies[0] if len(entropies) == 1 else None


def test_of_class(module: Module, call: ast.expr) -> str:
    """A test that holds where a loss is the cross entropy, and not that of another branch."""
    if not isinstance(call, ast.Call) or len(module.alternatives(call.func, call)) < 2:
        return ""
    loss = loss_definition(module, call)
    return f"isinstance({module.text(call.func)}, {module.text(loss.func)})" if loss else ""


def losses_passed(program: Program, module: Module, loss: ast.expr) -> list[ast.Call]:
    """The cross entropies that a parameter or an attribute may be; none where it may be another."""
    values = bound_to(program, module, loss) if isinstance(loss, ast.Name | ast.Attribute) else []
    made = [[*makers(program, where, value)] for where, value in values]
    return [each for each, *_ in made] if all(len(calls) == 1 for calls in made) else []


def is_masked(labels: ast.expr) -> bool:
    """``labels.view(-1)[mask]``, and no slice."""
    return isinstance(labels, ast.Subscript) and isinstance(labels.slice, ast.Name)


def is_evaluated(program: Program, module: Module, stmt: ast.AST) -> bool:
    """Whether ``stmt`` stands in an evaluation's loop."""
    return any(evaluation.loop in module.ancestors(stmt) for evaluation in program.evaluations)


def weight_by_tokens(
    program: Program, module: Module, stmt: ast.stmt, loss: str, tokens: str
) -> tuple[Edit, ...]:
    """Edits that weight the loss in training; none where it may also run in an evaluation."""
    code = f"{loss} = {WEIGHT_HELPER}({loss}, {tokens})"
    assert isinstance(stmt, ast.Assign)
    tests = [each for each in (test_of_class(module, stmt.value),) if each]
    in_step = any(loop.steps in module.ancestors(stmt) for loop in program.train_loops)
    if in_step or is_for_training_alone(program, module.function(stmt)):
        return Insert(stmt, under(tests, code), "after"), Define(WEIGHT_HELPER)
    # ``mode`` is the loop itself where nothing calls ``model.eval()``.
    sets_mode = all(evaluation.mode is not evaluation.loop for evaluation in program.evaluations)
    if sets_mode and is_forward_method(module.function(stmt)) and not is_of_loss(module, stmt):
        code = under(["self.training", *tests], code)
        return Insert(stmt, code, "after"), Define(WEIGHT_HELPER)
    return ()


def under(tests: list[str], code: str) -> str:
    """A statement below some tests, or as it is without one."""
    return f"if {' and '.join(tests)}:\n    {code}" if tests else code


def is_of_loss(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement is of a loss's own class, which trains for ever: none calls eval()."""
    owner = module.enclosing_class(stmt)
    return owner is not None and re.search("loss|criterion", owner.name, re.IGNORECASE) is not None


def is_forward_method(function: Function | None) -> bool:
    """``def forward(self, …)`` of a module, where ``self.training`` is known."""
    return (
        isinstance(function, ast.FunctionDef)
        and function.name == "forward"
        and bool(function.args.args)
        and function.args.args[0].arg == "self"
    )
