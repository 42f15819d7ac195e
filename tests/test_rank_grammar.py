"""What rides in the ranks keeps to the grammar of the oldest Python that they may have."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from ddpfix import launchers
from ddpfix.launchers.backends.interpreter import OLDEST_PYTHON

ROOT = Path(launchers.__file__).parent
RIDING = [*sorted((ROOT / "trace").glob("*.py")), ROOT / "running" / "probe_worker.py"]
MINOR = (OLDEST_PYTHON[0], OLDEST_PYTHON[1])


@pytest.mark.parametrize("path", RIDING, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_of_the_ranks_has_the_grammar_of_the_oldest_python(path: Path) -> None:
    ast.parse(path.read_text(), str(path), feature_version=MINOR)


def test_a_newer_statement_is_refused() -> None:
    newer = "match world:\n    case 1:\n        pass\n"
    ast.parse(newer)
    with pytest.raises(SyntaxError):
        ast.parse(newer, feature_version=MINOR)
