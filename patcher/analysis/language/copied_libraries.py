"""What a program uses of a library of which it has a copy, as its own code names it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator

from ...source.module import Module
from ...source.tree import FUNCTIONS, Function, within
from .call_graph import CallGraph

Named = dict[str, list[ast.AST]]


def functions_reached(graph: CallGraph, copies: Collection[Module]) -> set[Function]:
    """The functions of copied libraries to which names lead from the code outside of them.

    A method counts where names lead to its class as well as to itself, as to ``__init__`` and
    ``forward`` of each class. What the library does for others, such as its own trainer, is left.
    """
    definitions: Named = defaultdict(list)  # functions, classes and values at module level
    for module in copies:
        for name, node in _definitions(module):
            definitions[name].append(node)
    methods: Named = defaultdict(list)  # of the classes to which names lead
    reached: set[Function] = set()
    seen: set[str] = set()
    pending = {
        name for module in graph.modules if module not in copies for name in _names(module.tree)
    }
    while pending:
        name = pending.pop()
        seen.add(name)
        for node in [*definitions.pop(name, ()), *methods.pop(name, ())]:
            run: list[ast.AST] = [node]
            if isinstance(node, ast.ClassDef):
                run = [*node.bases, *node.decorator_list]
                for part in node.body:
                    if isinstance(part, FUNCTIONS) and not _is_always_run(part):
                        methods[part.name].append(part)
                        pending |= {part.name} & seen
                    else:
                        run.append(part)
            for code in run:
                reached |= {each for each in ast.walk(code) if isinstance(each, FUNCTIONS)}
                pending |= {*_names(code)} - seen
    return reached


def _definitions(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """Functions, classes and values of a module, also those under a test."""
    body = module.tree.body
    defined: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = [
        *within(body, ast.FunctionDef),
        *within(body, ast.AsyncFunctionDef),
        *within(body, ast.ClassDef),
    ]
    yield from ((node.name, node) for node in defined)
    for stmt in within(body, ast.Assign):
        for target in stmt.targets:
            if isinstance(target, ast.Name):
                yield target.id, stmt


def _names(node: ast.AST) -> Iterator[str]:
    """The names, attributes and words in a piece of code; words may be looked up as names."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.alias):
            yield part.name.rpartition(".")[2]
        elif isinstance(part, ast.Constant) and str(part.value).isidentifier():
            yield str(part.value)


def _is_always_run(method: Function) -> bool:
    return method.name == "forward" or (method.name.startswith("__") and method.name.endswith("__"))
