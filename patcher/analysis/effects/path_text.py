"""A file's path as text, the same text for the same file however it is put together."""

from __future__ import annotations

import ast
import re

from ...source.module import Module
from ...source.tree import FUNCTIONS, everywhere, parameters
from ..training.program import Program

SAME = ("str", "Path", "fspath")  # calls that answer the path which they are passed
OPTION = re.compile(r"<\w+>")
ANY_NUMBER = "*"
MAX_NAMES = 4  # through which a folder is followed


def text_of_path(program: Program, module: Module, path: ast.expr, names: int = MAX_NAMES) -> str:
    """The text of a path, one for ``a + "/b"``, ``f"{a}/b"``, ``Path(a) / "b"`` and a join.

    What is not text is its source in braces, or ``<option>`` for an option of the parsed arguments,
    which they hold by any name. Of a folder that was put together above, these are its parts.
    """

    def joined(parts: list[ast.expr]) -> str:
        return "/".join(text_of_path(program, module, part, names).rstrip("/") for part in parts)

    match path:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            both = (text_of_path(program, module, part, names) for part in (left, right))
            return "".join(both)
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            return joined([left, right])
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str(text)), right=right):
            parts = right.elts if isinstance(right, ast.Tuple) else [right]
            if (filled := filled_in(re.split(r"%[0-9]*[ds]", text), parts)) is not None:
                return "".join(text_of_path(program, module, each, names) for each in filled)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            parts = [] if path.keywords else path.args
            if (filled := filled_in(re.split(r"\{[0-9]*\}", text), parts)) is not None:
                return "".join(text_of_path(program, module, each, names) for each in filled)
        case ast.JoinedStr(values=values):
            return "".join(text_of_path(program, module, each, names) for each in values)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return text_of_path(program, module, value, names)
        case ast.Call(args=[_, *_] as parts) if module.dotted(path.func) == "os.path.join":
            return joined(parts)
        case ast.Call(args=[part], keywords=[]) if module.last_name(path.func) in SAME:
            return text_of_path(program, module, part, names)
        case ast.Name() if names and is_put_together(values := module.alternatives(path, path)):
            return text_of_path(program, module, values[0], names - 1)
        case ast.Name() if names and is_option(
            program, module, values := module.alternatives(path, path)
        ):
            return text_of_path(program, module, values[0], names - 1)
        case ast.Name() if names and (above := bound_at_top(module, path)) is not None:
            return text_of_path(program, module, above, names - 1)
    text = module.text(path)
    for node in options_in(program, module, path):
        text = text.replace(module.text(node), f"<{node.attr}>")
    return f"{{{' '.join(text.split())}}}"


def filled_in(texts: list[str], parts: list[ast.expr]) -> list[ast.expr] | None:
    """The texts of a format with its parts between them; None where there are not as many."""
    if len(texts) != len(parts) + 1 or any("%" in text or "{" in text for text in texts):
        return None
    filled: list[ast.expr] = [ast.Constant(texts[0])]
    for part, text in zip(parts, texts[1:], strict=True):
        filled += [part, ast.Constant(text)]
    return filled


def bound_at_top(module: Module, name: ast.Name) -> ast.expr | None:
    """What a name of a function is bound to, at module level and once for the whole program."""
    functions = [up for up in module.ancestors(name) if isinstance(up, FUNCTIONS)]
    for function in functions:
        if (function, name.id) in module.stores or name.id in parameters(function):
            return None
    return module.single_assignment(None, name.id) if functions else None


def is_option(program: Program, module: Module, values: list[ast.expr]) -> bool:
    """Whether a name is bound to one option, ``folder = args.folder``."""
    return len(values) == 1 and values[0] in options_in(program, module, values[0])


def is_put_together(values: list[ast.expr]) -> bool:
    """Whether a name is bound to one path, which is made of parts."""
    kinds = ast.JoinedStr | ast.BinOp | ast.Call
    return len(values) == 1 and isinstance(values[0], kinds)


def parts_left(module: Module, text: str) -> list[str]:
    """The sources in braces of a path's text, without options and what imported modules hold."""
    found = re.findall(r"\{([^{}]*)\}", text)
    return [
        each
        for each in found
        if each.partition(".")[0] not in module.aliases and not OPTION.fullmatch(each)
    ]


def texts_in_loops(module: Module, text: str, place: ast.AST) -> list[str]:
    """A path's text, once for each value of the loops around it that go over names written out.

    ``for split in ("train", "dev"):``, and ``for split, n in (("train", 90), ("dev", 10)):``. What
    a loop counts is any number, ``part_*`` for ``f"part_{i}"``, by whatever name another counts.
    """
    texts = [text]
    for loop in module.ancestors(place):
        if isinstance(loop, FUNCTIONS):
            break
        for name in numbers_counted(module, loop):
            texts = [each.replace(f"{{{name}}}", ANY_NUMBER) for each in texts]
        for name, values in names_gone_over(module, loop).items():
            if f"{{{name}}}" in text:
                texts = [each.replace(f"{{{name}}}", value) for each in texts for value in values]
    return texts


def numbers_counted(module: Module, loop: ast.AST) -> set[str]:
    """``i`` of ``for i in range(n)``, and of ``for i, part in enumerate(parts)``."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return set()
    match module.last_name(loop.iter.func), loop.target:
        case "range" | "trange", ast.Name(id=name):
            return {name}
        case "enumerate", ast.Tuple(elts=[ast.Name(id=name), *_]):
            return {name}
    return set()


def names_gone_over(module: Module, loop: ast.AST) -> dict[str, list[str]]:
    """The variables of a loop that are a text written out each time, with the texts."""
    if not isinstance(loop, ast.For):
        return {}
    source = loop.iter
    if isinstance(source, ast.Name):
        source = module.definition(source, loop) or bound_at_top(module, source) or source
    targets, rows = [loop.target], [[each] for each in elements(source)]
    if isinstance(loop.target, ast.Tuple):
        targets, rows = loop.target.elts, [elements(row[0]) for row in rows]
    found = {}
    for target, column in zip(targets, zip(*rows, strict=False), strict=False):
        texts = [each.value for each in column if isinstance(each, ast.Constant)]
        if isinstance(target, ast.Name) and len(texts) == len(column):
            found[target.id] = [each for each in texts if isinstance(each, str)]
    return {name: texts for name, texts in found.items() if len(texts) == len(rows)}


def elements(source: ast.expr) -> list[ast.expr]:
    """What a loop gets of a list, tuple, set or dict that is written out."""
    match source:
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return items
        case ast.Dict(keys=keys):
            return [key for key in keys if key is not None]
    return []


def options_in(program: Program, module: Module, path: ast.expr) -> list[ast.Attribute]:
    """The options in a path: ``args.folder``, ``self.args.folder``."""
    last_names = {name.rpartition(".")[2] for name in program.argument_names}
    return [
        node
        for node in everywhere(path, ast.Attribute)
        if node.attr in program.options and module.text(node.value).rpartition(".")[2] in last_names
    ]
