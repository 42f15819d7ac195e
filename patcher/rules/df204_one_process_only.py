"""One process trains, on one card.

What         The script trains a model and knows of no other process and no second card: no process
             group, no DataParallel, no library that runs the training.
At run time  It is right alone. Under a launcher, N processes train N models of their own on the
             same data, each as long as one alone, and rank 0 saves one of them.
Example      model = Net().cuda()   # and no DistributedDataParallel anywhere
Fix          A process group as in DF201; the call of the model in a training step goes through
             DistributedDataParallel (the helper over_ranks), so that all else, such as saving,
             evaluating and reading attributes, keeps the model as it is. DF401 then deals the data.
             Where a step does more than call one model once, and go back through it once, as that
             of a GAN does, all ranks average the gradients before each optimizer steps
             (average_gradients), and begin with the same weights (same_weights). Where neither is
             right, or no loop can be seen around the backward pass, the finding says why.
Fix safety   Safe: without a launcher nothing changes. Where the result would not be right, the
             script is patched without it, and the finding says why.
Source       https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

import ast
from collections.abc import Iterator

from ..analysis.language.name_flow import roots
from ..analysis.models.wrapping import averages_otherwise, loops_that_step
from ..analysis.training.frameworks import OPTIMIZERS, may_have_group
from ..analysis.training.program import Program
from ..analysis.training.train_loops import is_backward
from ..editing.edits import Edit
from ..findings import Finding, Safety, Severity
from ..fixes.chosen_cards import NotShareableError
from ..fixes.counted_cards import one_card_each
from ..fixes.group_setup import group_setup, why_no_group
from ..fixes.lone_training import edits_to_share
from ..source.module import Module
from ..source.tree import everywhere, mentions, within

CODE, SEVERITY, SAFETY = "DF204", Severity.NOTE, Safety.SAFE

BECAUSE = "under a launcher each rank trains a model alone"
GROUP_MAKERS = ("init_process_group", "init_device_mesh", "init_distributed")
IN_PLACE = ("add_", "sub_", "copy_")
SPREADS = ("DataParallel", "DistributedDataParallel", *GROUP_MAKERS)


def findings(program: Program) -> Iterator[Finding]:
    yield from unseen_steps(program)
    yield from taken_by_hand(program)
    if not program.is_training_program or averages_otherwise(program):
        return
    # A copied network may spread its layers where nothing comes to.
    wraps = [place for place in program.calls_to(*SPREADS) if program.is_live(*place)]
    if wraps:
        spread = any(module.last_name(call.func) == "DataParallel" for module, call in wraps)
        if not spread and not may_have_group(program):  # DF201 makes one
            yield Finding(*wraps[0], f"{BECAUSE}: nothing makes the process group that this needs")
        return
    loops = loops_that_step(program)
    if not loops:
        yield from [*stepped_by_hand(program)] or stepped_otherwise(program)
        return
    module, steps = loops[0].module, loops[0].steps
    try:
        parts = edits_to_share(program, loops)
        group = group_setup(program)
        if not group:
            raise NotShareableError(why_no_group(program))
    except NotShareableError as error:
        yield Finding(module, steps, f"{BECAUSE}, and {error}")
        return
    edits: dict[Module, list[Edit]] = {module: [], program.script: [*group]}
    for where in program.modules[1:]:
        counted = [edit for _, own in one_card_each(program, where) for edit in own]
        parts = [*parts, *((where, edit) for edit in counted)]
    for where, edit in parts:
        edits.setdefault(where, []).append(edit)
    for where, own in edits.items():
        if where is module:
            yield Finding(module, steps, BECAUSE, tuple(own))
        elif own:
            because = f"no process group is made for the training in {module.source.path.name}"
            yield Finding(where, where.tree.body[0], because, tuple(own))


def unseen_steps(program: Program) -> Iterator[Finding]:
    """A backward pass that the script comes to, where no loop can be seen that it is of."""
    if not program.goes_back_unseen or program.makes_optimizer_for_wrapped:
        return  # DF201 tells of the latter
    if program.calls_to("DistributedDataParallel", *GROUP_MAKERS) or averages_otherwise(program):
        return
    for module, call in program.calls_to("backward"):
        if is_backward(call) and program.is_called(module, call) and program.is_live(module, call):
            because = f"{BECAUSE}, and no loop around this backward pass can be seen"
            yield Finding(module, call, because)
            return


def taken_by_hand(program: Program) -> Iterator[Finding]:
    """Gradients that the script takes of a model, and never by a backward pass."""
    if program.calls_to("DistributedDataParallel", *GROUP_MAKERS):
        return
    for module, call in program.gradients_by_hand:
        if program.is_live(module, call):
            because = "its gradients come from torch.autograd.grad, not from a backward pass"
            yield Finding(module, call, f"{BECAUSE}, and {because}")
            return


def stepped_by_hand(program: Program) -> Iterator[Finding]:
    """A training loop that steps as ``for p in model.parameters(): p.data.add_(p.grad)`` does.

    Also in a function that a step calls, and one parameter after the other: ``w -= lr * w.grad``.
    """
    for loop in program.train_loops:
        blocks = [
            (loop.module, loop.steps.body),
            *(
                (where, function.body)
                for stmt in loop.steps.body
                for where, function in program.functions_below(loop.module, stmt)
            ),
        ]
        for where, body in blocks:
            kinds = (ast.AugAssign, ast.Assign, ast.Expr)
            changes = [each for kind in kinds for each in within(body, kind) if goes_down(each)]
            if changes and program.is_live(where, changes[0]):
                because = f"{BECAUSE}, and line {changes[0].lineno} steps without an optimizer"
                yield Finding(loop.module, loop.steps, because)
                return


def goes_down(stmt: ast.stmt) -> bool:
    """Whether a statement changes a parameter by its own gradient; by its sign, it is an input."""
    match stmt:
        case ast.AugAssign(target=target, value=change):
            pass
        case ast.Assign(targets=[target], value=change):
            pass
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr=attr)) as change):
            if attr not in IN_PLACE:
                return False
        case _:
            return False
    return not mentions(change, "sign") and any(
        roots(each.value) == roots(target)
        for each in everywhere(change, ast.Attribute)
        if each.attr == "grad"
    )


def stepped_otherwise(program: Program) -> Iterator[Finding]:
    """A training loop beside an optimizer of which no step is seen, as of ``first_step()``."""
    own = {
        owner.name
        for module in program.modules
        for owner in module.nodes(ast.ClassDef)
        if any(module.dotted(base).startswith("torch.optim.") for base in owner.bases)
    }
    if not any(program.is_live(*made) for made in program.calls_to(*sorted(OPTIMIZERS | own))):
        return
    for loop in program.train_loops:
        if program.is_live(loop.module, loop.steps):
            because = f"{BECAUSE}, and where its optimizer steps cannot be told"
            yield Finding(loop.module, loop.steps, because)
            return
