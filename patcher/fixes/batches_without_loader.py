"""Edits by which ranks share the batches of a loop that makes them without a DataLoader."""

from __future__ import annotations

from ..analysis.batches.batch_sources import draw_of_batch
from ..analysis.batches.batch_taint import NotDealtError
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Edit
from ..source.module import Module
from .drawn_apart import knew_no_ranks
from .shared_draws import edits_to_share_draws
from .turns import edits_to_take_turns


def edits_to_share_batches(program: Program, loop: TrainLoop) -> list[tuple[Module, Edit]]:
    """Edits by which ranks take turns, or share what each step draws. Raises NotDealtError."""
    try:
        return edits_to_take_turns(program, loop)
    except NotDealtError as error:
        drawn = draw_of_batch(program, loop.module, loop.steps.body)
        if drawn is None or not knew_no_ranks(program):
            raise  # ranks of a script's own may draw apart, as they should
        try:
            return edits_to_share_draws(program, loop)
        except NotDealtError as other:
            raise NotDealtError(
                f"line {drawn.lineno} draws the batch of each step, which ranks cannot share:"
                f" {other}; give ranks seeds of their own behind the model by hand, or share it as"
                " `ddpfix explain DF401` says"
            ) from error
