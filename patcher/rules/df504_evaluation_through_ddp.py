"""Evaluation forwards through the DistributedDataParallel wrapper.

What         An evaluation calls the model that it was given, and that may be the wrapper. A note
             where that has no buffers to send, or all ranks go through equally many batches.
At run time  DDP's forward synchronises buffers. A rank that evaluates another number of batches
             than its peers pairs its broadcast with their next training step, or waits for a peer
             that left: 10 of 10 runs of a RoBERTa script ended in a crash. Where all ranks go
             through equally many batches it only costs time.
Example      results = evaluate(args, model, tokenizer)   # model is DDP by now
Fix          Take the module out of its wrapper before eval().
Fix safety   Safe: a model without a wrapper is left as it is. So is a wrapper that alone moves the
             batches to the card, where ranks go through equally many; else move them yourself:
             images = images.cuda()
Source       torch.nn.parallel.DistributedDataParallel (broadcast_buffers)
"""

import ast
from collections.abc import Iterator

from ..analysis.models.buffers import forward_meets, is_bare
from ..analysis.models.wrapping import wraps_for_good
from ..analysis.ranks.batch_samplers import PLAIN
from ..analysis.ranks.evaluating_ranks import (
    gets_the_module,
    may_be_bare,
    ranks_evaluate_elsewhere,
    ranks_keep_pace,
)
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.frameworks import RANK_SAMPLERS
from ..analysis.training.program import Program
from ..analysis.training.unmoved_batches import wrapper_moves
from ..editing.edits import Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.evaluated_modules import (
    UNWRAPPED_NAME,
    is_plain_object,
    is_taken_out_by_function,
    is_the_module,
    is_unwrapped,
    model_uses,
    needs_keys,
    takes_module_out,
)
from ..fixes.process_group import unwrapped_model
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import (
    bound_names,
    everywhere,
    is_inside,
    mentions,
    names_within,
    parameters,
    precedes,
)

CODE, SEVERITY, SAFETY = "DF504", Severity.ERROR, Safety.SAFE

WRAPPERS = ("DistributedDataParallel", "DataParallel")
ASKS_FOR_WRAPPER = ("hasattr", "isinstance", "type", "n_gpu", *WRAPPERS)
WRAPPER_HAS = {  # what every module has, and the module of a wrapper
    *("eval", "train", "training", "module", "parameters", "named_parameters", "zero_grad"),
    *("to", "cuda", "cpu", "half", "float", "modules", "named_modules", "children", "apply"),
    *("named_children", "buffers", "named_buffers", "state_dict", "requires_grad_", "forward"),
}


def findings(program: Program) -> Iterator[Finding]:
    if not wraps_for_good(program, *WRAPPERS) or not program.has_ranks:
        return
    unwrapped: set[ast.stmt] = set()  # a function with two loops calls eval() once
    for evaluation in program.evaluations:
        if ranks_evaluate_elsewhere(program, evaluation) or is_taken_out_by_function(
            program, evaluation
        ):
            continue
        stays = wrapper_moves(program, evaluation)
        if stays and ranks_keep_pace(program, evaluation):
            continue
        for each in through_wrapper(program, evaluation, unwrapped):
            if stays:
                because = f"{each.because}, and the wrapper moves its batches to the card"
                each = Finding(each.module, each.at, because, severity=each.severity)
            yield each


def through_wrapper(
    program: Program, evaluation: Evaluation, unwrapped: set[ast.stmt]
) -> Iterator[Finding]:
    """The finding of one evaluation; ``unwrapped`` are the statements that repair others."""
    module, model, function = evaluation.module, evaluation.model, evaluation.function
    is_passed = function is not None and model in parameters(function)
    if is_its_own(module, evaluation):
        return
    if is_plain_object(program, evaluation):
        if ranks_keep_pace(program, evaluation) or not program.is_live(module, evaluation.mode):
            return
        because = f"{evaluation.name} calls {model}, an object that keeps a model, wrapped or not"
        yield Finding(module, evaluation.mode, because, severity=Severity.DEGRADED)
        return
    if function is not None and is_passed and not needs_keys(program, evaluation):
        if (
            evaluation.mode not in unwrapped
            and not is_unwrapped(evaluation)
            and not gets_the_module(program, evaluation)
        ):
            unwrapped.add(evaluation.mode)
            first = first_need(evaluation)
            inside = [
                Rewrite(asked, model)
                for name in names_within(function.body, {model})
                if (asked := asked_for_module(module, name)) and not precedes(asked, first)
            ]
            yield Finding(
                module,
                evaluation.mode,
                f"{evaluation.name} gets {model} from its caller, wrapped or not",
                (Insert(first, f"{model} = {unwrapped_model(model)}"), *inside),
                severity=severity_of(program, evaluation),
            )
    elif (
        not (is_passed and is_unwrapped(evaluation))
        and (uses := list(model_uses(evaluation)))
        and not is_the_module(module, uses[0])
        and not is_bare(program, module, uses[0])
        and not (takes_module_out(evaluation) and is_always_wrapped(module, uses))
    ):
        bare = name_of_module(program, evaluation)
        taken = module.occurrences(bare) and any(
            bare in bound_names(stmt) for stmt in module.body(evaluation.loop)
        )
        take = () if taken else (Insert(evaluation.loop, f"{bare} = {unwrapped_model(model)}"),)
        yield Finding(
            module,
            uses[0],
            f"{evaluation.name} calls {model} as it is, wrapped or not",
            (
                *take,
                *(Rewrite(asked_for_module(module, use) or use, bare) for use in uses),
            ),
            severity=severity_of(program, evaluation),
        )


def name_of_module(program: Program, evaluation: Evaluation) -> str:
    """The name for what a wrapper holds: each model of a function has one of its own."""
    module, function = evaluation.module, evaluation.module.function(evaluation.loop)
    first = next(
        each.model
        for each in program.evaluations
        if each.module is module and module.function(each.loop) is function
    )
    own = evaluation.model.rpartition(".")[2]
    return UNWRAPPED_NAME if evaluation.model == first else f"eval_{own}"


def is_its_own(module: Module, evaluation: Evaluation) -> bool:
    """Whether a model evaluates itself, ``self(batch)``: no wrapper has its methods."""
    owner = module.enclosing_class(evaluation.loop)
    return (
        evaluation.model == "self"
        and owner is not None
        and not any(module.last_name(base) in WRAPPERS for base in owner.bases)
    )


def is_always_wrapped(module: Module, uses: list[ast.expr]) -> bool:
    """Whether a model is bound to a DistributedDataParallel above its reads, under no test."""
    for use in uses:
        values = module.alternatives(use, use)
        wrap = values[0] if len(values) == 1 else None
        if not isinstance(wrap, ast.Call) or module.last_name(wrap.func) != WRAPPERS[0]:
            return False
        tests = [up for up in module.ancestors(wrap) if isinstance(up, ast.If | ast.Try)]
        if not all(is_inside(use, test) for test in tests):
            return False
    return True


def asked_for_module(module: Module, use: ast.expr) -> ast.Attribute | None:
    """``model.module`` around a read of a wrapped model, where no test asks whether it has one."""
    asked = module.parents[use]
    if not (isinstance(asked, ast.Attribute) and asked.attr == "module"):
        return None
    tests = [
        up if isinstance(up, ast.BoolOp) else up.test
        for up in module.ancestors(use)
        if isinstance(up, ast.If | ast.IfExp | ast.While | ast.BoolOp)
    ]
    in_try = any(isinstance(up, ast.Try) for up in module.ancestors(use))
    asks = any(mentions(test, word) for test in tests for word in ASKS_FOR_WRAPPER)
    return None if in_try or asks else asked


def severity_of(program: Program, evaluation: Evaluation) -> Severity | None:
    """A note where ranks go through equally many batches or no wrapper, no error if they may."""
    if (
        not forward_meets(program, evaluation)
        or takes_module_out(evaluation)
        or ranks_keep_pace(program, evaluation)
    ):
        is_meant = bool(program.calls_to("DistributedDataParallel"))  # not by a patch to come
        return Severity.NOTE if is_meant else Severity.DEGRADED
    entries = program.entries(evaluation)
    is_doubtful = deals_itself(evaluation) or all(
        may_be_bare(program, *each, evaluation)
        for each in entries  # none: who calls is not told
    )
    return Severity.DEGRADED if is_doubtful else None


def deals_itself(evaluation: Evaluation) -> bool:
    """Whether a sampler that is not torch's deals the examples: it may deal all ranks as many."""
    names = {
        evaluation.loader.module.last_name(call.func)
        for sampler in evaluation.loader.samplers
        for call in everywhere(sampler, ast.Call)
    }
    return any(name.endswith("Sampler") and name not in (*RANK_SAMPLERS, *PLAIN) for name in names)


def first_need(evaluation: Evaluation) -> ast.stmt:
    """Where the module has to be out of its wrapper: at eval(), or where it is asked for more."""
    assert evaluation.function is not None
    module, mode = evaluation.module, evaluation.mode
    above = {mode, *module.ancestors(mode)}
    for name in names_within(evaluation.function.body, {evaluation.model}):
        asked = module.parents[name]
        if (
            isinstance(asked, ast.Attribute)
            and asked.attr not in WRAPPER_HAS
            and module.function(name) is evaluation.function
            and precedes(name, mode)
            and not exclusive(name, mode)
        ):
            stmt: ast.AST = module.statement(name)
            while module.parents[stmt] not in above:
                stmt = module.parents[stmt]
            if isinstance(stmt, ast.stmt):
                return stmt
    return mode
