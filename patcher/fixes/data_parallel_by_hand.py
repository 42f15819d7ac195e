"""Edits that leave DataParallel to ranks, each on its own card, and average gradients by hand.

They are for models that DistributedDataParallel cannot take the place of DataParallel for: a part
alone is wrapped, weights are converted behind the wrapper, a step calls the model's methods. All
that reads ``model.module``, or a checkpoint whose keys begin with it, then works as before.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..analysis.language.names import answered_once
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.models.adapted_copies import adapted_copy
from ..analysis.models.kept_graphs import kept_graph
from ..analysis.models.parts_by_argument import called_for_parts
from ..analysis.models.past_wrapper import (
    part_called_elsewhere,
    returned_weight,
    steps_past_wrapper,
)
from ..analysis.models.penalties import lone_penalty
from ..analysis.models.teachers import is_of_a_loss, only_teaches
from ..analysis.models.trained_models import (
    all_names,
    last_part,
    made_anew,
    models_handed_over,
    trained_models,
    trained_without,
)
from ..analysis.models.wrapped_parts import model_with_more_parts
from ..analysis.models.wrapping import ABOUT_CARDS, averages_otherwise, loops_that_step
from ..analysis.ranks.rank_reach import RANKS, UNKNOWN, roles_reaching_in_function, value_for_role
from ..analysis.training.program import Program
from ..analysis.training.train_loops import loop_around
from ..editing.edits import Edit, Import, Rewrite
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    everywhere,
    is_inside,
    last_argument,
    mentions,
    parameters,
    within,
)
from .averaged_by_hand import average_before_steps
from .chosen_cards import NotShareableError
from .data_parallel import (
    Wrap,
    drawn_behind,
    is_part,
    place_behind,
    serves_training,
    wrap_in,
)
from .process_group import unused_parameters_option
from .statements import main_guard

FUNCTION = "data_parallel"  # of torch: one forward pass on several cards
OWN_CARD = (
    "[torch.cuda.current_device()] "
    "if torch.distributed.is_initialized() and torch.cuda.is_available() else "
)

Place = tuple[Module, Wrap]


def training_wraps(program: Program) -> list[Place]:
    """Where a lone process wraps a model in DataParallel to train it."""
    return [
        (module, wrap)
        for module, call in program.calls_to("DataParallel")
        if program.evaluation_of(module, call) is None and program.is_live(module, call)
        if module is program.script or main_guard(module) not in module.ancestors(call)
        for wrap in [wrap_in(module, call)]
        if wrap is not None
        and serves_training(program, module, wrap)
        and not only_teaches(program, module, wrap.stmt)
        and not is_of_a_loss(program, module, wrap.stmt)
    ]


@answered_once
def averaged_beside(program: Program) -> dict[Module, list[Edit]]:
    """The edits of each module that average the gradients of models in DataParallel.

    Empty where DistributedDataParallel can take its place, or where neither would be right. What
    each wrapper needs besides is ``to_own_card``.
    """
    places = training_wraps(program)
    if not places or program.calls_to("DistributedDataParallel") or averages_otherwise(program):
        return {}
    if not any(why_no_ddp(program, places, *place)[0] for place in places) and not any(
        steps_past_wrapper(program)
    ):
        return {}
    edits: dict[Module, list[Edit]] = {}
    try:
        averaging = average_by_hand(program, places)
    except NotShareableError:
        return {}
    for module, edit in averaging:
        edits.setdefault(module, []).append(edit)
    return edits


def average_by_hand(program: Program, places: Sequence[Place]) -> list[tuple[Module, Edit]]:
    """The edits of steps, each with its module. Raises NotShareableError."""
    loops = loops_that_step(program)
    if not loops:
        raise NotShareableError("no step of an optimizer is seen")
    for module, wrap in places:
        if roles_reaching_in_function(module, wrap.call) & RANKS:
            continue
        for read in module.attributes("module"):
            if (
                module.text(read.value) == wrap.target
                and roles_reaching_in_function(module, read) & RANKS
                and not asks_whether_wrapped(module, read)
            ):
                raise NotShareableError(f"line {read.lineno} reads what only a wrapper has")
    return average_before_steps(program, loops)


def asks_whether_wrapped(module: Module, node: ast.AST) -> bool:
    """Whether a test around a place asks for ``model.module``, or for a wrapper."""
    return any(
        isinstance(up, ast.If | ast.IfExp)
        and any(
            module.last_name(call.func) in ("hasattr", "isinstance")
            for call in everywhere(up.test, ast.Call)
        )
        for up in module.ancestors(node)
    )


def why_not_by_hand(program: Program, places: Sequence[Place]) -> str:
    """Why gradients cannot be averaged before each step; or ""."""
    try:
        average_by_hand(program, places)
    except NotShareableError as error:
        return str(error)
    return ""


def cards_of(module: Module, call: ast.Call) -> ast.expr | None:
    """The cards that ``DataParallel(net, cards)`` or ``data_parallel(net, x, cards)`` is told."""
    return argument(call, 2 if module.last_name(call.func) == FUNCTION else 1, "device_ids")


def is_on_own_card(module: Module, call: ast.Call) -> bool:
    """Whether a wrapper is told that each rank has one card."""
    cards = cards_of(module, call)
    return cards is not None and mentions(cards, "is_initialized")


def to_own_card(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that give a wrapper to ranks as well, each on its own card."""
    last, cards = last_argument(call), cards_of(module, call)
    if last is None:
        return ()
    if cards is not None:
        return (Rewrite(cards, OWN_CARD + module.text(cards)), Import("torch"))
    return (Rewrite(last, f", device_ids={OWN_CARD}None", after=True), Import("torch"))


def why_no_ddp(
    program: Program, places: Sequence[Place], module: Module, wrap: Wrap
) -> tuple[str, str]:
    """Why DistributedDataParallel cannot take the place of one wrapper, and a way out; or ""."""
    targets = [each.target for _, each in places]
    wrapped = [
        name
        for where, each in places
        for node in (*each.stmt.targets, *each.call.args[:1])
        for name in all_names(program, where, node)
    ]
    alone = trained_without(program, wrapped)
    if alone and alone != wrap.target.rpartition(".")[0]:
        trained = [*trained_models(program), *models_handed_over(program)]
        is_trained = last_part(wrap.target) in map(last_part, trained)
        return f"{alone} is trained, and nothing wraps it", f"wrap {alone} " + (
            "as well" if is_trained else f"instead of {wrap.target}"
        )
    if anew := made_anew(program, module, wrap.stmt, wrap.target):
        return (
            f"line {anew.lineno} makes another {wrap.target}, which is trained in no wrapper",
            f"wrap {wrap.target} there as well",
        )
    if whole := model_with_more_parts(program, module, wrap.call):
        return (
            f"only a part of {whole} is wrapped, and ranks train the rest apart",
            f"wrap the {whole} where it is made, instead of {wrap.target}",
        )
    if is_part(wrap.target):
        return (
            "only a part of the model is wrapped, and ranks train the rest apart",
            f"wrap {wrap.target.rpartition('.')[0]} instead of {wrap.target}",
        )
    if targets.count(wrap.target) > 1 and not each_of_a_function(places, wrap.target):
        return (
            f"{wrap.target} is wrapped in several places",
            f"leave one {wrap.target} = DataParallel({wrap.target}) before the training",
        )
    if penalty := lone_penalty(program):
        return (
            f"line {penalty[1].lineno} of {penalty[0].source.file} may go back through a penalty on"
            " gradients alone, and DistributedDataParallel then waits for the other parameters",
            "add 0 * the model's output to that loss, or one backward",
        )
    if kept := kept_graph(program):
        return (
            f"line {kept[1].lineno} of {kept[0].source.file} keeps its graph for another backward"
            " pass, which DistributedDataParallel does not average",
            "add the losses, and go back once",
        )
    if weight := returned_weight(program):
        return (
            f"line {weight[1].lineno} of {weight[0].source.file} returns a parameter for the loss,"
            " which DistributedDataParallel may take for unused",
            "use it in forward()",
        )
    if part := part_called_elsewhere(program, {*map(last_part, wrapped)}):
        return (
            f"what gets {part[0].text(part[1])} in line {part[1].lineno} of"
            f" {part[0].source.file} calls it past the model's forward pass, for which"
            " DistributedDataParallel takes it for unused",
            "call it in forward()",
        )
    is_static = unused_parameters_option(program) == "static_graph"
    if (later := called_for_parts(program)) and not is_static:
        return (
            f"line {later[1].lineno} of {later[0].source.file} calls the model for another of its"
            " parts than above, whose parameters DistributedDataParallel takes for unused then",
            "let one call of the model compute both",
        )
    if copy := adapted_copy(program):
        return (
            f"line {copy[1].lineno} of {copy[0].source.file} trains a copy of the model, whose"
            " gradients DistributedDataParallel does not average",
            "average the gradients by hand, before each step",
        )
    if again := wrapped_again(program, module, wrap):
        return (
            f"line {again.lineno} hands it what it has wrapped, in each turn of a loop",
            "wrap the model before that loop",
        )
    place = place_behind(module, wrap.stmt, wrap.target)
    if drawn := drawn_behind(module, place, (wrap.target, wrap.inner)):
        return (
            f"line {drawn.lineno} draws or converts weights behind it, and ranks train apart then",
            "do that before the model is wrapped",
        )
    if test := test_for_some(module, place):
        return (
            f"ranks may not pass `{module.text(test)}`, and the lines behind it there need the"
            " wrapper",
            "wrap the model outside of that test",
        )
    return "", ""


def wrapped_again(program: Program, module: Module, wrap: Wrap) -> ast.Call | None:
    """A call in a loop by which a function would wrap a model again: ``model = put(model, path)``.

    It may wrap none for one card, such as to score several checkpoints.
    """
    function = module.function(wrap.stmt)
    if function is None or wrap.inner not in parameters(function):
        return None
    if asks_whether_wrapped(module, wrap.stmt):
        return None
    for where, call in program.callers(function):
        stmt = where.statement(call)
        handed = argument_for_parameter(module, function, call, wrap.inner)
        if not isinstance(stmt, ast.Assign) or not isinstance(handed, ast.Name):
            continue
        around = loop_around(where, call)
        stores = where.stores.get((where.function(call), handed.id), ())
        inside = [store for store in stores if around is not None and is_inside(store, around)]
        if inside and all(is_inside(store, stmt) for store in inside):
            return call
    return None


def each_of_a_function(places: Sequence[Place], target: str) -> bool:
    """Whether what is wrapped under one name is another model in each place: one of a function."""
    functions = [module.function(wrap.stmt) for module, wrap in places if wrap.target == target]
    return target.isidentifier() and all(
        function is not None
        and functions.count(function) == 1
        and target not in parameters(function)
        and not any(target in each.names for each in within(function.body, ast.Global))
        for function in functions
    )


def test_for_some(module: Module, place: ast.stmt) -> ast.expr | None:
    """A test of cards around a place, in its function, that ranks may not pass."""
    child: ast.AST = place
    for up in module.ancestors(place):
        if isinstance(up, Function):
            return None
        if isinstance(up, ast.If) and ABOUT_CARDS.search(module.text(up.test)):
            holds = any(stmt is child for stmt in up.body)
            answers = [value_for_role(module, up.test, role) for role in RANKS]
            if any(answer is UNKNOWN or bool(answer) is not holds for answer in answers):
                return up.test
        child = up
    return None
