"""The helper DealtSampler stands for the sampler that it deals out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from ddpfix.patcher.editing.helpers import helper_code
from torch.utils.data import SubsetRandomSampler


@pytest.fixture
def dealt(monkeypatch: pytest.MonkeyPatch) -> Any:
    names: dict[str, Any] = {"torch": torch, "__name__": __name__}
    exec(helper_code("DealtSampler"), names)
    monkeypatch.setitem(globals(), "DealtSampler", names["DealtSampler"])
    monkeypatch.setattr(torch.distributed, "is_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    return names["DealtSampler"](SubsetRandomSampler([3, 1, 4, 1, 5]))


def test_it_has_the_attributes_of_what_it_deals(dealt: Any) -> None:
    assert dealt.indices == [3, 1, 4, 1, 5]
    assert len(dealt) == 3
    with pytest.raises(AttributeError, match="weights"):
        _ = dealt.weights


def test_workers_get_a_copy(dealt: Any) -> None:
    assert list(copy.deepcopy(dealt)) == list(dealt)
    assert pickle.loads(pickle.dumps(dealt)).indices == dealt.indices
