"""Record every collective of a rank: the script's own, and those of DistributedDataParallel.

The reducer of DistributedDataParallel calls the process group from C++. A communication hook would
show each bucket, but it replaces the averaging (which then differs in the last bit unless the world
size is a power of two). Instead the process group's sequence number, which counts its collectives,
is read before and after; those that no wrapped function accounts for are the reducer's.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .events import Collective, Group, Site
from .recorder import Recorder
from .sites import Sites

_NAMES = [
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
]
"""The functions of torch.distributed that are recorded."""


@dataclass
class UncountedCollectives:
    """How many collectives ran that no wrapped function accounts for."""

    count: int = 0


class Collectives:
    """Wraps torch.distributed and DistributedDataParallel to record their collectives."""

    def __init__(self, recorder: Recorder, sites: Sites) -> None:
        self._recorder = recorder
        self._sites = sites
        self._depth = 0
        self._accounted = 0
        self._traced = 0  # collectives of the tracer's own
        self.before_destroy: Callable[[], None] = lambda: None
        self._begins: dict[Any, int] = {}
        self._torch: Any = None
        self._dist: Any = None

    def install(self, torch: Any) -> None:
        """Wrap the functions of an imported torch, if it was built with torch.distributed."""
        if not torch.distributed.is_available():
            return
        self._torch, self._dist = torch, torch.distributed
        self._tensor = torch.Tensor
        modules = (torch.distributed, torch.distributed.distributed_c10d)
        for name in _NAMES:
            if hasattr(torch.distributed, name):
                wrapped = self._wrap(name, getattr(torch.distributed, name))
                for module in modules:
                    setattr(module, name, wrapped)
        init = self._wrap_init(torch.distributed.init_process_group)
        destroy = self._wrap_destroy(torch.distributed.destroy_process_group)
        for module in modules:
            module.init_process_group = init
            module.destroy_process_group = destroy
        ddp = torch.nn.parallel.DistributedDataParallel
        for method, op in (("__init__", "ddp_init"), ("_sync_buffers", "ddp_sync_buffers")):
            if hasattr(ddp, method):
                setattr(ddp, method, self._wrap_ddp(op, getattr(ddp, method)))

    def hide(self, dynamo: Any) -> None:
        """Keep torch.compile, which has just been imported, from tracing into the wrappers."""
        if self._dist is None:
            return
        ddp = self._torch.nn.parallel.DistributedDataParallel
        for owner in (self._dist, self._dist.distributed_c10d, ddp):
            for name in (*_NAMES, "_sync_buffers"):
                if hasattr(owner, name):
                    setattr(owner, name, dynamo.disable(getattr(owner, name)))

    def group_alive(self) -> bool:
        """Whether a process group exists."""
        return self._dist is not None and bool(self._dist.is_initialized())

    def total(self) -> int:
        """The number of collectives so far, by the counters of this rank's process groups."""
        if not self.group_alive():
            return 0
        count = 0
        c10d = self._dist.distributed_c10d
        from_zero = hasattr(c10d, "_world")  # torch 2.0; before, counters begin anywhere
        for group in list(c10d._world.pg_map if from_zero else c10d._pg_map):
            # Fails for a group without this rank, and a backend that does not count.
            with contextlib.suppress(RuntimeError, AttributeError):
                number = group._get_sequence_number_for_group()
                count += number if from_zero else number - self._begins.setdefault(group, number)
        return count - self._traced

    @contextlib.contextmanager
    def of_the_tracer(self) -> Iterator[None]:
        """Leave out what the tracer itself gathers from all ranks."""
        begin = self.total()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._traced += self.total() - begin

    @contextlib.contextmanager
    def unseen(self) -> Iterator[UncountedCollectives]:
        """Count, on exit, the collectives inside that were not recorded one by one."""
        result = UncountedCollectives()
        begin, accounted = self.total(), self._accounted
        yield result
        own = self._accounted - accounted
        result.count = max(0, self.total() - begin - own)
        self._accounted += result.count

    def note_gradients(self, count: int, site: Site | None) -> None:
        """Record the all-reduces that a backward pass has run."""
        if count:
            self._emit("ddp_all_reduce", site, count=count)

    def _wrap(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            # all_gather_object calls all_gather: only the outermost is the script's call.
            if self._depth or self._recorder.is_child:
                return original(*args, **kwargs)
            self._emit(name, self._sites.here(), args=args, kwargs=kwargs)
            with self._accounting(), self._recorder.doing(name):
                return original(*args, **kwargs)

        return collective

    @contextlib.contextmanager
    def _accounting(self) -> Iterator[None]:
        begin = self.total()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._accounted += max(0, self.total() - begin)

    def _wrap_ddp(self, op: str, original: Callable[..., Any]) -> Callable[..., Any]:
        name = "DistributedDataParallel" if op == "ddp_init" else "forward"

        @functools.wraps(original)
        def method(module: Any, *args: Any, **kwargs: Any) -> Any:
            with self._recorder.doing(name), self.unseen() as unseen:
                result = original(module, *args, **kwargs)
            if unseen.count:
                self._emit(op, self._sites.here(), count=unseen.count)
            return result

        return method

    def _wrap_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            with self._recorder.doing("init_process_group"):
                result = original(*args, **kwargs)
                self.total()
            timeout = kwargs.get("timeout")
            self._recorder.emit(
                Group(
                    op="init",
                    backend=str(self._dist.get_backend()),
                    world_size=self._dist.get_world_size(),
                    timeout=timeout.total_seconds() if timeout is not None else None,
                    site=self._sites.here(),
                )
            )
            return result

        return init_process_group

    def _wrap_destroy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            site = self._sites.here()
            self.before_destroy()
            with self._recorder.doing("destroy_process_group"):
                result = original(*args, **kwargs)
            self._recorder.emit(
                Group(op="destroy", backend=None, world_size=None, timeout=None, site=site)
            )
            return result

        return destroy_process_group

    def _emit(
        self,
        op: str,
        site: Site | None,
        *,
        count: int | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        values = [*args, *(kwargs or {}).values()]
        tensor = next((each for each in values if isinstance(each, self._tensor)), None)
        size = None
        with contextlib.suppress(RuntimeError, ValueError):
            size = self._dist.get_world_size((kwargs or {}).get("group"))
        self._recorder.emit(
            Collective(
                op=op,
                count=count,
                group_size=size,
                numel=None if tensor is None else tensor.numel(),
                dtype=None if tensor is None else str(tensor.dtype).split(".")[-1],
                site=site,
            )
        )
