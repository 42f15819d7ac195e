"""Each rank splits the data for itself.

What         random_split, train_test_split or the folds of a KFold that shuffles, without a
             generator or random_state, in a script that sets no seed, or one only on demand, or one
             that is drawn itself.
At run time  Each rank has other examples to train on and to test on: what rank 0 tests on has been
             trained on by the others, and the score is too good.
Example      train_set, test_set = random_split(data, [8000, 2000])
Fix          Ranks go on with rank 0's random numbers before they split.
Fix safety   Safe: without a process group, and where ranks have one seed already, all draws are as
             before. Only reported where a test around it may come out differently on the ranks.
Source       torch.utils.data.random_split (generator); sklearn.model_selection.train_test_split
             (random_state)
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.random_draws import ALIKE, library
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Insert
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import Function, argument, everywhere, keyword, mentions, within

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
GLOBAL_SEEDS = (
    *("torch.manual_seed", "torch.random.manual_seed", "torch.seed"),
    *("numpy.random.seed", "np.random.seed", "random.seed"),
)
OWN_SEEDS = ("seed", "manual_seed", "manual_seed_all")
DRAWN = ("rand", "randint", "time", "random", "initial_seed", "getrandbits")


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
        if is_seeded(program, library(module, call)):
            continue
        stmt = module.statement(call)
        if not any(follows(module, stmt, each) for each in module.calls_to(ALIKE)):
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


def is_seeded(program: Program, drawing: str) -> bool:
    """Whether the script sets a seed of a library in any case, and none that is drawn."""
    return any(
        "seed" in module.last_name(call.func).lower()
        and (bool(call.args) or bool(call.keywords))
        and program.is_live(module, call)
        and seeds(program, module, call, drawing)
        and not any(isinstance(up, ast.If) for up in module.ancestors(call))
        and not any(is_drawn(program, module, value) for value in call.args)
        for module in program.modules
        for call in module.nodes(ast.Call)
        if module.spells("seed") or module.spells("manual_seed") or module.spells("set_seed")
    )


def seeds(program: Program, module: Module, call: ast.Call, drawing: str) -> bool:
    """Whether a call seeds the random numbers of a library; not those of a generator, or a card."""
    dotted = module.dotted(call.func)
    if dotted in GLOBAL_SEEDS:
        return library(module, call) == drawing
    is_method = isinstance(call.func, ast.Attribute) and module.last_name(call.func) in OWN_SEEDS
    return not is_method and not program.callees(module, call)  # whose own calls count


def is_drawn(program: Program, module: Module, seed: ast.expr) -> bool:
    """Whether a seed is a random number or the time, if the user gives none."""
    values = [seed, *module.alternatives(seed, seed)]
    values += [
        stmt.value
        for stmt in module.nodes(ast.Assign)
        if module.text(stmt.targets[0]) == module.text(seed)
    ]
    return any(mentions(value, name) for value in values for name in DRAWN)


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
        if isinstance(up, ast.If | ast.While) and everywhere(up.test, ast.Call):
            return ()
        if isinstance(up, ast.Try | ast.ClassDef) or within([stmt], ast.Lambda):
            return ()
    return (Insert(stmt, f"{ALIKE}()"), Define(ALIKE))
