"""The format of a trace file: one JSON object per line, one class per kind of line.

``DIR/rank{RANK}.jsonl`` starts with a `Start`, followed by what happened, in order. A process
that a rank forked (a DataLoader worker, a member of a Pool) and that wrote files has its own
``DIR/rank{RANK}.pid{PID}.jsonl``, which starts with a `Child` and has only `File` and
`CommandStart` events.

On a line, ``type`` names the class and the other keys are its attributes; ``t`` is the seconds
since the rank's `Start.started`. Losses and norms are the exact value of the tensor
written as a float64 (Python's ``repr``), so equal text means equal bits; ``NaN`` and ``Infinity``
appear as such.

This module does not import torch: reading a trace does not need it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar

from .keyword_dataclass import keyword_dataclass

SCHEMA = 1
"""Version of the format; the reader accepts no other."""


@dataclass(frozen=True)
class Site:
    """A place in the user's code: absolute path, 1-based line, function.

    Outside a function, ``function`` is ``<module>``.
    """

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        place = f"{PurePath(self.file).name}:{self.line}"
        return place if self.function == "<module>" else f"{self.function} {place}"


@keyword_dataclass
class Event:
    """A line. ``t``: seconds since the start of the rank, filled in when the line is written."""

    type: ClassVar[str] = ""
    t: float = 0.0


@keyword_dataclass
class Start(Event):
    """First line of a rank. ``started``: Unix time in seconds; ``options``: the tracer's own."""

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


@keyword_dataclass
class Child(Event):
    """First line of a file of a forked process. ``name`` is multiprocessing's name for it."""

    type: ClassVar[str] = "child"
    schema: int
    rank: int
    pid: int
    ppid: int
    name: str


@keyword_dataclass
class ImportEvent(Event):
    """A library was imported in ``seconds`` (outermost import only)."""

    type: ClassVar[str] = "imported"
    module: str
    version: str | None
    seconds: float


@keyword_dataclass
class Seed(Event):
    """A generator (``random``, ``numpy``, ``torch``, ``cuda``) was seeded."""

    type: ClassVar[str] = "seed"
    generator: str
    value: str
    site: Site | None


@keyword_dataclass
class Pass(Event):
    """Iteration over a DataLoader begins: pass number ``epoch`` (from 0) of loader ``loader``.

    ``length`` is the dataset's, ``batches`` the loader's; None where they have none.
    ``sampler`` is the class that draws indices: the user's own batch sampler, else the sampler.
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


@keyword_dataclass
class BatchEvent(Event):
    """The script received batch ``number`` (from 0) of a pass.

    ``indices`` are those the sampler drew for it; None where the dataset has no integer indices.
    """

    type: ClassVar[str] = "batch"
    pass_id: int
    number: int
    indices: list[int | None]


@keyword_dataclass
class PassEnd(Event):
    """A pass is over. ``kind``: ``train``, ``eval`` or ``other``.

    ``train`` if at least one batch was followed by a backward pass; else ``eval`` if a module was
    called on a batch; else ``other``. ``training`` and ``grad`` are the mode of the first module
    called, and whether gradients were enabled then. ``drawn`` counts batches drawn by the sampler
    (prefetching draws ahead), ``batches`` those the script received. ``complete``: iterated to its
    end; ``limit`` names the limit that cut it short.
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


@keyword_dataclass
class Backward(Event):
    """A backward pass from ``loss`` (None unless a scalar; before a GradScaler's scaling).

    ``pass_id`` is the loader pass of the last batch received. ``collectives`` counts those that
    DistributedDataParallel ran in it (buckets, and the map of used parameters with
    ``find_unused_parameters``). ``targets`` counts the targets of cross entropies since the last
    one, without those that are ignored; None where no cross entropy was seen.
    """

    type: ClassVar[str] = "backward"
    loss: float | None
    pass_id: int | None
    targets: int | None = None
    collectives: int
    site: Site | None


@keyword_dataclass
class Clip:
    """A call of clip_grad_norm_: the norm it returned, which is before clipping, and its bound."""

    norm: float
    max_norm: float


@keyword_dataclass
class Checksum:
    """A checksum of the parameters by name: SHA-256 of their bytes, float64 sum and l2 norm."""

    sha256: str
    sum: float
    norm: float


@keyword_dataclass
class StepEvent(Event):
    """An optimizer step, number ``number`` (from 1) of optimizer ``optimizer`` (from 0).

    ``losses`` are those of the backward passes since the last step of this optimizer, ``loss`` is
    their sum. ``clips`` are the clippings since then, ``clipped_norm`` the norm before clipping of
    all that was clipped of the gradient that this step used: of every parameter by its first
    clipping after its last backward pass. ``grad_norm`` is the l2 norm of that gradient after
    clipping, in float64. ``lrs``: the learning rate of every group in this
    step. ``collectives``: all collectives on this rank since the last step, by the counters of the
    process groups. ``draws``: random numbers were drawn since the last batch was fetched.
    """

    type: ClassVar[str] = "step"
    optimizer: int
    optimizer_class: str
    number: int
    losses: list[float | None]
    loss: float | None
    clips: list[Clip]
    clipped_norm: float | None = None
    grad_norm: float
    lrs: list[float]
    checksum: Checksum | None
    collectives: int
    draws: bool = False
    site: Site | None

    @property
    def norm_before_clipping(self) -> float:
        """The gradient norm before clipping, of all clips together; ``grad_norm`` without one."""
        if self.clipped_norm is not None:
            return self.clipped_norm
        if len(self.clips) > 1:
            return math.hypot(*(clip.norm for clip in self.clips))
        return self.clips[0].norm if self.clips else self.grad_norm


@keyword_dataclass
class Parameters(Event):
    """The parameters after ``after_step`` steps.

    ``reason``: ``exit``, or ``load_state_dict`` just before the script loads other weights over
    trained ones. ``tensors`` maps a name, without the prefixes of wrappers, to (float64 sum, l2
    norm). ``file`` names the .npz with the arrays, in the trace's folder, if they were to be kept.
    """

    type: ClassVar[str] = "parameters"
    optimizer: int
    after_step: int
    reason: str
    checksum: Checksum
    tensors: dict[str, tuple[float, float]]
    file: str | None


@keyword_dataclass
class File(Event):
    """A file or folder is about to be changed (the call may still fail).

    ``op``: ``write`` (truncates), ``append``, ``update``, ``create`` (must not exist), ``rename``,
    ``remove``, ``mkdir``, ``rmdir``, ``truncate``, ``link``, ``symlink``. ``path`` is absolute;
    ``to`` is the target of a rename or link. ``existed``: ``path`` existed before (a ``mkdir`` of
    an existing folder changes nothing). ``via``: ``audit``, or the name of a writer that the
    interpreter's audit hook cannot see.
    """

    type: ClassVar[str] = "file"
    op: str
    path: str
    to: str | None
    existed: bool
    via: str
    pid: int
    site: Site | None


@keyword_dataclass
class CommandStart(Event):
    """Another program is started; the files it writes are not recorded."""

    type: ClassVar[str] = "command"
    argv: list[str]
    pid: int
    site: Site | None


@keyword_dataclass
class Group(Event):
    """``init`` or ``destroy`` of a process group. ``timeout`` in seconds."""

    type: ClassVar[str] = "group"
    op: str
    backend: str | None
    world_size: int | None
    timeout: float | None
    site: Site | None


@keyword_dataclass
class Collective(Event):
    """A collective is about to start (recorded before, as it may never return).

    ``op`` is torch.distributed's name, or DistributedDataParallel's own: ``ddp_init``,
    ``ddp_sync_buffers`` and ``ddp_all_reduce`` (gradients), which are recorded afterwards.
    ``count``: how many collectives the process group ran for it (None if recorded before).
    ``numel`` and ``dtype`` are those of the first tensor argument.
    """

    type: ClassVar[str] = "collective"
    op: str
    count: int | None
    group_size: int | None
    numel: int | None
    dtype: str | None
    site: Site | None


@keyword_dataclass
class WrappedGradients(Event):
    """Gradients that came to a model in DistributedDataParallel, over all its backward passes.

    ``parameters`` is the number of those that are trained, ``without`` the names of those that got
    none in one of the ``backwards``. ``find_unused``: it was wrapped to look for such.
    """

    type: ClassVar[str] = "wrapped_gradients"
    module_class: str
    find_unused: bool
    parameters: int
    backwards: int
    without: list[str]


@keyword_dataclass
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


@keyword_dataclass
class Limit(Event):
    """A limit of the tracer was reached. ``forced``: the tracer ended the script."""

    type: ClassVar[str] = "limit"
    name: str
    value: int
    forced: bool


@keyword_dataclass
class Hang(Event):
    """There was no event for ``seconds``. ``where``: the innermost place in the user's code.

    ``operation``: what it called there. ``stacks`` maps a thread's name to its frames, outermost
    first, as "file:line in function". ``cause``: how the hang was noticed.
    """

    type: ClassVar[str] = "hang"
    seconds: float
    cause: str
    where: Site | None
    operation: str | None
    stacks: dict[str, list[str]]


@keyword_dataclass
class ScriptException:
    """An uncaught exception, the last lines of its traceback, and its place in the user's code."""

    type: str
    message: str
    traceback: list[str]
    site: Site | None


@keyword_dataclass
class Exit(Event):
    """The script has ended with ``status``. ``group_alive``: a process group still existed."""

    type: ClassVar[str] = "exit"
    status: int
    failure: ScriptException | None
    group_alive: bool


@keyword_dataclass
class Closed(Event):
    """Last line: the interpreter is about to end, after the script's own exit handlers."""

    type: ClassVar[str] = "closed"
    group_alive: bool


KINDS: dict[str, type[Event]] = {kind.type: kind for kind in Event.__subclasses__()}
"""The class of a line by its ``type``."""
