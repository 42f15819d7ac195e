"""Predict the peak memory of a step from a shipped or stored trace, or from a new one."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import missing_package
from ...record import replace
from ..state import write_atomically
from ..state_files import load
from .peak import Curve, NoPrediction, between_worlds, extrapolate_layers
from .process_overhead import add_process_overhead
from .step import TrainingStep, canonical_step

TIME_LIMIT = 120.0  # seconds to trace one step
PACKAGES = ("torch", "transformers", "peft")
MAX_TRACED_LAYERS = 12
"""Networks with more layers are traced twice with fewer, SHALLOW, and extrapolated."""
TRACED_LAYERS = (4, 6)
SHIPPED_WORLDS = (2, 8)
"""The worlds that curves of sharded steps come with; those between are computed from them."""
SHIPPED = Path(__file__).with_name("shipped.json")

Answer = Curve | NoPrediction


def predict(steps: Sequence[TrainingStep], state: Path | None = None) -> list[Answer]:
    """Predict the curve of each step, or say why that is not possible.

    Traced curves are stored in the folder `state`, if one is given, by the step and the versions
    of torch, transformers and peft. Curves that are neither shipped nor stored are traced in one
    process, which takes seconds per step and is ended after TIME_LIMIT seconds for each.
    """
    parts = [steps_to_trace(step) for step in steps]
    needed = [*dict.fromkeys(itertools.chain.from_iterable(parts))]
    answers: dict[TrainingStep, Answer] = {}
    for part in needed:
        curve = _shipped(part) or (_load(state, part) if state else None)
        if curve:
            answers[part] = curve
    unknown = [part for part in needed if part not in answers]
    for part, answer in zip(unknown, trace_in_process(unknown) if unknown else (), strict=True):
        answers[part] = answer
        if state and isinstance(answer, Curve):
            _store(state, part, answer)
    return [
        _combine([answers[part] for part in step_parts], step)
        for step_parts, step in zip(parts, steps, strict=True)
    ]


def steps_to_trace(step: TrainingStep) -> list[TrainingStep]:
    """The steps to trace for one: its essence, or for a deep network two with fewer layers."""
    whole = canonical_step(step)
    if whole.network.layers <= MAX_TRACED_LAYERS:
        return [whole]
    return [replace(whole, network=replace(whole.network, layers=count)) for count in TRACED_LAYERS]


def trace_in_process(steps: Sequence[TrainingStep], limit: float = TIME_LIMIT) -> list[Answer]:
    """Trace steps in another process of this Python, with `limit` seconds for each."""
    import subprocess  # not needed for a shipped or stored curve

    from ...progress_line import elapsed

    try:
        with elapsed("tracing a step, to predict its memory"):
            completed = subprocess.run(
                [sys.executable, "-P", "-m", f"{__package__}.worker"],
                input=json.dumps([step.to_json() for step in steps]),
                capture_output=True,
                text=True,
                timeout=limit * len(steps),
                check=True,
            )
    except subprocess.TimeoutExpired:
        return [NoPrediction(f"tracing took more than {limit:.0f} s")] * len(steps)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"status {error.returncode}"])[-1]
        missing = re.fullmatch(r"ModuleNotFoundError: No module named '(.+)'", last)
        advice = missing_package(missing[1]) if missing else None
        return [NoPrediction(advice or last)] * len(steps)
    return [
        NoPrediction(plain["because"]) if "because" in plain else Curve.from_json(plain)
        for plain in json.loads(completed.stdout)
    ]


def _combine(answers: list[Answer], step: TrainingStep) -> Answer:
    """The curve of a step from the answers for its parts."""
    curves = [answer for answer in answers if isinstance(answer, Curve)]
    if len(curves) < len(answers):
        return next(answer for answer in answers if not isinstance(answer, Curve))
    whole = curves[0]
    if len(curves) > 1:
        whole = extrapolate_layers(whole, curves[1], (*TRACED_LAYERS, step.network.layers))
    return add_process_overhead(whole, step)


def step_hash(step: TrainingStep, versions: dict[str, str] | None = None) -> str:
    """A hash of a step, and of the package versions if given, to store its curve under."""
    import hashlib  # slow to import, and needed for predictions only

    text = json.dumps([step.to_json(), versions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def installed_versions() -> dict[str, str]:
    """The versions of the installed packages that a trace depends on."""
    from importlib import metadata  # slow to import, and needed for predictions only

    versions: dict[str, str] = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            # After a plus comes the platform torch was built for, which changes no sizes.
            versions[name] = metadata.version(name).partition("+")[0]
    return versions


def _shipped(step: TrainingStep) -> Curve | None:
    """The curve that comes with ddpfix, or the one between two of them."""
    plain = _all_shipped().get(step_hash(step))
    if plain:
        return Curve.from_json(plain)
    if step.sharded and SHIPPED_WORLDS[0] < step.world < SHIPPED_WORLDS[1]:
        few, more = (_shipped(replace(step, world=world)) for world in SHIPPED_WORLDS)
        if few and more:
            return between_worlds(few, more, (*SHIPPED_WORLDS, step.world))
    return None


@functools.cache
def _all_shipped() -> dict[str, Any]:
    """The shipped curves by name; none if torch is installed in other versions than theirs."""
    content = json.loads(SHIPPED.read_text(encoding="utf-8")) if SHIPPED.exists() else {}
    versions, traced_with = installed_versions(), content.get("versions", {})
    usable = "torch" not in versions or traced_with.items() <= versions.items()
    curves: dict[str, Any] = content.get("curves", {}) if usable else {}
    return curves


def _path(state: Path, step: TrainingStep) -> Path:
    return state / "predicted" / f"{step_hash(step, installed_versions())}.json"


def _load(state: Path, step: TrainingStep) -> Curve | None:
    """A stored curve, or None if there is none that can be read."""
    path = _path(state, step)
    if not path.exists():
        return None
    from .stored_curve import StoredCurve  # imports attrs

    stored = load(path, StoredCurve)
    return Curve.from_json(stored.plain) if stored else None


def _store(state: Path, step: TrainingStep, curve: Curve) -> None:
    with contextlib.suppress(OSError):  # it is traced again next time
        write_atomically(_path(state, step), json.dumps(curve.to_json()) + "\n")
