"""What a trace without a card says of a card, against counts by hand."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddpfix.launchers.memory import worker
from ddpfix.launchers.memory.peak import Curve
from ddpfix.launchers.memory.predict import predict, trace_in_process
from ddpfix.launchers.memory.process_overhead import add_process_overhead
from ddpfix.launchers.memory.step import TrainingStep, canonical_step, step_of
from ddpfix.recipes.load import load
from ddpfix.record import replace
from printed import printed
from test_memory import NETWORK, STEP


@pytest.fixture(scope="module")
def on_card() -> Any:
    """What memory_on_card.py prints: operations, and curves."""
    return printed(Path(__file__).with_name("memory_on_card.py"))


B, H, L, D = 2, 3, 32, 16  # examples, heads, tokens, width of a head
LEAVES, OUT, SUMS = 3 * B * H * L * D, B * H * L * D, 4 * B * H * L  # elements; bytes of logsumexp
FLASH, EFFICIENT = (f"_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient"))

# Operation -> its kernel, and the bytes of what stays until the backward pass with the result:
# the leaves, copies in another type, the result, and what else the kernel keeps.
KEPT = {
    "dropout": ("native_dropout", 4000 + 4000 + 1000),
    "norm": ("native_layer_norm", 2000 + 2 * 400 + 4000 + 4000 + 2 * 40),
    "softmax": ("_softmax", 2000 + 4000),
    "power": ("pow", 2000 + 4000 + 4000),
    "flash": (FLASH, 2 * (LEAVES + OUT) + SUMS + 24),
    "a mask": (EFFICIENT, 2 * (LEAVES + OUT) + 2 * B * L * L + SUMS + 16),
    "an old card": (EFFICIENT, 2 * 2 * LEAVES + 2 * OUT + SUMS + 16),
}


@pytest.mark.parametrize("name", KEPT)
def test_an_operation_keeps_on_a_card_what_its_kernel_keeps(name: str, on_card: Any) -> None:
    kernel, size = KEPT[name]
    assert kernel in on_card["seen"][name]["names"]
    assert on_card["seen"][name]["kept"] == size


# Operation under autocast -> the type of its result.
TYPES = {"norm": "float32", "softmax": "float32", "power": "float32", "product": "bfloat16"}


def test_autocast_has_the_types_of_a_card(on_card: Any) -> None:
    assert {name: on_card["seen"][name]["dtype"] for name in TYPES} == TYPES


def test_attention_sums_its_gradient_up_in_float32(on_card: Any) -> None:
    rows = 128  # 32 tokens rounded up
    assert on_card["seen"]["flash"]["backward"][-1] == 4 * B * H * rows * (32 + 1)
    assert 4 * OUT in on_card["seen"]["a mask"]["backward"]


def test_no_dropout_keeps_no_mask(on_card: Any) -> None:
    assert "native_dropout" not in on_card["seen"]["dropout of nothing"]["names"]


@pytest.mark.parametrize("name", ["numbers", "views", "in place", "a counter"])
def test_the_short_cuts_of_a_watch_give_what_fake_tensors_give(name: str, on_card: Any) -> None:
    whole, short = on_card["made"][name]
    assert short == whole


def curve(on_card: Any, name: str) -> Curve:
    return Curve.from_json(on_card["curves"][name])


def test_eager_attention_keeps_its_scores_and_the_card_s_own_does_not(on_card: Any) -> None:
    batch, heads, length, hidden = 1024, 2, 64, 64
    functions = 2 * batch
    # Softmax and what dropout made of it in float32, and dropout's mask.
    eager = (4 + 4 + 1) * functions * heads * length**2
    # Query, key and value as they were made, of which eager attention has copies, and logsumexp.
    own = 4 * functions * length * (3 * hidden + heads)
    grown = curve(on_card, "eager").at(batch).activations
    grown -= curve(on_card, "plain").at(batch).activations
    assert grown == pytest.approx(eager - own, abs=4096)


def test_the_gradients_of_an_earlier_backward_pass_are_there_at_the_peak(on_card: Any) -> None:
    both = curve(on_card, "plain")
    fresh, accumulated = both.at(64), replace(both, peaks=both.accumulated).at(64)
    assert accumulated.gradients > fresh.gradients
    assert accumulated.gradients >= both.trainable
    assert accumulated.activations == fresh.activations


def test_adapters_alone_have_gradients_and_moments(on_card: Any) -> None:
    adapted = curve(on_card, "LoRA")
    assert adapted.trainable < curve(on_card, "plain").trainable / 5
    assert adapted.at(8).optimizer == pytest.approx(2 * adapted.trainable, rel=0.1)


def test_an_evaluation_keeps_moments_but_no_gradients(on_card: Any) -> None:
    peak = curve(on_card, "evaluation").at(8)
    assert peak.gradients == 0
    assert peak.optimizer == curve(on_card, "plain").at(8).optimizer
    assert 2.5 < curve(on_card, "plain").flops / curve(on_card, "evaluation").flops < 3.5


def test_the_worker_answers_every_step_and_says_why_where_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "warnings", "torch"):  # it imports none of the current folder
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the current folder')\n")
    monkeypatch.chdir(tmp_path)
    good, bad = trace_in_process([STEP, replace(STEP, lora_rank=-1)])
    assert isinstance(good, Curve)
    assert good.at(1).parameters > 0
    assert not isinstance(bad, Curve)
    assert "-1" in bad.because


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="one process there")
def test_a_killed_process_of_several_ends_the_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(step: TrainingStep, batch: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    fake = SimpleNamespace(trace=killed)
    monkeypatch.setitem(sys.modules, "ddpfix.launchers.memory.trace", fake)
    with pytest.raises(BrokenProcessPool):
        worker._trace_all([(STEP, 2), (STEP, 3)])


def test_a_trace_that_takes_too_long_is_ended() -> None:
    (answer,) = trace_in_process([TrainingStep(NETWORK, 16)], limit=0.01)
    assert not isinstance(answer, Curve)
    assert "took more than" in answer.because


def test_what_is_shipped_is_what_is_traced() -> None:
    recipe = load("codebert-bigclonebench")
    step = step_of(recipe, recipe.arguments)
    assert step is not None
    (shipped,), (found,) = predict([canonical_step(step)]), trace_in_process([canonical_step(step)])
    assert isinstance(found, Curve)
    assert shipped == add_process_overhead(found, step)
