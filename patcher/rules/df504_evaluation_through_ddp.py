"""Evaluation forwards through the DistributedDataParallel wrapper.

What         A function in eval mode calls the model as it came, and it may come wrapped.
At run time  DDP's forward synchronises buffers. A rank that evaluates another number of batches
             than its peers pairs its broadcast with their next training step, or waits for a peer
             that left: 10 of 10 runs of a RoBERTa script ended in a crash.
Example      results = evaluate(args, model, tokenizer)   # model is DDP by now
Fix          Take the module out of its wrapper before eval().
Fix safety   Safe: a model without a wrapper is left as it is.
Source       torch.nn.parallel.DistributedDataParallel (broadcast_buffers)
"""

import ast
from collections.abc import Iterator

from ..edits import Insert
from ..facts import Evaluation, Unit
from ..findings import Finding, Safety, Severity
from ..syntax import bound_names, mentions, within

CODE, SEVERITY, SAFETY = "DF504", Severity.ERROR, Safety.SAFE

WRAPPERS = ("DistributedDataParallel", "DataParallel")


def findings(unit: Unit) -> Iterator[Finding]:
    if not any(module.calls_to(*WRAPPERS) for module in unit.modules):
        return
    for evaluation in unit.evaluations:
        parameters = {arg.arg for arg in evaluation.function.args.args}
        if evaluation.model not in parameters or is_unwrapped(evaluation):
            continue
        model = evaluation.model
        yield Finding(
            evaluation.module,
            evaluation.mode,
            f"{evaluation.function.name}() gets {model} from its caller, wrapped or not",
            (Insert(evaluation.mode, f"{model} = getattr({model}, 'module', {model})"),),
        )


def is_unwrapped(evaluation: Evaluation) -> bool:
    """Whether the function takes ``.module`` out of its model before the loop."""
    return any(
        evaluation.model in bound_names(stmt)
        and (mentions(stmt.value, "module") or "'module'" in evaluation.module.text(stmt.value))
        for stmt in within(evaluation.function.body, ast.Assign)
    )
