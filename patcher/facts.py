"""One pass of the standard library's ``ast`` over a module, and the tables that rules read.

The pass records parents, calls, functions and import aliases; everything else is looked up in
those tables when a rule first asks for it. Nothing here runs or imports the user's code.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from ..errors import InputError
from .sources import Source

Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Module:
    """A parsed file with its tables.

    Raises InputError when the text is not Python, naming the line.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        try:
            self.tree = ast.parse(source.text)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            reason = getattr(error, "msg", None) or str(error)
            raise InputError(
                f"{source.path}:{line}: not valid Python ({reason}); "
                "correct that line first (Python 2 code needs 2to3)"
            ) from error
        except RecursionError as error:
            raise InputError(f"{source.path}: nested too deeply to be read; split it") from error
        self.parents: dict[ast.AST, ast.AST] = {}
        self.functions: dict[str, Function] = {}
        self.aliases: dict[str, str] = {}
        self._names: dict[ast.AST, tuple[list[ast.Name], frozenset[str]]] = {}
        self.values: dict[tuple[ast.expr, object], object] = {}  # of tests, by role
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._nodes: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        pending: list[ast.AST] = [self.tree]
        calls: list[ast.Call] = []
        while pending:
            node = pending.pop()
            self._nodes[type(node)].append(node)
            if isinstance(node, ast.Call):
                calls.append(node)
            elif isinstance(node, Function):
                self.functions.setdefault(node.name, node)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    self.aliases[local] = alias.name if alias.asname else local
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                pending.append(child)
        for call in calls:
            self._calls[self.dotted(call.func).rpartition(".")[2]].append(call)

    @cached_property
    def _lines(self) -> list[bytes]:
        # Of bytes, as ast counts lines: str.splitlines also breaks at form feeds.
        return self.source.text.encode().splitlines(keepends=True)

    def line(self, number: int) -> str:
        """The source line of a 1-based number."""
        return self._lines[number - 1].decode()

    def names(self, node: ast.AST) -> tuple[list[ast.Name], frozenset[str]]:
        """Names that a statement or expression reads, as nodes, and names that it binds."""
        if node not in self._names:
            reads = [
                item
                for item in walk(node)
                if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)
            ]
            self._names[node] = reads, frozenset(bound_names(node))
        return self._names[node]

    def text(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> str:
        """The source text of ``node``."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        lines = self._lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"".join(lines).decode()

    def margin(self, stmt: ast.stmt) -> str:
        """The white space that the line of ``stmt`` starts with."""
        line = self.line(stmt.lineno)
        return line[: len(line) - len(line.lstrip())]

    def dotted(self, node: ast.expr) -> str:
        """``a.b.c`` with import aliases resolved, or the empty string when it is no such name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self.aliases.get(node.id, node.id))
            return ".".join(reversed(parts))
        return "." + ".".join(reversed(parts)) if parts else ""

    def nodes(self, kind: type[Node]) -> list[Node]:
        """All nodes of exactly this type, in source order where they have a position."""
        found = self._nodes.get(kind, [])
        return sorted(found, key=position)  # type: ignore[arg-type]

    def calls_to(self, *names: str) -> list[ast.Call]:
        """Calls whose resolved name ends in one of ``names``, in source order."""
        return sorted((call for name in names for call in self._calls.get(name, [])), key=position)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parents of ``node``, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds ``node``."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def function(self, node: ast.AST) -> Function | None:
        """The function whose body holds ``node``; None at module level."""
        return next((up for up in self.ancestors(node) if isinstance(up, Function)), None)

    def body(self, stmt: ast.stmt) -> list[ast.stmt]:
        """The list of statements that ``stmt`` stands in."""
        parent = self.parents[stmt]
        for _, value in ast.iter_fields(parent):
            if isinstance(value, list) and any(item is stmt for item in value):
                return value
        return [stmt]

    def scope_statements(self, node: ast.AST) -> list[ast.stmt]:
        """The body of the function around ``node``, or of the module."""
        function = self.function(node)
        return self.tree.body if function is None else function.body

    @cached_property
    def is_program(self) -> bool:
        """Whether the file is meant to be run: a main guard, a command line, or a loop that trains.

        A library's modules are not: who writes and who reads is decided by those who call them.
        """
        if self.calls_to("parse_args", "parse_args_into_dataclasses"):
            return True
        for stmt in self.tree.body:
            if isinstance(stmt, ast.If) and mentions(stmt.test, "__name__"):
                return True
        return any(self.function(call) is None for call in self.calls_to("backward"))

    @cached_property
    def stores(self) -> dict[tuple[Function | None, str], list[ast.Name]]:
        """Where each function binds each of its plain names."""
        found: dict[tuple[Function | None, str], list[ast.Name]] = defaultdict(list)
        for name in self.nodes(ast.Name):
            if not isinstance(name.ctx, ast.Load):
                found[self.function(name), name.id].append(name)
        return found

    @cached_property
    def assigned_once(self) -> dict[tuple[Function | None, str], ast.expr]:
        """Names that nothing but one plain assignment in their function binds, with its value."""
        return {
            key: stmt.value
            for key, (first, *more) in self.stores.items()
            if not more
            and isinstance(stmt := self.parents[first], ast.Assign)
            and stmt.targets == [first]
        }

    @cached_property
    def module_names(self) -> set[str]:
        """Names bound at module level."""
        return set(self.aliases) | bound_names(self.tree.body)

    def definition(self, name: ast.expr, at: ast.AST) -> ast.expr | None:
        """The last value that the plain name ``name`` got above ``at`` in its own function."""
        values = self.alternatives(name, at)
        return values[-1] if values else None

    def alternatives(self, name: ast.expr, at: ast.AST) -> list[ast.expr]:
        """The last value of a plain name above ``at``, and what the other branches give it."""
        if not isinstance(name, ast.Name):
            return []
        sites = [
            stmt
            for stmt in within(self.scope_statements(at), ast.Assign)
            if stmt.lineno < getattr(at, "lineno", 0)
            and any(isinstance(t, ast.Name) and t.id == name.id for t in stmt.targets)
        ]
        if not sites:
            return []
        branches = [up for up in self.ancestors(sites[-1]) if isinstance(up, ast.If)]
        whole = next((up for up in branches if up not in self.ancestors(at)), sites[-1])
        return [stmt.value for stmt in sites if stmt is whole or whole in self.ancestors(stmt)]


def position(node: ast.AST) -> tuple[int, int]:
    """Source order."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def walk(nodes: list[ast.stmt] | ast.AST) -> Iterator[ast.AST]:
    """Every node below ``nodes`` in source order, without entering nested functions or classes."""
    pending: list[ast.AST] = list(reversed(nodes)) if isinstance(nodes, list) else [nodes]
    top = set(map(id, pending))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, SCOPES) and id(node) not in top:
            continue
        if isinstance(node, SCOPES) and isinstance(nodes, list):
            continue
        pending.extend(reversed(list(ast.iter_child_nodes(node))))


def within(nodes: list[ast.stmt] | ast.AST, kind: type[Node]) -> list[Node]:
    """Nodes of one type below ``nodes``, without entering nested functions or classes."""
    return [node for node in walk(nodes) if isinstance(node, kind)]


def bound_names(nodes: list[ast.stmt] | ast.AST) -> set[str]:
    """Names that the statements bind: assignments, loops, imports, definitions, ``with … as``."""
    names: set[str] = set()
    for node in walk(nodes):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """The keyword argument ``name`` of a call."""
    return next((word for word in call.keywords if word.arg == name), None)


def argument(call: ast.Call, index: int, name: str) -> ast.expr | None:
    """An argument given by position or by name."""
    word = keyword(call, name)
    if word is not None:
        return word.value
    return call.args[index] if len(call.args) > index else None


def last_argument(call: ast.Call) -> ast.expr | ast.keyword | None:
    """The argument that stands last in the source, behind which another one may follow."""
    everything: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return max(everything, key=position, default=None)


def mentions(node: ast.AST, text: str) -> bool:
    """Whether an attribute or name spelled ``text`` occurs below ``node``."""
    return any(
        (isinstance(item, ast.Attribute) and item.attr == text)
        or (isinstance(item, ast.Name) and item.id == text)
        for item in ast.walk(node)
    )


def same(first: ast.AST, second: ast.AST) -> bool:
    """Whether two expressions are spelled alike, whatever their white space."""
    return ast.dump(first) == ast.dump(second)


@dataclass(frozen=True)
class Option:
    """One ``add_argument``: its spellings and the attribute it sets."""

    call: ast.Call
    spellings: tuple[str, ...]
    dest: str


@dataclass(frozen=True)
class Loader:
    """A DataLoader and what it deals from."""

    name: str
    call: ast.Call
    dataset: ast.expr | None
    samplers: tuple[ast.expr, ...]  # the sampler's own constructions, one per branch
    batch_size: ast.expr | None

    @property
    def distributed(self) -> list[ast.Call]:
        """Constructions of a DistributedSampler that this loader may use."""
        return [
            node
            for sampler in self.samplers
            for node in ast.walk(sampler)
            if isinstance(node, ast.Call)
            and ast.unparse(node.func).rpartition(".")[2] == "DistributedSampler"
        ]


@dataclass(frozen=True)
class TrainLoop:
    """A loop that back-propagates, in the function (or module) that holds it."""

    module: Module
    steps: ast.For | ast.While
    epochs: ast.For | None
    loader: Loader | None
    backwards: tuple[ast.Call, ...]
    clips: tuple[ast.stmt, ...]
    step_test: ast.If | None  # the accumulation test around optimizer.step()
    accumulation: ast.expr | None  # what it takes the step number modulo
    step_name: str  # the step number, where enumerate gives it

    @property
    def scope(self) -> list[ast.stmt]:
        """Statements of the function that trains."""
        return self.module.scope_statements(self.steps)

    @cached_property
    def counters(self) -> set[str]:
        """Names that count optimizer steps."""
        if self.step_test is None:
            return set()
        return {
            node.target.id
            for node in within(self.step_test.body, ast.AugAssign)
            if isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
            and node.value.value == 1
        }


@dataclass(frozen=True)
class Evaluation:
    """A function that puts a model in eval mode and goes through a loader without training."""

    module: Module
    function: Function
    loop: ast.For
    loader: Loader | None
    mode: ast.stmt  # model.eval()
    model: str  # the name put in eval mode

    @cached_property
    def after(self) -> list[ast.stmt]:
        """Statements behind the loop, in the body that holds it."""
        body = self.module.body(self.loop)
        return body[body.index(self.loop) + 1 :]

    @cached_property
    def accumulators(self) -> dict[str, ast.stmt] | None:
        """Lists and numbers that the loop fills and later statements read, with their start.

        None when the loop keeps something else, or leaves early: then no share of it can be added
        up to the whole.
        """
        if self.loader is None or self.loop.orelse:
            return None
        if any(isinstance(node, ast.Break | ast.Return) for node in walk(self.loop.body)):
            return None
        start: dict[str, ast.stmt] = {}
        body = self.module.body(self.loop)
        for stmt in body[: body.index(self.loop)]:
            if isinstance(stmt, ast.Assign):
                for name, value in assigned_pairs(stmt):
                    start[name] = stmt
                    if not is_empty_list(value) and not is_number(value):
                        del start[name]
        read = {
            node.id
            for stmt in self.after
            for node in ast.walk(stmt)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        if self.loader.name in read or bound_names(self.loop) & read - set(start):
            return None
        filled: set[str] = set()
        for node in walk(self.loop.body):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if isinstance(owner, ast.Name) and owner.id in start:
                    if node.func.attr not in ("append", "extend"):
                        return None
                    filled.add(owner.id)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                if not isinstance(node.op, ast.Add):
                    return None
                filled.add(node.target.id)
            elif isinstance(node, ast.Assign) and bound_names(node) & set(start):
                return None
        if not filled <= set(start):
            return None
        return {name: start[name] for name in sorted(filled & read, key=list(start).index)}


def assigned_pairs(stmt: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Name and value of ``a = v``, ``a = b = v`` and ``a, b = v, w``."""
    for target in stmt.targets:
        if isinstance(target, ast.Name):
            yield target.id, stmt.value
        elif isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
            for item, value in zip(target.elts, stmt.value.elts, strict=False):
                if isinstance(item, ast.Name):
                    yield item.id, value


def is_empty_list(value: ast.expr) -> bool:
    return isinstance(value, ast.List) and not value.elts


def is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


class Unit:
    """A script and the local modules it imports, as one program."""

    def __init__(self, script: Module, siblings: tuple[Module, ...] = ()) -> None:
        self.script = script
        self.modules = (script, *siblings)

    @cached_property
    def is_training_program(self) -> bool:
        """Whether it is run, and trains, evaluates or makes a process group."""
        return self.script.is_program and (
            bool(self.train_loops)
            or bool(self.evaluations)
            or any(module.calls_to("init_process_group") for module in self.modules)
        )

    @cached_property
    def options(self) -> dict[str, Option]:
        """The command line's options by the attribute they set."""
        found: dict[str, Option] = {}
        for module in self.modules:
            for call in module.calls_to("add_argument"):
                spellings = tuple(
                    arg.value
                    for arg in call.args
                    if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                )
                if not spellings:
                    continue
                dest = keyword(call, "dest")
                name = next((s for s in spellings if s.startswith("--")), spellings[0])
                if dest is not None and isinstance(dest.value, ast.Constant):
                    name = str(dest.value.value)
                name = name.lstrip("-").replace("-", "_")
                found.setdefault(name, Option(call, spellings, name))
        return found

    @cached_property
    def parses(self) -> list[tuple[Module, ast.Assign, str]]:
        """``args = parser.parse_args()``: module, statement and the name it binds."""
        return [
            (module, stmt, stmt.targets[0].id)
            for module in self.modules
            for call in module.calls_to("parse_args")
            for stmt in [module.statement(call)]
            if isinstance(stmt, ast.Assign)
            and stmt.value is call
            and isinstance(stmt.targets[0], ast.Name)
        ]

    @cached_property
    def loaders(self) -> dict[Module, list[Loader]]:
        """Every ``name = DataLoader(…)``."""
        return {module: list(_loaders(module)) for module in self.modules}

    @cached_property
    def train_loops(self) -> list[TrainLoop]:
        """Every loop over batches that back-propagates."""
        return [loop for module in self.modules for loop in _train_loops(self, module)]

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """Every function that evaluates."""
        return [
            evaluation
            for module in self.modules
            for function in module.functions.values()
            for evaluation in _evaluation(self, module, function)
        ]

    def evaluation_of(self, module: Module, node: ast.AST) -> Evaluation | None:
        """The evaluation whose function holds ``node``."""
        function = module.function(node)
        return next((e for e in self.evaluations if e.function is function), None)

    def callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """Calls of ``function`` by its plain name, anywhere in the unit."""
        return [
            (module, call)
            for module in self.modules
            for call in module.calls_to(function.name)
            if isinstance(call.func, ast.Name) or module.dotted(call.func).count(".") == 1
        ]


def _loaders(module: Module) -> Iterator[Loader]:
    for call in module.calls_to("DataLoader"):
        stmt = module.statement(call)
        if not (isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name)):
            continue
        sampler = argument(call, 3, "sampler")
        yield Loader(
            stmt.targets[0].id,
            call,
            argument(call, 0, "dataset"),
            () if sampler is None else tuple(module.alternatives(sampler, call)) or (sampler,),
            argument(call, 1, "batch_size"),
        )


def loader_of(unit: Unit, module: Module, loop: ast.For) -> Loader | None:
    """The loader that a loop goes through, also by ``enumerate``, ``tqdm`` or a variable."""
    source: ast.expr | None = loop.iter
    for _ in range(6):
        if isinstance(source, ast.Call) and source.args:
            if module.dotted(source.func).rpartition(".")[2] not in ("enumerate", "tqdm", "iter"):
                return None
            source = source.args[0]
        elif isinstance(source, ast.Name):
            name = source.id
            function = module.function(loop)
            for loader in unit.loaders[module]:
                if loader.name == name and module.function(loader.call) is function:
                    return loader
            source = module.definition(source, loop)
        else:
            return None
    return None


def _is_backward(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"


def loop_around(module: Module, node: ast.AST) -> ast.For | ast.While | None:
    """The loop around ``node`` in its own function."""
    for up in module.ancestors(node):
        if isinstance(up, ast.For | ast.While | Function):
            return None if isinstance(up, Function) else up
    return None


def _train_loops(unit: Unit, module: Module) -> Iterator[TrainLoop]:
    owners: dict[ast.For | ast.While, list[ast.Call]] = defaultdict(list)
    for call in module.calls_to("backward"):
        loop = loop_around(module, call)
        if loop is not None and _is_backward(call):
            owners[loop].append(call)
    for loop, backwards in owners.items():
        test, modulo = _accumulation(module, loop)
        outer = loop_around(module, loop)
        target = loop.target if isinstance(loop, ast.For) else None
        yield TrainLoop(
            module,
            loop,
            outer if isinstance(outer, ast.For) else None,
            loader_of(unit, module, loop) if isinstance(loop, ast.For) else None,
            tuple(backwards),
            tuple(
                module.statement(call)
                for call in within(loop.body, ast.Call)
                if module.dotted(call.func).rpartition(".")[2]
                in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")
            ),
            test,
            modulo,
            target.elts[0].id
            if isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name)
            else "",
        )


def _accumulation(
    module: Module, loop: ast.For | ast.While
) -> tuple[ast.If | None, ast.expr | None]:
    """The test around ``optimizer.step()`` and the number of micro-batches it waits for."""
    for call in within(loop.body, ast.Call):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "step"):
            continue
        for up in module.ancestors(call):
            if up is loop:
                break
            if isinstance(up, ast.If):
                for node in ast.walk(up.test):
                    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                        return up, node.right
    # A test that was already given a name: ``last = (step + 1) % n == 0 or …``; ``if last:``
    for stmt in within(loop.body, ast.If):
        if isinstance(stmt.test, ast.Name):
            for assign in within(loop.body, ast.Assign):
                if bound_names(assign) == {stmt.test.id}:
                    for node in ast.walk(assign.value):
                        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                            return stmt, node.right
    return None, None


def _evaluation(unit: Unit, module: Module, function: Function) -> Iterator[Evaluation]:
    calls = within(function.body, ast.Call)
    if any(_is_backward(call) for call in calls):
        return
    modes = [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "eval"
        and isinstance(call.func.value, ast.Name)
        and not call.args
    ]
    if not modes:
        return
    for loop in within(function.body, ast.For):
        loader = loader_of(unit, module, loop)
        if loader is not None:
            owner = modes[0].func
            assert isinstance(owner, ast.Attribute)
            assert isinstance(owner.value, ast.Name)
            yield Evaluation(
                module, function, loop, loader, module.statement(modes[0]), owner.value.id
            )
            return
