"""Public training scripts, each with a tiny model and data to run on.

Nothing of them is here but their paths and the names of their flags. A file whose name begins with
``cases_`` has the cases of a repository, as CASES, and the version that they were tried on, as
COMMIT and, below github.com, REPOSITORY; nothing is to be registered. A file of ``shims`` is what a
rank runs first where a script insists on a card, or on a library that is not what is tested; its
docstring says what it does.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from .case import Case

MODULES: tuple[ModuleType, ...] = tuple(
    importlib.import_module(f"{__name__}.{each.name}")
    for each in pkgutil.iter_modules(__path__)
    if each.name.startswith("cases_")
)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
SOURCES = {
    case.script: (module.REPOSITORY, module.COMMIT) for module in MODULES for case in module.CASES
}
"""Repository and version of each script."""
