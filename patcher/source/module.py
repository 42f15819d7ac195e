"""A parsed file with its tables: parents, calls, functions, import aliases, bindings."""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeVar

from ...errors import InputError
from .files import Source
from .libraries import OTHER_FRAMEWORKS
from .normal_form import AddedAssign, normalize, value_of
from .old_syntax import modernized
from .tree import (
    Function,
    Node,
    Parents,
    Preorder,
    ancestors,
    bound_names,
    everywhere,
    function_of,
    is_inside,
    is_run_by_decorator,
    mentions,
    number_of,
    position,
)

Answer = TypeVar("Answer")

MODULE_NAMES = {"__file__", "__name__", "__doc__", "__package__", "__path__", "__spec__"}
MAX_CACHED_FILES = 256  # whose trees stay in memory: those of most programs, for the next script


@lru_cache(maxsize=MAX_CACHED_FILES)
def parse_and_number(text: str) -> tuple[ast.Module, Preorder]:
    """Parse a text and number its tree.

    Cached, because research code is copied from folder to folder and a sibling of a script is also
    checked as a file of its own. Nobody may change the result. Raises SyntaxError, ValueError or
    RecursionError.
    """
    tree = ast.parse(text)
    normalize(tree)
    return tree, Preorder(tree)


# Expressions that are operands of anything without parentheses.
WHOLE = ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant


def cached_per_module(question: Callable[[Module], Answer]) -> Callable[[Module], Answer]:
    """Cache a function of a module; modules with the same text share the result."""

    def cached(module: Module) -> Answer:
        if question not in module.answers:
            module.answers[question] = question(module)
        answer: Answer = module.answers[question]
        return answer

    return cached


def cached_per_program(question: Callable[[Module], Answer]) -> Callable[[Module], Answer]:
    """Cache a function of a module whose result depends on the other modules of its program."""

    def cached(module: Module) -> Answer:
        if question not in module.program_answers:
            module.program_answers[question] = question(module)
        answer: Answer = module.program_answers[question]
        return answer

    return cached


class Resolver(Protocol):
    """What a module asks of the program that it is part of."""

    @property
    def modules(self) -> Sequence[Module]:
        """All modules of the program, the script first."""

    def resolve(self, module: Module, node: ast.expr) -> tuple[Module, ast.AST] | None:
        """The definition or value of a name, and its module; None where it is unknown."""

    def callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """The calls that certainly run a function."""

    def callees(self, module: Module, call: ast.Call) -> list[tuple[Module, Function]]:
        """The functions that a call certainly runs."""

    def possible_callers(self, function: Function) -> list[tuple[Module, ast.expr]]:
        """Where a function may be called, or is passed on as a value."""

    def module_of(self, node: ast.AST) -> Module:
        """The module that a node belongs to."""


class Module:
    """A parsed file with its tables.

    Raises InputError, with the line, when the text is not valid Python.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        try:
            self.tree, table = parse_and_number(source.text)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            reason = getattr(error, "msg", None) or str(error)
            way_out = "correct that line first (Python 2 code needs 2to3)"
            if modernized(source.text) != source.text:
                way_out = "`async` is a keyword now: `ddpfix patch` writes non_blocking="
            raise InputError(
                f"{source.name}:{line}: not valid Python ({reason}); {way_out}"
            ) from error
        except (RecursionError, MemoryError) as error:  # the parser raises either
            raise InputError(f"{source.name}: nested too deeply to be read; split it") from error
        self._table = table
        self.parents = Parents(table)
        self.answers = table.answers
        # What depends on the other modules of the program is not shared between programs.
        self.program_answers: dict[object, Any] = {}
        self.graph: Resolver | None = None  # set by the program that the module is part of
        # The value of an expression for each rank role, filled in by analysis/ranks/rank_reach.
        self.role_values: dict[ast.expr, tuple[object, ...]] = {}
        self.element_values: dict[tuple[ast.Call, int], tuple[object, ...]] = {}
        self._nodes: dict[type[ast.AST], list[Any]] = self.answers.setdefault("nodes", {})
        if "tables" not in self.answers:
            self.answers["tables"] = self._tables()
        self._take(self.answers["tables"])

    def _take(self, tables: tuple[Any, ...]) -> None:
        self.all_functions: list[Function] = tables[0]
        self.functions: dict[str, Function] = tables[1]
        self.aliases: dict[str, str] = tables[2]
        self._last: dict[str, str] = tables[3]
        self._calls: dict[str, list[ast.Call]] = tables[4]
        self._calls_to: dict[tuple[str, ...], list[ast.Call]] = {}

    def add_aliases(self, more: dict[str, str]) -> None:
        """Take over what another file brings; results of this file alone are not shared then."""
        tables = self._tables(more)
        self.answers = {"nodes": self._nodes, "tables": tables}
        for name in ("imported_packages", "unbound_names", "module_names", "_last_names"):
            vars(self).pop(name, None)
        self._take(tables)

    def _tables(self, more: dict[str, str] | None = None) -> tuple[Any, ...]:
        """The functions, the first of each name, aliases, their last parts, and calls by name."""
        all_functions: list[Function] = [*self.nodes(ast.FunctionDef)]
        all_functions += self.nodes(ast.AsyncFunctionDef)
        functions: dict[str, Function] = {}
        for function in all_functions:
            functions.setdefault(function.name, function)
        aliases: dict[str, str] = {}
        for plain in self.nodes(ast.Import):
            for alias in plain.names:
                local = alias.asname or alias.name.partition(".")[0]
                aliases[local] = alias.name if alias.asname else local
        for stmt in self.nodes(ast.ImportFrom):
            for alias in stmt.names:
                if stmt.module or stmt.level:
                    full = f"{stmt.module}.{alias.name}" if stmt.module else alias.name
                    aliases[alias.asname or alias.name] = full
        aliases |= more or {}
        self.aliases = aliases
        self._last = {local: full.rpartition(".")[2] for local, full in aliases.items()}
        foreign = OTHER_FRAMEWORKS & {full.partition(".")[0] for full in aliases.values()}
        calls: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.nodes(ast.Call):
            name = self.last_name(call.func)
            if foreign and (dotted := self.dotted(call.func)).partition(".")[0] in foreign:
                name = dotted  # paddle.DataParallel is not torch's
            calls[name].append(call)
        return all_functions, functions, aliases, self._last, dict(calls)

    @cached_property
    def imported_packages(self) -> set[str]:
        """The top-level packages that the file imports from."""
        return {name.partition(".")[0] for name in self.aliases.values()}

    def last_name(self, func: ast.expr) -> str:
        """The last part of a callee's dotted name, with import aliases resolved."""
        if isinstance(func, ast.Attribute):
            return func.attr
        if isinstance(func, ast.Name):
            return self._last.get(func.id, func.id)
        return ""

    @cached_property
    def lines(self) -> list[bytes]:
        """The encoded lines, split as ast does; str.splitlines would also split at form feeds."""
        return self.source.text.encode().splitlines(keepends=True)

    def line(self, number: int) -> str:
        """The source line with a 1-based number."""
        return self.lines[number - 1].decode()

    def text_between(self, start: tuple[int, int], end: tuple[int, int]) -> str:
        """The text between two (line, column) places: lines from 1, columns in bytes as in ast."""
        if start[0] == end[0] <= len(self.lines):
            return self.lines[start[0] - 1][start[1] : end[1]].decode()
        lines = self.lines[start[0] - 1 : end[0]]
        if end[0] <= len(self.lines):
            lines[-1] = lines[-1][: end[1]]
        if lines:
            lines[0] = lines[0][start[1] :]
        return b"".join(lines).decode()

    def text(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> str:
        """The source text of ``node``."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.text_between(
            (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        )

    def operand(self, node: ast.expr) -> str:
        """The source text of an operand, in parentheses where it needs them."""
        return self.text(node) if isinstance(node, WHOLE) else f"({self.text(node)})"

    def conjunct(self, test: ast.expr) -> str:
        """The source text of an operand of ``and``, in parentheses where it needs them."""
        text = self.text(test)
        is_or = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
        is_loose = is_or or isinstance(test, ast.IfExp | ast.Lambda | ast.NamedExpr)
        is_open = "\n" in text and not isinstance(test, WHOLE)  # it stood in parentheses
        return f"({text})" if is_loose or is_open else text

    def margin(self, stmt: ast.stmt) -> str:
        """The indentation of the line that ``stmt`` starts on."""
        line = self.line(stmt.lineno)
        return line[: len(line) - len(line.lstrip())]

    def dotted(self, node: ast.expr) -> str:
        """``a.b.c`` with import aliases resolved; ``.b.c`` or ``""`` where no name starts it."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self.aliases.get(node.id, node.id))
            return ".".join(reversed(parts))
        return "." + ".".join(reversed(parts)) if parts else ""

    def nodes(self, kind: type[Node]) -> list[Node]:
        """All nodes of exactly this type, in source order."""
        if kind not in self._nodes:
            self._nodes[kind] = everywhere(self.tree, kind)
        found: list[Node] = self._nodes[kind]
        return found

    def attributes(self, *names: str) -> list[ast.Attribute]:
        """All attribute accesses with one of these names, in source order."""
        found: list[Any] = self._named(names)
        return [node for node in found if type(node) is ast.Attribute]

    def occurrences(self, *names: str) -> list[ast.Name | ast.Attribute]:
        """All names and attributes with one of these spellings, in source order."""
        found: list[Any] = self._named(names)
        return found

    def spells(self, name: str) -> bool:
        """Whether the file uses or imports a name."""
        return name in self._table.numbers_by_spelling or name in self._last_names

    def uses(self, name: str) -> bool:
        """Whether the file does more with a name than to import it as what it is called."""
        if name in self._table.numbers_by_spelling:
            return True
        return name in self._last_names and any(
            last == name and local != name for local, last in self._last.items()
        )

    @cached_property
    def _last_names(self) -> set[str]:
        return set(self._last.values())

    def _named(self, names: tuple[str, ...]) -> list[ast.AST]:
        known = self._table.numbers_by_spelling
        numbers = [index for name in names if name in known for index in known[name]]
        return [self._table.nodes[index] for index in sorted(numbers)]

    def calls_to(self, *names: str) -> list[ast.Call]:
        """Calls whose resolved name ends in one of ``names``, in source order."""
        if len(names) == 1:
            return self._calls.get(names[0], [])
        if names not in self._calls_to:
            groups = [self._calls[name] for name in names if name in self._calls]
            calls = [call for group in groups for call in group]
            self._calls_to[names] = sorted(calls, key=position) if len(groups) > 1 else calls
        return self._calls_to[names]

    @property
    def called_names(self) -> Iterable[str]:
        """The last names of everything that is called."""
        return self._calls.keys()

    def ancestors(self, node: ast.AST) -> list[ast.AST]:
        """The nodes around ``node``, innermost first."""
        return ancestors(node)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds ``node``."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def function(self, node: ast.AST) -> Function | None:
        """The function around ``node``; None at module level."""
        return function_of(node)

    def enclosing_class(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around ``node``."""
        return next((up for up in ancestors(node) if isinstance(up, ast.ClassDef)), None)

    def body(self, stmt: ast.stmt) -> list[ast.stmt]:
        """The block (list of statements) that ``stmt`` is part of."""
        number = number_of(stmt)
        for block in vars(self.parents[stmt]).values():
            if type(block) is not list or not block:
                continue
            if number_of(block[0]) <= number <= number_of(block[-1]):
                return block
        return [stmt]

    def scope_statements(self, node: ast.AST) -> list[ast.stmt]:
        """The body of the function around ``node``, or of the module."""
        function = self.function(node)
        return self.tree.body if function is None else function.body

    @cached_property
    def is_program(self) -> bool:
        """Whether the file is a script: a main guard, a command line, or training at module level.

        Library modules are not: their callers decide which rank runs what.
        """
        if self.calls_to("parse_args", "parse_args_into_dataclasses"):
            return True
        for stmt in self.tree.body:
            if isinstance(stmt, ast.If) and mentions(stmt.test, "__name__"):
                return True
            if is_run_by_decorator(stmt):
                return True
        return any(self.function(call) is None for call in self.calls_to("backward"))

    @cached_property
    def stores(self) -> dict[tuple[Function | None, str], list[ast.Name]]:
        """Where each function binds each of its plain names."""
        found: dict[tuple[Function | None, str], list[ast.Name]] = defaultdict(list)
        table = self._table
        nodes: list[Any] = table.nodes
        for index, name in table.name_stores:
            found[table.owners[table.scopes[index]], name].append(nodes[index])
        return found

    def single_assignment(self, function: Function | None, name: str) -> ast.expr | None:
        """The value of a name that is bound in its function by one plain assignment only."""
        stores = self.stores.get((function, name), ())
        stmt = self.parents[stores[0]] if len(stores) == 1 else None
        return stmt.value if isinstance(stmt, ast.Assign) and stmt.targets == stores else None

    @cached_property
    def attribute_values(self) -> dict[str, list[ast.expr]]:
        """The values assigned to attributes of each name, on whatever object.

        Not those that are unpacked, ``self.a, self.b = make()``, but those that stand there.
        """
        found: dict[str, list[ast.expr]] = defaultdict(list)
        for stmt in self.nodes(ast.Assign):
            for target in stmt.targets:
                pairs = [(target, stmt.value)]
                if isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
                    is_even = len(target.elts) == len(stmt.value.elts)
                    pairs = [*zip(target.elts, stmt.value.elts, strict=True)] if is_even else []
                for each, value in pairs:
                    if isinstance(each, ast.Attribute):
                        found[each.attr].append(value)
        return found

    @cached_property
    def unbound_names(self) -> set[str]:
        """Names that are used but bound nowhere in the file, in any scope."""
        bound = {alias.partition(".")[0] for alias in self.aliases}
        bound |= {name for _, name in self._table.bindings}
        bound |= {arg.arg for arg in self.nodes(ast.arg)} | set(dir(builtins)) | MODULE_NAMES
        return {name.id for name in self.nodes(ast.Name)} - bound

    @cached_property
    def module_names(self) -> set[str]:
        """Names bound at module level."""
        return set(self.aliases) | bound_names(self.tree.body)

    def definition(self, name: ast.expr, at: ast.AST) -> ast.expr | None:
        """The last value assigned to the plain name ``name`` above ``at``, in the same function."""
        values = self.alternatives(name, at)
        return values[-1] if values else None

    def alternatives(self, name: ast.expr, at: ast.AST) -> list[ast.expr]:
        """The last value of a plain name above ``at``, preceded by those of its other branches."""
        if not isinstance(name, ast.Name):
            return []
        function = self.function(at)
        scope = 0 if function is None else number_of(function)
        scopes, place = self._table.scopes, position(at)
        sites = [
            (stmt, value)
            for target in self.stores.get((function, name.id), ())
            for stmt, value in self._assigned_to(target)
            if position(stmt) < place
            and not is_inside(at, stmt)
            and scopes[number_of(stmt)] == scope  # not in the body of a local class
        ]
        if not sites:
            return []
        whole: ast.AST = sites[-1][0]
        for up in self.ancestors(whole):
            if not isinstance(up, ast.If | ast.Try) or is_inside(at, up):
                continue
            if isinstance(up, ast.If) or any(is_inside(whole, each) for each in up.handlers):
                whole = up
                break
        above = self.parents[whole]
        while (
            isinstance(above, ast.If)
            and any(stmt is whole for stmt in above.orelse)
            and not is_inside(at, above)
        ):
            whole, above = above, self.parents[above]  # an elif, or a test behind else
        return [value for stmt, value in sites if stmt is whole or is_inside(stmt, whole)]

    def _assigned_to(self, target: ast.Name) -> Iterator[tuple[ast.stmt, ast.expr]]:
        """The assignment of a name and its value; in ``a, b = v, w`` the one at its place."""
        holder = self.parents[target]
        if isinstance(holder, ast.Assign | AddedAssign):
            yield holder, value_of(holder)
        elif isinstance(holder, ast.Tuple | ast.List):
            stmt = self.parents[holder]
            values = stmt.value if isinstance(stmt, ast.Assign) else None
            if (
                isinstance(stmt, ast.Assign)
                and isinstance(values, ast.Tuple | ast.List)
                and len(values.elts) == len(holder.elts)
                and not any(isinstance(e, ast.Starred) for e in (*holder.elts, *values.elts))
            ):
                yield stmt, values.elts[holder.elts.index(target)]
