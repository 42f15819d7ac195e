"""The tracer, which observes a training script from inside its process, and the trace reader.

``python -m ddpfix.launchers.trace --out DIR [options] SCRIPT ARGS…`` runs SCRIPT as ``python SCRIPT
ARGS…`` would and writes ``DIR/rank{RANK}.jsonl`` (see `events`). It also works as the module of
``accelerate launch --multi_gpu --module`` and of ``torchrun -m``. Nothing imported here needs
torch.
"""

from .events import (
    Backward,
    BatchEvent,
    Checksum,
    Child,
    Clip,
    Closed,
    Collective,
    CommandStart,
    Event,
    Exit,
    File,
    Group,
    Hang,
    ImportEvent,
    Limit,
    Metric,
    Parameters,
    Pass,
    PassEnd,
    ScriptException,
    Seed,
    Site,
    Start,
    StepEvent,
)
from .read import LoaderPass, RankTrace, disagreement, read

__all__ = [
    "Backward",
    "BatchEvent",
    "Checksum",
    "Child",
    "Clip",
    "Closed",
    "Collective",
    "CommandStart",
    "Event",
    "Exit",
    "File",
    "Group",
    "Hang",
    "ImportEvent",
    "Limit",
    "LoaderPass",
    "Metric",
    "Parameters",
    "Pass",
    "PassEnd",
    "RankTrace",
    "ScriptException",
    "Seed",
    "Site",
    "Start",
    "StepEvent",
    "disagreement",
    "read",
]
