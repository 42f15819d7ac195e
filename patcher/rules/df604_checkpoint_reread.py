"""A checkpoint is read before it is complete, or onto one card by all.

What         torch.load without map_location; a checkpoint that every rank reads back after the
             training that writes it, with no barrier in between, or that has the time in its name,
             or a score of the training, which is that of each rank's own batches. A note where a
             data set loads its examples, which are on no card as a rule.
At run time  Every rank loads onto cuda:0, which runs out of memory; ranks other than 0 read the
             file of an earlier run, or half of this one's, or look for one of another second or
             score, which ends them.
Example      model.load_state_dict(torch.load(output_dir))
Fix          map_location="cpu" (load_state_dict copies to the right card); a barrier before.
             A model that lies in the file whole, and is used as it is, would stay on the CPU: a
             rank takes it to its own card (onto_own_card), a lone process to where it was. Only
             reported where the file holds an optimizer itself, whose state would stay there too,
             and where ranks would have to take its name from rank 0.
Fix safety   Safe: a lone process loads the same values and meets no barrier.
Source       torch.load
"""

import ast
from collections.abc import Iterator
from functools import partial

from ..analysis.effects.early_reads import (
    EXISTS,
    LOOKING,
    early_reads,
    never_both,
    own_texts,
    where_it_is_found,
)
from ..analysis.effects.file_effects import folder_of
from ..analysis.effects.met_between import waits_a_round, waits_between
from ..analysis.effects.path_text import is_option
from ..analysis.effects.written_paths import clock_in, is_memory, names_rank, spelled_with
from ..analysis.models.loaded_models import holds_used_model
from ..analysis.ranks.by_choice import is_chosen
from ..analysis.ranks.certain_reach import OF_A_RANK
from ..analysis.ranks.own_scores import own_score_in
from ..analysis.ranks.rank_0_ahead import comes_behind_rank_0
from ..analysis.ranks.rank_reach import (
    RANKS,
    UNKNOWN,
    Role,
    is_doubtful,
    roles_reaching,
    value_for_role,
)
from ..analysis.training.frameworks import OPTIMIZERS
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Import, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import WAIT
from ..fixes.written_by_one import (
    depends_on_files,
    is_called_where_missing,
    runs_for_some_alone,
)
from ..source.branches import exclusive, heads
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    argument_values,
    below,
    bound_names,
    everywhere,
    is_elif,
    last_argument,
    mentions,
    parameters,
    position,
    precedes,
    within,
)

CODE, SEVERITY, SAFETY = "DF604", Severity.DEGRADED, Safety.SAFE

OWN_CARD = "onto_own_card"
WHAT_RANK_0_HAS = "what_rank_0_has"
LISTS = (*LOOKING, "iglob", "rglob", "iterdir", "walk")
LOOKS = (*EXISTS, *LISTS)
SEARCHES = (*LISTS, "latest_checkpoint")  # of a folder


def findings(program: Program) -> Iterator[Finding]:
    if program.only_evaluates:
        return
    savers = saving_functions(program)
    folders = saved_folders(program)
    for module in program.modules:
        saves = [
            call
            for call in saving_calls(program, module, savers)
            if not is_of_each_rank(program, module, call)
        ]
        for call in module.calls_to("load"):
            if module.dotted(call.func) != "torch.load":
                continue
            path = argument(call, 0, "f")
            if is_in_memory(module, path):
                continue
            if path is not None and names_rank(program, module, path, unique=False):
                continue  # from its own card, in a file of its own
            yield from named_by_the_clock(program, module, call, path)
            yield from named_by_own_score(program, module, call, path)
            last = last_argument(call)
            if Role.OTHER not in roles_reaching(program, module, call):
                continue  # of rank 0 alone, or of a process that starts the ranks
            if last is not None and argument(call, 1, "map_location") is None:
                because = "every rank loads onto the card that rank 0 saved from"
                edits: tuple[Edit, ...] = (Rewrite(last, ", map_location='cpu'", after=True),)
                if holds_used_model(program, module, call):
                    place = Rewrite(last, f", map_location={OWN_CARD}", after=True)
                    edits = (place, Define(OWN_CARD))
                if optimizer := loaded_optimizer(module, call):
                    because += f"; {optimizer} comes from it whole, and would stay on the CPU"
                    edits = ()
                is_data = is_of_dataset(module, call)
                severity = Severity.NOTE if is_data and not optimizer else None
                yield Finding(module, call, because, edits, severity=severity)
        early = dict(reads_behind_saves(program, module, saves, folders))
        early = {**dict(read_through_calls(program, module)), **early}
        for call, saved in early.items():
            if not any(
                waits_for_both(module, each, saved, call) for each in early
            ) and not comes_behind_rank_0(program, module, call):
                yield too_early(program, module, call, saved)
        yield from perhaps_too_early(program, module, early)


def is_of_dataset(module: Module, load: ast.Call) -> bool:
    """Whether a data set loads it: examples, which most likely have never been on a card."""
    owner = module.enclosing_class(load)
    return owner is not None and (
        any(isinstance(each, Function) and each.name == "__getitem__" for each in owner.body)
        or any(module.last_name(base).endswith("Dataset") for base in owner.bases)
    )


def named_by_the_clock(
    program: Program, module: Module, load: ast.Call, path: ast.expr | None
) -> Iterator[Finding]:
    """A file of this run, which ranks look for under the names that they have each given it."""
    if path is None or not program.is_live(module, load):
        return
    found = clock_in(program, module, path)
    if found is not None and roles_reaching(program, module, load) >= RANKS:
        because = (
            f"{found[0].text(found[1])} is in its name, which is another one a second later:"
            " rank 0 alone has written it; take the name from rank 0 (broadcast_object_list)"
        )
        yield Finding(module, load, because)


def named_by_own_score(
    program: Program, module: Module, load: ast.Call, path: ast.expr | None
) -> Iterator[Finding]:
    """A file of this run that has a score of the training in its name, another one on each rank."""
    if path is None or not program.is_live(module, load):
        return
    if roles_reaching(program, module, load) < RANKS or mentions(path, WHAT_RANK_0_HAS):
        return
    found = spelled_with(program, module, path, partial(own_score_in, program))
    if found is None:
        return
    edits: tuple[Edit, ...] = ()
    if argument(load, 1, "map_location") is not None and not (
        is_doubtful(program, module, load)
        or runs_for_some_alone(program, module, module.statement(load))
    ):
        rewrite = Rewrite(path, f"{WHAT_RANK_0_HAS}({module.text(path)})")
        edits = (rewrite, Define(WHAT_RANK_0_HAS), Define(OWN_CARD))
    because = (
        f"{found[0].text(found[1])}, of this rank's own batches, is in its name: rank 0 alone has"
        " written it, under its own"
    )
    yield Finding(module, load, because, edits, severity=Severity.ERROR)


def waits_for_both(module: Module, first: ast.Call, saved: ast.Call, call: ast.Call) -> bool:
    """Whether a barrier before one early read is also between a save and a later read."""
    return (
        first is not call
        and precedes(saved, first)
        and module.statement(first) in module.body(module.statement(call))
        and precedes(module.statement(first), module.statement(call))
    )


def loaded_optimizer(module: Module, load: ast.Call) -> str:
    """The name of an optimizer that is in the file itself, and not as a state; else empty.

    ``optimizer = checkpoint["optimizer"]``, where another branch makes one.
    """
    function = module.function(load)
    loaded = {
        store.id
        for (owner, _), stores in module.stores.items()
        for store in stores
        if owner is function and module.parents[store] is module.parents[load]
    }
    for stmt in module.nodes(ast.Assign):
        value, target = stmt.value, stmt.targets[0]
        if (
            module.function(stmt) is function
            and isinstance(target, ast.Name)
            and isinstance(value, ast.Subscript)
            and isinstance(value.value, ast.Name)
            and value.value.id in loaded
            and any(
                module.last_name(call.func) in OPTIMIZERS
                for store in module.stores[function, target.id]
                for call in within(module.statement(store), ast.Call)
            )
        ):
            return target.id
    return ""


def too_early(program: Program, module: Module, call: ast.Call, saved: ast.Call) -> Finding:
    """A finding of ``call``, which reads what another call of its function saves."""
    place = loop_behind_save(module, module.statement(call), saved)
    place = first_to_look(program, module, place, saved)
    because = "rank 0 may still be writing it when another rank reads"
    edits: tuple[Edit, ...] = (Insert(place, WAIT), Import("torch"))
    if runs_for_some_alone(program, module, place):
        because += "; a barrier cannot stand there, where a call for some ranks leads too"
        edits = ()
    elif where_it_is_found(module, saved, call):
        because += "; a barrier cannot stand there, where ranks come that find it, and no others"
        edits = ()
    elif is_called_where_missing(program, module, place):
        because += "; a barrier cannot stand there, where ranks come that do not find a file"
        edits = ()
    is_sure = not is_chosen(program, module, call) and not is_doubtful(program, module, call)
    severity = Severity.ERROR if is_sure else Severity.DEGRADED
    return Finding(module, call, because, edits, severity=severity)


def perhaps_too_early(
    program: Program, module: Module, early: dict[ast.Call, ast.Call]
) -> Iterator[Finding]:
    """Findings of calls that read what may be the file that another call saves."""
    seen = [*early]
    for call, saved in read_through_calls(program, module, doubtful=True):
        if call in seen or any(waits_for_both(module, each, saved, call) for each in seen):
            continue
        seen.append(call)
        sure = too_early(program, module, call, saved)
        because = f"{sure.because}, if it is the one that line {saved.lineno} writes"
        yield Finding(module, call, because, sure.edits, severity=Severity.DEGRADED)


def reads_behind_saves(
    program: Program, module: Module, saves: list[ast.Call], folders: set[str]
) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Calls that load a checkpoint below a call that saves one, each with that."""
    readers = {each.name: each for each in reading_functions(program)}
    for call in module.calls_to("load", "from_pretrained", *readers):
        stmt = module.statement(call)
        both = [
            saved
            for saved in saves
            if not never_both(module, saved, call)
            and not waits_a_round(program, module, saved, call)
            and not are_other_files(module, saved, call)
        ]
        saved = last_call_above(module, stmt, both)
        path = argument(call, 0, "f") if module.dotted(call.func) == "torch.load" else None
        if path is not None and names_rank(program, module, path, unique=False):
            continue  # its own file, which it has written itself
        by_function = readers.get(module.last_name(call.func)) in [
            function for _, function in program.callees(module, call)
        ]
        if saved is None or not (by_function or reads_checkpoint(module, call, folders)):
            continue
        if is_of_its_writers(module, saved, stmt) or is_of_the_user(program, module, saved, call):
            continue
        if roles_reaching(program, module, call) >= RANKS and not waits_between(
            program, module, saved, stmt
        ):
            yield call, saved


def are_other_files(module: Module, saved: ast.Call, load: ast.Call) -> bool:
    """``save(state, folder / "best.pth")`` and ``load(folder / "last.pth")``, as they stand."""
    written, read = (
        {name for value in argument_values(call) if (name := file_name(module, value))}
        for call in (saved, load)
    )
    return bool(written and read) and written.isdisjoint(read)


def file_name(module: Module, path: ast.expr) -> str:
    """The last part of a path, where it is a literal that ends as a file's name; else empty."""
    match path:
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            return file_name(module, inner)
        case ast.BinOp(op=ast.Div(), right=last):
            return file_name(module, last)
        case ast.Call(args=[_, *_, last]) if module.dotted(path.func) == "os.path.join":
            return file_name(module, last)
        case ast.Constant(value=str(text)) if "." in text:
            return text.rpartition("/")[2]
    return ""


def is_of_the_user(program: Program, module: Module, saved: ast.Call, load: ast.Call) -> bool:
    """Whether a load is of a file that the user names, and the save above it of another.

    ``torch.load(args.resume)`` where it is empty by default, below a save to a path without it.
    """
    path, target = argument(load, 0, "f"), argument(saved, 1, "f")
    saves_here = module.dotted(saved.func) in ("torch.save", "save_on_main")
    if path is None or target is None or not (saves_here and is_option(program, module, [path])):
        return False
    assert isinstance(path, ast.Attribute)
    set_here = any(path.attr in where.attribute_values for where in program.modules)
    written = own_texts(program, module, target, saved)
    is_empty = not program.options[path.attr].default
    return is_empty and not set_here and not any(f"<{path.attr}>" in text for text in written)


def is_of_its_writers(module: Module, saved: ast.Call, stmt: ast.stmt) -> bool:
    """Whether one test, perhaps of the rank, lets a rank come to both the save and a read."""
    return any(
        isinstance(up, ast.If)
        and up in module.ancestors(saved)
        and not exclusive(saved, stmt)
        and value_for_role(module, up.test, Role.OTHER) is UNKNOWN
        and any(
            OF_A_RANK.search(part.attr if isinstance(part, ast.Attribute) else part.id)
            for part in below(up.test)
            if isinstance(part, ast.Attribute | ast.Name)
        )
        for up in module.ancestors(stmt)
    )


def read_through_calls(
    program: Program, module: Module, *, doubtful: bool = False
) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Calls that read the file that another call writes, each perhaps in a function it calls."""
    for body in (module.tree.body, *(function.body for function in module.all_functions)):
        for call, saved in early_reads(program, module, body, doubtful=doubtful):
            if roles_reaching(program, module, call) >= RANKS:
                yield call, saved


def is_of_each_rank(program: Program, module: Module, save: ast.Call) -> bool:
    """Whether each rank saves for itself, to memory or to a temporary folder of its own."""
    path = argument(save, 1, "f")
    if path is None or is_in_memory(module, path):
        return path is not None
    is_own = names_rank(program, module, path) and not names_rank(
        program, module, path, unique=False
    )
    return is_own and Role.OTHER in roles_reaching(program, module, save)


def is_in_memory(module: Module, target: ast.expr | None) -> bool:
    """Whether a checkpoint goes to a buffer, which each rank has for itself."""
    return target is not None and is_memory(module, target)


def reads_checkpoint(module: Module, call: ast.Call, folders: set[str]) -> bool:
    """``torch.load``, or from_pretrained of a folder that the program saved or loops over."""
    if module.dotted(call.func) == "torch.load":
        return not is_in_memory(module, argument(call, 0, "f"))
    path = argument(call, 0, "pretrained_model_name_or_path")
    if path is None or not module.dotted(call.func).endswith("from_pretrained"):
        return False
    is_loop_variable = isinstance(path, ast.Name) and any(
        isinstance(up, ast.For) and path.id in bound_names(up.target)
        for up in module.ancestors(call)
    )
    return is_loop_variable or module.text(path) in folders


def reading_functions(program: Program) -> Iterator[Function]:
    """Functions that read the checkpoint whose path they are passed."""
    for module, call in program.calls_to("load"):
        path, function = argument(call, 0, "f"), module.function(call)
        if module.dotted(call.func) != "torch.load" or function is None:
            continue
        if isinstance(path, ast.Name) and path.id in parameters(function):
            yield function


def saved_folders(program: Program) -> set[str]:
    """The text of each folder that is passed to ``save_pretrained``."""
    return {
        module.text(folder_of(module, folder))
        for module, save in program.calls_to("save_pretrained")
        if (folder := argument(save, 0, "save_directory")) is not None
    }


def saving_functions(program: Program) -> set[Function]:
    """The functions that write a checkpoint, which is more than a tokenizer."""
    return {
        function
        for module, call in program.calls_to("save", "save_on_main", "save_pretrained")
        for function in [module.function(call)]
        if function is not None
        and function.name != "save_on_main"
        and not is_of_another_library(program, module, call)
        and "token" not in module.text(call.func).lower()
    }


def is_of_another_library(program: Program, module: Module, save: ast.Call) -> bool:
    """``OmegaConf.save(config, path)``, and whatever else is imported and saves no checkpoint."""
    root, _, _ = module.text(save.func).partition(".")
    dotted = module.dotted(save.func)
    return (
        root in module.aliases
        and not dotted.startswith("torch")
        and dotted.endswith(".save")
        and not any(program.callees(module, save))
    )


def saving_calls(program: Program, module: Module, savers: set[Function]) -> list[ast.Call]:
    """Calls that write a checkpoint, also of functions that may be such by their names."""
    names = {function.name for function in savers}
    calls = [*module.calls_to("save_on_main", "save_pretrained")]
    for call in module.calls_to(*names):
        called = {function for _, function in program.callees(module, call)}
        if not called.isdisjoint(savers) if called else module.last_name(call.func) != "__init__":
            calls.append(call)
    calls += [call for call in module.calls_to("save") if module.dotted(call.func) == "torch.save"]
    return calls


def last_call_above(module: Module, stmt: ast.stmt, calls: list[ast.Call]) -> ast.Call | None:
    """The last of some calls above ``stmt`` in its function."""
    function = module.function(stmt)
    above = [c for c in calls if precedes(c, stmt) and module.function(c) is function]
    return max(above, key=position, default=None)


def loop_behind_save(module: Module, stmt: ast.stmt, saved: ast.Call) -> ast.stmt:
    """The outermost loop around ``stmt`` that begins after the save, or ``stmt`` itself."""
    outermost = stmt
    for up in module.ancestors(stmt):
        if isinstance(up, Function):
            break
        if isinstance(up, ast.For | ast.While) and precedes(saved, up):
            outermost = up
    return outermost


def first_to_look(program: Program, module: Module, place: ast.stmt, saved: ast.Call) -> ast.stmt:
    """The first statement below the save that looks which files there are for ``place``, or that.

    ``if os.path.exists(path):`` around it, and ``folders = glob(path)`` above a loop over them or a
    test of them: a rank that looks before rank 0 has written would go another way. So would one
    that has searched the folder of the file: ``last = latest_checkpoint(folder)``.
    """
    for up in module.ancestors(place):
        if not isinstance(up, ast.If) or not precedes(saved, up):
            break
        looks = looks_for_files(program, module, up.test) or depends_on_files(module, up.test)
        if looks and not is_elif(module.parents[up], up):
            place = up
    read = heads(place) or [place]
    names = {name.id for each in read for name in everywhere(each, ast.Name)}
    body = module.body(place)
    for stmt in reversed(body[: body.index(place)]):
        bound = {each.id for each in everywhere(stmt, ast.Name) if isinstance(each.ctx, ast.Store)}
        if not precedes(saved, stmt):
            break
        if searches_folder(module, stmt, names - bound):
            place = stmt
        elif bound & names:
            names |= {name.id for name in everywhere(stmt, ast.Name)}
            place = stmt if looks_for_files(program, module, stmt) else place
    return place


def searches_folder(module: Module, stmt: ast.stmt, names: set[str]) -> bool:
    """Whether a statement searches a folder of one of these names."""
    return any(
        module.last_name(call.func) in SEARCHES
        and any(isinstance(each, ast.Name) and each.id in names for each in call.args)
        for call in everywhere(stmt, ast.Call)
    )


def looks_for_files(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a test or statement asks which files or folders there are, or lists them below."""
    return any(module.last_name(call.func) in LOOKS for call in everywhere(node, ast.Call)) or any(
        where.last_name(call.func) in LISTS
        for where, function in program.functions_below(module, node)
        for call in within(function.body, ast.Call)
    )
