"""DF912: A transform that torchvision no longer has."""

from __future__ import annotations

import pytest
from cases import fixed, found

FIX = [
    (
        "import torchvision.transforms as T\nt = T.Compose([T.Scale(256), T.CenterCrop(224)])\n",
        "import torchvision.transforms as T\nt = T.Compose([T.Resize(256), T.CenterCrop(224)])\n",
    ),
    (
        "from torchvision import transforms\nt = transforms.RandomSizedCrop(9)\n",
        "from torchvision import transforms\nt = transforms.RandomResizedCrop(9)\n",
    ),
    (
        "from torchvision.transforms import Compose, Scale\nt = Compose([Scale(9)])\n",
        "from torchvision.transforms import Compose, Resize as Scale\nt = Compose([Scale(9)])\n",
    ),
    (
        "from torchvision.transforms import RandomSizedCrop as Crop\nt = Crop(9)\n",
        "from torchvision.transforms import RandomResizedCrop as Crop\nt = Crop(9)\n",
    ),
]


@pytest.mark.parametrize(("old", "new"), FIX)
def test_it_goes_by_its_name_of_today(old: str, new: str) -> None:
    assert fixed("DF912", old) == new
    assert found("DF912", new) == []


@pytest.mark.parametrize(
    "text",
    [
        "from own import transforms\ntransforms.Scale(256)\n",
        "from torchvision import transforms\ntransforms.Resize(256)\nplot.Scale(2)\n",
        "from .transforms import Scale\nScale(256)\n",
        "class Scale: pass\nScale()\n",
    ],
)
def test_another_scale_is_left_alone(text: str) -> None:
    assert found("DF912", text) == []
