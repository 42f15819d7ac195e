"""What a trace file says: one JSON object a line, one class here for each kind of line.

``DIR/rank{RANK}.jsonl`` starts with a `Start` and goes on with whatever happened, in order. A
process that a rank forked (a DataLoader worker, a member of a Pool) and that wrote files has its
own ``DIR/rank{RANK}.pid{PID}.jsonl``, which starts with a `Child` and holds only `File` and
`CommandStart`.

On a line, ``type`` says which class it is and the other keys are its attributes; ``t``
is seconds since the rank's `Start.started`. Losses and norms are the exact value of the tensor
written as a float64 (Python's ``repr``), so equal text means equal bits; ``NaN`` and ``Infinity``
appear as such.

This module imports no torch: whoever judges a trace need not have it.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, ClassVar

from attrs import define

SCHEMA = 1
"""Version of the format; a reader refuses any other."""


@define(frozen=True)
class Site:
    """A place in the user's own code: absolute file, 1-based line, function (``<module>``
    outside).
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        place = f"{PurePath(self.file).name}:{self.line}"
        return place if self.function == "<module>" else f"{self.function} {place}"


@define(kw_only=True)
class Event:
    """A line. ``t``: seconds since the start of the rank, filled in when the line is written."""

    type: ClassVar[str] = ""
    t: float = 0.0


@define(kw_only=True)
class Start(Event):
    """First line of a rank. ``started`` is Unix time in seconds; ``options`` are the tracer's
    own.
    """

    type: ClassVar[str] = "start"
    schema: int
    rank: int
    local_rank: int
    world_size: int
    pid: int
    host: str
    started: float
    script: str
    argv: list[str]
    cwd: str
    python: str
    hash_seed: str | None
    options: dict[str, Any]


@define(kw_only=True)
class Child(Event):
    """First line of a file of a forked process. ``name`` is multiprocessing's name for it."""

    type: ClassVar[str] = "child"
    schema: int
    rank: int
    pid: int
    ppid: int
    name: str


@define(kw_only=True)
class ImportEvent(Event):
    """A library was imported (outermost import only), which took ``seconds``."""

    type: ClassVar[str] = "imported"
    module: str
    version: str | None
    seconds: float


@define(kw_only=True)
class Seed(Event):
    """A generator (``random``, ``numpy``, ``torch``, ``cuda``) was seeded."""

    type: ClassVar[str] = "seed"
    generator: str
    value: str
    site: Site | None


@define(kw_only=True)
class Pass(Event):
    """A DataLoader begins to be iterated: pass number ``epoch`` (from 0) over loader ``loader``.

    ``length`` is the dataset's, ``batches`` the loader's; None where they have none.
    ``sampler`` is the class that draws: a batch sampler of the user's own, else the sampler.
    """

    type: ClassVar[str] = "pass"
    pass_id: int
    loader: int
    epoch: int
    dataset: str
    length: int | None
    sampler: str
    batch_size: int | None
    batches: int | None
    workers: int
    site: Site | None


@define(kw_only=True)
class BatchEvent(Event):
    """Batch ``number`` (from 0) of a pass was handed to the script.

    ``indices`` are those the sampler drew for it; None where the dataset has no integer indices.
    """

    type: ClassVar[str] = "batch"
    pass_id: int
    number: int
    indices: list[int | None]


@define(kw_only=True)
class PassEnd(Event):
    """A pass is over. ``kind``: ``train``, ``eval`` or ``other``.

    ``train`` when at least one batch was followed by a backward pass; else ``eval`` when a module
    was called on a batch; else ``other``. ``training`` and ``grad`` are the first called module's
    mode and whether gradients were enabled then. ``drawn`` counts batches drawn by the sampler
    (prefetching draws ahead), ``batches`` those handed out. ``complete``: iterated to its own end;
    ``limit`` names the limit that cut it short.
    """

    type: ClassVar[str] = "passend"
    pass_id: int
    kind: str
    batches: int
    drawn: int
    backwards: int
    training: bool | None
    grad: bool | None
    complete: bool
    limit: str | None


@define(kw_only=True)
class Backward(Event):
    """A backward pass from ``loss`` (None unless a scalar; before a GradScaler's scaling).

    ``pass_id`` is the loader pass whose batch was the last handed out. ``collectives`` counts those
    DistributedDataParallel ran in it (buckets, and the map of used parameters with
    ``find_unused_parameters``).
    """

    type: ClassVar[str] = "backward"
    loss: float | None
    pass_id: int | None
    collectives: int
    site: Site | None


@define(kw_only=True)
class Clip:
    """One clip_grad_norm_: the total norm it returned, that is before clipping, and its bound."""

    norm: float
    max_norm: float


@define(kw_only=True)
class Checksum:
    """Parameters in the order of their names: SHA-256 of their bytes, float64 sum and l2 norm."""

    sha256: str
    sum: float
    norm: float


@define(kw_only=True)
class StepEvent(Event):
    """An optimizer step, number ``number`` (from 1) of optimizer ``optimizer`` (from 0).

    ``losses`` are those given to backward since the last step of this optimizer, ``loss`` their
    sum. ``clips`` are the clippings since then; the norm *before* clipping of the gradient that
    this step used is the last one's (`norm_before`). ``grad_norm`` is the l2 norm of what the
    optimizer was given, in float64: after clipping. ``lrs``: learning rate of every group as the
    step used it. ``collectives``: all collectives on this rank since the step before, as the
    process groups number them.
    """

    type: ClassVar[str] = "step"
    optimizer: int
    optimizer_class: str
    number: int
    losses: list[float | None]
    loss: float | None
    clips: list[Clip]
    grad_norm: float
    lrs: list[float]
    checksum: Checksum | None
    collectives: int
    site: Site | None

    @property
    def norm_before(self) -> float:
        """Gradient norm before clipping: the last clip's, or the step's own where nothing clips."""
        return self.clips[-1].norm if self.clips else self.grad_norm


@define(kw_only=True)
class Parameters(Event):
    """The parameters after ``after_step`` steps, because of ``reason``: ``exit`` or, when the
    script loads other weights over trained ones, ``load_state_dict`` (taken just before).

    ``tensors`` maps a name, without the prefixes of wrappers, to (float64 sum, l2 norm). ``file``
    names the .npz with the arrays beside the trace, when it was asked to keep them.
    """

    type: ClassVar[str] = "parameters"
    optimizer: int
    after_step: int
    reason: str
    checksum: Checksum
    tensors: dict[str, tuple[float, float]]
    file: str | None


@define(kw_only=True)
class File(Event):
    """A file or folder is about to be changed (the attempt: the call may still fail).

    ``op``: ``write`` (truncates), ``append``, ``update``, ``create`` (must not exist), ``rename``,
    ``remove``, ``mkdir``, ``rmdir``, ``truncate``, ``link``, ``symlink``. ``path`` is absolute;
    ``to`` is the target of a rename or link. ``existed``: ``path`` existed before (a ``mkdir`` of
    an existing folder changes nothing). ``via``: who saw it, ``audit`` or the name of a writer that
    the interpreter's audit hook cannot see.
    """

    type: ClassVar[str] = "file"
    op: str
    path: str
    to: str | None
    existed: bool
    via: str
    pid: int
    site: Site | None


@define(kw_only=True)
class CommandStart(Event):
    """Another program is started; what it writes is not seen."""

    type: ClassVar[str] = "command"
    argv: list[str]
    pid: int
    site: Site | None


@define(kw_only=True)
class Group(Event):
    """``init`` or ``destroy`` of a process group. ``timeout`` in seconds."""

    type: ClassVar[str] = "group"
    op: str
    backend: str | None
    world_size: int | None
    timeout: float | None
    site: Site | None


@define(kw_only=True)
class Collective(Event):
    """A collective is about to start (so that one that never returns is on record).

    ``op`` is torch.distributed's name, or DistributedDataParallel's own: ``ddp_init``,
    ``ddp_sync_buffers`` and ``ddp_all_reduce`` (gradients), which are written when done. ``count``:
    how many collectives the process group ran for it (None when written before). ``numel`` and
    ``dtype`` are of the first tensor given.
    """

    type: ClassVar[str] = "collective"
    op: str
    count: int | None
    group_size: int | None
    numel: int | None
    dtype: str | None
    site: Site | None


@define(kw_only=True)
class Metric(Event):
    """``key = value`` or ``key: value`` in a message to ``logging`` at INFO or above.

    ``shown``: the logger was enabled for it (ranks other than 0 are often silenced).
    """

    type: ClassVar[str] = "metric"
    key: str
    value: float
    logger: str
    shown: bool
    site: Site | None


@define(kw_only=True)
class Limit(Event):
    """A limit of the tracer was reached: its name and value. ``forced``: the script was ended."""

    type: ClassVar[str] = "limit"
    name: str
    value: int
    forced: bool


@define(kw_only=True)
class Hang(Event):
    """Nothing happened for ``seconds``. ``where``: innermost place in the user's code.

    ``operation``: what it called there. ``stacks`` maps a thread's name to its frames, outermost
    first, as "file:line in function". ``cause`` says who noticed.
    """

    type: ClassVar[str] = "hang"
    seconds: float
    cause: str
    where: Site | None
    operation: str | None
    stacks: dict[str, list[str]]


@define(kw_only=True)
class ScriptException:
    """An uncaught exception; ``traceback`` are its last lines, ``site`` where the user's code
    was.
    """

    type: str
    message: str
    traceback: list[str]
    site: Site | None


@define(kw_only=True)
class Exit(Event):
    """The script has ended with ``status``. ``group_alive``: a process group still existed."""

    type: ClassVar[str] = "exit"
    status: int
    failure: ScriptException | None
    group_alive: bool


@define(kw_only=True)
class Closed(Event):
    """Last line: the interpreter is about to end, after the script's own exit handlers."""

    type: ClassVar[str] = "closed"
    group_alive: bool


KINDS: dict[str, type[Event]] = {kind.type: kind for kind in Event.__subclasses__()}
"""Every kind of line by the ``type`` written on it."""
