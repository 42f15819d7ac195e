"""Follow an expression to the model that it stands for, and that to its parts.

Only what is certain is told. Whatever else a constructor does ends in `UnknownPartError`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ...source.module import Module
from ...source.tree import Function, argument, everywhere, has_forward, parameters, within
from ..language.objects import RETURN_SELF, ClassOf, classes_above, method_of
from ..training.program import Program
from .layer_tables import (
    FIRST_OF_SEVERAL,
    FIRST_OUTPUT,
    HEADS,
    LAYERS,
    NO_PARAMETERS,
    PICTURES,
    SECOND_OUTPUT,
)
from .model_parts import (
    ACTIVATION,
    NOTHING,
    Frame,
    ModelPart,
    UnknownPartError,
    appended_to,
    arguments_of,
    assignments_to_self,
    is_plain_module,
    passed_to,
    reaching_values,
)

MOST_LEVELS = 12  # of names, calls and classes within each other
WRAPPERS = ("DataParallel", "DistributedDataParallel", "convert_sync_batchnorm", "deepcopy")
NOT_MODELS = ("config", "tokenize", "processor", "logger")
PLAIN_CALLS = frozenset(
    [
        *("int", "float", "str", "bool", "len", "min", "max", "abs", "round", "range", "sum"),
        *("getattr", "hasattr", "isinstance", "dict", "list", "tuple", "set", "sorted", "zip"),
    ]
)
HIDES_PARTS = frozenset(
    ["setattr", "add_module", "register_module", "register_parameter", "exec", "vars", "__dict__"]
)


def model_part(program: Program, module: Module, model: ast.expr) -> ModelPart:
    """The model that an expression stands for.

    Raises UnknownPartError where it is not certain what the model is made of.
    """
    return _Builder(program).part(Frame(module, module.function(model)), model, "model", 0)


class _Builder:
    """Follows expressions to the parts that they make."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def part(self, frame: Frame, node: ast.expr, path: str, depth: int) -> ModelPart:
        """What an expression stands for."""
        if depth > MOST_LEVELS:
            raise UnknownPartError
        match node:
            case ast.Constant() | ast.JoinedStr() | ast.BinOp() | ast.UnaryOp() | ast.Compare():
                return NOTHING
            case ast.Name():
                return self._name(frame, node, path, depth)
            case ast.Attribute():
                return self._attribute(frame, node, path, depth)
            case ast.Subscript():
                self._expect_nothing(frame, node.value, depth)
                return NOTHING
            case ast.Dict() | ast.List() | ast.Tuple() | ast.Set():
                values = node.values if isinstance(node, ast.Dict) else node.elts
                for value in values:
                    self._expect_nothing(frame, value, depth)
                return NOTHING
            case ast.IfExp():
                return self._one_of(frame, [node.body, node.orelse], path, depth)
            case ast.Call():
                return self._call(frame, node, path, depth)
        raise UnknownPartError

    def _expect_nothing(self, frame: Frame, node: ast.expr, depth: int) -> None:
        if self.part(frame, node, "", depth + 1).weights:
            raise UnknownPartError

    def _one_of(self, frame: Frame, nodes: list[ast.expr], path: str, depth: int) -> ModelPart:
        """The one part that several expressions agree on."""
        found = [self.part(frame, node, path, depth + 1) for node in nodes]
        if not found or any(each != found[0] for each in found):
            raise UnknownPartError
        return found[0]

    def _name(self, frame: Frame, node: ast.Name, path: str, depth: int) -> ModelPart:
        module, function = frame.module, frame.function
        values, is_sure = reaching_values(module, function, node)
        if is_sure:
            return self._one_of(frame, values, path, depth)
        earlier = self._unassigned(frame, node, path, depth, bool(values))
        if not values:
            return earlier or NOTHING
        found = self._one_of(frame, values, path, depth)
        if earlier is not None and found != earlier:
            raise UnknownPartError
        return found

    def _unassigned(
        self, frame: Frame, node: ast.Name, path: str, depth: int, is_bound: bool
    ) -> ModelPart | None:
        """What a name stands for that no assignment above binds on every path."""
        module, function = frame.module, frame.function
        if node.id in frame.arguments:
            where, value = frame.arguments[node.id]
            return self.part(where, value, path, depth + 1)
        if node.id in self.program.argument_names:
            return NOTHING
        if function is not None and node.id in parameters(function):
            return self._passed(module, function, node.id, path, depth)
        if is_bound:
            return None  # on every path that does not end in a NameError
        if (function, node.id) in module.stores:
            return self._unpacked(frame, node, path, depth)
        found = self.program.resolve(module, node)
        if found is None:
            if node.id in module.aliases:
                return NOTHING  # a module or a constant of a library
            raise UnknownPartError
        home, meaning = found
        if isinstance(meaning, ast.expr):
            return self.part(Frame(home, home.function(meaning)), meaning, path, depth + 1)
        return NOTHING  # a function or a class is no object of one

    def _passed(
        self, module: Module, function: Function, name: str, path: str, depth: int
    ) -> ModelPart:
        """What all callers of a function pass for a parameter."""
        calls = self.program.callers(function)
        if not calls or self.program.possible_callers(function):
            raise UnknownPartError
        found = [
            self.part(*arguments_of(module, function, where, call, name), path, depth + 1)
            for where, call in calls
        ]
        if any(each != found[0] for each in found):
            raise UnknownPartError
        return found[0]

    def _unpacked(self, frame: Frame, node: ast.Name, path: str, depth: int) -> ModelPart:
        """A name of ``model, tokenizer = build(args)``, bound once."""
        stores = frame.module.stores[frame.function, node.id]
        target = frame.module.parents[stores[0]]
        stmt = frame.module.parents.get(target)
        if (
            len(stores) != 1
            or not isinstance(target, ast.Tuple)
            or not isinstance(stmt, ast.Assign)
            or not isinstance(stmt.value, ast.Call)
        ):
            raise UnknownPartError
        place = [*target.elts].index(stores[0])
        inner, results = self._results(frame, stmt.value)
        chosen = []
        for result in results:
            if not isinstance(result, ast.Tuple) or len(result.elts) != len(target.elts):
                raise UnknownPartError
            chosen.append(result.elts[place])
        return self._one_of(inner, chosen, path, depth)

    def _attribute(self, frame: Frame, node: ast.Attribute, path: str, depth: int) -> ModelPart:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            if node.attr in frame.attributes:
                return frame.attributes[node.attr]
            return self._held(frame, node, path, depth)
        dotted = frame.module.dotted(node)
        if dotted.startswith("torch.nn.functional."):
            return ACTIVATION
        if dotted.partition(".")[0] in ("torch", "math", "numpy", "transformers"):
            return NOTHING  # a function or a constant
        self._expect_nothing(frame, node.value, depth)
        return NOTHING

    def _held(self, frame: Frame, node: ast.Attribute, path: str, depth: int) -> ModelPart:
        """The model that a trainer holds: what all assignments to its attribute agree on.

        Those that wrap it or move it bind the same one again.
        """
        owner = frame.module.enclosing_class(node)
        if frame.attributes or owner is None or has_forward(owner):
            raise UnknownPartError
        found = []
        for module in self.program.modules:
            for target in module.attributes(node.attr):
                home = module.enclosing_class(target)
                if not isinstance(target.ctx, ast.Store) or (home and has_forward(home)):
                    continue
                stmt = module.parents[target]
                if not isinstance(stmt, ast.Assign | ast.AnnAssign) or stmt.value is None:
                    raise UnknownPartError
                if module.text(unwrapped(module, stmt.value)) != module.text(target):
                    inner = Frame(module, module.function(stmt))
                    found.append(self.part(inner, stmt.value, path, depth + 1))
        if not found or any(each != found[0] for each in found):
            raise UnknownPartError
        return found[0]

    def _call(self, frame: Frame, call: ast.Call, path: str, depth: int) -> ModelPart:
        module, func = frame.module, call.func
        name = module.last_name(func)
        made = self._class(frame, func)
        if made is not None:
            return self._own(frame, made, call, path, depth)
        if isinstance(func, ast.Attribute) and name in RETURN_SELF:
            return self.part(frame, func.value, path, depth + 1)
        inside = wrapped(call) if name in WRAPPERS else None
        if inside is not None:
            return self.part(frame, inside, path, depth + 1)
        dotted = module.dotted(func)
        if dotted.startswith("torch.nn."):
            return self._layer(frame, call, name, path, depth)
        if dotted.startswith("torchvision.models.") and name in PICTURES:
            return ModelPart("layer", path)
        if name in ("from_pretrained", "from_config") and isinstance(func, ast.Attribute):
            return self._pretrained(frame, func.value, call, path)
        if dotted.startswith("transformers."):
            return self._pretrained(frame, func, call, path)
        if dotted.startswith(("torch.", "numpy.", "math.")) or dotted in PLAIN_CALLS:
            return NOTHING
        inner, results = self._results(frame, call)
        return self._one_of(inner, results, path, depth)

    def _class(self, frame: Frame, func: ast.expr) -> ClassOf | None:
        """The class of the program that an expression names, also through parameters."""
        if isinstance(func, ast.Name) and func.id in frame.arguments:
            where, value = frame.arguments[func.id]
            return self._class(where, value)
        found = self.program.resolve(frame.module, func)
        if found is not None and isinstance(found[1], ast.ClassDef):
            return found[0], found[1]
        return None

    def _results(self, frame: Frame, call: ast.Call) -> tuple[Frame, list[ast.expr]]:
        """What a function of the program returns for a call, and where that stands."""
        callees = self.program.callees(frame.module, call)
        if len(callees) != 1:
            raise UnknownPartError
        where, function = callees[0]
        results = [each.value for each in within(function.body, ast.Return)]
        if not results or None in results:
            raise UnknownPartError
        inner = Frame(where, function, passed_to(frame, where, function, call), frame.attributes)
        return inner, [each for each in results if each is not None]

    def _pretrained(self, frame: Frame, base: ast.expr, call: ast.Call, path: str) -> ModelPart:
        """A model of transformers, by its class, or by all that a table of classes has."""
        text = frame.module.text(base).lower()
        if any(word in text for word in NOT_MODELS):
            return NOTHING
        pools = next((w.value for w in call.keywords if w.arg == "add_pooling_layer"), None)
        if pools is not None and not (isinstance(pools, ast.Constant) and pools.value is False):
            raise UnknownPartError
        kinds = {
            self._kind_of_pretrained(where, each, pools is None)
            for where, each in self._classes_in_table(frame.module, base)
        }
        if len(kinds) != 1:
            raise UnknownPartError
        return ModelPart(kinds.pop(), path)

    def _kind_of_pretrained(self, module: Module, base: ast.expr, is_pooled: bool) -> str:
        dotted = module.dotted(base)
        name = dotted.rpartition(".")[2]
        if not dotted.startswith("transformers.") or self.program.resolve(module, base):
            raise UnknownPartError  # a library's copy in the program may differ
        if name in HEADS:
            return "head"
        if name in FIRST_OUTPUT or (name in SECOND_OUTPUT and not is_pooled):
            return "first"
        if name in SECOND_OUTPUT:
            return "second"
        raise UnknownPartError

    def _classes_in_table(
        self, module: Module, base: ast.expr
    ) -> Iterator[tuple[Module, ast.expr]]:
        """The classes that ``_, base, _ = CLASSES[args.kind]`` picks one of; else the one named."""
        stores = module.stores.get((module.function(base), module.text(base)), [])
        target = module.parents[stores[0]] if len(stores) == 1 else None
        stmt = target if isinstance(target, ast.Assign) else module.parents.get(target or base)
        if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Subscript):
            yield module, base
            return
        found = self.program.resolve(module, stmt.value.value)
        table = found[1] if found is not None else None
        table = table.value if isinstance(table, ast.Assign | ast.AnnAssign) else table
        if found is None or not isinstance(table, ast.Dict):
            raise UnknownPartError
        for row in table.values:
            if not isinstance(target, ast.Tuple):
                yield found[0], row
            elif isinstance(row, ast.Tuple | ast.List) and len(row.elts) == len(target.elts):
                yield found[0], row.elts[target.elts.index(stores[0])]
            else:
                raise UnknownPartError

    def _layer(self, frame: Frame, call: ast.Call, name: str, path: str, depth: int) -> ModelPart:
        """A layer of torch.nn."""
        if name in NO_PARAMETERS or name.endswith("Loss"):
            return ACTIVATION
        if name in LAYERS:
            return ModelPart("layer", path)
        if name in FIRST_OF_SEVERAL:
            return ModelPart("first", path)
        if name == "Parameter":
            return ModelPart("weight", path)
        if name == "Sequential":
            return ModelPart("chain", path, tuple(self._listed(frame, call.args, path, depth)))
        if name == "ModuleList":
            return ModelPart("list", path, tuple(self._elements(frame, call.args, path, depth)))
        raise UnknownPartError

    def _elements(
        self, frame: Frame, nodes: list[ast.expr], path: str, depth: int
    ) -> Iterator[ModelPart]:
        """The parts in what nn.ModuleList gets."""
        for node in nodes:
            yield from self._listed(frame, [ast.Starred(node)], path, depth)

    def _listed(
        self, frame: Frame, nodes: list[ast.expr], path: str, depth: int
    ) -> Iterator[ModelPart]:
        """The parts that a list of expressions makes, of which one may be ``*layers``."""
        for number, node in enumerate(nodes):
            if not isinstance(node, ast.Starred):
                yield self.part(frame, node, f"{path}.{number}", depth + 1)
                continue
            value = node.value
            if isinstance(value, ast.Name):
                yield from self._local_list(frame, value, path, depth)
            elif isinstance(value, ast.List | ast.Tuple):
                yield from self._listed(frame, value.elts, path, depth + 1)
            elif isinstance(value, ast.ListComp | ast.GeneratorExp):
                yield from self._one_of_many(frame, value.elt, path, depth)
            else:
                raise UnknownPartError

    def _local_list(
        self, frame: Frame, name: ast.Name, path: str, depth: int
    ) -> Iterator[ModelPart]:
        """The parts that a function puts into a list of its own."""
        module, function = frame.module, frame.function
        stores = module.stores.get((function, name.id), [])
        if not stores or depth > MOST_LEVELS:
            raise UnknownPartError
        for store in stores:
            stmt = module.parents[store]
            if not isinstance(stmt, ast.Assign | ast.AugAssign):
                raise UnknownPartError
            yield from self._listed(frame, [ast.Starred(stmt.value)], path, depth + 1)
        scope = module.tree.body if function is None else function.body
        for call in within(scope, ast.Call):
            func = call.func
            if isinstance(func, ast.Attribute) and module.text(func.value) == name.id:
                if func.attr != "append" or len(call.args) != 1:
                    raise UnknownPartError
                yield from self._one_of_many(frame, call.args[0], f"{path}.{call.lineno}", depth)

    def _one_of_many(
        self, frame: Frame, node: ast.expr, path: str, depth: int
    ) -> Iterator[ModelPart]:
        """Two parts for as many as a loop makes: what reaches the last alone misses the first."""
        for number in (0, 1):
            yield self.part(frame, node, f"{path}[{number}]", depth + 1)

    def _own(self, frame: Frame, made: ClassOf, call: ast.Call, path: str, depth: int) -> ModelPart:
        """An object of a class of the program, with its attributes."""
        above = [*classes_above(self.program, made)]
        constructors = [
            (where, member)
            for where, definition in above
            for member in definition.body
            if isinstance(member, ast.FunctionDef) and member.name == "__init__"
        ]
        if len(constructors) > 1 or any(not is_plain_module(*each, above) for each in above):
            raise UnknownPartError
        forward = method_of(self.program, made, "forward")
        if not constructors:
            return ModelPart("own", path, owner=made) if forward is not None else NOTHING
        where, make = constructors[0]
        if any(where.last_name(each.func) in HIDES_PARTS for each in within(make.body, ast.Call)):
            raise UnknownPartError
        attributes: dict[str, ModelPart] = {}
        inner = Frame(where, make, passed_to(frame, where, make, call), attributes)
        for stmt in assignments_to_self(make):
            for target in stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]:
                self._assigned(inner, attributes, target, stmt, path, depth)
        self._expect_no_other_parts(made, make, attributes)
        for each in within(make.body, ast.Call):
            attribute = appended_to(each)
            if attribute in attributes and attributes[attribute].kind == "list":
                old, place = attributes[attribute], f"{path}.{attribute}.{each.lineno}"
                more = self._one_of_many(inner, each.args[0], place, depth)
                attributes[attribute] = ModelPart("list", old.path, (*old.parts, *more))
        if forward is None and not any(each.weights for each in attributes.values()):
            return NOTHING
        return ModelPart("own", path, (), made, attributes)

    def _assigned(
        self,
        frame: Frame,
        attributes: dict[str, ModelPart],
        target: ast.expr,
        stmt: ast.Assign | ast.AnnAssign,
        path: str,
        depth: int,
    ) -> None:
        """Note what a constructor assigns to an attribute of its object."""
        if not isinstance(target, ast.Attribute):
            if any(each.value for each in everywhere(target, ast.Attribute)):
                raise UnknownPartError  # self.a, self.b = …
            return
        if not (isinstance(target.value, ast.Name) and target.value.id == "self"):
            if target.attr not in ("weight", "bias", "data"):
                raise UnknownPartError  # a layer of another one is exchanged
            return
        if stmt.value is None:
            return
        new = self.part(frame, stmt.value, f"{path}.{target.attr}", depth + 1)
        old = attributes.get(target.attr)
        if old is not None and old != new:
            if not {old.kind, new.kind} <= {"chain", "layer"}:
                raise UnknownPartError
            new = ModelPart(
                "chain", new.path, (old, new)
            )  # one of them: either is called as a whole
        attributes[target.attr] = new

    def _expect_no_other_parts(
        self, made: ClassOf, make: Function, attributes: Mapping[str, ModelPart]
    ) -> None:
        """Refuse a class whose other methods assign parts of it."""
        for where, definition in classes_above(self.program, made):
            for member in definition.body:
                if not isinstance(member, ast.FunctionDef) or member is make:
                    continue
                for stmt in assignments_to_self(member):
                    value = stmt.value
                    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
                    names = {t.attr for t in targets if isinstance(t, ast.Attribute)}
                    if names & {name for name, part in attributes.items() if part.weights}:
                        raise UnknownPartError
                    is_made = isinstance(value, ast.Call) and (
                        where.dotted(value.func).startswith("torch.nn.")
                        or self.program.resolve(where, value.func) is not None
                    )
                    if is_made and member.name != "forward":
                        raise UnknownPartError


def wrapped(call: ast.Call) -> ast.expr | None:
    """The model that a call wraps, converts or copies."""
    return argument(call, 0, "module", "x")


def unwrapped(module: Module, value: ast.expr) -> ast.expr:
    """What a value wraps or moves: ``self.net`` of ``DataParallel(self.net).to(device)``."""
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in RETURN_SELF:
            value = value.func.value
        elif module.last_name(value.func) in WRAPPERS and (inside := wrapped(value)):
            value = inside
        else:
            break
    return value
