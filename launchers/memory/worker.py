"""The process that imports torch: reads steps as JSON on stdin, and writes their curves to stdout.

Traces run in parallel, in forks of the process that has imported torch.
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

from ..cpu import available_cores
from ..parent_death import die_with_parent
from .peak import NoPrediction
from .step import TrainingStep

if TYPE_CHECKING:  # with torch
    from .trace import AllocationTrace


def main() -> None:
    """Answer every step of a list with its curve, or with why there is none."""
    warnings.simplefilter("ignore")
    gc.disable()  # it would only slow down the imports
    from .curves import batches_to_trace

    gc.freeze()
    steps = [TrainingStep.from_json(plain) for plain in json.load(sys.stdin)]
    traces = iter(_trace_all([(step, batch) for step in steps for batch in batches_to_trace(step)]))
    answers = [
        _answer(step, [*itertools.islice(traces, len(batches_to_trace(step)))]) for step in steps
    ]
    json.dump(answers, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # torch is slow to shut down


def _trace_all(jobs: Sequence[tuple[TrainingStep, int]]) -> list[AllocationTrace | str]:
    if not sys.platform.startswith("linux"):  # elsewhere forking with torch may not be safe
        return [*itertools.starmap(_trace, jobs)]
    fork = multiprocessing.get_context("fork")
    # multiprocessing.Pool would wait for ever for a process that was killed.
    with ProcessPoolExecutor(min(len(jobs), available_cores()), fork, die_with_parent()) as pool:
        return [*pool.map(_trace, *zip(*jobs, strict=True))]


def _trace(step: TrainingStep, batch: int) -> AllocationTrace | str:
    """The trace, or why there is none."""
    from .read_values import Unread
    from .trace import trace

    try:
        return trace(step, batch)
    except Unread as error:
        return f"{str(error).partition(chr(10))[0]}; --probe N measures it"
    except Exception as error:  # torch, transformers and peft raise many kinds
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _answer(step: TrainingStep, traces: Sequence[AllocationTrace | str]) -> dict[str, Any]:
    from .curves import curve_from_traces

    good = [trace for trace in traces if not isinstance(trace, str)]
    failures = [trace for trace in traces if isinstance(trace, str)]
    answer = NoPrediction(failures[0]) if failures else curve_from_traces(step, good)
    return {"because": answer.because} if isinstance(answer, NoPrediction) else answer.to_json()


if __name__ == "__main__":
    main()
