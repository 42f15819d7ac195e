"""Record the losses, gradient norms, learning rates and parameters of every optimizer step.

This uses torch's global optimizer hooks, and wraps ``torch.autograd.backward`` and
``clip_grad_norm_``. Values are read without gradients and without drawing random numbers.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import math
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .clipped import ClippedGradient
from .collectives import Collectives
from .events import Backward, Checksum, Clip, Parameters, StepEvent
from .limits import Limits
from .loaders import Loaders
from .random_state import random_state
from .recorder import Recorder
from .sharded import any_sharded, whole
from .sites import Sites
from .step_hooks import register_step_hooks

_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module)\.")
_UNSCALED = "_ddpfix_unscaled"


@dataclass(eq=False)
class _Optimizer:
    """The state of one optimizer since its last step, and in total."""

    number: int
    name: str
    parameters: list[tuple[str, Any]]
    steps: int = 0
    saved_at: int = 0
    losses: list[float | None] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    clipped: ClippedGradient = field(default_factory=ClippedGradient)
    grad_norm: float = math.nan
    lrs: list[float] = field(default_factory=list)
    collectives: int = 0
    draws: bool = False
    is_sharded: bool = False  # parameters are read by all ranks together, while there is a group
    is_over: bool = False  # the last parameters are recorded


class TrainingObserver:
    """Hooks into backward passes, clipping and optimizer steps to record them."""

    def __init__(
        self,
        recorder: Recorder,
        sites: Sites,
        limits: Limits,
        loaders: Loaders,
        collectives: Collectives,
        *,
        checksum_every: int,
        keep_parameters: bool,
    ) -> None:
        self._recorder = recorder
        self._sites = sites
        self._limits = limits
        self._loaders = loaders
        self._collectives = collectives
        self._checksum_every = checksum_every
        self._keep_parameters = keep_parameters
        self._known: weakref.WeakKeyDictionary[Any, _Optimizer] = weakref.WeakKeyDictionary()
        self._all: list[_Optimizer] = []
        self._pending_losses: list[float | None] = []
        self._pending_clips: list[Clip] = []
        self._pending_clipped = ClippedGradient()
        self._backwards = 0
        self._targets: int | None = None
        self._in_backward = False

    def install(self, torch: Any) -> None:
        """Hook into an imported torch."""
        self._torch = torch
        autograd, clipping = torch.autograd, torch.nn.utils.clip_grad
        autograd.backward = self._wrap_backward(autograd.backward)
        clip = self._wrap_clip(clipping.clip_grad_norm_)
        clipping.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_ = clip
        load = self._wrap_load(torch.nn.Module.load_state_dict)
        torch.nn.Module.load_state_dict = load
        functional = torch.nn.functional
        functional.cross_entropy = self._wrap_cross_entropy(functional.cross_entropy)
        # torch.amp has it since 2.3; until then there is one for CUDA alone.
        scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
        scaler.scale = self._wrap_scale(scaler.scale)
        register_step_hooks(torch, self._before_step, self._after_step)
        self._collectives.before_destroy = self._before_destroy

    def _before_destroy(self) -> None:
        """Record sharded parameters for the last time, while ranks can gather them."""
        for known in self._all:
            if known.steps and known.is_sharded and not known.is_over:
                self._write_parameters(known, "exit")
                known.is_over = True

    def close(self, *, failed: bool) -> None:
        """Record the final parameters, and drop the references to them.

        Without the tracer the end of the script would free them before the interpreter shuts down.
        """
        reachable = self._collectives.group_alive() and not failed
        for known in self._all:
            # The other ranks of one that failed do not come.
            if known.steps and not known.is_over and (not known.is_sharded or reachable):
                self._write_parameters(known, "exit")
        self._all.clear()
        self._known.clear()

    def _wrap_backward(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            # Checkpointing runs backward inside backward: only the script's own is a loss.
            if self._in_backward or self._recorder.is_child:
                return original(tensors, *args, **kwargs)
            loss = self._scalar(tensors)
            self._in_backward = True
            try:
                with self._recorder.doing("backward"), self._collectives.unseen() as unseen:
                    original(tensors, *args, **kwargs)
            finally:
                self._in_backward = False
            site = self._sites.here()
            self._backwards += 1
            self._pending_losses.append(loss)
            for known in self._all:
                known.losses.append(loss)
            self._recorder.emit(
                Backward(
                    loss=loss,
                    pass_id=self._loaders.note_backward(),
                    targets=self._targets,
                    collectives=unseen.count,
                    site=site,
                )
            )
            self._targets = None
            self._collectives.note_gradients(unseen.count, site)
            return None

        return backward

    def _wrap_clip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip_grad_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
            if isinstance(parameters, Iterator):
                parameters = list(parameters)  # for the script's call and for us
            norm = original(parameters, max_norm, *args, **kwargs)
            clip = Clip(norm=float(norm), max_norm=float(max_norm))
            one = isinstance(parameters, self._torch.Tensor)
            members = {id(p) for p in ([parameters] if one else parameters)}
            kind = float(args[0] if args else kwargs.get("norm_type", 2.0))
            self._pending_clips.append(clip)
            self._pending_clipped.note(members, self._backwards, clip.norm, kind)
            for known in self._all:
                known.clips.append(clip)
                known.clipped.note(members, self._backwards, clip.norm, kind)
            return norm

        return clip_grad_norm_

    def _wrap_cross_entropy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        torch = self._torch

        @functools.wraps(original)
        def cross_entropy(values: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            counted = torch.is_grad_enabled() and not target.is_floating_point()
            if counted and not is_compiling(torch):
                # cross_entropy(input, target, weight, size_average, ignore_index, …)
                ignored = args[2] if len(args) > 2 else kwargs.get("ignore_index", -100)
                self._targets = (self._targets or 0) + int((target != ignored).sum())
            return original(values, target, *args, **kwargs)

        return cross_entropy

    def _wrap_scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = original(scaler, outputs)
            if isinstance(scaled, self._torch.Tensor) and scaled is not outputs:
                setattr(scaled, _UNSCALED, outputs.detach())
            return scaled

        return scale

    def _wrap_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load_state_dict(module: Any, *args: Any, **kwargs: Any) -> Any:
            own = {id(p) for p in module.parameters()}
            for known in self._all:
                if known.steps > known.saved_at and any(id(p) in own for _, p in known.parameters):
                    self._write_parameters(known, "load_state_dict")
            return original(module, *args, **kwargs)

        return load_state_dict

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._recorder.is_child:
            return
        known = self._known.get(optimizer) or self._register(optimizer)
        groups = optimizer.param_groups
        known.grad_norm = self._grad_norm([p for group in groups for p in group["params"]])
        known.lrs = [float(group["lr"]) for group in groups if "lr" in group]
        state = self._loaders.state_at_batch
        known.draws = state is not None and random_state(self._torch) != state

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        known = self._known.get(optimizer)
        if known is None:
            return
        known.steps += 1
        every = self._checksum_every
        checksum = None
        if every and known.steps % every == 0:
            checksum, _ = self._summary(known)
        now = self._collectives.total()
        losses = [loss for loss in known.losses if loss is not None]
        self._recorder.emit(
            StepEvent(
                optimizer=known.number,
                optimizer_class=known.name,
                number=known.steps,
                losses=known.losses,
                loss=math.fsum(losses) if losses and len(losses) == len(known.losses) else None,
                clips=known.clips,
                clipped_norm=known.clipped.norm({id(p) for _, p in known.parameters}),
                grad_norm=known.grad_norm,
                lrs=known.lrs,
                checksum=checksum,
                collectives=max(0, now - known.collectives),
                draws=known.draws,
                site=self._sites.here(),
            )
        )
        known.losses, known.clips, known.collectives = [], [], now
        known.clipped = ClippedGradient()
        self._pending_losses, self._pending_clips = [], []
        self._pending_clipped = ClippedGradient()
        self._limits.note_step(known.number)

    def _register(self, optimizer: Any) -> _Optimizer:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        names = self._names(parameters)
        known = _Optimizer(
            number=len(self._all),
            name=type(optimizer).__name__,
            parameters=sorted(zip(names, parameters), key=lambda pair: pair[0]),
            losses=list(self._pending_losses),
            clips=list(self._pending_clips),
            clipped=self._pending_clipped.copy(),
            is_sharded=any_sharded(parameters),
        )
        self._known[optimizer] = known
        self._all.append(known)
        return known

    def _names(self, parameters: list[Any]) -> list[str]:
        """Names as in the outermost module that owns the parameters, without wrapper prefixes."""
        wanted = {id(p) for p in parameters}
        names: dict[int, str] = {}
        for module in self._owners(wanted):
            if len(names) == len(wanted):
                break
            for name, parameter in module.named_parameters():
                if id(parameter) in wanted:
                    names.setdefault(id(parameter), _WRAPPERS.sub("", name))
        return [names.get(id(p), f"parameter.{index:05d}") for index, p in enumerate(parameters)]

    def _owners(self, wanted: set[int]) -> list[Any]:
        """The modules that own any of these parameters, those with most of them first.

        Of those with as many, the outermost comes first: a wrapper, whose prefix is stripped.
        """
        owners: list[tuple[int, Any]] = []
        module_class = self._torch.nn.Module
        with self._recorder.quiet():
            for candidate in gc.get_objects():
                if not issubclass(type(candidate), module_class):
                    continue
                with contextlib.suppress(AttributeError):  # its __init__ has not returned
                    count = sum(id(p) in wanted for p in candidate.parameters())
                    if count:
                        owners.append((count, candidate))
        owners.sort(key=lambda owner: (-owner[0], -sum(1 for _ in owner[1].modules())))
        return [module for _, module in owners]

    def _scalar(self, tensors: Any) -> float | None:
        several = [tensors] if isinstance(tensors, self._torch.Tensor) else list(tensors)
        several = [getattr(each, _UNSCALED, each) for each in several]
        if any(each.numel() != 1 for each in several):
            return None
        return math.fsum(float(each.detach()) for each in several)

    def _grad_norm(self, parameters: list[Any]) -> float:
        torch = self._torch
        grads = [p.grad.detach() for p in parameters if p.grad is not None]
        with self._collectives.of_the_tracer():
            values = [g.coalesce().values() if g.is_sparse else whole(g) for g in grads]
        if not values:
            return 0.0
        with torch.no_grad():
            norms = [torch.linalg.vector_norm(v, dtype=torch.float64) for v in values]
            stacked = torch.stack([norm.to(norms[0].device) for norm in norms])
            return float(torch.linalg.vector_norm(stacked))

    def _summary(self, known: _Optimizer) -> tuple[Checksum, dict[str, tuple[float, float]]]:
        torch = self._torch
        digest = hashlib.sha256()
        tensors: dict[str, tuple[float, float]] = {}
        with torch.no_grad(), self._collectives.of_the_tracer():
            for name, parameter in known.parameters:
                values = whole(parameter.detach()).cpu().contiguous().reshape(-1)
                digest.update(values.view(torch.uint8).numpy())
                total = float(values.sum(dtype=torch.float64))
                norm = float(torch.linalg.vector_norm(values, dtype=torch.float64))
                tensors[name] = (total, norm)
        return (
            Checksum(
                sha256=digest.hexdigest(),
                sum=math.fsum(total for total, _ in tensors.values()),
                norm=math.sqrt(math.fsum(norm * norm for _, norm in tensors.values())),
            ),
            tensors,
        )

    def _write_parameters(self, known: _Optimizer, reason: str) -> None:
        known.saved_at = known.steps
        checksum, tensors = self._summary(known)
        name = None
        # One rank's are enough: the checksums show whether the ranks' parameters are equal.
        if self._keep_parameters and (self._recorder.rank == 0 or known.is_sharded):
            name = f"rank0.optimizer{known.number}.step{known.steps}.{reason}.npz"
            self._save(known, name)
            name = name if self._recorder.rank == 0 else None
        self._recorder.emit(
            Parameters(
                optimizer=known.number,
                after_step=known.steps,
                reason=reason,
                checksum=checksum,
                tensors=tensors,
                file=name,
            )
        )

    def _save(self, known: _Optimizer, name: str) -> None:
        import numpy

        with self._torch.no_grad(), self._collectives.of_the_tracer():
            arrays = {
                each: whole(parameter.detach()).cpu().float().numpy()
                for each, parameter in known.parameters
            }
        if self._recorder.rank == 0:
            with self._recorder.quiet():
                numpy.savez(self._recorder.folder / name, **arrays)


def is_compiling(torch: Any) -> bool:
    """Whether torch.compile is tracing, as each version of torch tells it; older ones never are."""
    compiler = getattr(torch, "compiler", None)  # since torch 2.1
    asks = getattr(compiler, "is_compiling", None)  # not yet in torch 2.1
    asks = asks or getattr(getattr(torch, "_utils", None), "is_compiling", None)
    return asks is not None and bool(asks())
