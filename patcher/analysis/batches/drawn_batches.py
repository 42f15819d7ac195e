"""Draws of as many examples as a step trains on: ``torch.randint(0, len(data), (batch_size,))``.

All ranks can draw those of all of them, and each can take a share: as one process with a batch
that is so many times as large would do.
"""

from __future__ import annotations

import ast

from ....record import record
from ...source.module import Module
from ...source.tree import argument

# Where a call takes how many it draws: the place of the argument, and its keyword.
SIZES: dict[str, dict[str, tuple[int | None, str]]] = {
    "numpy": {
        **dict.fromkeys(("randint", "normal", "uniform"), (2, "size")),
        **dict.fromkeys(("choice", "random", "random_sample"), (1, "size")),
        **dict.fromkeys(("rand", "randn", "standard_normal"), (0, "size")),
        "integers": (2, "size"),
    },
    "random": {"sample": (1, "k"), "choices": (None, "k")},
    "torch": {
        **dict.fromkeys(("rand", "randn"), (0, "size")),
        "randint": (None, "size"),
        "multinomial": (1, "num_samples"),
    },
}
ORDERS = ("randperm", "permutation")  # of all examples, whose first are taken
OF_INDICES = {*("randint", "choice", "choices", "sample", "integers", "multinomial"), *ORDERS}
ONE = {"random", "randint", "uniform", "choice", "rand", "randrange", "gauss", "randn", "integers"}
"""Functions that draw one number where they are told no size."""


@record
class DrawnBatch:
    """A draw, and what it takes how many of."""

    module: Module
    whole: ast.expr  # the call, or the slice of an order that it draws
    size: ast.expr  # how many
    picks: bool  # whether it draws which examples


def library_of(module: Module, call: ast.Call) -> str:
    """The library whose function draws; numpy's for a method of a generator."""
    dotted = module.dotted(call.func)
    root = dotted.partition(".")[0]
    if dotted.startswith(("numpy.random.", "np.random.")):
        return "numpy"
    if root in ("random", "torch"):
        return root
    if not isinstance(call.func, ast.Attribute):
        return ""
    return "numpy" if call.func.attr in {*SIZES["numpy"], *ORDERS} else ""


def drawn_batch(module: Module, call: ast.Call) -> DrawnBatch | None:
    """What a call draws as many of as it is told; None where it is told in no such way."""
    name, library = module.last_name(call.func), library_of(module, call)
    if name in ORDERS:
        part = module.parents[call]
        match part:
            case ast.Subscript(value=value, slice=ast.Slice(None, ast.expr() as upper, None)):
                return DrawnBatch(module, part, upper, True) if value is call else None
        return None
    place = SIZES.get(library, {}).get(name)
    if place is None:
        return None
    size: ast.expr | None = size_of(call, library, name, *place)
    while isinstance(size, ast.Tuple | ast.List) and size.elts:
        size = size.elts[0]
    return None if size is None else DrawnBatch(module, call, size, name in OF_INDICES)


def size_of(
    call: ast.Call, library: str, name: str, index: int | None, word: str
) -> ast.expr | None:
    """The argument that says how many a call draws."""
    if (library, name) == ("torch", "randint"):
        shaped = [each for each in call.args[1:] if isinstance(each, ast.Tuple | ast.List)]
        return argument(call, len(call.args), word) or next(iter(shaped), None)
    return argument(call, len(call.args) if index is None else index, word)


def draws_one(module: Module, call: ast.Call) -> bool:
    """Whether a call draws one number, or one element, for the whole step."""
    name, library = module.last_name(call.func), library_of(module, call)
    if name not in ONE or library == "torch" or drawn_batch(module, call) is not None:
        return False
    return not call.keywords
