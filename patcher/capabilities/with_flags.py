"""Constants become options: batch size, learning rate, epochs, accumulation and output path.

What         The numbers in the script that reach the training loader's batch size, the optimizer's
             learning rate, the loop over epochs, the accumulation test, and the path that it
             writes to, become options of argparse, with today's numbers as defaults. A script
             without a command line gets a small one, at the head of its main guard or above the
             first of the constants.
Flags        --batch_size, --learning_rate, --epochs, --gradient_accumulation_steps, --output
Without      N processes train on N times the batch of one, at its learning rate, and nobody can
             change that without editing the script.
Fix safety   Safe: without options the script computes what it did. Where a constant means several
             things, is bound again, is read before the arguments are parsed, or may stand for
             something else in the loop, it stays as it is, and the line is told.
Source       https://docs.python.org/3/library/argparse.html
"""

from collections.abc import Iterator

from ...record import replace
from ..analysis.settings.constant_meanings import ConstantSetting
from ..analysis.settings.constant_settings import constant_settings
from ..analysis.training.program import Program
from ..editing.edits import Edit
from ..findings import Finding
from .constant_places import CommandLine
from .errors import CannotError
from .flags import Flag

ORDER = 5
FLAGS = (
    Flag("--batch_size", "int", "1", "Examples per step of one process."),
    Flag("--learning_rate", "float", "1", "Learning rate of the optimizer."),
    Flag("--epochs", "int", "1", "Number of epochs."),
    Flag("--gradient_accumulation_steps", "int", "1", "Batches per optimizer step."),
    Flag("--output", "str", '""', "Where the script writes."),
)
BY_ROLE = dict(
    zip(("train_batch", "learning_rate", "epochs", "accumulation", "output"), FLAGS, strict=True)
)
TITLES = {
    "train_batch": "the training batch",
    "learning_rate": "the learning rate",
    "epochs": "the number of epochs",
    "accumulation": "the gradient accumulation",
    "output": "the output path",
}


def findings(program: Program) -> Iterator[Finding]:
    """One finding with the edits of all roles, and one for each role that stays as it is."""
    plans: list[tuple[ConstantSetting, list[Edit]]] = []
    line = CommandLine(program, BY_ROLE)
    for one in constant_settings(program):
        if not isinstance(one, ConstantSetting):
            yield Finding(one.module, one.node, f"{TITLES[one.role]} stays as it is: {one.because}")
            continue
        try:
            plans.append((one, list(line.edits(one))))
        except CannotError as error:
            because = f"{TITLES[one.role]} stays as it is: {error}"
            yield replace(error.finding, because=because)
    if plans:
        first = plans[0][0].literals[0]
        flags = ", ".join(BY_ROLE[one.role].spelling for one, _ in plans)
        edits = [edit for _, each in plans for edit in each]
        because = f"no {flags}: {plans[0][0].text} and the like are constants"
        added = line.declaration([one for one, _ in plans])
        yield Finding(first.module, first.node, because, (*added, *edits))
