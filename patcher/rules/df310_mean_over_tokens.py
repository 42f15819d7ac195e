"""The loss is a mean over tokens, of which each rank has another number.

What         A cross entropy leaves padding out, by a mask or by ignore_index: it is a mean over as
             many tokens as the rank's own micro-batch happens to have.
At run time  DistributedDataParallel averages the ranks' gradients as if all had as many tokens:
             those of a rank with short examples count for more. One process at the global batch
             trains another model, by some 1e-4 of the loss in a step. Nothing crashes.
Example      loss = loss_fct(logits[active_loss], labels[active_loss])
Fix          Weigh each rank's mean by its share of all ranks' tokens, in training alone: their
             average is then the mean over the tokens of all.
             With accumulation each micro-batch of all ranks counts as much as the next one, as in
             one process: runs are alike where per-device batch x world size is the same.
Fix safety   Safe: a lone process computes what it did, and ranks come by equally often, as they
             have to for DistributedDataParallel. Reported only where an evaluation does not say
             model.eval(). Left alone under --exact, which weighs ranks by their examples.
Source       torch.nn.CrossEntropyLoss (reduction), torch.nn.parallel.DistributedDataParallel
             (gradients are averaged)
"""

import ast
from collections.abc import Iterator

from ..analysis.program import Program, is_trained_on, trains_on_several
from ..editing.edits import Define, Edit, Insert
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import Function, argument, everywhere, keyword

CODE, SEVERITY, SAFETY = "DF310", Severity.DEGRADED, Safety.SAFE

LOSSES = ("CrossEntropyLoss", "NLLLoss")
FUNCTIONS = ("cross_entropy", "nll_loss")
IGNORED = "-100"  # torch's own
SHARED = "SharedBatchSampler"  # of --exact
WEIGH = "weighed_by_tokens"


def findings(program: Program) -> Iterator[Finding]:
    if not trains_on_several(program):
        return
    if any(
        node.name == SHARED for module in program.modules for node in module.nodes(ast.ClassDef)
    ):
        return
    for module in program.modules:
        if not module.calls_to(*LOSSES, *FUNCTIONS):
            continue
        weighed = {module.function(call) for call in module.calls_to(WEIGH)}
        for stmt in module.nodes(ast.Assign):
            call, target = stmt.value, stmt.targets[0]
            if not isinstance(call, ast.Call) or not isinstance(target, ast.Name):
                continue
            counted = labels_of(module, call)
            function = module.function(stmt)
            if counted is None or function in weighed:
                continue
            if is_trained_on(program, module, function) and not is_evaluated(program, module, stmt):
                labels, ignored = counted
                tokens = f"{module.text(labels)}.ne({ignored}).sum()"
                names = {name.id for name in everywhere(labels, ast.Name)}
                edits = (
                    () if target.id in names else share(program, module, stmt, target.id, tokens)
                )
                yield Finding(module, call, f"the mean is over {tokens} tokens", edits)


def labels_of(module: Module, call: ast.Call) -> tuple[ast.expr, str] | None:
    """Labels of which a mean leaves some out, and the one that is none."""
    labels = argument(call, 1, "target")
    made = loss_of(module, call) if labels is not None else None
    if made is None or labels is None or keyword(made, "weight") is not None:
        return None
    reduction = keyword(made, "reduction")
    if reduction is not None and module.text(reduction.value).strip("\"'") != "mean":
        return None
    ignored = keyword(made, "ignore_index")
    if ignored is None and not is_picked(labels):
        return None
    return labels, module.text(ignored.value) if ignored else IGNORED


def loss_of(module: Module, call: ast.Call) -> ast.Call | None:
    """The call that says how a cross entropy is taken: of the function, or of the loss's class."""
    if module.last_name(call.func) in FUNCTIONS:
        return call
    made = call.func if isinstance(call.func, ast.Call) else module.definition(call.func, call)
    is_loss = isinstance(made, ast.Call) and module.last_name(made.func) in LOSSES
    return made if is_loss and isinstance(made, ast.Call) else None


def is_picked(labels: ast.expr) -> bool:
    """``labels.view(-1)[mask]``: as many as the mask has, and no slice."""
    return isinstance(labels, ast.Subscript) and isinstance(labels.slice, ast.Name)


def is_evaluated(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether it stands in an evaluation's loop."""
    return any(evaluation.loop in module.ancestors(stmt) for evaluation in program.evaluations)


def share(
    program: Program, module: Module, stmt: ast.stmt, loss: str, tokens: str
) -> tuple[Edit, ...]:
    """Edits that weigh the loss in training, none where that is not proven."""
    weigh = f"{loss} = {WEIGH}({loss}, {tokens})"
    if any(loop.steps in module.ancestors(stmt) for loop in program.train_loops):
        return Insert(stmt, weigh, "after"), Define(WEIGH)
    quiet = all(evaluation.mode is not evaluation.loop for evaluation in program.evaluations)
    if quiet and is_forward(module.function(stmt)):
        return Insert(stmt, f"if self.training:\n    {weigh}", "after"), Define(WEIGH)
    return ()


def is_forward(function: Function | None) -> bool:
    """A module's own, which knows whether it trains."""
    return (
        isinstance(function, ast.FunctionDef)
        and function.name == "forward"
        and bool(function.args.args)
        and function.args.args[0].arg == "self"
    )
