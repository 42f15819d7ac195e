"""The peak memory of a step: from what is shipped or kept, else traced in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...record import changed
from ..state import keep
from .peak import Curve, NoPrediction, extended
from .process_overhead import with_surroundings
from .step import TrainingStep, essence

TIME_LIMIT = 120.0  # seconds for a trace of one step
PACKAGES = ("torch", "transformers", "peft")
DEEP = 12
"""Layers above which a network is not traced as a whole but twice with fewer, SHALLOW."""
SHALLOW = (4, 6)
SHIPPED = Path(__file__).with_name("shipped.json")

Answer = Curve | NoPrediction


def predict(steps: Sequence[TrainingStep], state: Path | None = None) -> list[Answer]:
    """The curve of each step, or why there is none.

    What was traced is kept in the folder `state`, if one is given, by the step and the versions
    of torch, transformers and peft. What is neither kept nor shipped is traced in one process,
    which takes seconds for a step and is ended after TIME_LIMIT seconds for each.
    """
    parts = [traced_for(step) for step in steps]
    needed = [*dict.fromkeys(itertools.chain.from_iterable(parts))]
    answers: dict[TrainingStep, Answer] = {}
    for one in needed:
        found = _shipped(one) or (_kept(state, one) if state else None)
        if found:
            answers[one] = found
    unknown = [one for one in needed if one not in answers]
    for one, answer in zip(unknown, traced(unknown) if unknown else (), strict=True):
        answers[one] = answer
        if state and isinstance(answer, Curve):
            _keep(state, one, answer)
    return [
        _joined([answers[one] for one in some], step)
        for some, step in zip(parts, steps, strict=True)
    ]


def traced_for(step: TrainingStep) -> list[TrainingStep]:
    """The steps that are traced for one: itself, or two of fewer layers where it has many."""
    plain = essence(step)
    if plain.network.layers <= DEEP:
        return [plain]
    return [changed(plain, network=changed(plain.network, layers=count)) for count in SHALLOW]


def traced(steps: Sequence[TrainingStep], limit: float = TIME_LIMIT) -> list[Answer]:
    """The steps traced by this Python in another process."""
    import subprocess  # a prediction that is known starts nothing

    try:
        done = subprocess.run(
            [sys.executable, "-m", f"{__package__}.worker"],
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
        return [NoPrediction(last)] * len(steps)
    return [
        NoPrediction(plain["because"]) if "because" in plain else Curve.from_json(plain)
        for plain in json.loads(done.stdout)
    ]


def _joined(answers: list[Answer], step: TrainingStep) -> Answer:
    curves = [answer for answer in answers if isinstance(answer, Curve)]
    if len(curves) < len(answers):
        return next(answer for answer in answers if not isinstance(answer, Curve))
    whole = curves[0]
    if len(curves) > 1:
        whole = extended(whole, curves[1], (*SHALLOW, step.network.layers))
    return with_surroundings(whole, step)


def name_of(step: TrainingStep, versions: dict[str, str] | None = None) -> str:
    """A name that steps of one essence share, each with these versions where they are given."""
    import hashlib  # OpenSSL's, which is not needed where nothing is predicted

    text = json.dumps([step.to_json(), versions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def installed() -> dict[str, str]:
    """The versions of the packages that a trace depends on, as far as they are installed."""
    # importlib.metadata reads the same names, with email and zipfile behind it, in 50 ms.
    found: dict[str, str] = {}
    for entry in itertools.chain.from_iterable(map(_entries, sys.path)):
        name, _, version = entry.removesuffix(".dist-info").partition("-")
        if name in PACKAGES and entry.endswith(".dist-info"):
            # Behind a plus is what torch was built for, on which no size depends.
            found.setdefault(name, version.partition("+")[0])
    return found


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder or os.curdir)  # noqa: PTH208 - a path for each takes its time
    except OSError:  # a file, or not there
        return []


def _shipped(step: TrainingStep) -> Curve | None:
    plain = _all_shipped().get(name_of(step))
    return Curve.from_json(plain) if plain else None


@functools.cache
def _all_shipped() -> dict[str, Any]:
    """Curves by name, if there is no torch here or all versions are those they were made with."""
    content = json.loads(SHIPPED.read_text(encoding="utf-8")) if SHIPPED.exists() else {}
    here, there = installed(), content.get("versions", {})
    usable = "torch" not in here or all(here.get(name) == there[name] for name in there)
    curves: dict[str, Any] = content.get("curves", {}) if usable else {}
    return curves


def _path(state: Path, step: TrainingStep) -> Path:
    return state / "predicted" / f"{name_of(step, installed())}.json"


def _kept(state: Path, step: TrainingStep) -> Curve | None:
    try:
        return Curve.from_json(json.loads(_path(state, step).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there, or not as it was written: it is traced again


def _keep(state: Path, step: TrainingStep, curve: Curve) -> None:
    with contextlib.suppress(OSError):  # what cannot be kept is traced again
        keep(_path(state, step), json.dumps(curve.to_json()) + "\n")
