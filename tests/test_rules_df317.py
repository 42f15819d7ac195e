"""DF317: A turned view is the only buffer of a model."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        {norm}
        pe = torch.zeros(9, 4)
        {made}
        self.register_buffer("pe", {view})
        {more}

    def forward(self, x):
        return self.layer(x + self.pe[: x.size(0)])

model = {wrap}(Net(){options})
for x in torch.utils.data.DataLoader(data):
    model(x).sum().backward()
"""
PARTS = {
    **dict.fromkeys(("norm", "made", "more"), "pass"),
    "view": "pe.unsqueeze(0).transpose(0, 1)",
    "wrap": "torch.nn.parallel.DistributedDataParallel",
    "options": "",
}


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


NOOP = [
    ("an axis that is put where it belongs", script(view="pe.unsqueeze(1)")),
    ("a matrix that is turned", script(view="pe.t()")),
    ("a copy", script(view="pe.unsqueeze(0).transpose(0, 1).repeat(1, 2, 1)")),
    ("another buffer beside it", script(more='self.register_buffer("n", torch.ones(1))')),
    ("batch norm has buffers, too", script(norm="self.norm = torch.nn.BatchNorm1d(4)")),
    ("no buffer is sent", script(options=", broadcast_buffers=False")),
    ("no ranks", script(wrap="torch.nn.DataParallel")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_a_buffer_that_can_be_written_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF317", text)] == []


CLONE = ".clone(memory_format=torch.contiguous_format)"
FIX = [
    ("turned where it is registered", {}),
    ("turned above", {"made": "pe = pe.unsqueeze(0).transpose(0, 1)", "view": "pe"}),
    ("under several names",
     {"made": "pe = pe.unsqueeze(0)\n        pe = pe.permute(1, 0, 2)", "view": "pe"}),
    ("expanded", {"view": "pe.unsqueeze(1).expand(-1, 3, -1)"}),
]  # fmt: skip


@pytest.mark.parametrize("parts", [pytest.param(parts, id=name) for name, parts in FIX])
def test_it_is_registered_as_a_copy_with_plain_strides(parts: dict[str, str]) -> None:
    view = parts.get("view", PARTS["view"])
    text = fixed("DF317", script(**parts))
    assert text == script(**{**parts, "view": f"{view}{CLONE}"})
    assert not found("DF317", text)
