"""Run a module of ours in a Python that does not have ddpfix installed.

    python rank_start.py MODULE ARGUMENTS ...

MODULE is one of those that ride in the ranks, relative to ``ddpfix.launchers``. Only ddpfix itself
becomes importable: its folder on the module path would bring its neighbours, the libraries of
another Python. Like all that rides in the ranks this keeps to Python 3.8.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

PACKAGE = "ddpfix"


def main(module: str, arguments: list[str]) -> None:
    """Run a module's own ``main``."""
    if PACKAGE not in sys.modules:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
        spec = importlib.util.spec_from_file_location(
            PACKAGE,
            os.path.join(root, "__init__.py"),  # noqa: PTH118
            submodule_search_locations=[root],
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[PACKAGE] = package
        spec.loader.exec_module(package)
    name = f"{PACKAGE}.launchers.{module}"
    found = importlib.import_module(name)
    if hasattr(found, "__path__"):  # a package, as for python -m
        found = importlib.import_module(f"{name}.__main__")
    found.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
