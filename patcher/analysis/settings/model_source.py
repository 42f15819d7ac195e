"""The source of a script's own model class, apart from its script: what a prediction follows.

It holds the class, what that uses of the program's own classes and functions, and the call that
makes it. Names of libraries are written out: ``torch.nn.functional.softmax`` for ``F.softmax``.
"""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ....record import record
from ...source.module import Module
from ...source.tree import Function, everywhere
from ..training.program import Program
from .in_batch_negatives import all_pairs_products
from .setting_values import UNKNOWN, option_value
from .step_state import step_arguments

LIBRARIES = ("torch", "transformers")
MOST_DEFINITIONS = 24
STARTS = ("__init__", "forward")

Node = TypeVar("Node", bound=ast.AST)


@record
class ModelSource:
    """The source as JSON, or why there is none."""

    text: str = ""
    because: str = ""


def model_source(
    program: Program,
    module: Module,
    owner: ast.ClassDef,
    made: ast.Call | None,
    where: Module,
    encoder: str,
    option_values: Mapping[str, str],
) -> ModelSource:
    """The source of a class whose object `made` makes in the module `where`.

    Without a call it is the class's own from_pretrained, which calls it with the configuration.
    `encoder` is the name of the model of transformers that the call gets, "" where the class makes
    it.
    """
    known: dict[str, tuple[Module, ast.ClassDef | Function]] = {owner.name: (module, owner)}
    pending, texts = [owner.name], []
    while pending:
        place, definition = known[pending.pop(0)]
        if len(known) > MOST_DEFINITIONS:
            return ModelSource(
                because=f"{owner.name} is made of more than {MOST_DEFINITIONS} parts"
            )
        if isinstance(definition, ast.ClassDef) and not _is_plain(place, definition):
            return ModelSource(because=f"{definition.name} is of a class that is not followed")
        whole = _Whole(program, place)
        texts.append(ast.unparse(whole.visit(whole.needed(definition))))
        for name, found in whole.used.items():
            if known.setdefault(name, found) is not found and known[name][1] is not found[1]:
                return ModelSource(because=f"it has several {name}")
            if known[name] is found:
                pending.append(name)
    call = f"{owner.name}(config)"
    configs = ["config"]
    if made is not None:
        whole = _Whole(program, where)
        words = [ast.unparse(whole.visit(whole.twin(each))) for each in made.args]
        words += [
            f"{each.arg}={ast.unparse(whole.visit(whole.twin(each.value)))}"
            for each in made.keywords
            if each.arg
        ]
        call = f"{owner.name}({', '.join(words)})"
        configs = [name for name in _names(made) if _is_config(program, where, name)]
    text = "\n".join(texts)
    words_used = {
        node.attr
        for node in ast.walk(ast.parse(f"{text}\n{call}"))
        if isinstance(node, ast.Attribute)
    }
    values = {
        dest: value
        for dest in sorted(words_used & program.options.keys())
        if (value := option_value(program, dest, option_values)) is not UNKNOWN
    }
    told: dict[str, Any] = {
        "text": text,
        "call": call,
        "encoder": [encoder] if encoder else [],
        "config": configs,
        "arguments": sorted({*program.argument_names} - {*configs, encoder}),
        "options": values,
        "contrast": _contrasts(program),
        "inputs": step_arguments(program),
    }
    return ModelSource(json.dumps(told, sort_keys=True))


class _Whole(ast.NodeTransformer):
    """Writes names of libraries out, constants of the module in, and notes what else is used."""

    def __init__(self, program: Program, module: Module) -> None:
        self.program, self.module = program, module
        self.used: dict[str, tuple[Module, ast.ClassDef | Function]] = {}
        self.local: set[str] = set()
        self.origins: dict[ast.AST, ast.AST] = {}

    def twin(self, node: Node) -> Node:
        """A copy of a node, whose names can still be looked up."""
        made = copy.deepcopy(node)
        self.origins |= dict(zip(ast.walk(made), ast.walk(node), strict=True))
        return made

    def needed(self, definition: ast.ClassDef | Function) -> ast.AST:
        """A copy of a definition; of a class what its constructor and its forward come to."""
        if not isinstance(definition, ast.ClassDef):
            return self._without_text(definition)
        methods = {x.name: x for x in definition.body if isinstance(x, ast.FunctionDef)}
        wanted, pending = set(), [name for name in STARTS if name in methods]
        while pending:
            name = pending.pop()
            if name not in wanted:
                wanted.add(name)
                used = {node.attr for node in everywhere(methods[name], ast.Attribute)}
                pending += used & methods.keys()
        body: list[ast.stmt] = []
        body += [self._without_text(methods[name]) for name in methods if name in wanted]
        bare = ast.ClassDef(definition.name, [], [], body or [ast.Pass()], [])
        return ast.fix_missing_locations(bare)

    def _without_text(self, function: Function) -> Function:
        """A copy of a function without its docstring, which would make equal models differ."""
        twin = self.twin(function)
        if ast.get_docstring(twin, clean=False) is not None and len(twin.body) > 1:
            del twin.body[0]
        return twin

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer = self.local
        names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
        stored = {one.id for one in names if isinstance(one.ctx, ast.Store)}
        self.local = (
            outer | {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)} | stored
        )
        self.generic_visit(node)
        node.returns = None
        for arg in (*node.args.args, *node.args.kwonlyargs):
            arg.annotation = None
        self.local = outer
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.local or not isinstance(node.ctx, ast.Load):
            return node
        origin = self.origins[node]
        assert isinstance(origin, ast.Name)
        found = self.program.resolve(self.module, origin)
        definition = found[1] if found else None
        if found and isinstance(definition, ast.ClassDef | ast.FunctionDef):
            self.used[definition.name] = (found[0], definition)
            return ast.Name(definition.name, node.ctx)
        if isinstance(definition, ast.Assign):
            definition = definition.value
        if isinstance(definition, ast.Constant):
            return ast.Constant(definition.value)
        full = self.module.aliases.get(node.id, "")
        if full.partition(".")[0] in LIBRARIES:
            return ast.parse(full, mode="eval").body
        return node


def _is_plain(module: Module, owner: ast.ClassDef) -> bool:
    """Whether a class has no behaviour but its own and that of a module of torch."""
    names = [module.last_name(base) for base in owner.bases]
    return all(
        name in ("Module", "object", "ABC") or name.endswith("PreTrainedModel") for name in names
    )


def _names(call: ast.Call) -> list[str]:
    return [*dict.fromkeys(node.id for node in everywhere(call, ast.Name))]


def _is_config(program: Program, module: Module, name: str) -> bool:
    """Whether a name is that of a configuration of transformers."""
    if name in program.argument_names:
        return False
    for stmt in module.nodes(ast.Assign):
        value = stmt.value
        if any(isinstance(each, ast.Name) and each.id == name for each in stmt.targets):
            called = module.text(value.func) if isinstance(value, ast.Call) else ""
            return "config" in called.lower() and "from_pretrained" in called
    return False


def _contrasts(program: Program) -> bool:
    """Whether the program holds the examples of a batch against each other."""
    bodies: Iterable[tuple[Module, Function]] = (
        (module, function) for module in program.modules for function in module.all_functions
    )
    return any(
        next(all_pairs_products(module, function), None) is not None for module, function in bodies
    )
