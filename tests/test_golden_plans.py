"""Every recipe has a plan and a command on every inventory, or says why not, as it did before."""

from __future__ import annotations

import pytest
from ddpfix.recipes.load import recipe_names
from golden_plans import FOLDER, INVENTORIES, golden_text, path_of

ANEW = "python tests/golden_plans.py && git diff tests/golden"


@pytest.mark.parametrize("name", recipe_names())
def test_plans_and_commands_are_those_that_are_kept_of(name: str) -> None:
    kept = path_of(name).read_text() if path_of(name).exists() else ""
    assert golden_text(name) == kept, f"if that is meant: {ANEW}"


def test_what_is_kept_is_of_the_recipes_that_there_are_and_of_all_inventories() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == recipe_names()
    for name in recipe_names():
        text = path_of(name).read_text()
        assert all(f"\n{inventory}: " in text for inventory in INVENTORIES)
