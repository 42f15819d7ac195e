"""DF915: A name that numpy no longer has."""

from __future__ import annotations

import pytest
from cases import fixed, found

FIX = [
    ("import numpy as np\nbest = -np.Inf\n", "import numpy as np\nbest = -np.inf\n"),
    ("import numpy\nbest = numpy.NaN\n", "import numpy\nbest = numpy.nan\n"),
    (
        "import numpy as np\nx = np.zeros(3, dtype=np.float)\ny = x.astype(np.int)\n",
        "import numpy as np\nx = np.zeros(3, dtype=float)\ny = x.astype(int)\n",
    ),
    ("import numpy as np\nn = np.product(shape)\n", "import numpy as np\nn = np.prod(shape)\n"),
]


@pytest.mark.parametrize(("old", "new"), FIX)
def test_it_goes_by_a_name_that_all_versions_have(old: str, new: str) -> None:
    assert fixed("DF915", old) == new
    assert found("DF915", new) == []


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as np\nx = np.zeros(3, dtype=np.bool)\n",  # numpy 2 has it again
        "import torch\nx = torch.zeros(3, dtype=torch.int)\ny = x.float()\n",
        "import jax.numpy as jnp\nx = jnp.zeros(3, jnp.float_)\n",
        "import mine as np\nx = np.float(3)\n",
    ],
)
def test_names_of_others_are_left_alone(text: str) -> None:
    assert found("DF915", text) == []


def test_a_name_that_the_module_has_taken_is_only_reported() -> None:
    (told,) = found("DF915", "import numpy as np\nint = max\nx = np.zeros(3, dtype=np.int)\n")
    assert not told.edits
