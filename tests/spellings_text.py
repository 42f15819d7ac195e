"""Other spellings of a program: its lines, its modules, where it keeps its arguments."""

from __future__ import annotations

import ast
import copy
import io
import random
import tokenize
from collections.abc import Callable

from spellings import SPELLED, Substitute, some

COMPOUND: tuple[str, ...] = (
    "if ",
    "for ",
    "while ",
    "with ",
    "def ",
    "class ",
    "try:",
    "else:",
    "elif ",
    "except",
)
COMPOUND += ("finally:", "async ", "@", "match ", "case ")
HELPERS = f"{SPELLED}helpers"
PACKAGE = f"{SPELLED}package"


def join_lines(text: str, rng: random.Random) -> tuple[str, int]:
    """Two statements of one line each as ``a; b``."""
    lines = text.split("\n")
    starts = {node.lineno: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)}
    places = []
    for number in range(1, len(lines)):
        one, two = starts.get(number), starts.get(number + 1)
        if (
            one is not None
            and two is not None
            and one.end_lineno == number
            and two.end_lineno == number + 1
            and one.col_offset == two.col_offset
            and not lines[number - 1].lstrip().startswith(COMPOUND)
            and not lines[number].lstrip().startswith(COMPOUND)
        ):
            places.append(number)
    count, taken = 0, 0
    for number in sorted(some(rng, places), reverse=True):
        if number + 1 == taken or number in (taken, taken - 1):
            continue
        lines[number - 1] += "; " + lines.pop(number).lstrip()
        count, taken = count + 1, number
    return "\n".join(lines), count


def break_lines(text: str, rng: random.Random) -> tuple[str, int]:
    """``x = y`` as ``x = \\`` and ``y`` on the next line, and tests after ``and`` and ``or``."""
    places, depth = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.OP and token.string in "([{":
            depth += 1
        elif token.type == tokenize.OP and token.string in ")]}":
            depth -= 1
        elif depth == 0 and token.string in ("=", "and", "or", "in", "+=", "if", "return"):
            places += [token.end] * bool(token.line[: token.start[1]].strip())
    lines = text.split("\n")
    chosen = some(rng, [place for place in places if lines[place[0] - 1][place[1] :].strip()])
    for row, column in sorted(chosen, reverse=True):
        line = lines[row - 1]
        indent = " " * (len(line) - len(line.lstrip()) + 8)
        lines[row - 1 : row] = [f"{line[:column]} \\", indent + line[column:].lstrip()]
    return "\n".join(lines), len(chosen)


def keep_arguments_in_object(tree: ast.Module, rng: random.Random) -> int:
    """``args = parser.parse_args()`` as ``object.args = …``, and reads of it accordingly."""
    del rng
    for scope in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for index, stmt in enumerate(scope.body):
            if not (isinstance(stmt, ast.Assign) and "parse_args" in ast.unparse(stmt.value)):
                continue
            target = stmt.targets[0]
            if not isinstance(target, ast.Name) or any(
                isinstance(node, ast.FunctionDef | ast.Lambda) and node is not scope
                for node in ast.walk(scope)
            ):
                continue
            name = f"{SPELLED}settings"
            attribute = ast.Attribute(ast.Name(name), target.id)
            for other in scope.body[index:]:
                Substitute(target.id, attribute).visit(other)
            made = ast.parse(f"{name} = types.SimpleNamespace()").body
            scope.body[index:index] = made
            tree.body.insert(first_place(tree), ast.Import([ast.alias("types")]))
            return 1
    return 0


def keep_arguments_in_self(tree: ast.Module, rng: random.Random) -> int:
    """Parameters ``args`` of methods' constructors as ``self.args``."""
    count = 0
    for node in ast.walk(tree):
        if not (isinstance(node, ast.FunctionDef) and node.name == "__init__"):
            continue
        names = [arg.arg for arg in node.args.args]
        keeps = [stmt for stmt in node.body if ast.unparse(stmt) == "self.args = args"]
        if "args" in names and keeps:
            attribute = ast.Attribute(ast.Name("self"), "args")
            for stmt in some(rng, node.body[node.body.index(keeps[0]) + 1 :]):
                Substitute("args", attribute).visit(stmt)
                count += 1
    return count


def first_place(tree: ast.Module) -> int:
    """Where a first import can stand: behind the docstring and imports from the future."""
    index = 0
    for stmt in tree.body:
        text = ast.unparse(stmt)
        if not (isinstance(getattr(stmt, "value", None), ast.Constant) or "__future__" in text):
            break
        index += 1
    return index


def movable(tree: ast.Module) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Functions and classes that can live in another module, and what they take along."""
    taken: list[ast.stmt] = []
    names: set[str] = set()
    others: set[str] = set()
    for stmt in tree.body:
        value = getattr(stmt, "value", None)
        plain = isinstance(stmt, ast.Assign) and (
            isinstance(value, ast.Constant) or "getLogger" in ast.unparse(stmt)
        )
        if isinstance(stmt, ast.Import | ast.ImportFrom) or plain:
            taken.append(stmt)
        elif not isinstance(stmt, ast.FunctionDef | ast.ClassDef):
            others |= {
                n.id
                for n in ast.walk(stmt)
                if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
            }
    definitions = [s for s in tree.body if isinstance(s, ast.FunctionDef | ast.ClassDef)]
    guard = [ast.unparse(s) for s in tree.body if isinstance(s, ast.If | ast.Expr)]
    moving = {
        s.name: s
        for s in definitions
        if not any(f"{s.name}(" in text for text in guard)
        and not any(isinstance(n, ast.Global) for n in ast.walk(s))
        and "parse_args" not in ast.unparse(s)
    }
    staying = {s.name for s in definitions} - set(moving) | others
    while True:
        names = {
            name
            for name, node in moving.items()
            if any(isinstance(n, ast.Name) and n.id in staying for n in ast.walk(node))
        }
        if not names:
            return [*moving.values()], taken
        for name in names:
            del moving[name]
        staying |= names


def used_imports(tree: ast.Module) -> ast.Module:
    """The module without the imports at its head that it does not use."""
    used = {"*", *(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))}
    body: list[ast.stmt] = []
    for stmt in tree.body:
        if isinstance(stmt, ast.Import | ast.ImportFrom) and "__future__" not in ast.unparse(stmt):
            names = [a for a in stmt.names if (a.asname or a.name).partition(".")[0] in used]
            if not names:
                continue
            stmt = copy.copy(stmt)
            stmt.names = names
        body.append(stmt)
    return ast.Module(body, [])


def move(where: str) -> Callable[[str, random.Random], tuple[dict[str, str], int]]:
    """A kind that moves functions to a module, a package, behind a package's re-export, …"""

    def kind(text: str, rng: random.Random) -> tuple[dict[str, str], int]:
        del rng
        tree = ast.parse(text)
        moving, taken = movable(tree)
        if not moving:
            return {}, 0
        names = [stmt.name for stmt in moving if isinstance(stmt, ast.FunctionDef | ast.ClassDef)]
        listed = ", ".join(names)
        helpers = ast.unparse(used_imports(ast.Module([*taken, *moving], [])))
        module = f"{PACKAGE}.{HELPERS}" if where != "module" and where != "attribute" else HELPERS
        lines = {
            "module": f"from {module} import {listed}",
            "package": f"from {module} import {listed}",
            "export": f"from {PACKAGE} import {listed}",
            "attribute": f"import {HELPERS}",
            "star": f"from {module} import *",
        }
        files = {f"{module.replace('.', '/')}.py": helpers + "\n"}
        if "/" in next(iter(files)):
            code = f"from .{HELPERS} import {listed}\n" if where == "export" else ""
            files[f"{PACKAGE}/__init__.py"] = code
        if where == "attribute":
            for name in names:
                use = Substitute(name, ast.Attribute(ast.Name(HELPERS), name))
                for stmt in tree.body:
                    if stmt not in moving:
                        use.visit(stmt)
        first = tree.body.index(moving[0])
        tree.body[first:first] = ast.parse(lines[where]).body
        tree.body = [stmt for stmt in tree.body if stmt not in moving]
        return {"": ast.unparse(used_imports(tree)) + "\n", **files}, len(moving)

    return kind
