"""A trace of FSDP2 without other ranks against real steps of two ranks on the CPU."""

from __future__ import annotations

from pathlib import Path

from printed import printed

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "memory_sharded.py"


def test_the_peak_of_real_sharded_steps_on_the_cpu_is_predicted() -> None:
    compared = printed(BENCHMARK)
    errors = {name: predicted / real - 1 for name, (predicted, real) in compared.items()}
    assert len(errors) == 5
    assert {name: error for name, error in errors.items() if abs(error) > 0.01} == {}
