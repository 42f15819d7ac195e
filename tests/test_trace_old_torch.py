"""What the tracer asks of torch, where torch is of a version that answers otherwise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ddpfix.launchers.trace.training import is_compiling

YES = SimpleNamespace(is_compiling=lambda: True)
NOTHING = SimpleNamespace()


@pytest.mark.parametrize(
    ("torch", "answer"),
    [
        pytest.param(SimpleNamespace(), False, id="1.13: no compiler"),
        pytest.param(SimpleNamespace(compiler=NOTHING, _utils=YES), True, id="2.1: elsewhere"),
        pytest.param(SimpleNamespace(compiler=NOTHING, _utils=NOTHING), False, id="nowhere"),
        pytest.param(SimpleNamespace(compiler=YES, _utils=NOTHING), True, id="newer"),
    ],
)
def test_a_torch_without_the_question_is_not_asked_it(torch: object, answer: bool) -> None:
    assert is_compiling(torch) is answer
