"""Ranks train on what each has evaluated.

What         An evaluation that each rank makes for itself comes to more than a score: its losses
             part the clean examples from the noisy ones, its features are clustered into labels,
             its predictions are the targets of the next training.
At run time  Ranks evaluate with averages of batch norm of their own, draw other random numbers
             (a mixture model's, k-means'), and round otherwise. They label one example in two ways,
             or deal sets of unequal sizes: one takes a step more and waits until the time-out.
Example      losses = evaluate(net, loader); clean = split(losses); train(net, loader_of(clean))
Fix          All ranks take what rank 0 has evaluated (what_rank_0_has).
Fix safety   Safe: in a lone process what_rank_0_has gives back what it gets.
Source       torch.distributed.broadcast_object_list
"""

import ast
import re
from collections.abc import Iterator

from ..analysis.batches.loss_names import names_of_losses
from ..analysis.effects.deciding_scores import GATHERING
from ..analysis.language.name_flow import flows, names_in, reached, taking
from ..analysis.language.results import handed_back
from ..analysis.language.training_calls import GRADLESS
from ..analysis.models.wrapper_attributes import is_gradless
from ..analysis.models.wrapping import AVERAGE, SHARED, functions_leading_to, loops_that_step
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.loaders import trace_loader
from ..analysis.training.program import Program
from ..editing.edits import Define, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import Function, argument_values, everywhere, within

CODE, SEVERITY, SAFETY = "DF514", Severity.ERROR, Safety.SAFE

HELPER = "what_rank_0_has"
TOLD = re.compile(  # who is told a score, scores, settings, and a name for nothing
    r"loss$|log|writ|meter|track|record|hist|bar$|wandb|sched|stop|sav|print|metric|csv"
    r"|^_+$|^best|acc|f1|auc|bleu|ppl|perplexity"
    r"|^(args|opts?|cfg|config|options|flags|hparams|state)$",
    re.IGNORECASE,
)

Scope = tuple[Module, Function | None]
Pairs = list[tuple[set[str], set[str]]]  # names that get something, and of which others
Flow = tuple[Pairs, dict[str, ast.stmt | ast.Call]]


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to(SHARED, AVERAGE, "DistributedDataParallel"):
        return
    scopes: dict[Scope, Flow] = {}
    found: set[ast.Call] = set()
    for home, function in whole_passes(program):
        if is_joined(home, function):
            continue
        for module, entry in program.callers(function):
            stmt = module.statement(entry) if isinstance(entry, ast.Call) else None
            if not isinstance(stmt, ast.Assign) or stmt.value is not entry or entry in found:
                continue
            if taking(stmt.targets) <= handed_back(program, module, entry):
                continue  # model = train_and_test(model, loaders)
            scope = module, module.function(stmt)
            if scope not in scopes:
                scopes[scope] = flow_of(program, module, stmt)
            use = first_use(scopes[scope], taking(stmt.targets))
            if use is not None and roles_reaching(program, module, entry) >= RANKS:
                found.add(entry)
                where, name = use
                yield Finding(
                    module,
                    entry,
                    f"each rank's own result comes to `{name}` in line {where.lineno}, which it"
                    " trains with",
                    (
                        Rewrite(entry, f"{HELPER}({module.text(entry)})"),
                        Define(HELPER),
                        Define("onto_own_card"),
                    ),
                )


def whole_passes(program: Program) -> Iterator[tuple[Module, Function]]:
    """Functions that evaluate, or that compute something of all batches without gradients."""
    found: dict[Function, Module] = {}
    for each in program.evaluations:
        if each.function is not None:
            found[each.function] = each.module
    for module in program.modules:
        for loop in module.nodes(ast.For) if module.calls_to(*GRADLESS) else ():
            function = module.function(loop)
            if function is None or function in found or not is_gradless(module, loop):
                continue
            names = everywhere(loop.iter, ast.Name)  # also of range(len(loader))
            loaders = (trace_loader(program, module, name) for name in names)
            if any(each is not None and not each.distributed_samplers for each in loaders):
                found[function] = module
    yield from ((module, function) for function, module in found.items())


def is_joined(module: Module, function: Function) -> bool:
    """Whether ranks join their results, which are the same on each of them then."""
    return any(module.last_name(call.func) in GATHERING for call in within(function.body, ast.Call))


def flow_of(program: Program, module: Module, stmt: ast.stmt) -> Flow:
    """What the names of the function around a statement come to, and where a training gets them."""
    body = module.scope_statements(stmt)
    pairs = [(taking(targets), names_in(value)) for targets, value in flows(body)]
    leading: set[Function] = set()
    uses: dict[str, ast.stmt | ast.Call] = {}
    for loop in loops_that_step(program):
        leading |= functions_leading_to(program, loop)
        is_here = loop.module is module and module.function(loop.steps) is module.function(stmt)
        if is_here:
            uses |= dict.fromkeys(names_of_losses(loop), loop.steps)
        if is_here and isinstance(loop.steps, ast.For):
            uses |= dict.fromkeys(names_in(loop.steps.iter), loop.steps)
    for call in within(body, ast.Call):
        given = {name for value in argument_values(call) for name in names_in(value)}
        if any(callee in leading for _, callee in program.callees(module, call)):
            uses |= dict.fromkeys(given, call)
        elif isinstance(call.func, ast.Attribute):  # clusters.fit(features)
            owner = names_in(call.func.value)
            if len(owner) == 1 and not owner & module.aliases.keys():
                pairs.append((owner, given))
    return pairs, uses


def first_use(flow: Flow, names: set[str]) -> tuple[ast.stmt | ast.Call, str] | None:
    """Where a training gets what comes of some names, and its name; not for who is told scores."""
    pairs, uses = flow
    known = reached(((givers, untold(takers)) for takers, givers in pairs), untold(names))
    used = sorted(known & uses.keys())
    return (uses[used[0]], used[0]) if used else None


def untold(names: set[str]) -> set[str]:
    """The names but for those of who is told a score."""
    return {name for name in names if not TOLD.search(name)}
