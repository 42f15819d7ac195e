"""A script alone and its patched copy on two ranks: what each of them writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from capable import made
from forked import Forge, Job


def results(forge: Forge, script: Path, of_ranks: Path, batch: int) -> tuple[Any, list[Any]]:
    """What a script writes alone with a batch, and what each of two ranks does with half of it.

    Both take the batch and where to write; a rank adds its number. So that the second writes as
    well, its test for rank 0 is taken out of ``of_ranks``.
    """
    text = of_ranks.read_text().replace("if is_main_process():", "if True:")
    of_ranks.write_text(text)
    folder = of_ranks.parent
    one = Job(folder / "one", script, [str(batch), str(folder / "alone")])
    two = Job(folder / "two", of_ranks, [str(batch // 2), str(folder / "rank")], world=2)
    made(forge, [one, two])
    alone, *ranks = (
        json.loads((folder / name).read_text()) for name in ("alone", "rank0", "rank1")
    )
    return alone, ranks
