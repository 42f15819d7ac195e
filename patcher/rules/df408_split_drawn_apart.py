"""Each rank splits the data for itself.

What         random_split, train_test_split or the folds of a KFold that shuffles, without a
             generator or random_state, in a script that sets no seed, or one only on demand, or one
             that is drawn itself.
At run time  Each rank has other examples to train on and to test on: what rank 0 tests on has been
             trained on by the others, and the score is too good.
Example      train_set, test_set = random_split(data, [8000, 2000])
Fix          Ranks go on with rank 0's random numbers before they split.
Fix safety   Safe: without a process group, and where ranks have one seed already, all draws are as
             before. Only reported where a test around it may come out differently on the ranks, and
             before there is a group: give it a generator or a random_state there.
Source       torch.utils.data.random_split (generator); sklearn.model_selection.train_test_split
             (random_state)
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.global_seeds import has_seed
from ..analysis.batches.random_draws import ALIKE, library
from ..analysis.language.conditions import may_differ_by_rank
from ..analysis.ranks.before_group import runs_before_group
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Insert
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import Function, argument, keyword, within

CODE, SEVERITY, SAFETY = "DF408", Severity.DEGRADED, Safety.SAFE

SPLITS = {  # function, and the argument that makes it the same in every run
    "torch.utils.data.random_split": (2, "generator"),
    "torch.utils.data.dataset.random_split": (2, "generator"),
    "sklearn.model_selection.train_test_split": (99, "random_state"),
    "sklearn.cross_validation.train_test_split": (99, "random_state"),
}
SHUFFLING_FOLDS = ("KFold", "StratifiedKFold", "StratifiedGroupKFold")  # if they are told to
DRAWN_FOLDS = (
    *("ShuffleSplit", "StratifiedShuffleSplit", "GroupShuffleSplit"),
    *("RepeatedKFold", "RepeatedStratifiedKFold"),
)
NAMES = ("random_split", "train_test_split", *SHUFFLING_FOLDS, *DRAWN_FOLDS)


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group"):
        return
    splits = [
        (module, call)
        for module, call in program.calls_to(*NAMES)
        if (is_open(module, call) or draws_folds(module, call))
        and roles_reaching(program, module, call) >= RANKS
    ]
    for module, call in splits:
        if has_seed(program, library(module, call)):
            continue
        stmt = module.statement(call)
        if runs_before_group(program, module, stmt):
            because = f"{module.text(call.func)}() draws by no seed, ahead of the process group"
            yield Finding(module, call, because)
        elif not any(follows(module, stmt, each) for each in module.calls_to(ALIKE)):
            because = f"{module.text(call.func)}() draws by no seed that all ranks have"
            yield Finding(module, call, because, alike(module, stmt))


def is_open(module: Module, call: ast.Call) -> bool:
    """Whether a split depends on random numbers that were drawn before."""
    place = SPLITS.get(module.dotted(call.func))
    if place is None or any(word.arg is None for word in call.keywords):
        return False
    fixed = argument(call, *place)
    return fixed is None or (isinstance(fixed, ast.Constant) and fixed.value is None)


def draws_folds(module: Module, call: ast.Call) -> bool:
    """Whether folds depend on random numbers: ``KFold(5, shuffle=True)``."""
    package, _, name = module.dotted(call.func).rpartition(".")
    if package != "sklearn.model_selection" or any(word.arg is None for word in call.keywords):
        return False
    shuffle, state = keyword(call, "shuffle"), keyword(call, "random_state")
    draws = name in DRAWN_FOLDS or (
        name in SHUFFLING_FOLDS and shuffle is not None and module.text(shuffle.value) != "False"
    )
    return draws and (state is None or module.text(state.value) == "None")


def follows(module: Module, stmt: ast.stmt, call: ast.Call) -> bool:
    """Whether a statement comes right behind that of a call."""
    body = module.body(stmt)
    index = body.index(stmt)
    return index > 0 and body[index - 1] is module.statement(call)


def alike(module: Module, stmt: ast.stmt) -> tuple[Edit, ...]:
    """Edits that let all ranks draw the same; none where they may not meet."""
    for up in module.ancestors(stmt):
        if isinstance(up, Function):
            break
        if isinstance(up, ast.If | ast.While) and may_differ_by_rank(module, up.test):
            return ()
        if isinstance(up, ast.Try | ast.ClassDef) or within([stmt], ast.Lambda):
            return ()
    return (Insert(stmt, f"{ALIKE}()"), Define(ALIKE))
