"""All ranks download and unpack the same files at once.

What         A data set of torchvision, torchaudio or torchtext with download=True, one of graphs,
             which torch_geometric or dgl prepares where its files are not there, or a file that is
             downloaded, unpacked or filled (h5py, lmdb, or one file after the other) then, in a
             script whose ranks all come to it. So are several files that are written where one of
             them is missing.
At run time  On the first run N ranks write one archive and unpack it into one folder: a checksum
             that does not match, a file that ends too early, or an import of half the images.
Example      train_set = torchvision.datasets.CIFAR10("data", train=True, download=True)
Fix          Rank 0 makes the data set first, or passes the test for the file first, between two
             barriers; the others wait, and find the files there.
Fix safety   Safe: without a process group it is made as before. Only reported where a test around
             it may come out differently on the ranks, such as whether a file exists.
Source       torch.distributed.barrier; torchvision.datasets.utils.download_and_extract_archive
             takes no lock
"""

import ast
from collections.abc import Iterator

from ..analysis.language.conditions import may_differ_by_rank
from ..analysis.language.objects import classes_above, named_definition
from ..analysis.ranks.barrier_turns import goes_in_turn
from ..analysis.ranks.rank_0_ahead import comes_behind_rank_0
from ..analysis.ranks.rank_reach import RANKS, Role, is_surely_entered, roles_reaching
from ..analysis.ranks.spawning import starting_calls
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.rank_0_first import fetching_tests, rank_0_first
from ..source.module import Module
from ..source.tree import Function, everywhere, is_false, precedes

CODE, SEVERITY, SAFETY = "DF608", Severity.DEGRADED, Safety.SAFE

LIBRARIES = ("torchvision.", "torchaudio.", "torchtext.")
GRAPHS = ("torch_geometric.datasets.", "dgl.data.")
GRAPH_BASES = (
    *("torch_geometric.data.InMemoryDataset", "torch_geometric.data.Dataset"),
    *("torch_geometric.datasets.", "dgl.data.DGLDataset"),
)
IN_TURN = "first_on_main"


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group"):
        return
    places = [
        (module, call)
        for module in program.modules
        for call in [*downloads(program, module), *prepared_graphs(program, module)]
    ]
    before = {
        module.dotted(call.func)
        for module, call in places
        if roles_reaching(program, module, call) == {Role.SINGLE} and starting_calls(program)
    }  # the process that starts the ranks has made these
    for module in program.modules:
        for call in [call for where, call in places if where is module]:
            if waits(program, module, call) or module.dotted(call.func) in before:
                continue
            if roles_reaching(program, module, call) >= RANKS:
                name = module.text(call.func)
                edits = in_turn(module, call)
                yield Finding(module, call, f"{name}() writes its files on every rank", edits)
        for test, call in fetching_tests(program, module):
            yield from fetched_by_all(program, module, test, call)


def downloads(program: Program, module: Module) -> Iterator[ast.Call]:
    """``datasets.MNIST(root, download=True)``, also of a class of the program that inherits it."""
    for word in module.nodes(ast.keyword):
        call = module.parents[word]
        if (
            word.arg == "download"
            and isinstance(call, ast.Call)
            and not is_false(word.value)
            and (
                home(module, call.func).startswith(LIBRARIES)
                or inherits_from(program, module, call.func, LIBRARIES)
            )
        ):
            yield call


def prepared_graphs(program: Program, module: Module) -> Iterator[ast.Call]:
    """Calls that make a data set of graphs, of a library or of a class of the program."""
    graphs = {
        name.partition(".")[0] for each in program.modules for name in each.aliases.values()
    } & {"torch_geometric", "dgl", "ogb"}
    for call in module.nodes(ast.Call) if graphs else ():
        around = module.enclosing_class(call)
        if not program.is_live(module, call) or (
            around and has_base_of(program, module, around, GRAPH_BASES)
        ):
            continue  # what prepares one data set is run by rank 0 first
        name = module.dotted(call.func)
        if (
            (name.startswith(GRAPHS) and name.rpartition(".")[2][:1].isupper())
            or (name.startswith("ogb.") and name.endswith("Dataset"))
            or inherits_from(program, module, call.func, GRAPH_BASES)
            or is_looked_up(program, module, call.func)
        ):
            yield call


def is_looked_up(program: Program, module: Module, func: ast.expr) -> bool:
    """``eval(kind)(root)`` and ``globals()[kind](root)`` of a class of graphs of the program."""
    match func:
        case (
            ast.Call(func=ast.Name(id="eval"), args=[name])
            | ast.Subscript(value=ast.Call(func=ast.Name(id="globals" | "vars")), slice=name)
        ):
            values = [name, *module.alternatives(name, name)]
        case _:
            return False
    words = {
        each.value
        for value in values
        for each in everywhere(value, ast.Constant)
        if isinstance(each.value, str)
    }
    return any(
        owner.name in words and has_base_of(program, where, owner, GRAPH_BASES)
        for where in program.modules
        for owner in where.nodes(ast.ClassDef)
    )


def inherits_from(
    program: Program, module: Module, func: ast.expr, libraries: tuple[str, ...]
) -> bool:
    """Whether what is called is a class of the program with a base of these libraries."""
    match named_definition(program, module, func):
        case where, ast.ClassDef() as owner:
            return has_base_of(program, where, owner, libraries)
    return False


def has_base_of(
    program: Program, module: Module, owner: ast.ClassDef, libraries: tuple[str, ...]
) -> bool:
    """Whether a class inherits, perhaps by others, from a class of libraries."""
    return any(
        where.dotted(base).startswith(libraries)
        for where, each in classes_above(program, (module, owner))
        for base in each.bases
    )


def fetched_by_all(
    program: Program, module: Module, test: ast.If, call: ast.Call
) -> Iterator[Finding]:
    """The findings of a file that every rank fetches where it is not there."""
    places = (test, call)
    if not all(roles_reaching(program, module, each) >= RANKS for each in places):
        return
    if not program.is_live(module, test):
        return
    if (
        is_surely_entered(program, module.function(test))
        and not goes_in_turn(program, module, test)
        and not comes_behind_rank_0(program, module, test)
    ):
        because = f"{module.text(call.func)}() is called on every rank that does not find the file"
        edits: dict[Module, list[Edit]] = {module: []}
        for where, edit in rank_0_first(program, module, test):
            edits.setdefault(where, []).append(edit)
        for where, own in edits.items():
            if own or (where is module and len(edits) == 1):
                at: ast.stmt = test if where is module else where.tree.body[0]
                yield Finding(where, at, because, tuple(own))


def home(module: Module, func: ast.expr) -> str:
    """The resolved name of a class, or of the module in whose ``__dict__`` it is looked up."""
    match func:
        case ast.Subscript(value=ast.Attribute(attr="__dict__", value=owner)):
            return module.dotted(owner)
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, _, *_]):
            return module.dotted(owner)
        case ast.Name():  # kind = datasets.CIFAR10, or CIFAR100 in another branch
            values = module.alternatives(func, func)
            homes = [
                module.dotted(each) if isinstance(each, ast.Name) else home(module, each)
                for each in values
            ]
            if homes and all(each.startswith(LIBRARIES) for each in homes):
                return homes[0]
    return module.dotted(func)


def waits(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a rank waits for another one ahead of a call: under a helper, or at a barrier.

    The barrier may stand ahead of the calls of its function.
    """
    if any(
        isinstance(up, ast.Call) and module.last_name(up.func) == IN_TURN
        for up in module.ancestors(call)
    ):
        return True
    if comes_behind_rank_0(program, module, call):
        return True
    function = module.function(call)
    callers = [] if function is None else program.callers(function)
    return has_barrier_above(module, call) or (
        bool(callers) and all(has_barrier_above(*caller) for caller in callers)
    )


def has_barrier_above(module: Module, call: ast.Call) -> bool:
    """Whether a function passes a barrier ahead of a call; one behind it is for something else."""
    function = module.function(call)
    return any(
        module.function(each) is function and precedes(each, call)
        for each in module.calls_to("barrier")
    )


def in_turn(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that let rank 0 make a data set before the others; none where ranks may not meet."""
    for up in module.ancestors(call):
        if isinstance(up, Function):
            break
        if isinstance(up, ast.If | ast.IfExp | ast.While) and may_differ_by_rank(module, up.test):
            return ()
        if isinstance(up, ast.Try | ast.Lambda | ast.BoolOp):
            return ()
    return (Rewrite(call, f"{IN_TURN}(lambda: {module.text(call)})"), Define(IN_TURN))
