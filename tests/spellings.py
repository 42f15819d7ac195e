"""Other spellings of a program: rewrites after which it still does the same.

Each kind changes a parsed module in place, at places that a seed chooses, and says how many. Names
that it needs begin with ``SPELLED``. spellings_undone.py takes two programs back to one spelling.
"""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Place = TypeVar("Place")
Kind = Callable[[ast.Module, random.Random], int]

SPELLED = "spelled_"
# The parameters of library functions that training scripts call, by the last part of their name.
SIGNATURES: dict[str, tuple[str, ...]] = {
    "open": ("file", "mode"),
    "torch.save": ("obj", "f"),
    "torch.load": ("f", "map_location"),
    "DataLoader": ("dataset", "batch_size", "shuffle", "sampler"),
    "DistributedSampler": ("dataset", "num_replicas", "rank", "shuffle"),
    "RandomSampler": ("data_source",),
    "SequentialSampler": ("data_source",),
    "DataParallel": ("module", "device_ids"),
    "DistributedDataParallel": ("module", "device_ids", "output_device"),
    "init_process_group": ("backend",),
    "clip_grad_norm_": ("parameters", "max_norm"),
    "set_device": ("device",),
    "makedirs": ("name",),
    "json.dump": ("obj", "fp"),
    "pickle.dump": ("obj", "file"),
    "from_pretrained": ("pretrained_model_name_or_path",),
    "save_pretrained": ("save_directory",),
    "AdamW": ("params", "lr"),
    "SGD": ("params", "lr"),
    "get_linear_schedule_with_warmup": ("optimizer", "num_warmup_steps", "num_training_steps"),
    "LambdaLR": ("optimizer", "lr_lambda"),
    "load_state_dict": ("state_dict",),
    "tqdm": ("iterable",),
    "enumerate": ("iterable", "start"),
    "getenv": ("key", "default"),
    "manual_seed": ("seed",),
}
HOLDERS = (ast.stmt, ast.ExceptHandler, ast.match_case)
TERMINAL = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements, outer ones first."""
    holders = [tree]
    for node in holders:  # no expression holds a statement
        parts = [part for part in vars(node).values() if isinstance(part, list)]
        holders += [each for part in parts for each in part if isinstance(each, HOLDERS)]
    for node in holders:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block


def some(rng: random.Random, places: Sequence[Place]) -> list[Place]:
    """All of the places, or a part of them."""
    if not places or rng.random() < 0.5:
        return list(places)
    return rng.sample(list(places), rng.randint(1, len(places)))


def dotted(node: ast.expr) -> str:
    """``a.b.c`` as it is spelled; empty where no name begins it."""
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr}" if head else node.attr
    return node.id if isinstance(node, ast.Name) else ""


def local_signatures(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """The parameters of the module's own functions whose name is defined once."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(tuple(arg.arg for arg in node.args.args))
    top = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {name: each[0] for name, each in found.items() if len(each) == 1 and name in top}


def signature(call: ast.Call, own: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The names of what a call may pass by position; empty where they are not known."""
    name = dotted(call.func)
    last = name.rpartition(".")[2]
    if isinstance(call.func, ast.Name) and name in own:
        return own[name]
    whole = ".".join(name.split(".")[-2:])
    return SIGNATURES.get(whole) or SIGNATURES.get(last, ())


def calls_with_signature(tree: ast.Module) -> list[tuple[ast.Call, tuple[str, ...]]]:
    """Calls of known functions, without ``*more`` and ``**more``."""
    own = local_signatures(tree)
    return [
        (node, names)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (names := signature(node, own))
        and not any(isinstance(arg, ast.Starred) for arg in node.args)
        and all(word.arg for word in node.keywords)
        and len(node.args) <= len(names)
    ]


def pass_by_keyword(tree: ast.Module, rng: random.Random) -> int:
    """``open(path, "w")`` as ``open(file=path, mode="w")``."""
    places = [(call, names) for call, names in calls_with_signature(tree) if call.args]
    places = [(c, n) for c, n in places if dotted(c.func) != "enumerate" or len(c.args) == 1]
    for call, names in (chosen := some(rng, places)):
        words = [ast.keyword(name, value) for name, value in zip(names, call.args, strict=False)]
        call.args, call.keywords = [], [*words, *call.keywords]
    return len(chosen)


def pass_by_position(tree: ast.Module, rng: random.Random) -> int:
    """``DataLoader(data, batch_size=4)`` as ``DataLoader(data, 4)``."""
    places = [
        (call, names)
        for call, names in calls_with_signature(tree)
        if call.keywords
        and len(call.args) < len(names)
        and call.keywords[0].arg == names[len(call.args)]
    ]
    for call, names in (chosen := some(rng, places)):
        while call.keywords and len(call.args) < len(names):
            if call.keywords[0].arg != names[len(call.args)]:
                break
            call.args.append(call.keywords.pop(0).value)
    return len(chosen)


def annotate(tree: ast.Module, rng: random.Random) -> int:
    """``x = value`` as ``x: object = value``."""
    shared = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Global | ast.Nonlocal)
        for name in node.names
    }
    return replace_statements(
        tree,
        rng,
        lambda stmt: (
            isinstance(stmt, ast.Assign)
            and len(stmt.targets) == 1
            and isinstance(stmt.targets[0], ast.Name | ast.Attribute)
            and getattr(stmt.targets[0], "id", "") not in shared
        ),
        lambda stmt, _: [ast.AnnAssign(stmt.targets[0], ast.Name("object"), stmt.value, simple=1)],
    )


def bind_in_parentheses(tree: ast.Module, rng: random.Random) -> int:
    """``x = value`` as ``(x := value)``."""
    in_class = {
        stmt for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for stmt in node.body
    }
    return replace_statements(
        tree,
        rng,
        lambda stmt: (
            isinstance(stmt, ast.Assign)
            and len(stmt.targets) == 1
            and isinstance(stmt.targets[0], ast.Name)
            and stmt not in in_class
        ),
        lambda stmt, _: [ast.Expr(ast.NamedExpr(stmt.targets[0], stmt.value))],
    )


def bind_where_read(tree: ast.Module, rng: random.Random) -> int:
    """``x = value; if x: …`` as ``if (x := value): …``, and the same for the head of a loop."""
    places = []
    for block in blocks(tree):
        for first, second in itertools.pairwise(block):
            head = getattr(second, "test" if isinstance(second, ast.If) else "iter", None)
            if (
                isinstance(first, ast.Assign)
                and [type(target) for target in first.targets] == [ast.Name]
                and isinstance(second, ast.If | ast.For)
                and head is not None
            ):
                name: Any = first.targets[0]
                reads = [n for n in ast.walk(head) if isinstance(n, ast.Name)]
                if reads and min(reads, key=lambda n: (n.lineno, n.col_offset)).id == name.id:
                    places.append((block, first, second, name.id))
    for block, first, second, name in (chosen := some(rng, places)):
        bind = Substitute(name, ast.NamedExpr(ast.Name(name, ast.Store()), first.value), once=True)
        if isinstance(second, ast.If):
            second.test = bind.visit(second.test)
        else:
            assert isinstance(second, ast.For)
            second.iter = bind.visit(second.iter)
        block.remove(first)
    return len(chosen)


class Substitute(ast.NodeTransformer):
    """Puts an expression in the place of a name, everywhere or at the first place only."""

    def __init__(self, name: str, value: ast.expr, *, once: bool = False) -> None:
        self.name, self.value, self.once = name, value, once
        self.count = 0

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The expression, in the place of the name."""
        if node.id != self.name or (self.once and self.count):
            return node
        self.count += 1
        return self.value


def replace_statements(
    tree: ast.Module,
    rng: random.Random,
    fits: Callable[[Any], bool],
    new: Callable[[Any, int], list[ast.stmt]],
) -> int:
    """Put other statements in the place of some of those that fit; returns how many."""
    places = [(block, stmt) for block in blocks(tree) for stmt in block if fits(stmt)]
    for number, (block, stmt) in enumerate(chosen := some(rng, places)):
        index = next(i for i, each in enumerate(block) if each is stmt)
        block[index : index + 1] = new(stmt, number)
    return len(chosen)


def invert_if(tree: ast.Module, rng: random.Random) -> int:
    """``if t: a`` with ``else: b`` as ``if not t: b`` with ``else: a``."""
    places = [n for n in ast.walk(tree) if isinstance(n, ast.If) and n.orelse]
    for stmt in (chosen := some(rng, places)):
        stmt.body, stmt.orelse = stmt.orelse, stmt.body
        stmt.test = ast.UnaryOp(ast.Not(), stmt.test)
    return len(chosen)


def pass_unless(tree: ast.Module, rng: random.Random) -> int:
    """``if t: a`` as ``if not t: pass`` with ``else: a``."""
    places = [n for n in ast.walk(tree) if isinstance(n, ast.If) and not n.orelse]
    places = [n for n in places if "__name__" not in ast.unparse(n.test)]
    for stmt in (chosen := some(rng, places)):
        stmt.body, stmt.orelse = [ast.Pass()], stmt.body
        stmt.test = ast.UnaryOp(ast.Not(), stmt.test)
    return len(chosen)


def name_test(tree: ast.Module, rng: random.Random) -> int:
    """``if t: …`` as ``name = t`` and ``if name: …``."""

    def new(stmt: ast.If, number: int) -> list[ast.stmt]:
        name = f"{SPELLED}test_{number}"
        bound = ast.Assign([ast.Name(name, ast.Store())], stmt.test, lineno=0)
        stmt.test = ast.Name(name)
        return [bound, stmt]

    return replace_statements(
        tree,
        rng,
        lambda s: (
            isinstance(s, ast.If)
            and not isinstance(s.test, ast.Name)
            and "__name__" not in ast.unparse(s.test)
            and not any(isinstance(n, ast.NamedExpr) for n in ast.walk(s.test))
        ),
        new,
    )


def name_value(tree: ast.Module, rng: random.Random) -> int:
    """``f(g(x))`` as ``name = g(x)`` and ``f(name)``; the same for what a loop goes over."""

    def first_call(stmt: ast.stmt) -> tuple[ast.AST, str, int | None] | None:
        if isinstance(stmt, ast.For) and isinstance(stmt.iter, ast.Call):
            return stmt, "iter", None
        value: Any = getattr(stmt, "value", None)
        if isinstance(stmt, ast.Return) and isinstance(value, ast.Call):
            return stmt, "value", None
        is_call = isinstance(value, ast.Call) and "add_argument" not in dotted(value.func)
        if is_call and value.args and isinstance(value.args[0], ast.Call | ast.BinOp):
            return value, "args", 0
        return None

    def new(stmt: ast.stmt, number: int) -> list[ast.stmt]:
        name = ast.Name(f"{SPELLED}value_{number}")
        found = first_call(stmt)
        assert found is not None
        holder, field, index = found
        if index is None:
            value = getattr(holder, field)
            setattr(holder, field, name)
        else:
            values = getattr(holder, field)
            value, values[index] = values[index], name
        return [ast.Assign([ast.Name(name.id, ast.Store())], value, lineno=0), stmt]

    return replace_statements(tree, rng, lambda stmt: first_call(stmt) is not None, new)


def add_in_full(tree: ast.Module, rng: random.Random) -> int:
    """``x += 1`` as ``x = x + 1``."""
    return replace_statements(
        tree,
        rng,
        lambda stmt: isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name),
        lambda s, _: [
            ast.Assign([s.target], ast.BinOp(ast.Name(s.target.id), s.op, s.value), lineno=0)
        ],
    )


def describe_bodies(tree: ast.Module, rng: random.Random) -> int:
    """A string at the head of functions, tests and loops."""
    places = [
        node.body
        for node in ast.walk(tree)
        if isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.FunctionDef)
        and not isinstance(getattr(node.body[0], "value", None), ast.Constant)
    ]
    for body in (chosen := some(rng, places)):
        body.insert(0, ast.Expr(ast.Constant("What follows is done in this order.")))
    return len(chosen)


def nest_elif(tree: ast.Module, rng: random.Random) -> int:
    """``elif t: a`` as ``else:`` with ``if t: a``, kept apart by a ``pass``."""
    places = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.If) and len(n.orelse) == 1 and isinstance(n.orelse[0], ast.If)
    ]
    for stmt in (chosen := some(rng, places)):
        stmt.orelse.append(ast.Pass())
    return len(chosen)


def turn_comparison(tree: ast.Module, rng: random.Random) -> int:
    """``a == b`` as ``b == a``, and ``a in [0, 1]`` as ``a in (0, 1)``."""
    turned = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
    places = [n for n in ast.walk(tree) if isinstance(n, ast.Compare) and len(n.ops) == 1]
    places = [n for n in places if "__name__" not in ast.unparse(n)]
    places = [
        n
        for n in places
        if isinstance(n.ops[0], (ast.Eq, ast.NotEq, *turned))
        or (isinstance(n.ops[0], ast.In | ast.NotIn) and isinstance(n.comparators[0], ast.List))
    ]
    for node in (chosen := some(rng, places)):
        right = node.comparators[0]
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            assert isinstance(right, ast.List)
            node.comparators = [ast.Tuple(right.elts)]
        else:
            node.left, node.comparators = right, [node.left]
            node.ops = [turned.get(type(node.ops[0]), type(node.ops[0]))()]
    return len(chosen)
