"""Read what a script's own classes put behind a pretrained encoder, and how they call it.

What is read decides memory: modules of a size that cannot be told, a second encoder, or an input
that is made of several sequences leave the model unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import argument, everywhere, parameters, within
from ..training.program import Program
from .sequence_groups import group_sizes, reshaped_parameters

SMALL_MODULES = frozenset(
    [
        *("Linear", "Dropout", "LayerNorm", "Parameter", "Sequential", "ModuleList", "Identity"),
        *("Tanh", "ReLU", "GELU", "Sigmoid", "Softmax", "LogSoftmax", "LeakyReLU", "SiLU"),
        "CosineSimilarity",
    ]
)
"""Modules whose size is that of a layer's width times a number of classes, or nothing."""
FIRST_STATE = ("pooler_output", "pooled_output")
MOST_CLASSES = 8  # local classes within each other


@record
class Surroundings:
    """What is put behind an encoder: a head, and the encoder's class; or why it is not known.

    A head is one of `recipes.network.GENERIC_HEADS`. `sequences` are those of one example.
    `is_readable`: what it does is not known for want of a name, and its source may be followed.
    """

    head: str = ""
    encoder: str = ""
    because: str = ""
    sequences: int = 1
    is_readable: bool = False


def read_encoder(program: Program, module: Module, owner: ast.ClassDef) -> Surroundings:
    """What a class of the program's own is made of, which is loaded by its from_pretrained."""
    made = [*_encoders(program, module, owner)]
    if len(made) > 1:
        return Surroundings(because=f"{owner.name} has {len(made)} encoders")
    if made:
        return surroundings(program, module, owner, *made[0])
    for base in owner.bases:
        name = module.last_name(base)
        if has_own_head(name) and not _method(owner, "__init__"):
            return Surroundings("own", name)
    return Surroundings(because=f"{owner.name} makes no encoder of transformers that can be told")


def surroundings(
    program: Program, module: Module, owner: ast.ClassDef, attribute: str, encoder: str
) -> Surroundings:
    """What a class puts behind the encoder that it keeps as ``self.attribute``."""
    forward = _method(owner, "forward")
    if forward is None:
        return Surroundings(because=f"{owner.name} has no forward")
    strange = next(_unknown_modules(program, module, owner, attribute), "")
    if strange:
        return Surroundings(because=f"{owner.name} has a {strange}, whose size is not known")
    reshaped = reshaped_parameters(module, forward)
    because = _unlike_one_pass(module, forward, attribute, reshaped)
    if because:
        return Surroundings(because=f"{owner.name}.forward {because}", is_readable=not reshaped)
    if reshaped:
        return _grouped(program, module, owner, encoder)
    if has_own_head(encoder):
        return Surroundings("own", encoder)
    widths = [
        module.text(width)
        for where, call in _constructed(program, module, owner)
        if where.last_name(call.func) == "Linear"
        and (width := argument(call, 1, "out_features")) is not None
        and where is module
    ]
    has_layers = any(
        where.last_name(call.func) == "Linear"
        for where, call in _constructed(program, module, owner)
    )
    if not has_layers:
        return Surroundings("none", encoder)
    if any("vocab" in width for width in widths):
        return Surroundings("language", encoder)
    return Surroundings("classification" if _pools(owner) else "tokens", encoder)


def has_own_head(class_name: str) -> bool:
    """Whether a class of transformers has a head and computes a loss from labels."""
    return "For" in class_name or "LMHead" in class_name


def calls_per_path(body: list[ast.stmt], calls: set[ast.Call]) -> int:
    """The most of these calls that one pass through statements makes, each loop taken once."""
    total = 0
    for stmt in body:
        if isinstance(stmt, ast.If):
            total += sum(call in calls for call in everywhere(stmt.test, ast.Call))
            total += max(calls_per_path(stmt.body, calls), calls_per_path(stmt.orelse, calls))
        else:
            total += sum(call in calls for call in everywhere(stmt, ast.Call))
    return total


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((x for x in owner.body if isinstance(x, ast.FunctionDef) and x.name == name), None)


def _encoders(program: Program, module: Module, owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The attributes that a constructor makes models of transformers for, with their classes."""
    make = _method(owner, "__init__")
    for stmt in within(make.body, ast.Assign) if make is not None else ():
        target, value = stmt.targets[0], stmt.value
        if not isinstance(value, ast.Call) or not isinstance(target, ast.Attribute):
            continue
        name = _transformers_class(program, module, value)
        if name:
            yield module.text(target), name


def _transformers_class(program: Program, module: Module, call: ast.Call) -> str:
    """The class of ``BertModel(config)`` and ``AutoModel.from_config(config)``; "" of others."""
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in ("from_config", "from_pretrained"):
        func = func.value
    name = module.last_name(func)
    if program.resolve(module, func) is not None or "Config" in name or "Tokenizer" in name:
        return ""
    is_model = name[:1].isupper() and (name.endswith("Model") or has_own_head(name))
    return name if is_model else ""


def _constructed(
    program: Program, module: Module, owner: ast.ClassDef, depth: int = 0
) -> Iterator[tuple[Module, ast.Call]]:
    """The calls of classes in a constructor, and in those of the program's own classes there."""
    make = _method(owner, "__init__")
    for call in within(make.body, ast.Call) if make is not None and depth < MOST_CLASSES else ():
        found = program.resolve(module, call.func)
        if found is not None and isinstance(found[1], ast.ClassDef):
            if _method(found[1], "forward") is not None:
                yield from _constructed(program, found[0], found[1], depth + 1)
        elif module.last_name(call.func)[:1].isupper():
            yield module, call


def _unknown_modules(
    program: Program, module: Module, owner: ast.ClassDef, attribute: str
) -> Iterator[str]:
    """The classes of modules that are neither the encoder nor small."""
    for where, call in _constructed(program, module, owner):
        name = where.last_name(call.func)
        stmt = where.statement(call)
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
        if where is module and target is not None and where.text(target) == attribute:
            continue
        if name not in SMALL_MODULES and not name.endswith("Loss"):
            yield name
    make = _method(owner, "__init__")
    for call in within(make.body, ast.Call) if make is not None else ():
        stmt = module.statement(call)
        is_encoder = isinstance(stmt, ast.Assign) and module.text(stmt.targets[0]) == attribute
        name = module.text(call.func)
        loads = module.last_name(call.func) in ("from_config", "from_pretrained")
        if loads and not is_encoder and "tokenize" not in name.lower():
            yield name


def _grouped(program: Program, module: Module, owner: ast.ClassDef, encoder: str) -> Surroundings:
    """What a class puts behind its encoder that reads each example as a number of sequences.

    The number is told by how their vectors are brought together again, which is always alike.
    """
    classes = [owner]
    for call in everywhere(owner, ast.Call):
        found = program.resolve(module, call.func)
        if found is not None and isinstance(found[1], ast.ClassDef):
            classes.append(found[1])
    sizes = {size for each in classes for size in group_sizes(each)}
    if len(sizes) != 1 or has_own_head(encoder):
        return Surroundings(
            because=f"{owner.name} reads several sequences of an example, it is not known how many"
        )
    linear = any(
        where.last_name(call.func) == "Linear"
        for where, call in _constructed(program, module, owner)
    )
    if linear and not any(map(_pools, classes)):
        return Surroundings(
            because=f"{owner.name} has a head that is not known for several sequences"
        )
    return Surroundings("classification" if linear else "none", encoder, sequences=sizes.pop())


def _unlike_one_pass(
    module: Module, forward: ast.FunctionDef, attribute: str, reshaped: frozenset[str]
) -> str:
    """What tells a forward from one pass of its encoder over one of its parameters; "" if none."""
    own = {
        call
        for call in everywhere(forward, ast.Call)
        if (text := module.text(call.func)) == attribute or text.startswith(f"{attribute}.")
    }
    if not own:
        return "does not call its encoder where it can be seen"
    if calls_per_path(forward.body, own) > 1:
        return "calls its encoder several times"
    names = parameters(forward)
    for call in own:
        tokens = argument(call, 0, "input_ids", "inputs_embeds")
        spread = any(isinstance(arg, ast.Starred) for arg in call.args) or any(
            keyword.arg is None for keyword in call.keywords
        )
        if spread and tokens is None:
            continue  # all that it gets goes to the encoder
        if not isinstance(tokens, ast.Name) or tokens.id not in names:
            return "makes its encoder's input from other values"
        if (forward, tokens.id) in module.stores and tokens.id not in reshaped:
            return f"changes {tokens.id} before its encoder gets it"
        if any(keyword.arg == "inputs_embeds" for keyword in call.keywords):
            return "gives its encoder vectors of its own"
    return ""


def _pools(owner: ast.ClassDef) -> bool:
    """Whether a class uses one vector of a sequence: its first state, or the pooled one."""
    for node in everywhere(owner, ast.Subscript):
        index = node.slice
        if isinstance(index, ast.Tuple) and len(index.elts) > 1:
            second = index.elts[1]
            if isinstance(second, ast.Constant) and second.value == 0:
                return True
        if isinstance(index, ast.Constant) and index.value == 1:
            return True
    return any(node.attr in FIRST_STATE for node in everywhere(owner, ast.Attribute))
