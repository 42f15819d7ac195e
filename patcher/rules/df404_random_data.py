"""Data is drawn at random on every rank.

What         random.sample, random.shuffle and the like choose or order examples, outside the code
             that a loader runs per example; worse, under a seed that differs from rank to rank. Or
             the script makes up its examples, by torch.randn, numpy.random.normal and the like.
At run time  Right only while every rank draws the same: the ranks' shares, and predictions gathered
             from them, are parts of one list. With a seed of its own each rank has another list:
             examples are missing or double, and predictions belong to other examples.
Example      data = random.sample(data, int(len(data) * 0.1))
Fix          Draw under the same seed on all ranks; let seeds differ only after data is made, if at
             all. Where a script seeds nothing, or if the user asks for it, or by what it draws, or
             by the clock, and knew of no ranks or deals by a sampler, they take rank 0's random
             numbers as soon as there is a group and such a seed is set (draw_alike), unless steps
             draw their batches.
Fix safety   Safe where nothing is seeded: a lone process draws as it did. Report only elsewhere:
             the script does not show what its draws and seeds are meant to achieve.
Source       torch.utils.data.distributed.DistributedSampler (assumes equal datasets)
"""

import ast
from collections.abc import Collection, Iterator

from ..analysis.batches.drawn_data import draws_of_data, is_of_table
from ..analysis.batches.global_seeds import is_set_for_all
from ..analysis.batches.own_seeds import own_seeds
from ..analysis.batches.random_draws import SEED_FUNCTIONS
from ..analysis.language.call_graph import reachable_functions
from ..analysis.ranks.dealing import SHARE_OF_DRAWN, dealt_by_hand
from ..analysis.ranks.rank_reach import RANK_NAMES, RANKS, roles_reaching
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity
from ..fixes.drawn_alike import are_alike, draw_alike, is_above, lone_group, place_to_agree
from ..fixes.drawn_apart import may_draw_apart
from ..source.module import Module
from ..source.tree import (
    Function,
    below,
    everywhere,
    has_forward,
    keyword,
    mentions,
    precedes,
    within,
)

CODE, SEVERITY, SAFETY = "DF404", Severity.NOTE, Safety.REPORT

DRAW_FUNCTIONS = {
    *("random.sample", "random.shuffle", "random.choice", "random.choices"),
    *("numpy.random.shuffle", "numpy.random.permutation", "numpy.random.choice"),
    "torch.randperm",
}
PER_EXAMPLE_FUNCTIONS = (
    "__getitem__",
    "forward",
    "collate",
    "__iter__",
)  # of a loader, or of a model
RANK_SOURCES = (*RANK_NAMES, "get_rank")


def findings(program: Program) -> Iterator[Finding]:
    draws = [
        (m, call)
        for m in program.modules
        for call in random_draws(m)
        if roles_reaching(program, m, call) >= RANKS and not follows_rank_0(m, call)
    ]
    of_batches = draws_of_batches(program)
    made_up = [
        (m, call)
        for m, call in draws_of_data(program, of_batches)
        if roles_reaching(program, m, call) >= RANKS and not follows_rank_0(m, call)
    ]
    if not draws and not made_up:
        return
    seeds = list(rank_dependent_seeds(program))
    own = own_seeds(program)
    unseeded = [
        draw
        for draw in dict.fromkeys((*draws, *made_up))
        if not seeds
        and not is_seeded(program, *draw, [call for _, call in own])
        and draw[0].function(draw[1]) not in of_batches
    ]
    group = lone_group(program) if unseeded and not draws_batches(program) else None
    if group is not None:
        where, made = group
        at = place_to_agree(program, where, made, own)
        if at is not None and are_alike(where, at):
            draws = [draw for draw in draws if draw not in unseeded]
        elif at is not None and not any(is_above(where, at, *draw) for draw in unseeded):
            module, call = unseeded[0]
            file = "" if module is where else f" of {module.source.file}"
            because = f"nothing seeds {module.dotted(call.func)}, line {call.lineno}{file}"
            if own:
                because = f"each rank seeds {module.dotted(call.func)} by a value of its own"
            edits = draw_alike(where, at)
            severity = Severity.DEGRADED
            yield Finding(where, made, because, edits, severity=severity, safety=Safety.SAFE)
    for module, call in draws:
        if is_shared(module, call):
            continue
        name = module.dotted(call.func)
        seed = next((s for m, s in seeds if is_seeded_before(program, m, s, module, call)), None)
        if seed is None:
            yield Finding(module, call, f"{name} is the same on all ranks only under one seed")
        elif module.function(call) not in of_batches:
            because = f"line {seed.lineno} seeds each rank differently before {name}"
            if may_be_meant(program, module, seed, call):
                because += ", which may be of the rank's own part"
                yield Finding(module, call, because)
            else:
                yield Finding(module, call, because, severity=Severity.DEGRADED)


def may_be_meant(program: Program, module: Module, seed: ast.stmt, draw: ast.Call) -> bool:
    """Whether ranks may be meant to draw apart, from a part of their own that they have by then.

    As an object does that knows its rank, ``seed = self.seed + self.rank``, and what comes after
    shares by hand; not where something is dealt by rank below the draw.
    """
    function = module.function(draw)
    if function is None or any(
        precedes(draw, each) and depends_on_rank(each)
        for each in (*within(function.body, ast.Name), *within(function.body, ast.Attribute))
    ):
        return False
    is_of_object = module.function(seed) is function and any(
        module.text(each) == "self.rank" for each in everywhere(seed, ast.Attribute)
    )
    return is_of_object or bool(dealt_by_hand(program))


def is_shared(module: Module, call: ast.Call) -> bool:
    """Whether ranks take shares of what a call draws, as a patch lets them."""
    return any(
        isinstance(up, ast.Call) and module.last_name(up.func) == SHARE_OF_DRAWN
        for up in module.ancestors(call)
    )


def draws_batches(program: Program) -> bool:
    """Whether ranks may draw batches of their own for a training: alike they would train alike."""
    return any(
        loop.loader is None and may_draw_apart(program, loop) for loop in program.train_loops
    )


def draws_of_batches(program: Program) -> set[Function]:
    """The functions that draw for one batch or one example, which ranks have others of.

    Those that training steps call, such as one that mixes the examples of a batch, and those of
    transforms and data sets for what they are asked for; none that anything else calls as well.
    """
    bodies = [(loop.module, loop.steps.body) for loop in program.train_loops]
    asked = [
        each
        for name in ("__call__", "__getitem__")
        for each in program.functions_by_name.get(name, ())
    ]
    bodies += [(module, function.body) for module, function in asked]
    below_them = [each for where, body in bodies for each in program.functions_below(where, *body)]
    found = {function for _, function in (*asked, *below_them)}
    steps = {loop.steps for loop in program.train_loops}
    return {
        function
        for function in found
        if all(
            module.function(call) in found or not steps.isdisjoint(module.ancestors(call))
            for module, call in program.callers(function)
        )
    }


def is_seeded(program: Program, module: Module, draw: ast.Call, own: Collection[ast.Call]) -> bool:
    """Whether something in the program may seed what a draw draws from, but what is a rank's own.

    Nor by a number that is drawn itself: ranks then draw that alike as well. A loader's workers
    seed themselves by what the process has drawn, and are to differ.
    """
    library = module.dotted(draw.func).rpartition(".")[0]
    of_library = {"random": "random.seed", "numpy.random": "numpy.random.seed"}
    if library.startswith("sklearn") or is_of_table(draw):
        library = "numpy.random"
    seed = of_library.get(library, "torch.manual_seed")
    return any(
        (
            where.dotted(call.func) in (seed, "torch.random.manual_seed")
            or where.last_name(call.func) not in ("seed", "manual_seed")
        )
        and call not in own
        and program.is_live(where, call)
        and is_set_for_all(program, where, call)
        for where, call in program.calls_to(*SEED_FUNCTIONS, "enable_full_determinism")
    )


def random_draws(module: Module) -> Iterator[ast.Call]:
    """Calls that draw examples, but not those that choose among loaders."""
    for call in module.calls_to(
        "sample", "shuffle", "choice", "choices", "permutation", "randperm"
    ):
        function = module.function(call)
        if (
            module.dotted(call.func) in DRAW_FUNCTIONS
            and not (function is not None and function.name.startswith(PER_EXAMPLE_FUNCTIONS))
            and not ((owner := module.enclosing_class(call)) is not None and has_forward(owner))
            and not any(isinstance(n, ast.Name) and "loader" in n.id for n in below(call))
            and keyword(call, "generator") is None  # which is seeded by itself
        ):
            yield call


def follows_rank_0(module: Module, call: ast.Call) -> bool:
    """Whether ranks have taken the random numbers of rank 0 above, in a block around a draw."""
    blocks = {
        id(module.parents[up]) for up in (call, *module.ancestors(call)) if up in module.parents
    }
    return any(
        precedes(each, call) and id(module.parents[module.statement(each)]) in blocks
        for each in module.calls_to("draw_alike")
    )


def rank_dependent_seeds(program: Program) -> Iterator[tuple[Module, ast.stmt]]:
    """Statements such as ``set_seed(args.seed + rank)`` and ``args.seed += rank``."""
    for module in program.modules:
        for call in module.calls_to(*SEED_FUNCTIONS):
            if any(depends_on_rank(arg) for arg in call.args):
                yield module, module.statement(call)
        for stmt in module.nodes(ast.Assign):
            if "seed" in module.text(stmt.targets[0]) and depends_on_rank(stmt.value):
                yield module, stmt
        for add in module.nodes(ast.AugAssign):
            if "seed" in module.text(add.target) and depends_on_rank(add.value):
                yield module, add


def depends_on_rank(node: ast.expr) -> bool:
    """Whether an expression mentions a rank."""
    return any(mentions(node, name) for name in RANK_SOURCES)


def is_seeded_before(
    program: Program, seeding: Module, seed: ast.stmt, drawing: Module, draw: ast.Call
) -> bool:
    """Whether a seed is set above the draw, or above a call that leads to it."""
    scope = seeding.function(seed)
    if seeding is drawing and drawing.function(draw) is scope:
        return precedes(seed, draw)
    called_below = {
        seeding.last_name(call.func)
        for call in within(seeding.scope_statements(seed), ast.Call)
        if precedes(seed, call)
    }
    return drawing.function(draw) in reachable_functions(program, called_below)
