"""What a star import of a single model's old module has brought: classes, and what it imported.

Today's modules list their own classes in ``__all__``, and bring nothing else.
"""

from __future__ import annotations

from ..source.module import Module
from .transformers_modules import moved_class

BROUGHT = {  # what all such modules of transformers 2 to 4 imported, by name
    "nn": "from torch import nn",
    "torch": "import torch",
    "math": "import math",
    "os": "import os",
    "logging": "import logging",
    "F": "import torch.nn.functional as F",
    "CrossEntropyLoss": "from torch.nn import CrossEntropyLoss",
    "MSELoss": "from torch.nn import MSELoss",
    "BCEWithLogitsLoss": "from torch.nn import BCEWithLogitsLoss",
}


def instead_of_star(module: Module, home: str) -> tuple[list[str], list[str]]:
    """The imports that bring what a file reads and does not bind, and the names that have none.

    ``home`` is the module of the star import.
    """
    lines: list[str] = []
    unknown: list[str] = []
    for name in sorted(module.unbound_names):
        where, _, last = moved_class(f"{home}.{name}").rpartition(".")
        if name in BROUGHT:
            lines.append(BROUGHT[name])
        elif where:
            lines.append(f"from {where} import {last}")
        else:
            unknown.append(name)
    return lines, unknown
