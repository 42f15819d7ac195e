"""Which calls run which functions of a program.

Three answers: ``callers`` are certain, ``possible_callers`` cannot be told (the method of an object
of unknown class, a function that is passed on as a value), all other calls run something else.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import PurePath

from ...source.libraries import LIBRARIES
from ...source.module import Module
from ...source.tree import FUNCTIONS, Function, everywhere, is_annotation, within
from .base_classes import is_only_inherited_from
from .looked_up_methods import calls_what_it_finds, method_lookups, texts_of
from .made_functions import calls_by_other_name, made_function
from .names import ModuleSet, Unread, answered_once, parameter_names
from .objects import ClassOf, classes_above, classes_of, method_of, named_definition
from .passed_arguments import is_partial
from .passed_functions import calls_of_parameter, passed_functions
from .star_names import take_names_of_libraries
from .tables import calls_by_table, is_table, items_of_call

Place = tuple[Module, ast.expr]
Callee = tuple[Module, Function]
CALL = "__call__"
MAX_ALIASES = 5  # names through which a function value is followed


class CallGraph(ModuleSet):
    """A script and the local modules it imports, with the calls among their functions."""

    def __init__(
        self,
        script: Module,
        siblings: tuple[Module, ...] = (),
        roots: tuple[str, ...] = (),
        unread: tuple[Unread, ...] = (),
    ) -> None:
        super().__init__(script, siblings, roots, unread)
        take_names_of_libraries(self)
        for module in self.modules:
            module.graph = self

    @cached_property
    def _callers(self) -> dict[Function, list[tuple[Module, ast.Call]]]:
        return {}

    @cached_property
    def _possible(self) -> dict[Function, list[Place]]:
        return {}

    @cached_property
    def functions_by_name(self) -> dict[str, list[Callee]]:
        """All functions and methods of the program, by name; constructors by that of the class."""
        found: dict[str, list[Callee]] = {}
        for module in self.modules:
            for function in module.all_functions:
                name, owner = function.name, module.parents[function]
                if isinstance(owner, ast.ClassDef) and name == "__init__":
                    name = owner.name
                found.setdefault(name, []).append((module, function))
        return found

    def callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """The calls that certainly run ``function``; for ``__init__``, calls of its class."""
        if function not in self._callers:
            self._find_callers(function)
        return self._callers[function]

    def possible_callers(self, function: Function) -> list[Place]:
        """Where ``function`` may be called, or is passed on as a value, which cannot be told."""
        if function not in self._possible:
            self._find_callers(function)
        return self._possible[function]

    @answered_once
    def callees(self, module: Module, call: ast.Call) -> list[Callee]:
        """The functions of the program that a call certainly runs one of."""
        names = [module.last_name(call.func)]
        if names[0] not in self.functions_by_name and isinstance(call.func, ast.Name):
            names = [module.last_name(each) for each in _functions_named(module, call.func)]
        found = [callee for name in names for callee in self.functions_by_name.get(name, ())]
        if isinstance(call.func, ast.Name) and (scope := module.function(call)) is not None:
            passed = self._passed_functions(module, scope, call.func.id)
            made = made_function(self, module, module.definition(call.func, call.func))
            passed = passed if made is None else [*passed, made]
            found += [each for each in passed if each not in found]
        sure = [callee for callee in found if self._is_call_of(module, call, callee)]
        if not sure and CALL in self.functions_by_name:
            sure = self._called_object(module, call)
        return sure or [
            callee
            for _, item in items_of_call(self, module, call.func)
            if isinstance(item, ast.Name)
            for callee in self.functions_by_name.get(item.id, ())
        ]

    def possible_callees(self, module: Module, call: ast.Call) -> list[Callee]:
        """The functions of the program that a call may run, where that cannot be told."""
        found = self.functions_by_name.get(module.last_name(call.func), ())
        return [callee for callee in found if self._is_call_of(module, call, callee) is None]

    def functions_below(self, module: Module, *code: ast.AST) -> list[Callee]:
        """The functions that code certainly runs, also through others and in nested functions."""
        pending: list[tuple[Module, ast.AST]] = [(module, node) for node in code]
        found: dict[Callee, None] = {}
        while pending:
            where, node = pending.pop()
            for call in everywhere(node, ast.Call):
                for callee in self.callees(where, call):
                    if callee not in found:
                        found[callee] = None
                        pending.append(callee)
        return [*found]

    def _find_callers(self, function: Function) -> None:
        home = self.module_of(function)
        owner = home.parents[function]
        is_constructor = isinstance(owner, ast.ClassDef) and function.name == "__init__"
        name = owner.name if is_constructor and isinstance(owner, ast.ClassDef) else function.name
        calls: list[tuple[Module, ast.Call]] = []
        possible: list[Place] = []
        if name == CALL:
            calls += self._calls_of_objects.get(function, ())
        if is_constructor and isinstance(owner, ast.ClassDef):
            calls += self._constructions_below((home, owner), function)
        for module in self.modules:
            if not module.spells(name):
                continue
            for call in self._calls_by_name(module, name):
                answer = self._is_call_of(module, call, (home, function))
                if answer:
                    calls.append((module, call))
                elif answer is None:
                    possible.append((module, call))
            called = {id(call.func) for call in module.calls_to(name)}
            for use in module.occurrences(name):
                if id(use) in called or not isinstance(use.ctx, ast.Load):
                    continue
                found = self.resolve(module, use)
                if found is not None and found[1] in (function, owner) and not is_annotation(use):
                    # Until it is answered: a function may return itself, or one that returns it.
                    self._callers[function], self._possible[function] = [], [(module, use)]
                    known = self._calls_of_table(module, use)
                    known = known or self._calls_of_passed(module, use, (home, function))
                    known = known or calls_by_other_name(self, module, use, calls)
                    calls += [each for each in known if each not in calls]
                    possible += [] if known else [(module, use)]
        if isinstance(owner, ast.ClassDef) and not calls:
            possible += self._lookups((home, owner), function)
        self._callers[function] = calls
        self._possible[function] = possible

    def _lookups(self, owner: ClassOf, function: Function) -> Iterator[Place]:
        """Where a method that nothing calls by its name is got by it: ``getattr(hook, event)``."""
        if function.name.startswith("__") or function.name not in texts_of(self):
            return
        for module, lookup in method_lookups(self):
            asked = lookup.args[0]
            bases = classes_of(self, module, asked)
            has_it = (self._is_method_of(base, owner, function) is not False for base in bases)
            if calls_what_it_finds(module, lookup) and (not bases or any(has_it)):
                yield module, asked

    @cached_property
    def _calls_of_objects(self) -> dict[Function, list[tuple[Module, ast.Call]]]:
        """The calls of objects of the program's classes, by the ``__call__`` that they run."""
        found: dict[Function, list[tuple[Module, ast.Call]]] = {}
        self.__dict__["_calls_of_objects"] = found  # an object's class may hang on it
        for module in self.modules:
            for call in module.nodes(ast.Call):
                for _, function in self._called_object(module, call):
                    found.setdefault(function, []).append((module, call))
        for function in found:  # as far as it went, when they were asked for
            self._callers.pop(function, None)
            self._possible.pop(function, None)
        return found

    def _called_object(self, module: Module, call: ast.Call) -> list[Callee]:
        """The ``__call__`` that a call of an object runs, of a class of the program."""
        found = self.resolve(module, call.func)
        if found is not None and not isinstance(found[1], ast.expr):
            return []
        methods = [method_of(self, owner, CALL) for owner in classes_of(self, module, call.func)]
        return [*dict.fromkeys(method for method in methods if method is not None)]

    def _constructions_below(
        self, owner: tuple[Module, ast.ClassDef], function: Function
    ) -> Iterator[tuple[Module, ast.Call]]:
        """The calls of ``__init__`` by classes below: one without its own, or by ``super()``."""
        for module, definition in self.classes_below.get(owner[1], ()):
            if method_of(self, (module, definition), function.name) == (owner[0], function):
                for where in self.modules:
                    for call in where.calls_to(definition.name):
                        found = self.resolve(where, call.func)
                        if found is not None and found[1] is definition:
                            yield where, call
            for call in module.calls_to(function.name):
                is_above = self._is_method_call(module, call, owner, function)
                if is_above and module.enclosing_class(call) is definition:
                    yield module, call

    @cached_property
    def classes_below(self) -> dict[ast.ClassDef, list[tuple[Module, ast.ClassDef]]]:
        """The classes that inherit from each class, also through others."""
        found: dict[ast.ClassDef, list[tuple[Module, ast.ClassDef]]] = {}
        for module in self.modules:
            for definition in module.nodes(ast.ClassDef):
                for _, above in classes_above(self, (module, definition)):
                    if above is not definition:
                        found.setdefault(above, []).append((module, definition))
        return found

    @answered_once
    def classes_made(self, base: ClassOf) -> list[ClassOf]:
        """The classes below one that is only inherited from, if it is that, and any is made."""
        below = self.classes_below.get(base[1], ())
        if not below or not is_only_inherited_from(self, base[1]):
            return [base]
        return [each for each in below if not is_only_inherited_from(self, each[1])] or [base]

    def _calls_by_name(self, module: Module, name: str) -> list[ast.Call]:
        calls = module.calls_to(name)
        more = [
            call
            for local, value in self._function_names(module).get(name, ())
            for call in module.calls_to(local)
            if call not in calls
            and (
                module.function(call) is module.function(value)
                or (isinstance(call.func, ast.Name) and value in _of_the_module(module, call.func))
            )
        ]
        return [*calls, *more]

    def _function_names(self, module: Module) -> dict[str, list[tuple[str, ast.expr]]]:
        """Local names by the name of the function that they are bound to: ``run = train``."""
        if "function_names" not in module.program_answers:
            found: dict[str, list[tuple[str, ast.expr]]] = {}
            for stmt in module.nodes(ast.Assign):
                target, value = stmt.targets[0], stmt.value
                if isinstance(target, ast.Name):
                    made = made_function(self, module, value)
                    if made is not None and isinstance(value, ast.Call):
                        found.setdefault(made[1].name, []).append((target.id, value.func))
                    values = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
                    for each in values:
                        if is_partial(each, module):
                            each = each.args[0]
                        if isinstance(each, ast.Name) and each.id != target.id:
                            found.setdefault(each.id, []).append((target.id, each))
            module.program_answers["function_names"] = found
        names: dict[str, list[tuple[str, ast.expr]]] = module.program_answers["function_names"]
        return names

    def _calls_of_table(self, module: Module, use: ast.expr) -> list[tuple[Module, ast.Call]]:
        """The calls ``TABLE[key](…)`` of the dict or list at module level that ``use`` is in."""
        table = module.parents[use]
        stmt = module.parents.get(table)
        if not isinstance(table, ast.Dict | ast.List | ast.Tuple) or not isinstance(
            stmt, ast.Assign
        ):
            return []
        target = stmt.targets[0]
        name = target.id if isinstance(target, ast.Name) else ""
        return [
            (where, call)
            for where in self.modules
            if name and where.spells(name)
            for call, base in calls_by_table(where).get(name, ())
            if where is module or is_table(self, where, base, table)
        ]

    def _calls_of_passed(
        self, module: Module, use: ast.expr, callee: Callee
    ) -> list[tuple[Module, ast.Call]]:
        """The calls, by a parameter, of a function that ``use`` passes for it as a value."""
        calls = calls_of_parameter(self, module, use)
        are_known = all(self._is_call_of(*each, callee) for each in calls)
        return calls if are_known else []

    def _passed_functions(self, module: Module, function: Function, name: str) -> list[Callee]:
        """The functions that a parameter may be, where that can be told."""
        key = (function, name)
        if name not in parameter_names(module)[function]:
            return []
        if key not in self._passed:
            self._passed[key] = []  # for a function that is asked for while it is answered
            if not self.possible_callers(function):
                self._passed[key] = passed_functions(self, module, function, name) or []
        return self._passed[key]

    @cached_property
    def _passed(self) -> dict[tuple[Function, str], list[Callee]]:
        return {}

    def _is_call_of(self, module: Module, call: ast.Call, callee: Callee) -> bool | None:
        """Whether a call runs a function; None where it cannot be told."""
        home, function = callee
        owner = home.parents[function]
        if isinstance(owner, ast.ClassDef):
            if function.name == "__init__":
                return self._is_construction(module, call, (home, owner))
            return self._is_method_call(module, call, (home, owner), function)
        return self._is_function_call(module, call, home, function)

    def _is_function_call(
        self, module: Module, call: ast.Call, home: Module, function: Function
    ) -> bool | None:
        func: ast.expr = call.func
        for _ in range(MAX_ALIASES):
            found = self.resolve(module, func)
            if found is None and isinstance(func, ast.Name):
                values = _functions_named(module, func)
                if len(values) > 1 and any(
                    named is not None and named[1] is function
                    for named in (self.resolve(module, each) for each in values)
                ):
                    return True  # of one branch or another
                if values:
                    func = values[-1]
                    continue
            if found is None or not isinstance(found[1], ast.Name | ast.Attribute):
                break
            module, func = found[0], found[1]
        if found is not None:
            where, definition = found
            return definition is function or (  # one of two branches defines it
                where is home
                and isinstance(definition, FUNCTIONS)
                and definition.name == function.name
                and home.function(definition) is home.function(function)
                and not isinstance(home.parents[definition], ast.ClassDef)
            )
        if isinstance(func, ast.Name):
            scope = module.function(func)
            if scope is not None and func.id in parameter_names(module)[scope]:
                passed = self._passed_functions(module, scope, func.id)
                return any(each is function for _, each in passed) if passed else None
            made = made_function(self, module, module.definition(func, func))
            if made is not None:
                return made[1] is function
            if (scope, func.id) in module.stores:
                return None if module.last_name(func) == function.name else False
            if func.id in module.aliases:
                return self._is_unread_import(module, func.id, home, function)
            return module is home and home.function(function) in (
                scope,
                *([home.function(scope)] if scope is not None else []),
            )
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            base = func.value.id
            return base in module.aliases and self._is_unread_import(module, base, home, function)
        return False

    def _is_unread_import(
        self, module: Module, local: str, home: Module, function: Function
    ) -> bool:
        """Whether an import whose file is not known may be of the module ``home``."""
        links = self.links(module)
        if local in links.modules or local in links.names or module is home:
            return False
        package = module.aliases[local].partition(".")[0]
        path = PurePath(os.path.realpath(home.source.name)).with_suffix("")
        is_of_home = not package or package in path.parts
        return package not in LIBRARIES and is_of_home and home.function(function) is None

    def _is_construction(
        self, module: Module, call: ast.Call, owner: tuple[Module, ast.ClassDef]
    ) -> bool | None:
        found = named_definition(self, module, call.func)
        if found is None:
            return module.last_name(call.func) == owner[1].name
        made = found[1]
        if not isinstance(made, ast.ClassDef):
            return False
        constructor = method_of(self, (found[0], made), "__init__")
        return constructor is not None and constructor[1] in owner[1].body

    def _is_method_call(
        self,
        module: Module,
        call: ast.Call,
        owner: tuple[Module, ast.ClassDef],
        function: Function,
    ) -> bool | None:
        func = call.func
        if not isinstance(func, ast.Attribute):
            return False
        if isinstance(func.value, ast.Call) and module.last_name(func.value.func) == "super":
            inside = module.enclosing_class(call)
            if inside is None:
                return False
            above = list(classes_above(self, (module, inside)))[1:]
            return owner[1] in [definition for _, definition in above]
        found = self.resolve(module, func)
        if found is not None:
            return found[1] is function
        bases = classes_of(self, module, func.value)
        if not bases:
            return False if self._is_of_library(module, func.value) else None
        bases = [each for base in bases for each in self.classes_made(base)]
        answers = [self._is_method_of(base, owner, function) for base in bases]
        return True if True in answers else None if None in answers else False

    def _is_method_of(
        self, base: ClassOf, owner: tuple[Module, ast.ClassDef], function: Function
    ) -> bool | None:
        """Whether objects of a class have a method; None where those of a class below may."""
        method = method_of(self, base, function.name)
        if method is not None and method[1] is function:
            return True
        if base[1] not in [definition for _, definition in classes_above(self, owner)]:
            return False
        if method is not None and is_left_to_subclasses(*method):
            name = function.name
            own = [each for _, below in self.classes_below.get(base[1], ()) for each in below.body]
            if [each for each in own if getattr(each, "name", "") == name] == [function]:
                return True
        return None  # a subclass may have its own

    def _is_of_library(self, module: Module, node: ast.expr) -> bool:
        """Whether a name is a library's module, or something in one."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in module.aliases:
            return False
        links = self.links(module)
        return node.id not in links.modules and node.id not in links.names


def is_left_to_subclasses(module: Module, method: Function) -> bool:
    """Whether a method is there to be overridden: it is abstract, or raises NotImplementedError."""
    match method.body[-1]:
        case ast.Raise(exc=ast.Name(id="NotImplementedError")):
            return True
        case ast.Raise(exc=ast.Call(func=ast.Name(id="NotImplementedError"))):
            return True
    return any(module.last_name(each) == "abstractmethod" for each in method.decorator_list)


def _functions_named(module: Module, name: ast.expr) -> list[ast.Name | ast.Attribute]:
    """What a local name of a function stands for, in one branch or another."""
    values = module.alternatives(name, name) or _of_the_module(module, name)
    parts = [
        part
        for value in values
        for part in ((value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,))
    ]
    parts = [part.args[0] if is_partial(part, module) else part for part in parts]
    found = [part for part in parts if isinstance(part, ast.Name | ast.Attribute)]
    return found if len(found) == len(parts) else []


def _of_the_module(module: Module, name: ast.expr) -> list[ast.expr]:
    """The one value that a name has at module level, read in a function that does not bind it."""
    if not isinstance(name, ast.Name):
        return []
    stores = [*module.stores.get((None, name.id), ())]
    stmt = module.statement(stores[0]) if len(stores) == 1 else None
    if not isinstance(stmt, ast.Assign) or stmt.targets != [stores[0]]:
        return []
    scopes = [up for up in module.ancestors(name) if isinstance(up, FUNCTIONS)]
    is_bound = any(
        module.stores.get((scope, name.id)) or name.id in parameter_names(module)[scope]
        for scope in scopes
    )
    return [] if is_bound or not scopes else [stmt.value]


def reachable_functions(graph: CallGraph, names: set[str]) -> set[Function]:
    """Functions (or constructors of classes) with these names, and all functions they call."""
    by_name = graph.functions_by_name
    return reachable_from(graph, [item for name in names for item in by_name.get(name, [])])


def reachable_from(graph: CallGraph, callees: Iterable[Callee]) -> set[Function]:
    """Some functions, and all functions that they call."""
    reachable: set[Function] = set()
    pending = [*callees]
    while pending:
        module, function = pending.pop()
        if function not in reachable:
            reachable.add(function)
            pending += _spelled_callees(graph, module, function)
    return reachable


@answered_once
def _spelled_callees(graph: CallGraph, module: Module, function: Function) -> list[Callee]:
    """The functions that have a name which a function calls."""
    calls = within(function.body, ast.Call)
    found = callees_by_name(graph, module, calls)
    owner = module.enclosing_class(function)
    if owner is not None and {module.last_name(call.func) for call in calls} & {"cls", "__class__"}:
        found += graph.functions_by_name.get(owner.name, [])  # cls(…), in a class method
    return found


def callees_by_name(graph: CallGraph, module: Module, calls: Iterable[ast.Call]) -> list[Callee]:
    """The functions that have the names of some calls; ``model.train()`` is none of a module."""
    names: dict[str, bool] = {}  # each with whether a plain function may be meant
    for call in calls:
        name = module.last_name(call.func)
        names[name] = names.get(name, False) or not sets_mode(module, call)
    return [
        callee
        for name, is_any in names.items()
        for callee in graph.functions_by_name.get(name, ())
        if is_any or isinstance(callee[0].parents[callee[1]], ast.ClassDef)
    ]


def sets_mode(module: Module, call: ast.Call) -> bool:
    """``model.train()`` and ``model.eval()``, of what is no imported module."""
    func, root = call.func, call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    is_imported = isinstance(root, ast.Name) and root.id in module.aliases
    return isinstance(func, ast.Attribute) and func.attr in ("train", "eval") and not is_imported
