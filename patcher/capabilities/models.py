"""Where a patched script makes, wraps and trains its models."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...record import record
from ..analysis.loaders import argument_for_parameter
from ..analysis.program import Program
from ..analysis.train_loops import TrainLoop
from ..source.module import Module
from ..source.tree import Function, below, bound_names, everywhere, parameters, within

WRAPPERS = ("DataParallel", "DistributedDataParallel", "compile", "get_peft_model")
MAKERS = ("from_pretrained", "from_config")
NO_MODELS = ("config", "token", "processor", "feature")  # what else is made by from_pretrained


@record
class ModelConstruction:
    """A statement that makes a model, and what it binds it to."""

    module: Module
    stmt: ast.Assign
    name: str
    call: ast.Call  # the construction


@record
class DdpWrap:
    """A statement that wraps a model in DistributedDataParallel."""

    module: Module
    stmt: ast.Assign
    name: str


def wraps(program: Program) -> list[DdpWrap]:
    """Where models are wrapped to be trained."""
    return [
        DdpWrap(module, stmt, module.text(stmt.targets[0]))
        for module in program.modules
        for call in module.calls_to("DistributedDataParallel")
        for stmt in [module.statement(call)]
        if isinstance(stmt, ast.Assign) and stmt.value is call and program.is_live(module, call)
    ]


def models_of(program: Program, loop: TrainLoop) -> list[str]:
    """What a train loop forwards through and trains, as it is spelled there: called, and stepped.

    A model has its parameters read or its mode set in the function; a loss function has not.
    """
    module = loop.module
    called = {
        module.text(call.func)
        for call in within(loop.steps.body, ast.Call)
        if isinstance(call.func, ast.Name | ast.Attribute)
    }
    handled = {
        module.text(call.func.value)
        for call in within(loop.scope, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("parameters", "named_parameters", "train", "zero_grad")
    }
    wrapped = {item.name for item in wraps(program) if item.module is module}
    return sorted(called & (handled | wrapped))


def made(program: Program) -> list[ModelConstruction]:
    """Statements that make the models which are trained, and those that make them anew to test.

    A model is followed from where it is wrapped through parameters, ``self`` and functions that
    return it. Empty where nothing shows how one of them is made.
    """
    found: dict[ast.Assign, ModelConstruction] = {}
    for wrap in wraps(program):
        for one in origins(program, wrap.module, wrap.stmt, wrap.name):
            found.setdefault(one.stmt, one)
    return sorted(
        found.values(), key=lambda one: (program.modules.index(one.module), one.stmt.lineno)
    )


def origins(
    program: Program,
    module: Module,
    at: ast.AST,
    name: str,
    seen: frozenset[tuple[Function | None, str]] = frozenset(),
) -> Iterator[ModelConstruction]:
    """The statements that make what goes by ``name`` in the function around ``at``."""
    function = module.function(at)
    if (function, name) in seen:
        return
    seen |= {(function, name)}
    if name.startswith("self."):
        yield from _kept(program, module, at, name, seen)
        return
    scope = module.scope_statements(at)
    bound = False
    for stmt in within(scope, ast.Assign):
        for target, assigned, index in _pairs(stmt):
            if isinstance(target, ast.Name) and target.id == name:
                bound |= not is_rewrapped(module, name, assigned)
                yield from _value(program, module, stmt, name, assigned, seen, index)
    if not bound and function is not None and name in parameters(function):
        for where, call in program.callers(function):
            value = argument_for_parameter(module, function, call, name)
            if isinstance(value, ast.Name | ast.Attribute):
                yield from origins(program, where, call, where.text(value), seen)
    elif not bound and function is not None and name not in bound_names(function.body):
        yield from origins(program, module, module.tree.body[-1], name, seen)


def is_rewrapped(module: Module, name: str, value: ast.expr) -> bool:
    """``model = DDP(model)``, ``model = model.module``: the model, and no other one."""
    return isinstance(value, ast.Call | ast.IfExp | ast.Attribute) and any(
        isinstance(node, ast.Name | ast.Attribute) and module.text(node) == name
        for node in below(value)
    )


def _pairs(stmt: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr, int]]:
    """What an assignment binds, to what, and to which element of it: -1 for all of it."""
    for target in stmt.targets:
        if not isinstance(target, ast.Tuple):
            yield target, stmt.value, -1
        elif isinstance(stmt.value, ast.Tuple):
            for item, value in zip(target.elts, stmt.value.elts, strict=False):
                yield item, value, -1
        else:
            for index, item in enumerate(target.elts):
                yield item, stmt.value, index


def _kept(
    program: Program,
    module: Module,
    at: ast.AST,
    name: str,
    seen: frozenset[tuple[Function | None, str]],
) -> Iterator[ModelConstruction]:
    """What the class around ``at`` assigns to ``self.model``."""
    owner = next((up for up in module.ancestors(at) if isinstance(up, ast.ClassDef)), None)
    if owner is None:
        return
    for stmt in everywhere(owner, ast.Assign):
        for target, value, index in _pairs(stmt):
            if isinstance(target, ast.Attribute) and module.text(target) == name:
                yield from _value(program, module, stmt, name, value, seen, index)


def _value(
    program: Program,
    module: Module,
    stmt: ast.Assign,
    name: str,
    value: ast.expr,
    seen: frozenset[tuple[Function | None, str]],
    index: int = -1,
) -> Iterator[ModelConstruction]:
    """The constructions behind one assigned value, or behind element ``index`` of it."""
    if isinstance(value, ast.Name | ast.Attribute):
        yield from origins(program, module, stmt, module.text(value), seen)
        return
    if not isinstance(value, ast.Call):
        return
    if isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda", "cpu", "float"):
        yield from _value(program, module, stmt, name, value.func.value, seen)
        return
    last = module.last_name(value.func)
    if last in WRAPPERS:
        if value.args and module.text(value.args[0]) != name:
            yield from _value(program, module, stmt, name, value.args[0], seen)
        return
    known = last in MAKERS or last[:1].isupper() or is_class(program, module, value.func, last)
    if known or is_class_of_choice(module, value):
        yield ModelConstruction(module, stmt, name, value)
        return
    for where in program.modules:
        function = where.functions.get(last)
        if function is not None:
            yield from _returned(program, where, function, seen, index)
            return


def is_class(program: Program, module: Module, node: ast.expr, name: str) -> bool:
    """A model's class: the program's own, or one of a table: ``_, model_class = CLASSES[kind]``."""
    return class_of(program, name) is not None or any(
        isinstance(stmt.value, ast.Subscript)
        for stmt in within(module.scope_statements(node), ast.Assign)
        if isinstance(node, ast.Name) and name in bound_names(stmt)
    )


def _returned(
    program: Program,
    module: Module,
    function: Function,
    seen: frozenset[tuple[Function | None, str]],
    index: int,
) -> Iterator[ModelConstruction]:
    """What makes the model that a function returns: ``return model``, ``return config, model``."""
    for out in within(function.body, ast.Return):
        part = out.value
        if isinstance(part, ast.Tuple) and 0 <= index < len(part.elts):
            part = part.elts[index]
        if isinstance(part, ast.Name):
            yield from origins(program, module, out, part.id, seen)


def class_of(program: Program, name: str) -> tuple[Module, ast.ClassDef] | None:
    """The program's own class of this name, if it derives from torch's or transformers' modules."""
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            if owner.name == name and any(_is_model(program, module, base) for base in owner.bases):
                return module, owner
    return None


def _is_model(program: Program, module: Module, base: ast.expr) -> bool:
    last = module.last_name(base)
    if last.endswith(("Module", "PreTrainedModel", "Model")) or "For" in last:
        return True
    return last != "" and class_of(program, last) is not None


def parts(program: Program, one: ModelConstruction) -> dict[str, str]:
    """Attributes of a model in which it keeps a transformers model, and that one's class name.

    ``self.encoder = encoder`` where the construction is given ``AutoModel.from_pretrained(…)``, or
    ``self.encoder = RobertaModel(config)``.
    """
    last = one.module.last_name(one.call.func)
    own = class_of(program, last)
    if own is None:
        return {}
    where, owner = own
    maker = next(
        (f for f in owner.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None
    )
    if maker is None:
        return {}
    found: dict[str, str] = {}
    taken: set[str] = set()  # arguments: Seq2Seq(encoder, encoder) keeps one model twice
    for stmt in within(maker.body, ast.Assign):
        for target in stmt.targets:
            if not (isinstance(target, ast.Attribute) and where.text(target).startswith("self.")):
                continue
            value, place, node, text = stmt.value, where, ast.AST(), ""
            if isinstance(value, ast.Name) and value.id in parameters(maker):
                argument = argument_for_parameter(where, maker, one.call, value.id)
                if argument is None:
                    continue
                value, place, node = argument, one.module, one.call
                text = place.text(value)
            kind = transformer(program, place, value, node)
            if kind and text not in taken:
                found[target.attr] = kind
                taken |= {text} - {""}
    return found


def transformer(program: Program, module: Module, value: ast.expr, at: ast.AST) -> str:
    """The class by which an expression makes a transformers model; the empty string for others."""
    if isinstance(value, ast.Name):
        for other in module.alternatives(value, at):
            kind = transformer(program, module, other, at)
            if kind:
                return kind
        return ""
    if not isinstance(value, ast.Call):
        return ""
    name = module.dotted(value.func)
    owner, _, last = name.rpartition(".")
    if last in MAKERS:
        kind = owner.rpartition(".")[2]
        return "" if any(other in kind.lower() for other in NO_MODELS) else kind
    if is_class_of_choice(module, value):
        return last
    return last if name.startswith("transformers.") and is_model_name(last) else ""


def is_class_of_choice(module: Module, call: ast.Call) -> bool:
    """``model_class(config)``, where another branch has ``model_class.from_pretrained(path)``."""
    if not isinstance(call.func, ast.Name) or len(call.args) != 1:
        return False
    config = "config" in module.text(call.args[0]).lower()
    return config and any(
        isinstance(other.func, ast.Attribute)
        and module.text(other.func.value) == call.func.id
        and module.function(other) is module.function(call)
        for other in module.calls_to(*MAKERS)
    )


def is_model_name(name: str) -> bool:
    """``RobertaModel``, ``GPT2LMHeadModel``, ``BertForMaskedLM``."""
    return name.endswith("Model") or "For" in name
