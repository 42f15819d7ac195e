"""A trace without a card against real steps on the CPU."""

from __future__ import annotations

from pathlib import Path

from printed import printed

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "memory_cpu.py"


def test_the_peak_of_real_steps_on_the_cpu_is_predicted() -> None:
    compared = printed(BENCHMARK, "--json", "--layers", "1", "--judged")
    errors = {name: predicted / real - 1 for name, (predicted, real) in compared.items()}
    assert len(errors) >= 24
    assert {name: error for name, error in errors.items() if abs(error) > 0.005} == {}
