"""Programs whose training is a Trainer's of transformers or trl, which makes the process group."""

from __future__ import annotations

from ..language.names import answered_once
from ..training.program import Program
from .library_models import heirs_of_library

TRAINERS = ("Trainer", "Seq2SeqTrainer", "SFTTrainer", "DPOTrainer", "RewardTrainer")


@answered_once
def is_left_to_trainer(program: Program) -> bool:
    """Whether a script makes a Trainer, or an object of a class below it, and runs it."""
    if not program.script.is_program or not any(
        module.imported_packages & {"transformers", "trl"} for module in program.modules
    ):
        return False
    if not program.calls_to("train", "evaluate", "predict"):
        return False
    own = {owner.name for owner in heirs_of_library(program, is_trainer_name)}
    return any(
        module.last_name(call.func) in own or is_trainer_name(module.dotted(call.func))
        for module, call in program.calls_to(*TRAINERS, *own)
    )


def is_trainer_name(name: str) -> bool:
    """Whether a dotted name is that of a Trainer of transformers or trl."""
    return name.startswith(("transformers.", "trl.")) and name.endswith("Trainer")
