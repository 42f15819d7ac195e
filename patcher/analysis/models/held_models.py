"""Objects that are made of a model ahead of its wrapper, and go back through it past that.

As an attack on embeddings does, ``fgm = FGM(model)``, that has a forward and a backward pass of its
own: DistributedDataParallel averages the gradients of what its own call has computed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import (
    FUNCTIONS,
    Function,
    argument,
    bound_names,
    everywhere,
    is_elif,
    is_inside,
    mentions,
    parameters,
    precedes,
    within,
)
from ..language.call_graph import Callee
from ..language.objects import ClassOf, classes_above, is_self, method_of
from ..language.passed_arguments import argument_for_parameter
from ..training.evaluations import is_gradless as is_gradless_function
from ..training.program import Program
from ..training.train_loops import is_backward

# What a wrapper answers as its model does, but for the beginning of the parameters' names.
ALIKE = ("named_parameters", "parameters", "zero_grad", "train", "eval", "training")
LOOPS = (ast.For, ast.While, ast.Try)
BY_NAME = ("startswith", "match", "fullmatch", "get_parameter", "register")


# What an object is bound to, where and by what it is made, of which name, and if which test holds.
Made = tuple[str, Module, ast.Call, str, str | None]


@record
class HeldModel:
    """An object that is made of a model ahead of the line that wraps it."""

    home: Module
    made: ast.Call
    module: Module  # of the wrapper
    holder: str  # the text of what the object is bound to
    attr: str  # the attribute in which it keeps the model
    method: str  # that goes back through the model
    wrap: ast.Assign
    test: str | None  # that holds behind the wrapper if the object is made; None if unknown
    takes_wrapper: bool  # whether the wrapper can take the model's place in it


def models_held_bare(program: Program) -> Iterator[HeldModel]:
    """The objects that go back past a wrapper that is made below them."""
    for module, wrap in program.calls_to("DistributedDataParallel"):
        stmt, inside = module.statement(wrap), argument(wrap, 0, "module")
        if not (isinstance(stmt, ast.Assign) and stmt.value is wrap and len(stmt.targets) == 1):
            continue
        if not isinstance(inside, ast.Name | ast.Attribute) or not program.is_live(module, wrap):
            continue
        here = objects_made_of(module, module.text(inside), wrap)
        for holder, home, made, model, test in (*here, *passed_beside(program, module, wrap)):
            found = program.resolve(home, made.func)
            if found is None or not isinstance(found[1], ast.ClassDef):
                continue
            owner = (found[0], found[1])
            attr = kept_as(program, home, owner, made, model)
            if not attr or is_given_anew(module, f"{holder}.{attr}", wrap, test):
                continue
            for name in methods_used(module, holder, wrap):
                method = method_of(program, owner, name)
                if method is not None and goes_back_through(program, owner, method, attr):
                    takes = takes_wrapper(program, owner, attr)
                    yield HeldModel(home, made, module, holder, attr, name, stmt, test, takes)
                    break


def objects_made_of(module: Module, model: str, wrap: ast.Call) -> Iterator[Made]:
    """The calls above a wrapper that get the model and are bound to something."""
    for stmt in within(module.scope_statements(wrap), ast.Assign):
        made = stmt.value.body if isinstance(stmt.value, ast.IfExp) else stmt.value
        if (
            isinstance(made, ast.Call)
            and len(stmt.targets) == 1
            and precedes(made, wrap)
            and not exclusive(made, wrap)
            and model in map(module.text, (*made.args, *(word.value for word in made.keywords)))
            and not is_other_model(module, model, made, wrap)
        ):
            test = test_of_making(module, made, wrap)
            yield module.text(stmt.targets[0]), module, made, model, test


def passed_beside(program: Program, module: Module, wrap: ast.Call) -> Iterator[Made]:
    """Objects of the model that callers pass along with it: ``train(net, FGM(net))``."""
    function, inside = module.function(wrap), argument(wrap, 0, "module")
    if function is None or not isinstance(inside, ast.Name):
        return
    for where, call in program.callers(function) if inside.id in parameters(function) else ():
        model = argument_for_parameter(module, function, call, inside.id)
        for name in sorted(parameters(function) - {inside.id}) if model is not None else ():
            value = argument_for_parameter(module, function, call, name)
            made = value if value is None else where.definition(value, value) or value
            is_sure = isinstance(made, ast.Call)
            made = made.body if isinstance(made, ast.IfExp) else made
            if isinstance(made, ast.Call) and made is not model and model is not None:
                yield name, where, made, where.text(model), "" if is_sure else None


def is_other_model(module: Module, model: str, made: ast.Call, wrap: ast.Call) -> bool:
    """Whether the name is bound to another model between the two; not ``model = wrap(model)``."""
    return any(
        any(reads_or_binds(module, target, model) for target in stmt.targets)
        and not reads_or_binds(module, stmt.value, model)
        and precedes(made, stmt)
        and precedes(stmt, wrap)
        for stmt in within(module.scope_statements(wrap), ast.Assign)
    )


def reads_or_binds(module: Module, node: ast.expr, name: str) -> bool:
    """Whether a name, or an attribute with its owner, stands in an expression."""
    parts = (*everywhere(node, ast.Name), *everywhere(node, ast.Attribute))
    return any(module.text(each) == name for each in parts)


def test_of_making(module: Module, made: ast.Call, wrap: ast.Call) -> str | None:
    """The tests around a call that are not around the wrapper; "" without any, None if unknown."""
    tests: list[ast.expr] = []
    child: ast.AST = made
    for up in module.ancestors(made):
        if is_inside(wrap, up):
            break
        if isinstance(up, ast.If | ast.IfExp):
            body = up.body if isinstance(up.body, list) else [up.body]
            if any(each is child for each in body):
                tests.insert(0, up.test)
            elif not (isinstance(child, ast.If) and is_elif(up, child)):
                return None
        elif isinstance(up, LOOPS):
            return None
        child = up
    for test in tests:
        if any(everywhere(test, kind) for kind in (ast.Call, ast.NamedExpr)):
            return None
        parts = (*everywhere(test, ast.Name), *everywhere(test, ast.Attribute))
        if any(is_other_model(module, module.text(each), made, wrap) for each in parts):
            return None
    return " and ".join(map(module.conjunct, tests))


def kept_as(program: Program, module: Module, owner: ClassOf, made: ast.Call, model: str) -> str:
    """The attribute that a class's constructor binds to the model that a call passes; or ""."""
    constructor = method_of(program, owner, "__init__")
    if constructor is None:
        return ""
    where, function = constructor
    for name in sorted(parameters(function)):
        passed = argument_for_parameter(where, function, made, name)
        if passed is None or module.text(passed) != model:
            continue
        for stmt in within(function.body, ast.Assign):
            target = stmt.targets[0]
            if (
                isinstance(stmt.value, ast.Name)
                and stmt.value.id == name
                and isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and is_self(function, target.value.id)
            ):
                return target.attr
    return ""


def is_given_anew(module: Module, attr: str, wrap: ast.Call, test: str | None) -> bool:
    """Whether ``holder.model = …`` stands below the wrapper; not for objects of other tests."""
    return any(
        module.text(target) == attr
        and precedes(wrap, stmt)
        and (is_inside(wrap, up) or not isinstance(up, ast.If) or module.text(up.test) == test)
        for stmt in module.nodes(ast.Assign)
        for up in [module.parents[stmt]]
        for target in stmt.targets
    )


def methods_used(module: Module, holder: str, wrap: ast.Call) -> Iterator[str]:
    """The methods of the object that are called below the wrapper, or in other functions."""
    function = module.function(wrap)
    is_shared = "." in holder  # self.attack, also in other methods
    for call in module.nodes(ast.Call):
        func = call.func
        owner = func.value if isinstance(func, ast.Attribute) else func
        is_here = module.function(call) is function
        if not isinstance(owner, ast.Name | ast.Attribute) or not (is_here or is_shared):
            continue
        if is_here and not precedes(wrap, call):
            continue
        if module.text(owner) == holder and isinstance(func, ast.Attribute):
            yield func.attr
        elif module.text(func) == holder:
            yield "__call__"


def goes_back_through(program: Program, owner: ClassOf, method: Callee, attr: str) -> bool:
    """Whether a method, or others of its object that it calls, has both passes of the model."""
    has_called = has_gone_back = False
    pending, seen = [method], set[Function]()
    while pending:
        where, function = pending.pop()
        if function in seen or is_gradless_function(where, function):
            continue
        seen.add(function)
        for call in within(function.body, ast.Call):
            text = where.text(call.func)
            has_called |= text in (f"self.{attr}", f"self.{attr}.forward")
            has_gone_back |= is_backward(call) or any(
                is_backward(each)
                for _, below in program.functions_below(where, call)
                for each in within(below.body, ast.Call)
            )
            other = method_of(program, owner, text[5:]) if text.startswith("self.") else None
            pending += [] if other is None else [other]
    return has_called and has_gone_back


def takes_wrapper(program: Program, owner: ClassOf, attr: str) -> bool:
    """Whether a class asks nothing of the model that a wrapper answers otherwise."""
    for module, definition in classes_above(program, owner):
        if any(mentions(definition, word) for word in BY_NAME) or compares_names(definition):
            return False
        for use in everywhere(definition, ast.Attribute):
            if module.text(use) != f"self.{attr}":
                continue
            up = module.parents[use]
            is_asked_alike = isinstance(up, ast.Attribute) and up.attr in ALIKE
            is_called = isinstance(up, ast.Call) and up.func is use
            is_kept = isinstance(up, ast.Assign) and use in up.targets
            if not (is_asked_alike or is_called or is_kept):
                return False
            around = module.function(use)
            if is_asked_alike and isinstance(around, FUNCTIONS) and around.name == "__init__":
                return False  # names that it may keep begin otherwise in the wrapper
    return True


def compares_names(definition: ast.ClassDef) -> bool:
    """Whether a class looks for a parameter of one whole name, which begins otherwise there."""
    names = {
        name
        for loop in everywhere(definition, ast.For)
        if mentions(loop.iter, "named_parameters")
        for name in bound_names(loop.target)
    }
    return any(
        isinstance(side, ast.Name) and side.id in names
        for compare in everywhere(definition, ast.Compare)
        if any(isinstance(op, ast.Eq | ast.NotEq) for op in compare.ops)
        for side in (compare.left, *compare.comparators)
    )
