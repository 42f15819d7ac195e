"""A wrapped model is used as if it were the model.

What         The model is unwrapped from DataParallel only, or only where n_gpu is above 1; or,
             after the line that wraps it, the script uses an attribute of the wrapper that only the
             model has, or loads a checkpoint without "module." in its keys into the wrapper. Or a
             training step calls methods of the model past its wrapper, or goes back through it in
             an object that was made of the model ahead of the wrapper, as an attack may be.
At run time  DistributedDataParallel is no DataParallel and a rank's n_gpu is 1: AttributeError at
             generate, save_pretrained or config, missing keys at load_state_dict, or a checkpoint
             whose keys start with "module.". What goes past the wrapper is not averaged over the
             ranks, or has weights that torch takes for unused: RuntimeError in the backward pass.
Example      m = model.module if isinstance(model, torch.nn.DataParallel) else model
Fix          Ask for both wrappers, or for the attribute module, or take the model out on the spot.
             A function that insists on DataParallel, by an assertion, is called where there is no
             group. Only reported where none does, or where what it gives back is used; and where a
             step goes past the wrapper: forward() has to do that. An object that holds the model
             gets the wrapper, if it asks nothing of it that this answers otherwise.
Fix safety   Safe: without a wrapper, and in DataParallel, what worked before works the same way.
Source       torch.nn.parallel.DistributedDataParallel (module)
"""

import ast
import re
from collections.abc import Iterator, Sequence

from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.language.settled_tests import is_never_reached
from ..analysis.models.held_models import HeldModel, models_held_bare
from ..analysis.models.past_wrapper import steps_past_wrapper
from ..analysis.models.saved_wrappers import is_wrapped, returns_wrapper
from ..analysis.models.wrapper_attributes import (
    WRAPPERS,
    is_lacking,
    is_of_engine,
    is_of_scope,
    is_otherwise,
    is_torch_wrap,
    makes_loss,
    may_be_engine,
)
from ..analysis.models.wrapping import averages_otherwise, is_whatever_cards
from ..analysis.ranks.rank_reach import RANKS, UNKNOWN, Role, value_for_role
from ..analysis.training.evaluations import is_bound_between
from ..analysis.training.frameworks import starts_under_horovod
from ..analysis.training.possible_values import values_of
from ..analysis.training.program import Program
from ..editing.edits import Edit, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.data_parallel import is_move
from ..fixes.process_group import unwrapped_model
from ..fixes.wrapper_tests import (
    Wrapped,
    isinstance_tests,
    n_gpu_tests,
    tests_of_the_wrapper,
    wrapper_names,
)
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import (
    Function,
    everywhere,
    is_inside,
    mentions,
    names_within,
    parameters,
    precedes,
    same_code,
    within,
)

CODE, SEVERITY, SAFETY = "DF305", Severity.ERROR, Safety.SAFE

DOWNLOADS = ("load_state_dict_from_url", "load_url", "hf_hub_download")
MODEL_ATTRIBUTES = {  # of transformers' models; wrappers lack them
    *("generate", "save_pretrained", "push_to_hub", "config", "generation_config"),
    *("resize_token_embeddings", "get_input_embeddings", "set_input_embeddings", "tie_weights"),
}
OF_ANY_CARD = re.compile(r"""cuda\.is_available\(\)$|== ["']cuda["']$|^(\w+\.)?(use_)?cuda$""")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
AROUND = "and what a step computes around it has no averaged gradients: call it in forward()"


def findings(program: Program) -> Iterator[Finding]:
    if not program.train_loops or not program.calls_to(*WRAPPERS) or starts_under_horovod(program):
        return
    evaluating = {evaluation.function for evaluation in program.evaluations} - {None}
    wrapped = {name for module in program.modules for _, name, _ in wrapper_names(module)}
    for module in program.modules:
        yield from isinstance_tests(program, module)
        if not defines_module_attribute(program):
            yield from n_gpu_tests(module)
            yield from tests_of_the_wrapper(program, module)
        returned = list(returned_wrappers(program, module))
        for name, wrap in wrapper_uses(module, returned):
            use = module.parents[name]
            assert isinstance(use, ast.Attribute)
            is_returned = any(wrap is each for _, _, each in returned)
            if use.attr in MODEL_ATTRIBUTES:
                because = f"{name.id}.{use.attr} is asked of the wrapper"
            elif is_returned and not is_of_the_model_alone(program, module, name, wrap, True):
                continue
            elif (
                use.attr == "load_state_dict"
                and not wraps_lone_process(module, wrap, use)
                and not has_wrapper_of_any_card(program, module, wrap)
                and not any(saves_wrapper_state(program, each) for each in program.modules)
            ):
                because = f"{name.id} is wrapped here, and its checkpoint was made without"
            elif (
                use.attr == "state_dict"
                and not stays_in_memory(program, module, module.parents[use])
                and not wraps_lone_process(module, wrap, use)
                and is_loaded_bare(program, name.id, key_of_state(module, use))
            ):
                because = f"{name.id} is wrapped here, and its checkpoint is loaded without"
            elif (
                module.function(use) not in evaluating  # DF303 and DF504 unwrap it
                and is_of_the_model_alone(program, module, name, wrap, is_returned)
            ):
                because = f"{name.id}.{use.attr} is asked of the wrapper"
                if makes_loss(program, module, use):
                    yield Finding(module, use, f"{because}, {AROUND}")
                    continue
            else:
                continue
            yield Finding(module, use, because, (Rewrite(name, unwrapped_model(name.id)),))
        yield from passed_wrappers(program, module, wrapped) if wrapped else ()
    if not defines_module_attribute(program) and not averages_otherwise(program):
        for module, call, why in steps_past_wrapper(program):
            yield Finding(module, call, f"{why}; call it in forward()")
        for held in models_held_bare(program):
            yield held_bare(held)


def held_bare(held: HeldModel) -> Finding:
    """The finding of an object that goes back through a model past the wrapper below it."""
    wrapper = held.module.text(held.wrap.targets[0])
    because = (
        f"{held.holder} is made of the model before that is wrapped, and"
        f" {held.holder}.{held.method}() goes back past the wrapper: ranks do not average"
        f" those gradients; make {held.holder} below, of {wrapper}"
    )
    edits: tuple[Edit, ...] = ()
    if held.takes_wrapper and held.test is not None:
        code = f"{held.holder}.{held.attr} = {wrapper}"
        code = f"if {held.test}:\n    {code}" if held.test else code
        edits = (Insert(held.wrap, code, "after"),)
    return Finding(held.home, held.made, because, edits)


def is_of_the_model_alone(
    program: Program, module: Module, name: ast.Name, wrap: ast.stmt, is_returned: bool
) -> bool:
    """Whether the model has the attribute that is read, and its wrapper has not."""
    use = module.parents[name]
    return (
        isinstance(use, ast.Attribute)
        and is_lacking(program, module, use)
        and not is_of_engine(program, use)
        and (is_returned or is_torch_wrap(module, wrap))
        and is_of_scope(module, name, module.function(wrap))
        and not is_otherwise(module, use, wrap)
        and not may_be_engine(module, module.function(wrap), name.id, wrap)
    )


def passed_wrappers(program: Program, module: Module, wrapped: set[str]) -> Iterator[Finding]:
    """``model.generate`` in a function that gets the wrapped model, and takes nothing out of it."""
    evaluating = {evaluation.function for evaluation in program.evaluations}  # DF504's
    for use in module.nodes(ast.Attribute):
        name, function = use.value, module.function(use)
        if (
            not isinstance(name, ast.Name)
            or function is None
            or function in evaluating
            or name.id not in parameters(function)
            or is_bound_anew(module, function, name)
            or not (use.attr in MODEL_ATTRIBUTES or is_lacking(program, module, use))
            or is_of_engine(program, use)
            or is_tested(module, use)
        ):
            continue
        for where, call in program.callers(function):
            passed = argument_for_parameter(module, function, call, name.id)
            if (
                isinstance(passed, ast.Name)
                and passed.id in wrapped
                and is_wrapped(program, where, passed)
                and (use.attr in MODEL_ATTRIBUTES or not is_engine_elsewhere(program, passed.id))
                and not sets(where, passed.id, use.attr)
                and not is_wrapped_otherwise(module, use, where, passed.id)
                and not is_never_reached(program, where, call)
            ):
                because = f"{module.text(use)} is asked of the wrapper of line {call.lineno}"
                if use.attr not in MODEL_ATTRIBUTES and makes_loss(program, module, use):
                    yield Finding(module, use, f"{because}, {AROUND}")
                else:
                    rewrite = Rewrite(name, unwrapped_model(name.id))
                    yield Finding(module, use, because, (rewrite,))
                break


def is_bound_anew(module: Module, function: Function, name: ast.Name) -> bool:
    """Whether a function binds its parameter: on every way to a use, or to what it makes of it."""
    stores = module.stores.get((function, name.id), ())
    values = [each.value for each in map(module.statement, stores) if isinstance(each, ast.Assign)]
    made = [each for each in values if isinstance(each, ast.Call) and not mentions(each, name.id)]
    return len(made) < len(stores) or is_bound_between(module, name, function.lineno)


def is_wrapped_otherwise(module: Module, use: ast.AST, where: Module, name: str) -> bool:
    """Whether each wrap of a name stands under the other answer of a test around the use."""
    wraps = [wrap for _, wrapped, wrap in wrapper_names(where) if wrapped == name]
    return bool(wraps) and all(is_otherwise(module, use, wrap, where) for wrap in wraps)


def sets(module: Module, name: str, attribute: str) -> bool:
    """Whether a module gives what a name stands for an attribute, as it gives the wrapper."""
    return any(
        isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == name
        for each in module.attributes(attribute)
    )


def is_engine_elsewhere(program: Program, name: str) -> bool:
    """Whether a name that is wrapped may stand for another library's engine instead."""
    return any(
        may_be_engine(module, scope, wrapped, wrap)
        for module in program.modules
        for scope, wrapped, wrap in wrapper_names(module)
        if wrapped == name
    )


def key_of_state(module: Module, use: ast.Attribute) -> str:
    """``model`` of ``{"model": model.state_dict()}``; else empty."""
    call = module.parents[use]
    holder = module.parents[call]
    if not isinstance(holder, ast.Dict):
        return ""
    keys = [key for key, value in zip(holder.keys, holder.values, strict=True) if value is call]
    return str(keys[0].value) if keys and isinstance(keys[0], ast.Constant) else ""


def asks_for_key(module: Module, load: ast.Call, key: str) -> bool:
    """Whether the function around a load reads a key, ``checkpoint["model"]``; true of no key."""
    body = module.function(load) or module.tree
    return not key or any(
        each.value == key and not isinstance(module.parents[each], ast.Dict)
        for each in everywhere(body, ast.Constant)
    )


def is_loaded_bare(program: Program, model: str, key: str) -> bool:
    """Whether a model of this name is loaded from such a file, and never in its wrapper.

    ``key`` is the one that the file has the state under. Where none is read, it is another file.
    """
    loads = [
        (module, call, call.func.value)
        for module, call in program.calls_to("load_state_dict")
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == model
    ]
    wrapped = {name for module in program.modules for name, _ in wrapper_uses(module)}
    in_wrapper = (
        owner in wrapped or is_passed_wrapped(program, module, owner) for module, _, owner in loads
    )
    return not any(in_wrapper) and any(
        asks_for_key(module, call, key)
        and not is_downloaded(module, call)
        and not takes_keys_of_wrappers(program, module, call)
        for module, call, _ in loads
    )


def is_passed_wrapped(program: Program, module: Module, model: ast.Name) -> bool:
    """Whether a function gets as its parameter what its caller has wrapped above."""
    function = module.function(model)
    if function is None or model.id not in parameters(function):
        return False
    return any(
        isinstance(passed, ast.Name)
        and name == passed.id
        and scope is where.function(call)
        and wrap is not None
        and precedes(wrap, call)
        for where, call in program.callers(function)
        for passed in [argument_for_parameter(module, function, call, model.id)]
        for scope, name, wrap in wrapper_names(where)
    )


def stays_in_memory(program: Program, module: Module, state: ast.AST) -> bool:
    """Whether a state meets other states only, as averages of weights do, and goes to no file."""
    above = module.parents[state]
    while isinstance(above, ast.Dict | ast.keyword | ast.IfExp):
        state, above = above, module.parents[above]
    if isinstance(above, ast.Attribute):
        return goes_over_values(above, module.parents[module.parents[above]])
    if isinstance(above, ast.Call):
        may_save = "save" in module.last_name(above.func) or program.callees(module, above)
        return not may_save and module.last_name(above.func) != "dict"
    if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
        name, function = above.targets[0].id, module.function(above)
        uses = names_within((function or module.tree).body, {name})
        reads = [use for use in uses if isinstance(use.ctx, ast.Load)]
        return all(
            isinstance(module.parents[read], ast.Subscript | ast.Attribute)
            or stays_in_memory(program, module, read)
            for read in reads
        )
    return False


def goes_over_values(items: ast.Attribute, loop: ast.AST) -> bool:
    """``for _, value in model.state_dict().items():``, of which the keys go nowhere."""
    match loop:
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=key), _])) if items.attr == "items":
            return not any(mentions(stmt, key) for stmt in loop.body)
        case ast.For():
            return items.attr == "values"
    return False


def takes_keys_of_wrappers(program: Program, module: Module, load: ast.Call) -> bool:
    """Whether a function takes "module." out of keys, those of the wrapper.

    The one around a load, or one that what is loaded goes through.
    """
    body = module.function(load) or module.tree
    values = [load.args[0], *module.alternatives(load.args[0], load)] if load.args else []
    through = [
        function
        for value in values
        for call in everywhere(value, ast.Call)
        for _, function in program.callees(module, call)
    ]
    return any(takes_prefix_off(each) for each in (body, *through))


def takes_prefix_off(body: ast.AST) -> bool:
    """Whether code looks for "module." in keys, or cuts as many letters off."""
    return any(
        isinstance(part.value, str) and part.value.startswith("module.")
        for part in everywhere(body, ast.Constant)
    ) or any(
        isinstance(part.lower, ast.Constant) and part.lower.value == len("module.")
        for part in everywhere(body, ast.Slice)
    )


def is_downloaded(module: Module, load: ast.Call) -> bool:
    """Whether a state comes from the network, and not from a file that the program has saved."""
    values = [load.args[0], *module.alternatives(load.args[0], load)] if load.args else []
    calls = (call for value in values for call in everywhere(value, ast.Call))
    return any(module.last_name(call.func) in DOWNLOADS for call in calls)


def wraps_lone_process(module: Module, wrap: ast.stmt, use: ast.AST) -> bool:
    """Whether a lone process that comes to a use has the wrapper: what it loads has its keys.

    It has one whatever its cards, or the tests around the wrap are around the use, too.
    """
    tests = {up for up in module.ancestors(wrap) if isinstance(up, ast.If)}
    is_behind_both = tests <= {*module.ancestors(use)} and not exclusive(wrap, use)
    is_always = is_whatever_cards(module, wrap) or is_behind_both
    return is_always and wraps_cards_alone(module, wrap)


def has_wrapper_of_any_card(program: Program, module: Module, wrap: ast.stmt) -> bool:
    """Whether a DataParallel is around a model on any card, and nothing is saved that it may load.

    ``if device == "cuda":``: the file is of another script, which has wrapped its model as well.
    """
    saves = any(program.is_live(*each) for each in program.calls_to("save"))
    if saves or not wraps_cards_alone(module, wrap):
        return False
    tests = [module.text(up.test) for up in module.ancestors(wrap) if isinstance(up, ast.If)]
    return all(OF_ANY_CARD.search(test) for test in tests)


def returned_wrappers(program: Program, module: Module) -> Iterator[Wrapped]:
    """Scope, name and statement of ``model, optimizer = make()``, where that wraps the model."""
    makers = {
        where.function(call): where for where, call in program.calls_to("DistributedDataParallel")
    }
    for maker in makers:
        for where, call in program.callers(maker) if maker is not None else ():
            stmt = where.statement(call)
            if where is not module or not isinstance(stmt, ast.Assign) or stmt.value is not call:
                continue
            for target in stmt.targets:
                parts: list[tuple[int | None, ast.expr]] = [(None, target)]
                if isinstance(target, ast.Tuple):
                    parts = [*enumerate(target.elts)]
                for place, each in parts:
                    if isinstance(each, ast.Name) and returns_wrapper(program, module, call, place):
                        yield module.function(stmt), each.id, stmt


def wrapper_uses(
    module: Module, returned: Sequence[Wrapped] = ()
) -> Iterator[tuple[ast.Name, ast.stmt]]:
    """Names of wrapped models in ``model.attribute``, behind the wrap and under no test for it.

    Each with the statement that wraps it: torch's own, where a class of the program may do so too.
    """
    seen: set[ast.Name] = set()
    wrapping = {module.statement(call) for call in module.calls_to(*WRAPPERS, "compile")}
    wraps = [*wrapper_names(module), *returned]
    wraps.sort(key=lambda each: not is_torch_wrap(module, each[2]))
    for scope, name, wrap in wraps:
        body = module.tree.body if scope is None else scope.body
        rebindings = [
            store
            for store in module.stores.get((scope, name), [])
            for stmt in [module.statement(store)]
            if precedes(wrap, store) and stmt not in wrapping and not is_move(module, stmt, name)
        ]
        for base in names_within(body, {name}):
            use = module.parents[base]
            if not isinstance(use, ast.Attribute) or base in seen:
                continue
            is_wrapper = precedes(wrap, use) and not any(precedes(s, use) for s in rebindings)
            is_known = is_tested(module, use, wrap) or is_otherwise(module, use, wrap)
            if is_wrapper and not is_known:
                seen.add(base)
                yield base, wrap


def is_tested(module: Module, use: ast.Attribute, wrap: ast.stmt | None = None) -> bool:
    """Whether a test around ``use`` looks at the wrapper, or an ``except`` of where it fails."""
    is_lone = wrap is not None and wraps_cards_alone(module, wrap)
    return is_instead_of_module(module, use) or any(
        isinstance(up, (ast.If, ast.IfExp))
        and tests_for_wrapper(module, up.test)
        and (is_lone or not is_passed_by_ranks(module, up, use))
        for up in module.ancestors(use)
    )


def is_instead_of_module(module: Module, use: ast.Attribute) -> bool:
    """``model.state_dict()`` behind ``except``, where ``model.module.state_dict()`` has failed."""
    return any(
        isinstance(up, ast.ExceptHandler)
        and isinstance(tried := module.parents[up], ast.Try)
        and any(
            each.attr == "module" and same_code(each.value, use.value)
            for each in within(tried.body, ast.Attribute)
        )
        for up in module.ancestors(use)
    )


def wraps_cards_alone(module: Module, wrap: ast.stmt) -> bool:
    """Whether a statement wraps in DataParallel only, which ranks have no more of."""
    names = {module.last_name(call.func) for call in everywhere(wrap, ast.Call)}
    return "DistributedDataParallel" not in names


def is_passed_by_ranks(module: Module, stmt: ast.If | ast.IfExp, use: ast.AST) -> bool:
    """``if n_gpu == 1:`` around what all ranks come to with a wrapper, as their n_gpu is 1."""
    if any(mentions(stmt.test, name) for name in ("hasattr", "isinstance", "local_rank")):
        return False
    body = stmt.body if isinstance(stmt.body, list) else [stmt.body]
    holds = any(use is part or is_inside(use, part) for part in body)
    answers = [value_for_role(module, stmt.test, role) for role in RANKS]
    return UNKNOWN not in answers and all(bool(answer) is holds for answer in answers)


def tests_for_wrapper(module: Module, test: ast.expr) -> bool:
    """Whether a test looks at the wrapper: not one that a lone process passes as rank 0 does."""
    if any(mentions(test, name) for name in ("hasattr", "isinstance", "n_gpu")):
        return True
    if not mentions(test, "local_rank"):
        return False
    alone, first = (value_for_role(module, test, role) for role in (Role.SINGLE, Role.MAIN))
    return UNKNOWN in (alone, first) or bool(alone) is not bool(first)


def defines_module_attribute(program: Program) -> bool:
    """Whether the program binds an attribute ``module`` itself."""
    return any(
        isinstance(node.ctx, ast.Store)
        for module in program.modules
        for node in module.attributes("module")
    )


def saves_wrapper_state(program: Program, module: Module) -> bool:
    """Whether the state of a wrapped model is taken, with the wrapper's keys, as for a checkpoint.

    It may be taken in a function that has the model from the module or from its callers, or of an
    object that was given it, and saved in a dictionary.
    """
    wraps = list(wrapper_names(module))
    names = {name for _, name, _ in wraps}
    uses = [use for use in module.attributes("state_dict") if not is_looked_into(module, use)]
    return (
        any(
            isinstance(use.value, ast.Name)
            and isinstance(value := module.definition(use.value, use), ast.Name)
            and value.id in names
            for use in uses
        )
        or any(
            isinstance(use.value, ast.Name)
            and any(
                use.value.id == name and not (module.function(use) is scope and precedes(use, wrap))
                for scope, name, wrap in wraps
            )
            and not is_tested(module, use)
            for use in uses
        )
        or any(
            isinstance(use.value, ast.Name)
            and is_wrapped(program, module, use.value)
            and not is_tested(module, use)
            for use in uses
        )
        or any(
            isinstance(use.value, ast.Attribute)
            and not is_tested(module, use)
            and is_given_wrapped(program, module, use.value)
            for use in uses
        )
        or (
            any(
                isinstance(use.value, ast.Name) and is_one_of_several(module, use.value)
                for use in uses
            )
            and any(is_put_away(program, each) for each in program.modules)
        )
    )


def is_looked_into(module: Module, use: ast.Attribute) -> bool:
    """Whether one entry of a state is read: ``model.state_dict()[key]``, or whether it has one."""
    return isinstance(module.parents[module.parents[use]], ast.Compare | ast.Subscript)


def is_given_wrapped(program: Program, module: Module, kept: ast.Attribute) -> bool:
    """Whether an object may keep a model that its caller has wrapped: ``Trainer(ddp)``."""
    return any(
        isinstance(value, ast.Name) and is_wrapped(program, where, value)
        for where, value in values_of(program, module, kept)
    )


def is_one_of_several(module: Module, name: ast.Name) -> bool:
    """Whether a name goes over several objects: ``part`` in ``for key, part in parts.items():``."""
    loops = [
        loop
        for up in module.ancestors(name)
        for loop in (up.generators if isinstance(up, COMPREHENSIONS) else (up,))
        if isinstance(loop, ast.For | ast.comprehension)
    ]
    return any(each.id == name.id for loop in loops for each in everywhere(loop.target, ast.Name))


def is_put_away(program: Program, module: Module) -> bool:
    """Whether a wrapped model goes into a dictionary or list as it is."""
    wrapped = {name for _, name, _ in wrapper_names(module)}
    return any(
        isinstance(each.ctx, ast.Load)
        and isinstance(module.parents[each], ast.Dict | ast.List | ast.Tuple)
        and is_wrapped(program, module, each)
        for each in module.occurrences(*wrapped)
        if isinstance(each, ast.Name)
    )
