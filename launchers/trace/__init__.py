"""The observer that rides inside a traced process, and the reader of what it wrote.

``python -m ddpfix.launchers.trace --out DIR [options] SCRIPT ARGS…`` runs SCRIPT as ``python SCRIPT
ARGS…`` would and writes ``DIR/rank{RANK}.jsonl`` (see `events`). It also works as the module of
``accelerate launch --multi_gpu --module`` and of ``torchrun -m``. Nothing imported here needs
torch.
"""

from .events import (
    Backward,
    Batch,
    Checksum,
    Child,
    Clip,
    Closed,
    Collective,
    Command,
    Event,
    Exit,
    Failure,
    File,
    Group,
    Hang,
    Imported,
    Limit,
    Metric,
    Parameters,
    Pass,
    PassEnd,
    Seed,
    Site,
    Start,
    Step,
)
from .read import LoaderPass, RankTrace, disagreement, read

__all__ = [
    "Backward",
    "Batch",
    "Checksum",
    "Child",
    "Clip",
    "Closed",
    "Collective",
    "Command",
    "Event",
    "Exit",
    "Failure",
    "File",
    "Group",
    "Hang",
    "Imported",
    "Limit",
    "LoaderPass",
    "Metric",
    "Parameters",
    "Pass",
    "PassEnd",
    "RankTrace",
    "Seed",
    "Site",
    "Start",
    "Step",
    "disagreement",
    "read",
]
