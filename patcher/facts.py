"""What a training program is made of: options, loaders, train loops and evaluations.

Looked up in the tables of its modules when a rule first asks. Nothing here runs or imports the
user's code.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from .loaders import Loader, loader_of, next_loader
from .module import Module
from .record import record
from .syntax import (
    Function,
    argument,
    assigned_pairs,
    below,
    bound_names,
    everywhere,
    is_empty_list,
    is_number,
    keyword,
    walk,
    within,
)


@record
class Option:
    """One ``add_argument``: its spellings and the attribute it sets."""

    call: ast.Call
    spellings: tuple[str, ...]
    dest: str


@record
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
    step_name: str  # the micro-batch's number, where enumerate or range gives it
    step_start: int = 0  # what it starts from

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


@record
class Evaluation:
    """A loop over a loader with a model in eval mode: a function's own, or in the training code.

    ``function`` is the one that does nothing else; None where the loop stands inline.
    """

    module: Module
    function: Function | None
    loop: ast.For
    loader: Loader
    mode: ast.stmt  # model.eval()
    model: str  # the model put in eval mode, as it is spelled

    @property
    def name(self) -> str:
        """What a message calls it."""
        if self.function is None:
            return f"the evaluation in line {self.loop.lineno}"
        return f"{self.function.name}()"

    @property
    def before(self) -> list[ast.stmt]:
        """Statements above the loop in its block, and above a ``with`` that is all around it."""
        found: list[ast.stmt] = []
        node: ast.stmt = self.loop
        while True:
            body = self.module.body(node)
            found = [*body[: body.index(node)], *found]
            above = self.module.parents[node]
            if not isinstance(above, ast.With):
                return found
            node = above

    @cached_property
    def reads(self) -> set[str]:
        """Names that may be read behind the loop before they are bound again."""
        return {name.id for name in survivors(self.module, self.loop)}

    @cached_property
    def accumulators(self) -> dict[str, ast.stmt] | None:
        """Lists and numbers that the loop fills and later statements read, with their start.

        None when the loop keeps something else, or leaves early: then no share of it can be added
        up to the whole.
        """
        if self.loop.orelse:
            return None
        if any(isinstance(node, ast.Break | ast.Return) for node in walk(self.loop.body)):
            return None
        start: dict[str, ast.stmt] = {}
        for stmt in self.before:
            if isinstance(stmt, ast.Assign):
                for name, value in assigned_pairs(stmt):
                    start[name] = stmt
                    if not is_empty_list(value) and not is_number(value):
                        del start[name]
        read = self.reads
        if self.loader.name in read & behind(self.module, self.loop):
            return None
        if bound_names(self.loop) & read - set(start):
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


def behind(module: Module, loop: ast.For) -> set[str]:
    """Names read in the statements behind the loop, in the block that holds it."""
    body = module.body(loop)
    rest = body[body.index(loop) + 1 :]
    return {name.id for name in within(rest, ast.Name) if isinstance(name.ctx, ast.Load)}


def survivors(module: Module, loop: ast.For) -> Iterator[ast.Name]:
    """Reads, outside of the loop, that may see what it left in a name.

    A read is safe where the name was bound anew on every way to it: behind the loop, or, above it
    in an enclosing loop, since that one's round began.
    """
    inside = set(map(id, within(loop, ast.Name)))
    bound = bound_names(loop) | {
        call.func.value.id
        for call in within(loop.body, ast.Call)
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    }
    end = loop.end_lineno or loop.lineno
    rounds = [up for up in module.ancestors(loop) if isinstance(up, ast.For | ast.While)]
    for name in within(module.scope_statements(loop), ast.Name):
        if id(name) in inside or not isinstance(name.ctx, ast.Load) or name.id not in bound:
            continue
        first = end
        if name.lineno <= loop.lineno:
            around = [up for up in rounds if up in module.ancestors(name)]
            if not around:
                continue
            first = around[-1].lineno - 1
        if not is_bound_between(module, name, first):
            yield name


def is_bound_between(module: Module, name: ast.Name, first: int) -> bool:
    """Whether every way from below line ``first`` to the read binds the name."""
    child: ast.AST = name
    for up in module.ancestors(name):
        if isinstance(up, Function):
            break
        if any(name.id in bound_names(part.target) for part in getattr(up, "generators", ())):
            return True  # a comprehension's own
        inside = isinstance(up, ast.For) and child in up.body and up.lineno > first
        if inside and name.id in bound_names(up.target):  # type: ignore[attr-defined]
            return True
        if isinstance(child, ast.stmt):
            for stmt in module.body(child):
                if stmt is child:
                    break
                plain = isinstance(stmt, ast.Assign | ast.AnnAssign)
                if plain and stmt.lineno > first and name.id in bound_names(stmt):
                    return True
        child = up
    return False


class Unit:
    """A script and the local modules it imports, as one program."""

    def __init__(self, script: Module, siblings: tuple[Module, ...] = ()) -> None:
        self.script = script
        self.modules = (script, *siblings)
        self._callers: dict[Function, list[tuple[Module, ast.Call]]] = {}

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
        """Where the arguments come into being: module, statement and the name it binds.

        ``args = parser.parse_args()``; ``args = get_args()`` of a function that returns as much;
        where neither is, the statement that makes the object whose ``local_rank`` is asked.
        """
        found = [
            (module, stmt, stmt.targets[0].id)
            for module, call in self._parsing_calls()
            for stmt in [module.statement(call)]
            if isinstance(stmt, ast.Assign)
            and stmt.value is call
            and isinstance(stmt.targets[0], ast.Name)
        ]
        return found or list(self._configurations())

    def _parsing_calls(self) -> Iterator[tuple[Module, ast.Call]]:
        for module in self.modules:
            for call in module.calls_to("parse_args"):
                yield module, call
                function = module.function(call)
                if function is not None and isinstance(module.parents[call], ast.Return):
                    yield from self.callers(function)

    def _configurations(self) -> Iterator[tuple[Module, ast.Assign, str]]:
        """``cfg = load(path)`` and ``model_args, args = parser.parse_args_into_dataclasses()``."""
        for module in self.modules:
            asked = {
                node.value.id
                for node in module.nodes(ast.Attribute)
                if node.attr == "local_rank" and isinstance(node.value, ast.Name)
            }
            for stmt in module.nodes(ast.Assign):
                target = stmt.targets[0]
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                if not isinstance(stmt.value, ast.Call) or not self.is_live(module, stmt):
                    continue
                for name in names:
                    if isinstance(name, ast.Name) and name.id in asked - {"self"}:
                        yield module, stmt, name.id

    def has_argument(self, name: str) -> bool:
        """Whether the arguments have this attribute: an option, a field, or read somewhere."""
        if name in self.options:
            return True
        objects = {args for _, _, args in self.parses}
        return any(
            node.attr == name and isinstance(node.value, ast.Name) and node.value.id in objects
            for module in self.modules
            for node in module.nodes(ast.Attribute)
        )

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
        ] + [evaluation for module in self.modules for evaluation in _inline(self, module)]

    def entries(self, evaluation: Evaluation) -> list[tuple[Module, ast.AST]]:
        """Where an evaluation is entered: calls of its function, or its own loop."""
        if evaluation.function is None:
            return [(evaluation.module, evaluation.loop)]
        return list(self.callers(evaluation.function))

    def is_trained_on(self, loader: Loader) -> bool:
        """Whether a train loop deals by a sampler of this loader too, or by the loader itself."""
        return any(loop.loader and loop.loader.shares_with(loader) for loop in self.train_loops)

    @cached_property
    def live(self) -> set[Function]:
        """Functions that the program can come to: named in what runs, from module level on.

        A method is one where its class is; a copy that nobody names any more is dead code.
        """
        found: set[Function] = set()
        named: set[str] = set()
        pending: list[tuple[Module, list[ast.stmt]]] = [(m, m.tree.body) for m in self.modules]
        while pending:
            module, body = pending.pop()
            names = {name.id for name in within(body, ast.Name)}
            names |= {node.attr for node in within(body, ast.Attribute)}
            for small in within(body, ast.Lambda):
                names |= {name.id for name in everywhere(small, ast.Name)}
            for outer in within(body, ast.ClassDef):
                names |= {outer.name} if module.function(outer) is not None else set()
            named |= names
            for where in self.modules:
                for function in where.all_functions:
                    owner = where.parents[function]
                    wanted = owner.name if isinstance(owner, ast.ClassDef) else function.name
                    if wanted in named and function not in found:
                        found.add(function)
                        pending.append((where, function.body))
        return found

    def is_live(self, module: Module, node: ast.AST) -> bool:
        """Whether the program can come to ``node``."""
        function = module.function(node)
        return function is None or function in self.live

    def evaluation_of(self, module: Module, node: ast.AST) -> Evaluation | None:
        """The evaluation whose function holds ``node``."""
        function = module.function(node)
        if function is None:
            return None
        return next((e for e in self.evaluations if e.function is function), None)

    def callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """Calls of ``function`` anywhere in the unit; of ``__init__``, of its class."""
        if function not in self._callers:
            self._callers[function] = list(_callers(self, function))
        return self._callers[function]


def _callers(unit: Unit, function: Function) -> Iterator[tuple[Module, ast.Call]]:
    home = next(module for module in unit.modules if function in module.parents)
    owner = home.parents[function]
    if not isinstance(owner, ast.ClassDef):
        for module in unit.modules:
            for call in module.calls_to(function.name):
                if isinstance(call.func, ast.Name) or (
                    isinstance(call.func, ast.Attribute)
                    and isinstance(call.func.value, ast.Name)
                    and call.func.value.id in module.aliases
                ):
                    yield module, call
        return
    name = owner.name if function.name == "__init__" else function.name
    for module in unit.modules:
        for call in module.calls_to(name):
            if function.name == "__init__" or _is_method_call(module, call, owner):
                yield module, call


def _is_method_call(module: Module, call: ast.Call, owner: ast.ClassDef) -> bool:
    """``self.method()`` inside the class, or a call on what its construction was bound to."""
    if not isinstance(call.func, ast.Attribute):
        return False
    base = call.func.value
    if isinstance(base, ast.Name) and base.id == "self":
        return owner in module.ancestors(call)
    value = module.definition(base, call) if isinstance(base, ast.Name) else base
    return isinstance(value, ast.Call) and module.dotted(value.func).endswith(owner.name)


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
        loader = loader_of(unit, module, loop) if isinstance(loop, ast.For) else None
        name, start = _step_number(module, loop)
        yield TrainLoop(
            module,
            loop,
            outer if isinstance(outer, ast.For) else None,
            loader or next_loader(unit, module, loop.body),
            tuple(backwards),
            tuple(
                module.statement(call)
                for call in within(loop.body, ast.Call)
                if module.dotted(call.func).rpartition(".")[2]
                in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")
            ),
            test,
            modulo,
            name,
            start,
        )


def _step_number(module: Module, loop: ast.For | ast.While) -> tuple[str, int]:
    """The name that counts the loop's micro-batches, and what it starts from."""
    if not isinstance(loop, ast.For):
        return "", 0
    source, target = loop.iter, loop.target
    for _ in range(4):
        if isinstance(source, ast.Name):
            value = module.definition(source, loop)
            if value is None:
                break
            source = value
        elif isinstance(source, ast.Call) and source.args:
            name = module.dotted(source.func).rpartition(".")[2]
            if name == "enumerate" and isinstance(target, ast.Tuple):
                first = argument(source, 1, "start")
                start = 0 if first is None else getattr(first, "value", None)
                if isinstance(target.elts[0], ast.Name) and start in (0, 1):
                    return target.elts[0].id, start
                break
            if name in ("range", "trange") and len(source.args) == 1:
                return (target.id, 0) if isinstance(target, ast.Name) else ("", 0)
            if name != "tqdm":
                break
            source = source.args[0]
        else:
            break
    return "", 0


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
                for node in below(up.test):
                    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                        return up, node.right
    # A test that was already given a name: ``last = (step + 1) % n == 0 or …``; ``if last:``
    for stmt in within(loop.body, ast.If):
        if isinstance(stmt.test, ast.Name):
            for assign in within(loop.body, ast.Assign):
                if bound_names(assign) == {stmt.test.id}:
                    for node in below(assign.value):
                        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                            return stmt, node.right
    return None, None


def _evaluation(unit: Unit, module: Module, function: Function) -> Iterator[Evaluation]:
    """The evaluations that are all a function does: one per loop over a loader."""
    calls = within(function.body, ast.Call)
    if any(_is_backward(call) for call in calls):
        return
    modes = [call for call in calls if is_eval_mode(call)]
    if not modes:
        return
    for loop in within(function.body, ast.For):
        loader = loader_of(unit, module, loop)
        if loader is not None:
            yield Evaluation(
                module, function, loop, loader, module.statement(modes[0]), owner(module, modes[0])
            )


def is_eval_mode(call: ast.Call) -> bool:
    """``model.eval()`` or ``self.model.eval()``."""
    func = call.func
    return (
        isinstance(func, ast.Attribute)
        and func.attr == "eval"
        and not call.args
        and (
            isinstance(func.value, ast.Name)
            or (isinstance(func.value, ast.Attribute) and isinstance(func.value.value, ast.Name))
        )
    )


def owner(module: Module, call: ast.Call) -> str:
    """What stands before the dot of a method's call."""
    assert isinstance(call.func, ast.Attribute)
    return module.text(call.func.value)


def opened(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, those of a ``with`` in the place of it."""
    for stmt in body:
        yield from opened(stmt.body) if isinstance(stmt, ast.With) else [stmt]


def _inline(unit: Unit, module: Module) -> Iterator[Evaluation]:
    """Evaluations among the statements that train, or at module level."""
    scopes = {module.function(call) for call in module.calls_to("backward")} | {None}
    modes = [call for call in module.calls_to("eval") if is_eval_mode(call)]
    for mode in modes:
        if module.function(mode) not in scopes:
            continue
        stmt = module.statement(mode)
        body = module.body(stmt)
        for follower in opened(body[body.index(stmt) + 1 :]):
            if isinstance(follower, ast.For):
                loader = loader_of(unit, module, follower)
                if any(_is_backward(call) for call in within(follower, ast.Call)):
                    break
                if loader is not None and loader.cycle is None:
                    yield Evaluation(module, None, follower, loader, stmt, owner(module, mode))
                    break
            elif isinstance(follower, ast.Expr) and any(
                isinstance(call.func, ast.Attribute) and call.func.attr == "train"
                for call in within(follower, ast.Call)
            ):
                break
