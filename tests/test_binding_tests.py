"""Under which test a variable is bound where a patch would read it."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, module
from ddpfix.patcher.analysis.language.binding_tests import binding_test

# A function's body up to ``here()``, and the test; None where it cannot be told.
CASES: dict[str, tuple[str, str | None]] = {
    "bound": ("model = Net()\nhere()", ""),
    "elsewhere": ("here()", ""),
    "None alone": ("model = None\nhere()", None),
    "and wrapped under more": (
        "if a:\n    model = A()\nif a and b:\n    model = B(model)\nhere()",
        "a",
    ),
    "in both branches": ("if a:\n    model = A()\nelse:\n    model = B()\nhere()", ""),
    "in one branch, as the other leaves": (
        "if a:\n    model = A()\nelif b:\n    model = B()\nelse:\n    raise ValueError\nhere()",
        "",
    ),
    "in one branch": ("if a.train and n > 1:\n    model = A()\nhere()", "a.train and n > 1"),
    "under or": ("if a or b:\n    model = A()\nhere()", "(a or b)"),
    "twice under one test": ("if a:\n    model = A()\nif a:\n    model = B(model)\nhere()", "a"),
    "under two tests": ("if a:\n    model = A()\nif b:\n    model = B()\nhere()", None),
    "under a test that changes": ("if a:\n    model = A()\na = b\nhere()", None),
    "under an attribute that changes": ("if o.a:\n    model = A()\no.a = b\nhere()", None),
    "under a call": ("if a():\n    model = A()\nhere()", None),
    "for what a loop goes over": ("for a in b:\n    model = A()\nhere()", None),
    "around the place": ("if a:\n    model = A()\n    here()", ""),
    "in a with": ("with a:\n    model = A()\nhere()", ""),
    "in a try": ("try:\n    model = A()\nexcept E:\n    model = B()\nhere()", ""),
    "in a try alone": ("try:\n    model = A()\nexcept E:\n    pass\nhere()", None),
    "read below on every way": ("if a:\n    model = A()\nhere()\nuse(model)", ""),
    "read below on one way": ("if a:\n    model = A()\nhere()\nif b:\n    use(model)", "a"),
    "read below by one part": ("if a:\n    model = A()\nhere()\nb and use(model)", "a"),
    "read behind a way out": (
        "if a:\n    model = A()\nhere()\nif b:\n    return\nuse(model)",
        "a",
    ),
    "None else": ("model = None\nif a:\n    model = A()\nhere()\nuse(model)", "a"),
    "asked below, so never None": (
        "model = None\nif a:\n    model = A()\nhere()\nmodel.train()",
        "",
    ),
    "global": ("global model\nhere()", ""),
}


@pytest.mark.parametrize(("body", "test"), CASES.values(), ids=CASES)
def test_the_test_under_which_a_name_is_bound(body: str, test: str | None) -> None:
    where = module("def f(a, b, n, o):\n" + textwrap.indent(body, "    "))
    (call,) = where.calls_to("here")
    assert binding_test(where, where.statement(call), "model") == test


SCRIPT = """\
import torch

torch.distributed.init_process_group("gloo")


def main(args, data):
    {bound}
    if args.train:
        model = Net().to(args.device)
    if args.train and args.n_gpu > 1:
        model = torch.nn.DataParallel(model)
    if args.train:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in data:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
"""


def test_ranks_wrap_a_model_where_there_is_one() -> None:
    group = "    if {test}torch.distributed.is_initialized():\n        model = torch.nn.parallel."
    assert group.format(test="args.train and ") in fixed("DF301", SCRIPT.format(bound="pass"))
    assert group.format(test="") in fixed("DF301", SCRIPT.format(bound="model = Net()"))
