"""Say whether the runs needed ``find_unused_parameters``, by the gradients that arrived in them."""

from __future__ import annotations

from collections.abc import Sequence

from ..trace.events import WrappedGradients
from .evidence import RunTrace
from .wording import comma_list, first_few


def judge_unused_parameters(groups: Sequence[RunTrace]) -> list[str]:
    """A sentence on each model that is wrapped with ``find_unused_parameters=True``.

    Only groups of several ranks that ended well count: what one rank's share of a batch leaves out
    need not be what another one's does.
    """
    seen: dict[str, list[WrappedGradients]] = {}
    names: list[str] = []
    for run in groups:
        if run.ended_well and (run.world_size or 1) > 1:
            names.append(run.name)
            for trace in run.ranks:
                for event in trace.events_of(WrappedGradients):
                    seen.setdefault(event.module_class, []).append(event)
    return [
        _sentence(model, events, comma_list(names))
        for model, events in seen.items()
        if all(each.backwards for each in events) and any(each.find_unused for each in events)
    ]


def _sentence(model: str, events: Sequence[WrappedGradients], runs: str) -> str:
    without = sorted({name for each in events for name in each.without})
    passes = sum(each.backwards for each in events)
    if without:
        return (
            f"find_unused_parameters=True is needed: in {runs}, no gradient came to "
            f"{first_few(without, 3)} of {model} in some step on some rank"
        )
    return (
        f"every parameter of {model} had a gradient in every step on every rank of {runs} "
        f"({passes} backward passes): find_unused_parameters=False would do, without a search of "
        "the graph in each step"
    )
