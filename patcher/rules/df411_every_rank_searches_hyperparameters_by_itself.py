"""Every rank searches hyperparameters by itself.

What         Optuna, hyperopt or an agent of wandb calls a function that trains, in each rank of a
             group. Each rank has a search of its own, which draws under no seed, takes its next
             trial from a storage that all share, or asks a server for it.
At run time  Ranks train with unlike rates and sizes, and their gradients are averaged all the same:
             the score belongs to none of the trials. Where layers differ in size, a crash or hang.
Example      optuna.create_study().optimize(objective, n_trials=50)
Fix          By hand. One seed for the search, TPESampler(seed=0) or rstate=default_rng(0), and no
             storage, lets all ranks draw the same trials, if all get the same score. Or rank 0
             alone asks for trials and tells the others, as TorchDistributedTrial does; or each
             trial is a run of its own, on one card.
Fix safety   Report only: which of these is meant cannot be told.
Source       https://optuna.readthedocs.io/en/stable/faq.html (reproducible results)
"""

import ast
from collections.abc import Iterator

from ..analysis.language.objects import classes_of, method_of
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import FUNCTIONS, Function, argument_values, everywhere, is_none, keyword

CODE, SEVERITY, SAFETY = "DF411", Severity.ERROR, Safety.REPORT

STUDIES = ("optuna.create_study", "optuna.load_study", "optuna.study.create_study")
SAME_TRIAL = ("TorchDistributedTrial",)  # of rank 0, told to the others
NEEDS_GROUP = ("init_process_group", "DistributedDataParallel")


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to(*NEEDS_GROUP) or program.calls_to(*SAME_TRIAL):
        return
    training = {loop.module.function(loop.steps) for loop in program.train_loops}
    for module, call in program.calls_to("optimize", "fmin", "agent"):
        because = own_search(module, call)
        if (
            because
            and roles_reaching(program, module, call) >= RANKS
            and program.is_live(module, call)
            and any(function in training for function in functions_tried(program, module, call))
        ):
            yield Finding(module, call, because)


def own_search(module: Module, call: ast.Call) -> str:
    """Why the trials of a search differ from rank to rank; or empty."""
    name = module.dotted(call.func)
    if name == "wandb.agent":
        return "each rank asks the server for a trial of its own"
    if name.startswith("hyperopt.") and keyword(call, "rstate") is None:
        return "no rstate= seeds the search: each rank draws other trials"
    study = study_of(module, call.func.value) if isinstance(call.func, ast.Attribute) else None
    if study is None:
        return ""
    storage, sampler = keyword(study, "storage"), keyword(study, "sampler")
    if storage is not None and not is_none(storage.value):
        return "all ranks take their trials from one storage, each another"
    values = [] if sampler is None else [sampler.value, *module.alternatives(sampler.value, study)]
    made = [each for each in values if isinstance(each, ast.Call)]
    of_optuna = [each for each in made if module.dotted(each.func).startswith("optuna.")]
    told = [word.value for each in made for word in each.keywords if word.arg in ("seed", None)]
    if (values and not of_optuna) or not all(is_none(seed) for seed in told):
        return ""  # made elsewhere, perhaps with a seed
    return "no seed= is told to the study's sampler: each rank draws other trials"


def study_of(module: Module, owner: ast.expr) -> ast.Call | None:
    """The call that makes a study of optuna, which is the value of an expression; or None."""
    values = [owner, *module.alternatives(owner, owner)]
    made = [each for each in values if isinstance(each, ast.Call)]
    return next((each for each in made if module.dotted(each.func) in STUDIES), None)


def functions_tried(program: Program, module: Module, call: ast.Call) -> set[Function]:
    """The functions that a search runs for a trial: those that it is told, and what they call."""
    told: list[tuple[Module, Function]] = []
    for value in argument_values(call):
        for node in (*everywhere(value, ast.Name), *everywhere(value, ast.Attribute)):
            found = program.resolve(module, node)
            if found is not None and isinstance(found[1], FUNCTIONS):
                told.append((found[0], found[1]))
        kinds = classes_of(program, module, value)
        methods = (method_of(program, kind, "__call__") for kind in kinds)
        told += [method for method in methods if method is not None]
    below = program.functions_below(module, *argument_values(call))
    below += [each for where, one in told for each in program.functions_below(where, *one.body)]
    return {function for _, function in (*told, *below)}
