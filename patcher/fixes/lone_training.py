"""Edits that let ranks share the training of a script that knows one process and one card.

The model stays what it is, and what reads its attributes, saves or evaluates it as well: only its
call in a training step goes through DistributedDataParallel, by the helper `SHARED`. That is
right where the gradients of a step come from this one call, which is looked for here. Where they
do not, they are averaged by hand before each step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...record import record
from ..analysis.batches.batch_taint import NotDealtError
from ..analysis.batches.carried_state import carried_names
from ..analysis.batches.rates_by_batch import refuse_rates_by_batch
from ..analysis.batches.summed_losses import refuse_summed_losses
from ..analysis.language.call_graph import reachable_functions
from ..analysis.language.name_flow import names_in, spread
from ..analysis.language.training_calls import GRADLESS
from ..analysis.models.batch_norm import norms_by_batch
from ..analysis.models.conversions import converted_model
from ..analysis.models.frozen_parameters import freeze_switches
from ..analysis.models.new_parts import new_parts
from ..analysis.models.past_wrapper import part_called_elsewhere, returned_weight
from ..analysis.models.trained_models import lone_tensors, names_given
from ..analysis.models.unused_parameters import all_get_gradients
from ..analysis.models.wrapper_attributes import is_gradless
from ..analysis.models.wrapping import SHARED
from ..analysis.training.between_trainings import is_reached_in_training, training_loops
from ..analysis.training.frameworks import OPTIMIZERS, SEES_PARAMETERS
from ..analysis.training.own_wrappers import other_subclasses, uses_as_value
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop, backward_calls, loop_around
from ..editing.edits import Define, Edit, Import, Rewrite
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    bound_names,
    everywhere,
    is_false,
    is_inside,
    keyword,
    mentions,
    names_within,
    precedes,
    within,
)
from .averaged_by_hand import average_before_steps
from .batches_without_loader import edits_to_share_batches
from .chosen_cards import NotShareableError, cards_left_to_launcher
from .process_group import are_alternatives

READS = frozenset(
    [
        "train",
        "eval",
        "zero_grad",
        "state_dict",
        "load_state_dict",
        "named_modules",
        "modules",
        "children",
        "named_children",
        "save_pretrained",
        "buffers",
        "named_buffers",
        "to",
        "cuda",
        "cpu",
        "float",
        "half",
        "double",
    ]
).union(SEES_PARAMETERS)
"""Methods of a model that compute nothing whose gradient a step could take."""
MODES = ("train", "eval")  # they return their model
TAKES_MODEL = frozenset(["isinstance", "hasattr", "getattr", "type", "id", "len", "print", "save"])
"""Calls that a model can be passed to, for the same reason."""


WRITES = ("save", "save_on_main", "save_pretrained", "save_file")


@record
class StepCode:
    """Code that a training step runs: the body of its loop, or of a function that it calls."""

    module: Module
    body: list[ast.stmt]
    function: Function | None
    by: ast.Call | None = None  # what calls the function


def edits_to_share(program: Program, loops: list[TrainLoop]) -> list[tuple[Module, Edit]]:
    """Edits that average gradients and of what names a card, each with its module.

    Those of the group are not here. Raises NotShareableError.
    """
    return [*averaged_gradients(program, loops), *cards_left_to_launcher(program)]


def averaged_gradients(
    program: Program, loops: list[TrainLoop], *, are_copies: bool = True
) -> list[tuple[Module, Edit]]:
    """Edits that average the gradients of models without a wrapper. Raises NotShareableError.

    By hand only where ranks surely train copies of one model, and no parts of it.
    """
    refuse_other_work(program, loops)
    refuse_unseen_wrappers(program)
    refuse_sparse_gradients(program)
    try:
        return forward_through_ddp(program, loops)
    except NotShareableError as error:
        if not are_copies:
            raise
        try:
            return average_before_steps(program, loops)
        except NotShareableError as other:
            raise NotShareableError(f"{error}; {other}") from None


def refuse_other_work(program: Program, loops: list[TrainLoop]) -> None:
    """Raise where ranks cannot take shares of the batches, or the mean of their losses is wrong."""
    for loop in loops:
        if loop.loader is None:
            try:
                edits_to_share_batches(program, loop)  # DF401 makes them when there is a group
            except NotDealtError as error:
                file = loop.module.source.path.name
                where = "" if loop.module is loops[0].module else f" in {file}"
                why = f"no DataLoader of its batches could be found{where}, and {error}"
                raise NotShareableError(why) from None
        else:
            refuse_followers(loop)
        try:
            if loop.loader is not None:
                refuse_rates_by_batch(program, loop)
            refuse_summed_losses(program, loop, even_if_divided=False)
        except NotDealtError as error:
            raise NotShareableError(str(error)) from None
    refuse_trainings_elsewhere(program, loops)


def refuse_followers(loop: TrainLoop) -> None:
    """Raise where a loader gives the batches in order, and a step goes on from the one before."""
    loader, body = loop.loader, loop.steps.body
    if loader is None or not isinstance(loop.steps, ast.For) or loader.samplers:
        return
    shuffle = argument(loader.call, 2, "shuffle")
    if (shuffle is not None and not is_false(shuffle)) or loader.batch_sampler is not None:
        return
    own = bound_names(loop.steps.target)  # x, y = x.to(device), y.to(device)
    taint = spread(body, own)
    losses = {
        name
        for call in loop.backwards
        if isinstance(call.func, ast.Attribute)
        for name in names_in(call.func.value)
    }
    for name, line in carried_names(body, taint):
        if name not in losses | own and spread(body, {name}).names & losses:
            raise NotShareableError(
                f"its batches follow each other: line {line} goes on with the {name} of the one"
                " before"
            )


def forward_through_ddp(program: Program, loops: list[TrainLoop]) -> list[tuple[Module, Edit]]:
    """Edits of the one forward pass of each training loop, with its module.

    Raises NotShareableError.
    """
    models = models_of_optimizers(program)
    if weight := returned_weight(program):
        raise NotShareableError(f"line {weight[1].lineno} returns a parameter for the loss")
    if part := part_called_elsewhere(program, models):
        raise NotShareableError(
            f"what gets {part[0].text(part[1])} in line {part[1].lineno} calls it past the model's"
            " forward pass"
        )
    for where, tensor in lone_tensors(program):
        name = where.text(tensor)
        raise NotShareableError(f"line {tensor.lineno} trains {name}, which is in no model")
    refuse_thaws(program)
    edits: dict[ast.Call, tuple[Module, Edit]] = {}
    for loop in loops:
        refuse_other_gradients(program, loop)
        refuse_conversions(program, loop, models)
        module, calls = forward_calls(program, loop, models)
        for call in calls:
            model = module.text(call.func).removesuffix(".forward")
            # Without it torch raises in the second step where a parameter gets no gradient.
            option = "" if all_get_gradients(program, model) else ", find_unused_parameters=True"
            edits[call] = module, Rewrite(call.func, f"{SHARED}({model}{option})")
    needed: list[Edit] = [Define(SHARED), Import("torch")]
    modules = dict.fromkeys(module for module, _ in edits.values())
    return [*edits.values(), *((module, edit) for module in modules for edit in needed)]


def refuse_unseen_wrappers(program: Program) -> None:
    """Raise where a model may go into a DataParallel that the other rules do not see as one."""
    uses = [
        *((module, call.func) for module, call in program.calls_to(*other_subclasses(program))),
        *((module, use) for module in program.modules for use in uses_as_value(module)),
        *(
            (module, call.func)
            for module, call in program.calls_to("replicate", "parallel_apply")
            if module.dotted(call.func).startswith("torch.nn.parallel.")
        ),
    ]
    for module, use in uses:
        if program.is_live(module, use):
            raise NotShareableError(
                f"line {use.lineno} of {module.source.file} spreads a model over all cards, by"
                f" {module.text(use)}"
            )


def refuse_sparse_gradients(program: Program) -> None:
    """Raise where an embedding has sparse gradients, of which NCCL makes no mean."""
    for module, call in program.calls_to("Embedding", "EmbeddingBag"):
        sparse = keyword(call, "sparse")
        if sparse is not None and not is_false(sparse.value) and program.is_live(module, call):
            raise NotShareableError(
                f"the gradients of the embedding of line {call.lineno} are sparse, which ranks do"
                " not average on cards: make it without sparse=True"
            )


def refuse_trainings_elsewhere(program: Program, loops: list[TrainLoop]) -> None:
    """Raise where processes that the script starts may train; a Pool that reads data is none."""
    functions = [loop.module.function(loop.steps) for loop in loops]
    names = {function.name for function in functions if function is not None}
    for module, call in program.calls_to("Process", "spawn", "Pool"):
        if not program.is_live(module, call) or "multiprocessing" not in module.dotted(call.func):
            continue
        passed = [
            node
            for other in module.nodes(ast.Call)
            for value in other.args
            for node in names_within(value, names)
        ]
        if passed or (module.last_name(call.func) != "Pool" and not only_reads(program, call)):
            raise NotShareableError(f"line {call.lineno} starts processes of its own")


def only_reads(program: Program, call: ast.Call) -> bool:
    """``Process(target=self.load)``, where no function of that name goes back or steps."""
    worker = argument(call, 1, "target") if keyword(call, "target") else None
    if not isinstance(worker, ast.Name | ast.Attribute):
        return False
    functions = reachable_functions(program, {name_of(worker)})
    return bool(functions) and not any(
        each.func.attr in ("backward", "step", "all_reduce", "init_process_group")
        for function in functions
        for each in within(function.body, ast.Call)
        if isinstance(each.func, ast.Attribute)
    )


def refuse_other_gradients(program: Program, loop: TrainLoop) -> None:
    """Raise where a step takes gradients in a way that averaging once per backward misses."""
    found = backward_calls(program, loop)
    if not found:
        raise NotShareableError("where a step goes back cannot be told")
    (module, first), *others = found
    for where, other in others:
        if where is not module or not are_alternatives(module, module.statement(first), other):
            raise NotShareableError("a step takes several backward passes")
    if any(keyword(first, name) for name in ("retain_graph", "inputs")):
        raise NotShareableError("a step takes several backward passes, or one to some tensors")
    if adds_up_losses(module, loop, first) and norms_by_batch(program):
        raise NotShareableError("a step goes back through several forward passes")
    for module, call in program.calls_to("grad", "compile", "checkpoint_sequential"):
        if module.dotted(call.func).startswith("torch.") and program.is_live(module, call):
            raise NotShareableError(f"{module.text(call.func)}() is used")
    around: ast.AST = loop.epochs or loop.steps
    for place in places_below(program, StepCode(loop.module, [*within_body(around)], None)):
        for node in within(place.body, ast.Attribute):
            if node.attr == "requires_grad_" or (
                node.attr == "requires_grad" and isinstance(node.ctx, ast.Store)
            ):
                raise NotShareableError(
                    f"line {node.lineno} freezes or thaws parameters while it trains"
                )


def refuse_thaws(program: Program) -> None:
    """Raise where a later training trains what the wrapper of the first one does not know."""
    changes = [
        (each.module, each.stmt, "thaws parameters")
        for each in freeze_switches(program)
        if each.thaws is not False
    ]
    changes += [(*place, "puts a part into a model") for place in new_parts(program)]
    loops = training_loops(program) if changes else set()
    for module, stmt, does in changes:
        if program.is_live(module, stmt) and is_reached_in_training(program, loops, module, stmt):
            raise NotShareableError(f"line {stmt.lineno} {does} between trainings")


def adds_up_losses(module: Module, loop: TrainLoop, backward: ast.Call) -> bool:
    """Whether losses of several batches are added up before a test lets a step go back from them.

    Before each forward pass DistributedDataParallel puts the averages of batch norm in place, which
    on cards the backward pass of an earlier one still needs.
    """
    loss = backward.func.value if isinstance(backward.func, ast.Attribute) else None
    if not isinstance(loss, ast.Name) or not is_inside(backward, loop.steps):
        return False
    around = module.ancestors(backward)
    is_tested = any(isinstance(up, ast.If) for up in around[: around.index(loop.steps)])
    return is_tested and any(
        isinstance(stmt.op, ast.Add)
        and mentions(stmt.target, loss.id)
        and not is_bound_in_round(module, stmt, loss.id, loop)
        for stmt in within(loop.steps.body, ast.AugAssign)
    )


def is_bound_in_round(module: Module, stmt: ast.stmt, name: str, loop: TrainLoop) -> bool:
    """Whether the same round of the loop binds a name anew on the way to a statement."""
    return any(
        is_inside(store, loop.steps)
        and precedes(store, stmt)
        and isinstance(module.parents[store], ast.Assign)
        and not exclusive(store, stmt)
        for store in module.stores.get((module.function(stmt), name), ())
    )


def refuse_conversions(program: Program, loop: TrainLoop, models: set[str]) -> None:
    """Raise where a model's weights are moved away or converted while it trains."""
    around: ast.AST = loop.epochs or loop.steps
    for place in places_below(program, StepCode(loop.module, [*within_body(around)], None)):
        for call in within(place.body, ast.Call):
            if last(converted_model(place.module, call)) in models:
                raise NotShareableError(
                    f"line {call.lineno} moves or converts the model while it trains"
                )


def within_body(loop: ast.AST) -> list[ast.stmt]:
    """The statements that a loop repeats."""
    assert isinstance(loop, ast.For | ast.While)
    return loop.body


def models_of_optimizers(program: Program) -> set[str]:
    """What the one model is called whose parameters all optimizers take."""
    optimizers = [
        (module, call)
        for module, call in program.calls_to(*OPTIMIZERS)
        if program.is_live(module, call)
    ]
    if not optimizers:
        raise NotShareableError(
            "which model its optimizer steps cannot be told: bind it to a name,"
            " optimizer = Kind(model.parameters()), which is stepped and cleared"
        )
    models: set[str] = set()
    for module, call in optimizers:
        scope = module.scope_statements(call)
        owners = [
            owner_of(module, each.func.value)
            for each in within(scope, ast.Call)
            if isinstance(each.func, ast.Attribute) and each.func.attr in SEES_PARAMETERS
        ]
        if not owners:
            raise NotShareableError("whose parameters its optimizer takes cannot be told")
        for owner in owners:
            models |= {last(name) for name in names_given(program, module, owner)}
    if len(models) != 1:
        raise NotShareableError(f"it trains several models: {', '.join(sorted(models))}")
    return models


def owner_of(module: Module, node: ast.expr) -> ast.expr:
    """``model`` of ``model.encoder``, and ``self.model`` of ``self.model.encoder``."""
    while isinstance(node, ast.Attribute) and not is_self(node.value):
        node = node.value
    if not isinstance(node, ast.Name | ast.Attribute):
        raise NotShareableError(f"whose parameters {module.text(node)} has cannot be told")
    return node


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def last(name: str) -> str:
    """``model`` of ``self.model``."""
    return name.rpartition(".")[2]


def forward_calls(
    program: Program, loop: TrainLoop, models: set[str]
) -> tuple[Module, list[ast.Call]]:
    """The calls of the model that a training step takes its gradients from: one in each branch."""
    found: list[tuple[Module, ast.Call]] = []
    by: dict[ast.Call, ast.Call | None] = {}  # what calls the function that has each
    start = StepCode(loop.module, loop.steps.body, loop.module.function(loop.steps))
    for place in places_below(program, start):
        for node in uses_of(program, place, models):
            call = forward_call(place.module, node)
            if call is None:
                refuse_other_use(program, place.module, node)
            elif not is_gradless(place.module, call):
                found.append((place.module, call))
                by[call] = place.by
    if not found:
        raise NotShareableError("where a step calls its model cannot be told")
    (module, first), *others = found
    for where, other in others:
        is_of_one_object = by[first] is not None and by[first] is by[other]
        if where is not module or not (
            are_alternatives(module, module.statement(first), other)
            or (is_of_one_object and module.function(first) is not module.function(other))
        ):
            lines = f"in lines {first.lineno} and {other.lineno}"
            raise NotShareableError(f"a step calls its model several times, {lines}")
    for where, call in found:
        inner = loop_around(where, call)
        if inner is not None and inner is not loop.steps:
            raise NotShareableError(f"a step calls its model in a loop, in line {call.lineno}")
        names = bound_names(inner.target) if isinstance(inner, ast.For) else set()
        if not names.isdisjoint(name.id for name in everywhere(call.func, ast.Name)):
            line = loop.steps.lineno
            raise NotShareableError(f"line {line} takes a step of one model after another")
    return module, [call for _, call in found]


def places_below(program: Program, start: StepCode) -> Iterator[StepCode]:
    """A place and the functions that it calls, also through others, where gradients are taken."""
    seen: set[Function] = set()
    pending = [start]
    while pending:
        place = pending.pop()
        yield place
        for call in within(place.body, ast.Call):
            if is_gradless(place.module, call):
                continue
            for module, function in program.callees(place.module, call):
                owner = module.enclosing_class(function)
                if function in seen or is_evaluation(function) or is_network(module, owner):
                    continue
                seen.add(function)
                pending.append(StepCode(module, function.body, function, call))


def is_read_only_alias(module: Module, node: ast.expr) -> bool:
    """``to_save = model.module if hasattr(model, "module") else model``, which is only read."""
    stmt = module.statement(node)
    if not (isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name)):
        return False
    alias = stmt.targets[0].id
    if len(stmt.targets) > 1 or module.text(node) == alias:
        return False
    for use in names_within(module.scope_statements(stmt), {alias}):
        up = module.parents[use]
        called = isinstance(up, ast.Attribute) and up.attr in READS
        if isinstance(use.ctx, ast.Load) and not (called and forward_call(module, up)):
            return False
    return True


def only_saves(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call is a statement of its own, of a method that writes weights to a file.

    ``model.save(path)``, which computes nothing.
    """
    functions = program.callees(module, call) or program.possible_callees(module, call)
    return (isinstance(module.parents[call], ast.Expr) and bool(functions)) and all(
        any(where.last_name(each.func) in WRITES for each in within(function.body, ast.Call))
        and not any(computes(each.func) for each in within(function.body, ast.Call))
        for where, function in functions
    )


def computes(func: ast.expr) -> bool:
    """Whether a call is of the object itself, of its forward pass or a step of a training."""
    return is_self(func) or getattr(func, "attr", "") in ("forward", "backward", "step")


def keeps_model(module: Module, node: ast.expr) -> bool:
    """Whether ``model = model.train()`` gives the model the name that it has."""
    stmt = module.statement(node)
    if not isinstance(stmt, ast.Assign) or stmt.targets != [node]:
        return False
    func = stmt.value.func if isinstance(stmt.value, ast.Call) else None
    return (
        isinstance(func, ast.Attribute)
        and func.attr in MODES
        and module.text(func.value) == module.text(node)
    )


def is_network(module: Module, owner: ast.ClassDef | None) -> bool:
    """Whether a class is a model's own, whose methods run in its forward pass."""
    return owner is not None and any(
        isinstance(each, ast.FunctionDef) and each.name == "forward" for each in owner.body
    )


def is_evaluation(function: Function) -> bool:
    """Whether a function computes without gradients, or puts a model into eval mode."""
    return any(
        isinstance(node, ast.Name | ast.Attribute) and name_of(node) in GRADLESS
        for each in function.decorator_list
        for node in ast.walk(each)
    ) or any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "eval" and not call.args
        for call in within(function.body, ast.Call)
    )


def name_of(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def uses_of(
    program: Program, place: StepCode, models: set[str]
) -> Iterator[ast.Name | ast.Attribute]:
    """Where code reads a model, by what it is called where it was made."""
    for kind in (ast.Name, ast.Attribute):
        for node in within(place.body, kind):
            assert isinstance(node, ast.Name | ast.Attribute)
            if isinstance(node, ast.Attribute) and not is_self(node.value):
                continue
            names = names_given(program, place.module, node)
            if models & {last(name) for name in names}:
                yield node


def forward_call(module: Module, node: ast.AST) -> ast.Call | None:
    """``model(batch)`` or ``model.forward(batch)`` of ``model``."""
    up = module.parents[node]
    if isinstance(up, ast.Attribute) and up.attr == "forward":
        node, up = up, module.parents[up]
    return up if isinstance(up, ast.Call) and up.func is node else None


def refuse_other_use(program: Program, module: Module, node: ast.expr) -> None:
    """Raise where a use of the model that is no call may add to the gradients of a step."""
    if keeps_model(module, node):
        return
    up = module.parents[node]
    read: ast.AST = node
    while isinstance(up, ast.Attribute):
        read, up = up, module.parents[up]
    if isinstance(up, ast.Call) and up.func is read:
        assert isinstance(read, ast.Attribute)
        if (
            read.attr not in READS
            and not is_gradless(module, up)
            and not only_saves(program, module, up)
        ):
            raise NotShareableError(
                f"a step calls {module.text(read)}(), past the model's forward pass"
            )
        return
    if read is not node:
        return  # an attribute that is only read, such as model.config
    call = up if isinstance(up, ast.Call) else module.parents[up]
    if (
        isinstance(call, ast.Call)
        and not is_gradless(module, call)
        and not (module.last_name(call.func) in TAKES_MODEL or program.callees(module, call))
    ):
        raise NotShareableError(f"a step passes its model to {module.text(call.func)}()")
    if not isinstance(call, ast.Call) and not is_read_only_alias(module, node):
        raise NotShareableError(f"line {node.lineno} keeps the model under another name")
