"""Write shipped.json: ``python -m ddpfix.launchers.memory.build_shipped [--missing]``.

It holds the curves of every known recipe with its default arguments, on a card: in float32 and in
half precision, with and without activation checkpointing, and for evaluation; in half precision
sharded over the ranks of SHIPPED_WORLDS, with accumulation and without; and those of the settings
that docs/memory.md compares with users' reports. ``--missing`` traces only what is not in the file
yet. It takes some minutes. Tests check that the file is complete and up to date.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from ...recipes.load import load, recipe_names
from ...record import replace
from .peak import Curve
from .predict import SHIPPED, SHIPPED_WORLDS, installed_versions, step_hash, steps_to_trace
from .reported_cases import reported_cases
from .step import TrainingStep, step_of

TOO_LARGE = ("anchor-xlmr-xxl",)
"""Recipes of models that no known card trains without LoRA, as long as it holds them whole."""


def main() -> None:
    """Trace all steps to ship, and write the file after each."""
    warnings.simplefilter("ignore")
    known: dict[str, Any] = {}
    if "--missing" in sys.argv and SHIPPED.exists():
        known = json.loads(SHIPPED.read_text(encoding="utf-8"))["curves"]
    wanted = {step_hash(step): step for step in shipped_steps()}
    curves = {name: known[name] for name in wanted if name in known}
    for name, step in wanted.items():
        if name not in curves:
            sys.stderr.write(f"{step}\n")
            curves[name] = _trace(step).to_json()
            _write(curves)
    _write(curves)


def shipped_steps() -> Iterator[TrainingStep]:
    """The steps to trace for everything that is shipped."""
    for name in recipe_names():
        recipe = load(name)
        for precision in ("fp32", "bf16"):
            step = step_of(recipe, recipe.arguments, precision=precision)
            if step is not None:
                for variant in _variants(step):
                    yield from steps_to_trace(variant)
            if step is not None and precision == "bf16":
                yield from _sharded(step)
                if name in TOO_LARGE:
                    whole = replace(step, lora_rank=0)
                    yield from steps_to_trace(whole)
                    yield from _sharded(whole)
    for row in reported_cases():
        yield from steps_to_trace(row.step)


def _variants(step: TrainingStep) -> Iterator[TrainingStep]:
    yield step
    yield replace(step, training=False)
    yield replace(step, checkpointing=True)


def _sharded(step: TrainingStep) -> Iterator[TrainingStep]:
    for world, accumulates in itertools.product(SHIPPED_WORLDS, (False, True)):
        yield from steps_to_trace(replace(step, sharded=True, world=world, accumulates=accumulates))


def _trace(step: TrainingStep) -> Curve:
    from .curves import trace_curve  # torch

    curve = trace_curve(step)
    if not isinstance(curve, Curve):
        raise SystemExit(f"{step}: {curve.because}")
    return curve


def _write(curves: dict[str, Any]) -> None:
    lines = (f"  {json.dumps(name)}: {json.dumps(curves[name])}" for name in sorted(curves))
    text = ",\n".join(lines)
    versions = json.dumps(installed_versions(), sort_keys=True)
    SHIPPED.write_text(f'{{"versions": {versions}, "curves": {{\n{text}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
