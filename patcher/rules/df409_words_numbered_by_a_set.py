"""Each rank numbers the words of a set in an order of its own.

What         The elements of a set get numbers by the set's order: a vocabulary, the labels' ids. Or
             words get the numbers of their hashes: hash(word) % size.
At run time  Python orders the strings of a set by a hash that is another one in each process. A
             word or a label has another id on each rank, and the gradients of different tasks are
             averaged: what is trained is of no use, and neither an error nor the loss shows it.
Example      label_ids = {label: i for i, label in enumerate(set(labels))}
Fix          The set is sorted.
Fix safety   Safe where the elements are certainly strings: one process numbers them by chance, too,
             so no run and no checkpoint can rely on the order. Other sets are only reported: whole
             numbers have one order in all processes, and sorting them would change their ids. So
             are hashes, of which those of strings differ: zlib.crc32(word.encode()) does not, nor
             does hash(word) where PYTHONHASHSEED is set for all ranks.
Source       docs.python.org/3/reference/datamodel.html#object.__hash__ (hashes of str are salted)
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.set_order import LISTS, place_of_order
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.possible_values import Place
from ..analysis.training.program import Program
from ..analysis.training.whole_numbers import holds_numbers
from ..analysis.training.words import holds_words
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import argument_values, is_plain_call, mentions, within

CODE, SEVERITY, SAFETY = "DF409", Severity.ERROR, Safety.SAFE

NUMBERING = ("index", "add_tokens", "add_special_tokens")  # a list's method, and a tokenizer's


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group", "Accelerator"):
        return
    yield from numbered_by_hash(program)
    if not any(each.calls_to("set") or each.nodes(ast.SetComp) for each in program.modules):
        return
    seen: set[ast.expr] = set()
    for module in program.modules:
        for iterable in numbered(program, module):
            place = place_of_order(program, module, iterable)
            if place is None or place[1] in seen:
                continue
            seen.add(place[1])
            if holds_numbers(program, *place):
                continue  # a number's hash is itself
            if roles_reaching(program, *place) >= RANKS:
                yield finding(program, module, iterable, place)


def finding(program: Program, module: Module, iterable: ast.expr, place: Place) -> Finding:
    where, unsorted = place
    text = " ".join(where.text(unsorted).split())
    numbers = f"line {iterable.lineno} of {module.source.path.name} numbers it"
    because = f"{text} has another order in each process, and {numbers}"
    if holds_words(program, where, unsorted):
        return Finding(where, unsorted, because, (sort(where, unsorted),))
    because += ", if it holds strings: sort it then"
    return Finding(where, unsorted, because, severity=Severity.DEGRADED)


def numbered_by_hash(program: Program) -> Iterator[Finding]:
    """The findings of ``hash(word) % size``, which is another number in each process."""
    for module, call in program.calls_to("hash"):
        ups = list(module.ancestors(call))
        is_cut = any(
            isinstance(up, ast.BinOp) and isinstance(up.op, ast.Mod)
            for up in ups[: ups.index(module.statement(call))]
        )
        if (
            is_cut
            and is_plain_call(call, "hash")
            and not program.callees(module, call)
            and not all(map(is_number, argument_values(call)))
            and roles_reaching(program, module, call) >= RANKS
        ):
            because = "the hash of a string is another number in each process, if it is of one"
            of_several = any(isinstance(each, ast.Tuple) for each in argument_values(call))
            severity = Severity.NOTE if of_several else Severity.DEGRADED  # hash((seed, epoch))
            yield Finding(module, call, because, severity=severity)


def is_number(value: ast.expr) -> bool:
    """Whether a value is a number by how it is made, or a tuple of numbers."""
    match value:
        case ast.Constant():
            return isinstance(value.value, int | float)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in ("int", "len", "id", "ord", "round", "getuid", "getpid", "time")
        case ast.IfExp(body=body, orelse=other) | ast.BinOp(left=body, right=other):
            return is_number(body) and is_number(other)
        case ast.Tuple(elts=parts):
            return all(map(is_number, parts))
    return False


def sort(module: Module, unsorted: ast.expr) -> Rewrite:
    """The edit that sorts a set where its order is taken."""
    up = module.parents[unsorted]
    if is_plain_call(up, LISTS[0]):
        return Rewrite(up.func, "sorted")
    return Rewrite(unsorted, f"sorted({module.text(unsorted)})")


def numbered(program: Program, module: Module) -> Iterator[ast.expr]:
    """The iterables whose elements get the numbers of their places."""
    for call in module.calls_to("enumerate"):
        if call.args and uses_number(module, call):
            yield call.args[0]
    for call in module.calls_to("zip"):
        if any(isinstance(e, ast.Call) and module.last_name(e.func) == "range" for e in call.args):
            yield from call.args
    for call in module.calls_to(*NUMBERING):
        if isinstance(call.func, ast.Attribute) and call.args:
            yield call.func.value if call.func.attr == NUMBERING[0] else call.args[0]
    for loop in module.nodes(ast.For):
        by_hand = any(counts(module, loop, stmt) for stmt in within(loop.body, ast.Assign))
        calls = within(loop.body, ast.Call)
        if by_hand or any(is_counter(program, module, loop, call) for call in calls):
            yield loop.iter


def uses_number(module: Module, call: ast.Call) -> bool:
    """Whether the number that enumerate() gives an element is stored."""
    up = module.parents[call]
    target = getattr(up, "target", None)
    if not isinstance(target, ast.Tuple) or not isinstance(target.elts[0], ast.Name):
        return False
    number = target.elts[0].id
    if isinstance(up, ast.For):
        return any(
            mentions(stmt, number) and any(isinstance(t, ast.Subscript) for t in stmt.targets)
            for stmt in within(up.body, ast.Assign)
        )
    return isinstance(module.parents[up], ast.DictComp)


def counts(module: Module, loop: ast.For, stmt: ast.Assign) -> bool:
    """``ids[word] = len(ids)``, or a counter's value, for the words of a loop."""
    target = stmt.targets[0]
    if not isinstance(target, ast.Subscript) or not isinstance(loop.target, ast.Name):
        return False
    if not mentions(target.slice, loop.target.id) or mentions(stmt.value, loop.target.id):
        return False
    return is_next_number(module, stmt)


def is_next_number(module: Module, stmt: ast.Assign) -> bool:
    """Whether what a statement stores is a length, or is counted up."""
    value, table = stmt.value, stmt.targets[0]
    if isinstance(value, ast.Call):
        return module.last_name(value.func) == "len"
    made = module.definition(value, value)
    if isinstance(made, ast.Call) and isinstance(table, ast.Subscript):
        return module.text(made) == f"len({module.text(table.value)})"
    if not isinstance(value, ast.Name | ast.Attribute):
        return False
    counted = module.text(value)
    return any(
        module.text(each.target) == counted and module.function(each) is module.function(stmt)
        for each in module.nodes(ast.AugAssign)
    )


def is_counter(program: Program, module: Module, loop: ast.For, call: ast.Call) -> bool:
    """Whether a call passes a loop's word to a function of the program that numbers it."""
    if not isinstance(loop.target, ast.Name) or len(call.args) != 1:
        return False
    if not mentions(call.args[0], loop.target.id):
        return False
    return any(
        isinstance(stmt.targets[0], ast.Subscript) and is_next_number(where, stmt)
        for where, function in program.callees(module, call)
        for stmt in within(function.body, ast.Assign)
    )
