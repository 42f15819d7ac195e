"""The view of a launch, with what its plan and cards let it show."""

from __future__ import annotations

from ...record import replace
from ..planning.training_steps import steps_per_epoch
from ..report.live_frame import CardFacts, RunTitle
from ..report.live_view import LiveView
from ..running.launch import PreparedLaunch


def view_of(prepared: PreparedLaunch) -> LiveView:
    """A view of this launch."""
    found = prepared.plan
    return LiveView(
        RunTitle(
            prepared.own.name,
            found.plan.world,
            found.memory_fit.candidate.peak.total if found.memory_fit else None,
            {
                card.index: CardFacts(card.memory_total, card.power_limit)
                for card in prepared.devices.cards
            },
            _passes(prepared),
        )
    )


def _passes(prepared: PreparedLaunch) -> dict[int, float]:
    """The passes of a training bar by its length: of an epoch's steps, or of all steps."""
    horizon, plan = prepared.plan.settings.horizon, prepared.plan.plan
    if horizon is None:
        return {}
    micro_steps = steps_per_epoch(horizon.examples, replace(plan, accumulation=1))
    return {
        horizon.steps: 1.0,
        horizon.steps_per_epoch: horizon.epochs,
        micro_steps: horizon.epochs,
    }
