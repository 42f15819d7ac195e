"""Tables on a terminal of 80 columns: what is to be typed, and names of cards, are whole."""

from __future__ import annotations

import io

from ddpfix.launchers.gpus.model import Gpu, Inventory
from ddpfix.launchers.gpus.table import rich_table
from ddpfix.recipes.load import recipe_names
from ddpfix.recipes.show import recipe_overview, terminal_table
from rich.console import Console
from rich.table import Table


def shown(table: Table, width: int = 80) -> str:
    """What a terminal of this width shows."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(table)
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return text


def test_the_names_of_recipes_stand_on_one_line() -> None:
    rows = [[each["name"], each["script"], each["description"]] for each in recipe_overview()]
    text = shown(terminal_table(["recipe", "script", "what it trains"], rows))
    assert "…" not in text
    for name in recipe_names():
        assert f"│ {name} " in text


def test_nothing_of_a_card_is_cut() -> None:
    why = "another process holds it, and says so at some length"
    gpu = Gpu(0, "GPU-0", "NVIDIA RTX 6000 Ada Generation", 1, 1, 0, (8, 9), 3, False, False, why)
    table = rich_table(Inventory((gpu,), "", ""), bars=False)
    assert "…" not in shown(table)
    words = set(shown(table, 120).split())
    assert {"NVIDIA", "Generation", "another", "process", "holds", "length"} <= words
