"""Which functions a program may run: those whose names are used by code that runs."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from ...editing.helpers import helper_names
from ...source.libraries import LIBRARIES
from ...source.module import Module
from ...source.tree import Function, below, is_inside, mentions, name_uses
from .call_graph import Callee, CallGraph
from .names import calls_at_import, parameter_names, top_level
from .passed_arguments import argument_for_parameter
from .tables import modules_of_table

BINDING = {"staticmethod", "classmethod", "property"}
BY_NAME = ("Fire", "globals", "locals", "import_module", "run_path")
DYNAMIC = ("import_module", "__import__", "run_module", "run_path")


def spelled_functions(graph: CallGraph) -> set[Function]:
    """Functions whose names are used somewhere, also by other scripts' main guards."""
    return _reach(graph, resolved=False)


def run_functions(graph: CallGraph) -> set[Function]:
    """Functions that the script itself may run.

    An imported script's main guard runs nothing, and where several modules have a function of one
    name a use means the one that it resolves to.
    """
    return _reach(graph, resolved=True)


def called_functions(graph: CallGraph) -> set[Function]:
    """Functions that the script itself may run, methods only where their own names are used."""
    return _reach(graph, resolved=True, by_own_name=True)


def never_spelled(graph: CallGraph, functions: set[Function]) -> set[Function]:
    """Those of the functions whose names are nowhere but in imports, and looked up by nobody.

    Of functions and classes at module level: of a method, that of its class.
    """
    by_text = any(module.spells(name) for module in graph.modules for name in BY_NAME) or any(
        _holds_functions(graph, module, node.value)
        for module in graph.modules
        for node in module.attributes("__dict__")
    )
    looks_up = any(
        module.dotted(n) == "sys.modules" and not _is_of_helper(module, n)
        for module in graph.modules
        for n in module.attributes("modules")
    )
    evaluates = any(
        isinstance(call.func, ast.Name)
        for module in graph.modules
        for call in module.calls_to("eval", "exec")
    )
    if by_text or looks_up or evaluates:
        return set()
    texts = {
        node.value
        for module in graph.modules
        for node in module.nodes(ast.Constant)
        if isinstance(node.value, str)
    }
    own_alone = _asks_modules(graph)
    return {
        function
        for function in functions
        for home in [graph.module_of(function)]
        if home is graph.script or not own_alone
        for named in [_named_at_top(home, function)]
        if named is not None and not named.decorator_list
        if named.name not in texts
        if not any(module.uses(named.name) for module in graph.modules)
    }


def _named_at_top(module: Module, function: Function) -> Function | ast.ClassDef | None:
    """The definition at module level by which a function is found, itself or its class."""
    owner = module.parents[function]
    named = owner if isinstance(owner, ast.ClassDef) and not function.decorator_list else function
    return named if module.parents[named] is module.tree else None


def _is_of_helper(module: Module, node: ast.AST) -> bool:
    """Whether code is that of a helper of patched scripts, such as draw_alike()."""
    function = module.function(node)
    return function is not None and function.name in helper_names()


def _holds_functions(graph: CallGraph, module: Module, holder: ast.expr) -> bool:
    """Whether what has a ``__dict__`` may be a module or a class: not ``self``, nor ``args``.

    One of the program: what ``torchvision.models`` has is none of its functions.
    """
    found = graph.resolve(module, holder)
    if found is None and module.dotted(holder).partition(".")[0] in LIBRARIES:
        return False
    if not isinstance(holder, ast.Name) or holder.id in module.aliases:
        return True
    return found is not None and isinstance(found[1], ast.ClassDef)


def looks_up_modules(graph: CallGraph) -> bool:
    """Whether functions and classes are got from modules by names: ``models.__dict__[name]``."""
    return _asks_modules(graph) or any(
        isinstance(node.value, ast.Name) and node.value.id in module.aliases
        for module in graph.modules
        for node in module.attributes("__dict__")
    )


def _asks_modules(graph: CallGraph) -> bool:
    """Whether code gets what it imports by computed names: ``getattr(models, name)``."""
    return any(
        (isinstance(asked, ast.Name) and asked.id in module.aliases)
        or _modules_passed(graph, module, asked)
        for module in graph.modules
        for _, asked in _asked_by_name(module)
    )


def _modules_passed(graph: CallGraph, module: Module, asked: ast.expr) -> list[Module]:
    """The modules that calls pass for a parameter: ``def build(package, name)``.

    By whatever object that has a function of this name.
    """
    function = module.function(asked)
    if not isinstance(asked, ast.Name) or function is None:
        return []
    if asked.id not in parameter_names(module)[function]:
        return []
    passed = [
        (where, argument_for_parameter(module, function, call, asked.id))
        for where in graph.modules
        for call in where.calls_to(function.name)
    ]
    found = [graph.resolve(where, value) for where, value in passed if value is not None]
    return [each[0] for each in found if each is not None and each[1] is each[0].tree]


def _asked_by_name(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Code that gets what a module or an object has by computed names, with the latter."""
    for call in module.calls_to("getattr", "vars", "dir", "getmembers"):
        is_constant = len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
        if isinstance(call.func, ast.Name) and call.args and not is_constant:
            yield call, call.args[0]


def _looked_up(graph: CallGraph, module: Module) -> Iterator[tuple[ast.AST, Module]]:
    """Code that gets functions and classes by computed names, with the module that has them."""
    asked = [
        *_asked_by_name(module),
        *((node, node.value) for node in module.attributes("__dict__")),
    ]
    for node, holder in asked:
        found = graph.resolve(module, holder)
        if found is not None and found[1] is found[0].tree:
            yield node, found[0]
        elif isinstance(holder, ast.Subscript) and module.dotted(holder.value) == "sys.modules":
            yield node, module
        elif found is None:
            yield from ((node, each) for each in _modules_passed(graph, module, holder))
    for call in module.calls_to("globals"):
        if isinstance(call.func, ast.Name) and not _is_of_helper(module, call):
            yield call, module
    for call in module.calls_to("eval"):
        up = module.parents[call]  # eval(args.net)(args), not eval("(3, 4)")
        if isinstance(call.func, ast.Name) and isinstance(up, ast.Call) and up.func is call:
            yield call, module


def _offered(graph: CallGraph, module: Module) -> set[str]:
    """The names of functions and classes that can be got from a module, also re-exported ones."""
    names: set[str] = set()
    seen, pending = {module}, [module]
    while pending:
        links = graph.links(one := pending.pop())
        names |= {*top_level(one), *(original for _, original in links.names.values())}
        targets = {graph.modules_by_path.get(path) for path in links.stars}
        more = {target for target in targets if target is not None} - seen
        seen |= more
        pending += more
    return names


def _reach(graph: CallGraph, *, resolved: bool, by_own_name: bool = False) -> set[Function]:
    """Follow names. A method counts as used where its class is; decorated functions always."""
    homes: dict[str, list[Callee]] = defaultdict(list)
    reached: set[Function] = set()
    pending: list[tuple[Module, ast.AST]] = [(module, module.tree) for module in graph.modules]
    entries = entry_points(graph.script)
    reached.update(entries)
    pending += [(graph.script, function) for function in entries]
    for module in graph.modules:
        for function in module.all_functions:
            owner = module.parents[function]
            by_class = isinstance(owner, ast.ClassDef) and not (
                by_own_name and not function.name.startswith("__") and function.name != "forward"
            )
            name = owner.name if by_class and isinstance(owner, ast.ClassDef) else function.name
            homes[name].append((module, function))
            binds = {getattr(each, "id", "") for each in function.decorator_list} <= BINDING
            if function.decorator_list and not (by_own_name and binds):
                reached.add(function)
                pending.append((module, function))
    for module in graph.modules:
        for owner in filter(_has_no_more, module.nodes(ast.ClassDef)):
            for base in owner.bases:
                homes[owner.name] += homes.get(module.last_name(base), ())
    uses: dict[ast.AST, set[str]] = defaultdict(set)
    by_lookup: dict[ast.AST, set[str]] = defaultdict(set)
    for module in graph.modules:
        for node, asked in _looked_up(graph, module):
            by_lookup[module.function(node) or module.tree] |= _offered(graph, asked)
        for node, name in name_uses(module.tree, homes.keys()):
            uses[node].add(name)
        if resolved:
            idle: list[ast.AST] = [*_unread_tables(graph, module)]
            idle += [] if module is graph.script else _guarded(module)
            idle += [] if by_own_name else _bases(module)
            uses[module.tree] -= _only_in(module, uses[module.tree], idle)
        uses[module.tree] |= _renamed(module)
        for owner, name in _inherited(module):
            uses[owner].add(name)
    by_text = any(map(_imports_by_name, graph.modules))
    shared = {
        name
        for name, found in homes.items()
        if resolved and not by_text and len({where for where, _ in found}) > 1
        if not (by_own_name and any(_is_method(*each) for each in found))
    }
    while pending:
        module, node = pending.pop()
        for name in (uses[node] | by_lookup[node]) & homes.keys():
            found = homes[name] if name in shared else homes.pop(name)
            is_clear = name in shared and name not in by_lookup[node]
            meant = _meant(graph, module, node, name) if is_clear else None
            new = [
                (home, function)
                for home, function in found
                if function not in reached and (meant is None or home in meant)
            ]
            reached.update(function for _, function in new)
            pending += new
    return reached


def entry_points(script: Module) -> list[Function]:
    """The functions of a script that parse its arguments, where nothing in it calls one.

    The installed command of a package calls them: ``bert = "bert_pytorch.__main__:train"``.
    """
    if _guarded(script) or calls_at_import(script):
        return []
    parsing = {script.function(call) for call in script.calls_to("parse_args")}
    return [
        function
        for function in script.all_functions
        if function in parsing and script.parents[function] is script.tree
    ]


def _imports_by_name(module: Module) -> bool:
    """Whether a module imports others by names that it computes, outside of helpers of ours."""
    if not any(map(module.spells, DYNAMIC)):
        return False
    users = {getattr(module.function(use), "name", "") for use in module.occurrences(*DYNAMIC)}
    return not users or not users <= helper_names()


def _is_method(module: Module, function: Function) -> bool:
    return isinstance(module.parents[function], ast.ClassDef)


def _guarded(module: Module) -> list[ast.stmt]:
    """The statements of a module's ``if __name__ == "__main__":``."""
    return [
        stmt
        for guard in module.tree.body
        if isinstance(guard, ast.If) and mentions(guard.test, "__name__") and not guard.orelse
        for stmt in guard.body
    ]


def _unread_tables(graph: CallGraph, module: Module) -> Iterator[ast.Assign]:
    """Dictionaries at module level that nobody reads: what they hold is for other scripts."""
    for stmt in module.tree.body:
        match stmt:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict()) if not (
                len(module.occurrences(name)) > 1
                or any(each.spells(name) for each in graph.modules if each is not module)
                or looks_up_modules(graph)
            ):
                yield stmt


def _bases(module: Module) -> list[ast.expr]:
    """The bases of classes, of which `_inherited` tells those of a class that is used."""
    return [
        base
        for owner in module.nodes(ast.ClassDef)
        if not owner.decorator_list
        for base in owner.bases
    ]


def _only_in(module: Module, names: set[str], idle: list[ast.AST]) -> set[str]:
    """The names that module-level code uses in the nodes ``idle`` alone."""
    inside = {node for each in idle for node in below(each)}
    return {
        name
        for name in names
        if inside
        and all(use in inside for use in module.occurrences(name) if module.function(use) is None)
    }


def _inherited(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Pairs of a method and a base of its class, whose methods are the class's own, too."""
    for owner in module.nodes(ast.ClassDef):
        methods: list[ast.AST] = [each for each in owner.body if isinstance(each, Function)]
        for base in () if _has_no_more(owner) else owner.bases:
            for method in methods or [module.tree]:
                yield method, module.last_name(base)


def _has_no_more(owner: ast.ClassDef) -> bool:
    """Whether a class is what its bases are, under another name: ``class Second(First): pass``."""
    return not owner.decorator_list and not any(isinstance(each, Function) for each in owner.body)


def _renamed(module: Module) -> set[str]:
    """The names of functions and classes that a module imports under other names."""
    return {
        alias.name
        for stmt in module.nodes(ast.ImportFrom)
        for alias in stmt.names
        if alias.asname is not None and alias.asname != alias.name
    }


def _meant(graph: CallGraph, module: Module, owner: ast.AST, name: str) -> set[Module] | None:
    """The modules whose function or class the uses in a function mean; None for any."""
    imports = sum(
        (alias.asname or alias.name) == name
        for stmt in module.nodes(ast.ImportFrom)
        for alias in stmt.names
    )
    if imports > 1 or name in _renamed(module):
        return None
    meant: set[Module] = set()
    everywhere = module.occurrences(name)
    inside = [use for use in everywhere if is_inside(use, owner)]
    for use in inside or everywhere:  # a base is named outside of the methods that have it
        found = graph.resolve(module, use)
        if found is not None and isinstance(found[1], (ast.ClassDef, ast.FunctionDef)):
            meant.add(found[0])
        elif isinstance(use, ast.Attribute) and found is None:
            meant |= modules_of_table(graph, module, use.value)
        elif isinstance(use, ast.Name):
            return None  # a parameter, or bound in several ways; model.train() is no function's
    return meant
