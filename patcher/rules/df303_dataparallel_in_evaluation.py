"""DataParallel wraps a model for evaluation, or where a process group may exist.

What         torch.nn.DataParallel or data_parallel() where ranks of a process group reach it, or
             DataParallel inside an evaluation function; DistributedDataParallel inside an
             evaluation function.
At run time  Wrappers nest at every evaluation (DataParallel of DistributedDataParallel does not
             run, and of two of the latter one is left, whose buffers are sent at every batch: ranks
             with more batches wait for ever), and state_dict keys gain another "module." each time.
Example      if args.n_gpu > 1: model = torch.nn.DataParallel(model)   # in evaluate()
Fix          No wrapper in evaluation; elsewhere only under the single-process test, which a test
             of n_gpu is where the set-up gives each rank one card. Where a model that is not
             trained is loaded into the wrapper, ranks have it as well, on one card each: the
             file's keys begin with "module.", unless there is a test of the cards and the script
             saves without the wrapper. So do they where it is bound to no name.
Fix safety   Safe: the values computed are the same; a lone process with several cards evaluates
             on one of them.
Source       torch.nn.DataParallel
"""

import ast
from collections.abc import Iterator

from ..analysis.language.conditions import condition
from ..analysis.models.kept_graphs import kept_graph
from ..analysis.models.wrapping import is_whatever_cards
from ..analysis.ranks.certain_reach import options_of_group
from ..analysis.ranks.rank_reach import RANKS, roles_reaching_in_function
from ..analysis.training.program import Program
from ..editing.edits import Edit, Guard, Import, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.data_parallel import NO_GROUP, end, serves_training, wrap_in
from ..fixes.data_parallel_by_hand import (
    FUNCTION,
    asks_whether_wrapped,
    averaged_beside,
    is_on_own_card,
    to_own_card,
)
from ..fixes.process_group import unwrapped_model
from ..fixes.statements import with_gate
from ..source.module import Module
from ..source.tree import everywhere, is_within, precedes, within
from .df305_wrapper_in_the_way import is_tested, saves_wrapper_state

CODE, SEVERITY, SAFETY = "DF303", Severity.DEGRADED, Safety.SAFE
OPEN = "nothing keeps a rank of a process group away from it"


def findings(program: Program) -> Iterator[Finding]:
    has_group = bool(program.calls_to("init_process_group"))
    training = {loop.module.function(loop.steps) for loop in program.train_loops}
    for module, call in program.calls_to("DistributedDataParallel"):
        function = module.function(call)
        evaluates = program.evaluation_of(module, call) is not None and function not in training
        if evaluates and program.train_loops and wrap_in(module, call) is not None:
            because = "an evaluation function wraps its model, which may have a wrapper"
            edits = (unwrapped(module, call), *asked_of_the_model(module, call))
            yield Finding(module, call, because, edits)
    if has_group:
        yield from calls_by_ranks(program)
    for module, call in program.calls_to("DataParallel"):
        if program.evaluation_of(module, call) is not None and program.has_ranks:
            if is_on_own_card(module, call):
                continue
            because = "an evaluation function wraps its model"
            edits = on_own_card(program, module, call) or (
                unwrapped(module, call),
                *asked_of_the_model(module, call),
            )
            yield Finding(module, call, because, edits)
        elif has_group and roles_reaching_in_function(module, call) & RANKS:
            if is_without_group(program, module, call) or is_other_choice(module, call):
                continue
            if is_on_own_card(module, call) or averaged_beside(program):
                continue
            wrap = wrap_in(module, call)
            # Without a name DF301 sees no wrapper, and averages nothing by hand.
            is_kept = wrap is None and (kept_graph(program) is not None or reads_inside(program))
            edits = (
                to_own_card(module, call)
                if is_kept
                else on_own_card(program, module, call)
                or restrict_to_lone_process(module, call)
                or to_own_card(module, call)
            )
            if wrap is not None and not serves_training(program, module, wrap):
                edits = (*edits, *asked_of_the_model(module, call)) if edits else edits
            yield Finding(module, call, OPEN, edits)


def reads_inside(program: Program) -> bool:
    """Whether code reads ``model.module`` where it does not ask whether there is a wrapper."""
    return any(
        isinstance(read.ctx, ast.Load)
        and not (isinstance(read.value, ast.Name) and read.value.id == "self")
        and not asks_whether_wrapped(module, read)
        and program.is_live(module, read)
        for module in program.modules
        for read in module.attributes("module")
    )


def is_without_group(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call stands where the switch is off under which every group is made.

    In the ``else`` of ``if args.distributed:``, or of another ``if`` there.
    """
    return any(
        isinstance(asked.test, ast.Attribute)
        and asked.test.attr in options_of_group(program)
        and is_within(call, asked.orelse)
        for up in module.ancestors(call)
        if isinstance(up, ast.If) and module.function(up) is module.function(call)
        for asked in [condition(module, up)]
    )


def is_other_choice(module: Module, call: ast.Call) -> bool:
    """Whether a test that cannot be told wraps for ranks in one branch, and by a call in another.

    ``if opt["dist"]: net = DistributedDataParallel(net)`` and ``else: net = DataParallel(net)``.
    """
    return any(
        is_within(call, up.orelse)
        and any(
            module.last_name(each.func) == "DistributedDataParallel"
            for each in within(up.body, ast.Call)
        )
        for up in module.ancestors(call)
        if isinstance(up, ast.If) and module.function(up) is module.function(call)
    )


def calls_by_ranks(program: Program) -> Iterator[Finding]:
    """Calls of the function ``data_parallel()`` by ranks, which then take one card each."""
    for module, call in program.calls_to(FUNCTION):
        if not module.dotted(call.func).startswith("torch.") or is_on_own_card(module, call):
            continue
        if roles_reaching_in_function(module, call) & RANKS:
            yield Finding(module, call, OPEN, to_own_card(module, call))


def unwrapped(module: Module, call: ast.Call) -> Edit:
    """The edit that takes a wrapper out, with what only it stands for."""
    wrap = wrap_in(module, call)
    if wrap is not None and (wrap.inner != wrap.target or wrap.moves):
        return Replace(wrap.stmt, f"{wrap.target} = {wrap.inner}{wrap.moves}")
    return Replace(with_gate(module, module.statement(call)), "")


def asked_of_the_model(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that read ``model.module`` behind a wrapper where there may be none, or another."""
    wrap = wrap_in(module, call)
    if wrap is None:
        return ()
    return tuple(
        Rewrite(read, unwrapped_model(wrap.target))
        for read in within(module.scope_statements(wrap.stmt), ast.Attribute)
        if read.attr == "module" and module.text(read.value) == wrap.target
        if isinstance(read.ctx, ast.Load) and precedes(wrap.stmt, read)
        if not is_tested(module, read, wrap.stmt)
    )


def on_own_card(program: Program, module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that leave the wrapper to ranks as well, each on its card; () where it is not needed.

    It is where the model is loaded from a file behind it, whose keys begin with ``module.``, and
    no training comes behind it, for which DistributedDataParallel would take its place. One card
    loads without a wrapper that hangs on their number: keys that the script saves tell which it is.
    """
    wrap = wrap_in(module, call)
    if wrap is None or serves_training(program, module, wrap):
        return ()
    loads = [
        load
        for load in within(module.scope_statements(wrap.stmt), ast.Call)
        if isinstance(load.func, ast.Attribute)
        and load.func.attr == "load_state_dict"
        and module.text(load.func.value) == wrap.target
        and precedes(wrap.stmt, load)
    ]
    gate = with_gate(module, wrap.stmt)
    if not loads or not to_own_card(module, call):
        return ()
    if is_whatever_cards(module, wrap.stmt):
        return to_own_card(module, call)
    if not isinstance(gate, ast.If) or gate.orelse or not is_whatever_cards(module, gate):
        return ()
    if saves_without_wrapper(program):
        return ()
    test = f"{module.conjunct(gate.test)} or torch.distributed.is_initialized()"
    return (*to_own_card(module, call), Rewrite(gate.test, test))


def saves_without_wrapper(program: Program) -> bool:
    """Whether the script takes states out of wrappers, and none of a wrapper."""
    return any(
        any(part.attr == "module" for part in everywhere(value, ast.Attribute))
        for module in program.modules
        for use in module.attributes("state_dict")
        for value in [use.value, *module.alternatives(use.value, use)]
    ) and not any(saves_wrapper_state(program, module) for module in program.modules)


def restrict_to_lone_process(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that leave a wrapper to a process without a group, and its model to all.

    ``model = DataParallel(Net()).to(device)`` becomes ``model = Net().to(device)`` and the wrapper.
    """
    stmt = module.statement(call)
    if isinstance(stmt, ast.Return) and stmt.value is call:
        return name_returned_wrapper(module, stmt, call)
    wrap = wrap_in(module, call)
    if wrap is None:
        return ()
    stmt = wrap.stmt
    if wrap.inner != wrap.target or wrap.moves:
        model = f"{wrap.target} = {wrap.inner}{wrap.moves}"
        wrapper = wrap.wrapper.replace("\n", "\n    ")
        code = f"{model}\nif {NO_GROUP}:\n    {wrap.target} = {wrapper}"
        return (Replace(stmt, code), Import("torch"))
    gate = module.parents[stmt]
    if not isinstance(gate, ast.If) or gate.body != [stmt] or gate.orelse:
        return (Guard(stmt, NO_GROUP), Import("torch"))
    return (Rewrite(gate.test, f"{module.conjunct(gate.test)} and {NO_GROUP}"), Import("torch"))


def name_returned_wrapper(module: Module, stmt: ast.Return, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that give ``return DataParallel(net)`` a name, and leave the wrapper to one process."""
    if not call.args or isinstance(call.args[0], ast.Starred):
        return ()
    model = call.args[0]
    is_named = isinstance(model, ast.Name)
    name = module.text(model) if is_named else "model"
    head = "" if is_named else f"{name} = {module.text(model)}\n"
    wrapper = f"{module.text(call.func)}({name}{module.text_between(end(model), end(call))}"
    code = f"{head}if {NO_GROUP}:\n    {name} = {wrapper}\nreturn {name}"
    return (Replace(stmt, code), Import("torch"))
