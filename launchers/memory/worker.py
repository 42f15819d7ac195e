"""The process that needs torch: JSON steps on standard input, curves on standard output.

Traces are made side by side, in copies of the process that has imported torch.
"""

from __future__ import annotations

import gc
import itertools
import json
import multiprocessing
import os
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from ..cpu import cores
from ..parent_death import die_with_parent
from .peak import NoPrediction
from .step import TrainingStep

if TYPE_CHECKING:  # with torch
    from .trace import AllocationTrace


def main() -> None:
    """Answer every step of a list with its curve, or with why there is none."""
    warnings.simplefilter("ignore")
    gc.disable()  # imports leave it nothing to find, and it would take a fifth of their time
    # Transformers imports it where it is, for losses that nothing here has: a sixth of all imports.
    sys.modules["scipy"] = None  # type: ignore[assignment]
    from .curves import traced_at

    gc.freeze()
    steps = [TrainingStep.from_json(plain) for plain in json.load(sys.stdin)]
    traces = iter(_made([(step, batch) for step in steps for batch in traced_at(step)]))
    answers = [_answer(step, [*itertools.islice(traces, len(traced_at(step)))]) for step in steps]
    json.dump(answers, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # to take torch apart takes its time


def _made(asked: Sequence[tuple[TrainingStep, int]]) -> list[AllocationTrace | str]:
    if not sys.platform.startswith("linux"):  # elsewhere a fork with torch in it may not be safe
        return [*itertools.starmap(_traced, asked)]
    fork = multiprocessing.get_context("fork")
    # multiprocessing's own pool would wait for ever for a process that was killed.
    with ProcessPoolExecutor(min(len(asked), cores()), fork, die_with_parent()) as pool:
        return [*pool.map(_traced, *zip(*asked, strict=True))]


def _traced(step: TrainingStep, batch: int) -> AllocationTrace | str:
    """The trace, or why there is none."""
    from .trace import trace

    try:
        return trace(step, batch)
    except Exception as error:  # whatever torch, transformers or peft raise
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _answer(step: TrainingStep, traces: Sequence[AllocationTrace | str]) -> dict[str, Any]:
    from .curves import joined

    good = [one for one in traces if not isinstance(one, str)]
    failed = [one for one in traces if isinstance(one, str)]
    found = NoPrediction(failed[0]) if failed else joined(step, good)
    return {"because": found.because} if isinstance(found, NoPrediction) else found.to_json()


if __name__ == "__main__":
    main()
