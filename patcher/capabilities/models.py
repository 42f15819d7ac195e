"""Find where a script constructs, wraps and trains its models."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...record import record
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    below,
    bound_names,
    everywhere,
    only_argument,
    parameters,
    position,
    within,
)

WRAPPERS = ("DataParallel", "DistributedDataParallel", "compile", "get_peft_model")
MAKERS = ("from_pretrained", "from_config")
NO_MODELS = ("config", "tokenizer", "processor", "feature")  # other classes with from_pretrained


@record
class ModelConstruction:
    """A statement that constructs a model, and the name it binds."""

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

    @property
    def call(self) -> ast.Call:
        """The construction of the wrapper."""
        assert isinstance(self.stmt.value, ast.Call)
        return self.stmt.value


def ddp_wraps(program: Program) -> list[DdpWrap]:
    """The statements that wrap a model in DistributedDataParallel."""
    return [
        DdpWrap(module, stmt, module.text(stmt.targets[0]))
        for module in program.modules
        for call in module.calls_to("DistributedDataParallel")
        for stmt in [module.statement(call)]
        if isinstance(stmt, ast.Assign) and stmt.value is call and program.is_live(module, call)
    ]


def models_of(program: Program, loop: TrainLoop) -> list[str]:
    """The models that a train loop calls and trains, as source text.

    Unlike a loss function, a model also has its parameters read or its mode set in the function.
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
    wrapped = {item.name for item in ddp_wraps(program) if item.module is module}
    return sorted(called & (handled | wrapped))


def model_constructions(program: Program) -> list[ModelConstruction]:
    """The statements that construct the trained models, also those that do so again for testing.

    A model is followed from where it is wrapped through parameters, ``self`` and functions that
    return it.
    """
    by_statement: dict[ast.Assign, ModelConstruction] = {}
    for wrap in ddp_wraps(program):
        for one in _origins(program, wrap.module, wrap.stmt, wrap.name):
            by_statement.setdefault(one.stmt, one)
    return sorted(
        by_statement.values(),
        key=lambda one: (program.modules.index(one.module), position(one.stmt)),
    )


def _origins(
    program: Program,
    module: Module,
    at: ast.AST,
    name: str,
    seen: frozenset[tuple[Function | None, str]] = frozenset(),
) -> Iterator[ModelConstruction]:
    """The constructions behind ``name`` in the function around ``at``."""
    function = module.function(at)
    if (function, name) in seen:
        return
    seen |= {(function, name)}
    if name.startswith("self."):
        yield from _origins_of_attribute(program, module, at, name, seen)
        return
    scope = module.scope_statements(at)
    is_bound = False
    for stmt in within(scope, ast.Assign):
        for target, assigned, index in _assigned_parts(stmt):
            if isinstance(target, ast.Name) and target.id == name:
                is_bound |= not _is_rewrapped(module, name, assigned)
                yield from _origins_of_value(program, module, stmt, name, assigned, seen, index)
    if not is_bound and function is not None and name in parameters(function):
        for where, call in program.callers(function):
            value = argument_for_parameter(module, function, call, name)
            if isinstance(value, ast.Name | ast.Attribute):
                yield from _origins(program, where, call, where.text(value), seen)
    elif not is_bound and function is not None and name not in bound_names(function.body):
        yield from _origins(program, module, module.tree.body[-1], name, seen)


def _is_rewrapped(module: Module, name: str, value: ast.expr) -> bool:
    """Whether a value is the same model again: ``model = DDP(model)``, ``model = model.module``."""
    return isinstance(value, ast.Call | ast.IfExp | ast.Attribute) and any(
        isinstance(node, ast.Name | ast.Attribute) and module.text(node) == name
        for node in below(value)
    )


def _assigned_parts(stmt: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr, int]]:
    """Each target of an assignment, its value, and the index in that value (-1: all of it)."""
    for target in stmt.targets:
        if not isinstance(target, ast.Tuple):
            yield target, stmt.value, -1
        elif isinstance(stmt.value, ast.Tuple):
            for item, value in zip(target.elts, stmt.value.elts, strict=False):
                yield item, value, -1
        else:
            for index, item in enumerate(target.elts):
                yield item, stmt.value, index


def _origins_of_attribute(
    program: Program,
    module: Module,
    at: ast.AST,
    name: str,
    seen: frozenset[tuple[Function | None, str]],
) -> Iterator[ModelConstruction]:
    """The constructions that the class around ``at`` assigns to ``self.model``."""
    owner = module.enclosing_class(at)
    if owner is None:
        return
    for stmt in everywhere(owner, ast.Assign):
        for target, value, index in _assigned_parts(stmt):
            if isinstance(target, ast.Attribute) and module.text(target) == name:
                yield from _origins_of_value(program, module, stmt, name, value, seen, index)


def _origins_of_value(
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
        yield from _origins(program, module, stmt, module.text(value), seen)
        return
    if not isinstance(value, ast.Call):
        return
    if isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda", "cpu", "float"):
        yield from _origins_of_value(program, module, stmt, name, value.func.value, seen)
        return
    last = module.last_name(value.func)
    if last in WRAPPERS:
        wrapped = argument(value, 0, "module", "model")
        if wrapped is not None and module.text(wrapped) != name:
            yield from _origins_of_value(program, module, stmt, name, wrapped, seen)
        return
    known = (
        last in MAKERS or last[:1].isupper() or _is_model_class(program, module, value.func, last)
    )
    if known or _is_class_variable(module, value):
        yield ModelConstruction(module, stmt, name, value)
        return
    for where in program.modules:
        function = where.functions.get(last)
        if function is not None:
            yield from _origins_of_result(program, where, function, seen, index)
            return


def _is_model_class(program: Program, module: Module, node: ast.expr, name: str) -> bool:
    """Whether a name is a model class: the program's own, or ``_, cls = CLASSES[kind]``."""
    return class_of(program, name) is not None or any(
        isinstance(stmt.value, ast.Subscript)
        for stmt in within(module.scope_statements(node), ast.Assign)
        if isinstance(node, ast.Name) and name in bound_names(stmt)
    )


def _origins_of_result(
    program: Program,
    module: Module,
    function: Function,
    seen: frozenset[tuple[Function | None, str]],
    index: int,
) -> Iterator[ModelConstruction]:
    """The constructions behind ``return model`` or ``return config, model`` of a function."""
    for out in within(function.body, ast.Return):
        part = out.value
        if isinstance(part, ast.Tuple) and 0 <= index < len(part.elts):
            part = part.elts[index]
        if isinstance(part, ast.Name):
            yield from _origins(program, module, out, part.id, seen)


def class_of(program: Program, name: str) -> tuple[Module, ast.ClassDef] | None:
    """The program's own class of this name, if it is a model by torch or transformers."""
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            if owner.name == name and any(
                _is_model_base(program, module, base) for base in owner.bases
            ):
                return module, owner
    return None


def _is_model_base(program: Program, module: Module, base: ast.expr) -> bool:
    last = module.last_name(base)
    if last.endswith(("Module", "PreTrainedModel", "Model")) or "For" in last:
        return True
    return last != "" and class_of(program, last) is not None


def transformer_parts(program: Program, one: ModelConstruction) -> dict[str, str]:
    """The attributes of a model that are transformers models, with the name of their class.

    ``self.encoder = RobertaModel(config)``, or ``self.encoder = encoder`` where the constructor is
    called with ``AutoModel.from_pretrained(…)``.
    """
    last = one.module.last_name(one.call.func)
    own = class_of(program, last)
    if own is None:
        return {}
    where, owner = own
    constructor = next(
        (f for f in owner.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None
    )
    if constructor is None:
        return {}
    found: dict[str, str] = {}
    seen: set[str] = set()  # arguments: Seq2Seq(encoder, encoder) keeps one model twice
    for stmt in within(constructor.body, ast.Assign):
        for target in stmt.targets:
            if not (isinstance(target, ast.Attribute) and where.text(target).startswith("self.")):
                continue
            node: ast.AST = stmt
            value, place, text = stmt.value, where, ""
            if isinstance(value, ast.Name) and value.id in parameters(constructor):
                argument = argument_for_parameter(where, constructor, one.call, value.id)
                if argument is None:
                    continue
                value, place, node = argument, one.module, one.call
                text = place.text(value)
            kind = transformer_class(program, place, value, node)
            if kind and text not in seen:
                found[target.attr] = kind
                seen |= {text} - {""}
    return found


def transformer_class(program: Program, module: Module, value: ast.expr, at: ast.AST) -> str:
    """The class of the transformers model that an expression constructs, else an empty string."""
    if isinstance(value, ast.Name):
        for other in module.alternatives(value, at):
            kind = transformer_class(program, module, other, at)
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
    if _is_class_variable(module, value):
        return last
    return last if name.startswith("transformers.") and _is_model_name(last) else ""


def _is_class_variable(module: Module, call: ast.Call) -> bool:
    """Whether a call is ``cls(config)`` where the function also calls ``cls.from_pretrained()``."""
    only = only_argument(call, "config")
    if not isinstance(call.func, ast.Name) or only is None:
        return False
    config = "config" in module.text(only).lower()
    return config and any(
        isinstance(other.func, ast.Attribute)
        and module.text(other.func.value) == call.func.id
        and module.function(other) is module.function(call)
        for other in module.calls_to(*MAKERS)
    )


def _is_model_name(name: str) -> bool:
    """Whether a name is like ``RobertaModel``, ``GPT2LMHeadModel`` or ``BertForMaskedLM``."""
    return name.endswith("Model") or "For" in name
