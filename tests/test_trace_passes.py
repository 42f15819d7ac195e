"""What the tracer takes a pass over a loader for, by its batches so far."""

from __future__ import annotations

import pytest
from ddpfix.launchers.trace.loaders import _ActivePass, _Loader

PASSES = {
    "no model was called yet": (0, None, None, False, "other"),
    "called under no_grad, in training mode": (0, False, True, True, "eval"),
    "called with gradients, in evaluation mode": (0, True, False, True, "eval"),
    "called with gradients, in training mode": (0, True, True, False, "eval"),
    "a backward pass in evaluation mode": (1, True, False, False, "train"),
    "a backward pass": (2, True, True, False, "train"),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_is_an_evaluation_where_it_can_be_nothing_else(name: str) -> None:
    backwards, grad, training, evaluates, kind = PASSES[name]
    one = _ActivePass(
        number=0,
        loader=_Loader(0),
        signature=(None, "Points", 8),
        backwards=backwards,
        grad=grad,
        training=training,
    )
    assert (one.evaluates, one.kind) == (evaluates, kind)
