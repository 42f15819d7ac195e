"""Methods that a program calls by a name in a string: what they do counts for all ranks."""

from __future__ import annotations

import pytest
from audited import audited
from cases import fixed

SCRIPT = """
    import os
    import torch

    class Saver:
        def on_epoch_end(self, model):
            torch.save(model.state_dict(), "new.pt")
            os.replace("new.pt", "last.pt"){mark}

    class Learner:
        def __init__(self, callbacks):
            self.callbacks = callbacks

        def call(self, event, model):
            for callback in self.callbacks:
                {call}

    def main(net):
        torch.distributed.init_process_group("gloo")
        learner = Learner([Saver()])
        learner.call({event}, net)
    """
CALLS = {
    "at once": "getattr(callback, event)(model)",
    "by a name": "method = getattr(callback, event)\n                method(model)",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_rank_comes_to_it(call: str) -> None:
    text = SCRIPT.format(call=call, event='"on_epoch_end"', mark="  # here")
    assert "if is_main_process():\n            os.replace(" in fixed("DF607", guarded(text))
    line = 1 + text.lstrip("\n").splitlines().index(
        '            os.replace("new.pt", "last.pt")  # here'
    )
    assert ("O7", "violated", line) in audited(text)


def guarded(text: str) -> str:
    return text + "\n    main(net)\n"


def test_nobody_comes_to_it_whose_name_is_no_string() -> None:
    text = SCRIPT.format(call=CALLS["at once"], event="event()", mark="")
    assert "if is_main_process" not in fixed("DF607", guarded(text))
