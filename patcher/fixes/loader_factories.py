"""A function that makes the loader of the training, and others: tell it which one it makes.

``make(data, batch_size)`` constructs both in one place, so that a sampler that is put there deals
the evaluation by rank, too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..analysis.language.literal_arguments import CallPlace, Calls, literal
from ..analysis.language.name_flow import names_in
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.evaluations import stands_above
from ..analysis.training.program import Program
from ..editing.edits import Edit, Rewrite
from ..source.module import Module
from ..source.tree import (
    Function,
    below,
    bound_names,
    is_inside,
    is_within,
    keyword,
    last_argument,
    parameters,
    within,
)

PARAMETERS = ("to_train", "made_to_train")
Told = tuple[str, tuple[Edit, ...]]


class UntoldError(Exception):
    """A function cannot be told which of its calls makes the loader of a training."""


def training_test(program: Program, loader: Loader) -> Told:
    """A test beside a loader's construction that holds if it is made to train, and edits for it.

    The test is empty where every loader that is made there is trained on. Raises UntoldError.
    """
    function = loader.module.function(loader.call)
    if function is None:
        return "", ()
    training = [each for each in program.training_loaders if is_told_with(each, loader)]
    if not all(each.made_by for each in training):
        return test_of_phase(program, loader, function), ()
    return _told(program, loader, (), function, [each.made_by for each in training])


def test_of_phase(program: Program, loader: Loader, function: Function) -> str:
    """The test under which a function's own loop goes back over the loader that it has made.

    ``if is_train:``, of one function for training and evaluation; empty where there is none, or
    where it hangs on more than what is known above the loader.
    """
    module, tests = loader.module, set()
    for loop in program.train_loops:
        if loop.module.function(loop.steps) is not function:
            continue
        inside = bound_names(loop.steps)
        for backward in loop.backwards:
            tests.add(
                next(
                    (
                        module.text(up.test)
                        for up in module.ancestors(backward)
                        if isinstance(up, ast.If)
                        and is_inside(up, loop.steps)
                        and is_within(backward, up.body)
                        and names_in(up.test).isdisjoint(inside)
                        and is_known_above(module, function, up.test, loader.call)
                    ),
                    "",
                )
            )
    return tests.pop() if len(tests) == 1 else ""


def is_known_above(module: Module, function: Function, test: ast.expr, call: ast.Call) -> bool:
    """Whether a test is a flag, or compares a name and a constant, bound once, above a call."""
    match test:
        case ast.Name() | ast.UnaryOp(op=ast.Not(), operand=ast.Name()):
            pass
        case ast.Compare(left=ast.Name(), ops=[_], comparators=[ast.Constant()]):
            pass
        case _:
            return False
    for name in names_in(test):
        stmts = [module.statement(store) for store in module.stores.get((function, name), [])]
        rounds = [each for each in stmts if goes_round(each, call)]
        if rounds and not any(is_inside(each, rounds[-1]) for each in stmts):
            continue  # bound by the loop anew, whatever it was above
        if len(stmts) + (name in parameters(function)) != 1:
            return False
        if not all(stands_above(module, each, call) for each in stmts):
            return False
    return True


def goes_round(stmt: ast.stmt, call: ast.Call) -> bool:
    """``for split in ("train", "valid"):`` around a call, which a loader of each is made in."""
    return isinstance(stmt, ast.For) and is_within(call, stmt.body)


def is_told_with(loader: Loader, other: Loader) -> bool:
    """Whether two loaders are made in one place, or of one sampler, which a test is to stand by."""
    return loader.call is other.call or loader.shares_with(other)


def negated(test: str) -> str:
    """The text of such a test that holds where ``test`` does not."""
    if test.startswith("not "):
        return test.removeprefix("not ")
    return test.replace(" == ", " != ") if " == " in test else f"not {test}"


def only_evaluates_else(program: Program, loader: Loader) -> bool:
    """Whether all that is made beside the loaders of trainings is known to be evaluated."""
    function = loader.module.function(loader.call)
    if function is None:
        return False
    every = [*program.training_loaders, *program.evaluation_loaders]
    known = [each.factory_call for each in every if each.call is loader.call]
    places = [*program.callers(function), *program.possible_callers(function)]
    return all(call in known for _, call in places)


def _told(
    program: Program, loader: Loader, below_it: Calls, function: Function, chains: Sequence[Calls]
) -> Told:
    """The test of one function, by the calls through which training loops get its loader."""
    module = program.module_of(function)
    places = [*dict.fromkeys(chain[0] for chain in chains)]
    told: dict[CallPlace, Told] = {}
    for where, call in places:
        rest = [chain[1:] for chain in chains if chain[0] == (where, call)]
        around = where.function(call)
        told[where, call] = (
            ("", ())
            if around is None or not all(rest)
            else _told(program, loader, (*below_it, (where, call)), around, rest)
        )
    others = _other_calls(program, loader, below_it, function, places)
    if not others and not any(test for test, _ in told.values()):
        return "", ()
    if not any(test for test, _ in told.values()):
        test = _separating_test(module, function, places, others)
        if test:
            return test, ()
    takes_by_place = not (function.args.vararg or function.args.kwonlyargs)
    for _, use in others if takes_by_place else ():
        if isinstance(use, ast.Call) and any(isinstance(a, ast.Starred) for a in use.args):
            raise UntoldError(f"what line {use.lineno} passes to {function.name}()")
    return _with_parameter(module, function, told)


def _other_calls(
    program: Program,
    loader: Loader,
    below_it: Calls,
    function: Function,
    training: Sequence[CallPlace],
) -> list[tuple[Module, ast.expr]]:
    """The other uses of a function; of one that returns several things, those that evaluate.

    So are those of another loader that is made there, by the same sampler.
    """
    known = [call for _, call in training]
    places = [*program.callers(function), *program.possible_callers(function)]
    others = [
        (where, use)
        for where, use in places
        if use not in known and not isinstance(where.parents[use], ast.ClassDef)  # a base class
    ]
    if not any(
        isinstance(each.value, ast.Tuple | ast.Dict) for each in within(function.body, ast.Return)
    ):
        return others
    depth = len(below_it)
    evaluating = [
        each.made_by[depth][1]
        for each in program.evaluation_loaders
        if is_told_with(each, loader)
        and each.made_by[:depth] == below_it
        and len(each.made_by) > depth
    ]
    return [place for place in others if place[1] in evaluating]


def _separating_test(
    module: Module,
    function: Function,
    training: Sequence[CallPlace],
    others: Sequence[tuple[Module, ast.expr]],
) -> str:
    """A test of a parameter that holds for the calls that train alone, as ``train``; or empty."""
    calls = [(where, call) for where, call in others if isinstance(call, ast.Call)]
    if len(calls) < len(others):
        return ""  # it is passed on as a value
    named = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    for arg in named:
        name = ast.Name(arg.arg)
        wanted = [literal(module, function, place, name) for place in training]
        unwanted = [literal(module, function, place, name) for place in calls]
        values = [None if each is None else each.value for each in (*wanted, *unwanted)]
        trained, rest = {*values[: len(wanted)]}, {*values[len(wanted) :]}
        if trained & rest or len(trained) > 1:
            continue
        if all(isinstance(value, bool) for value in values):
            return arg.arg if True in trained else f"not {arg.arg}"
        if all(isinstance(value, str) for value in values):
            return f"{arg.arg} == {trained.pop()!r}"
    return ""


def _with_parameter(module: Module, function: Function, told: dict[CallPlace, Told]) -> Told:
    """Edits that give a function a parameter by which calls say that they train."""
    if name := _parameter_that_tells(function, told):
        return name, tuple(edit for _, more in told.values() for edit in more)
    name = next((each for each in PARAMETERS if not module.spells(each)), "")
    end = last_parameter(function.args)
    if not name or end is None or function.decorator_list:
        raise UntoldError(f"{function.name}() in line {function.lineno} takes no parameter more")
    edits: list[Edit] = [Rewrite(end, f", {name}=False", after=True)]
    for (_, call), (test, more) in told.items():
        last = last_argument(call)
        if last is None or any(node is call for node in below(function)):
            raise UntoldError(f"line {call.lineno} passes nothing to {function.name}()")
        edits += [Rewrite(last, f", {name}={test or True}", after=True), *more]
    return name, tuple(edits)


def _parameter_that_tells(function: Function, told: dict[CallPlace, Told]) -> str:
    """The parameter that has been put in for another loader, and says the same of this; or ""."""
    for name in PARAMETERS:
        passed = [(where, keyword(call, name), test) for (where, call), (test, _) in told.items()]
        if name in parameters(function) and all(
            word is not None and where.text(word.value) == (test or "True")
            for where, word, test in passed
        ):
            return name
    return ""


def last_parameter(of: ast.arguments) -> ast.expr | ast.arg | None:
    """The end of all parameters before ``**options``, behind which another one can go."""
    if of.kwonlyargs:
        return of.kw_defaults[-1] or of.kwonlyargs[-1]
    if of.vararg is not None:
        return of.vararg
    if of.defaults:
        return of.defaults[-1]
    named = [*of.posonlyargs, *of.args]
    return named[-1] if named else None
