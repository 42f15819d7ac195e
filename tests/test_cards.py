"""Cards that are not here: what is known of them, and plans for them."""

from __future__ import annotations

import json
import re

import pynvml
import pytest
from command_line import run
from ddpfix.errors import InputError
from ddpfix.launchers.gpus import specs as cards
from ddpfix.launchers.gpus.model import Gpu
from ddpfix.launchers.gpus.simulated import simulate_inventory

PLAN = ("plan", "--recipe", "graphcodebert", "--gpus")


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test in which NVML is asked."""

    def asked() -> None:
        raise AssertionError("NVML was asked")

    monkeypatch.setattr(pynvml, "nvmlInit", asked)


# What people write -> the card that NVML calls so.
MEANT = {
    "RTX 6000 Ada": "NVIDIA RTX 6000 Ada Generation",
    "rtx6000ada": "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA RTX 6000 Ada Generation": "NVIDIA RTX 6000 Ada Generation",
    "RTX 6000 Ada 48 GB": "NVIDIA RTX 6000 Ada Generation",
    "A100 40GB": "NVIDIA A100-SXM4-40GB",
    "a100-80gb": "NVIDIA A100-SXM4-80GB",
    "A100 PCIe 80 GiB": "NVIDIA A100 80GB PCIe",
    "H100": "NVIDIA H100 80GB HBM3",
    "H100 PCIe": "NVIDIA H100 PCIe",
    "H200": "NVIDIA H200",
    "4090": "NVIDIA GeForce RTX 4090",
    "GeForce RTX 3090": "NVIDIA GeForce RTX 3090",
    "Tesla T4": "Tesla T4",
    "V100 32GB": "Tesla V100-SXM2-32GB",
    "P100": "Tesla P100-SXM2-16GB",
    "1080 Ti": "NVIDIA GeForce GTX 1080 Ti",
    "RTX 2080Ti": "NVIDIA GeForce RTX 2080 Ti",
    "A5000": "NVIDIA RTX A5000",
    "b200": "NVIDIA B200",
    "RTX 5090": "NVIDIA GeForce RTX 5090",
}


@pytest.mark.parametrize("words", MEANT)
def test_a_card_is_known_by_what_people_call_it(words: str) -> None:
    card = cards.find_card(words)
    assert card.name == MEANT[words]
    assert cards.card_named(card.name) is card


def test_every_card_is_meant_by_its_own_name() -> None:
    assert [cards.find_card(card.name) for card in cards.known_cards()] == list(cards.known_cards())


@pytest.mark.parametrize("words", ["A100-80", "A100-80G", "a100 80gb", "NVIDIA A100 80 GiB"])
def test_a_size_may_be_said_without_its_unit(words: str) -> None:
    assert cards.find_card(words).name == "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize("card", cards.known_cards(), ids=lambda card: card.name)
def test_the_figures_fit_each_other_of(card: cards.CardSpec) -> None:
    rates = card.tflops
    assert set(rates) <= {"fp32", "tf32", "bf16", "fp16"}
    # Float16 is faster on tensor cores and on the P100; Pascal's other cards are slower with it.
    assert "fp32" in rates
    assert ("fp16" in rates) == (card.compute_capability != (6, 1))
    # Units for bfloat16 and TF32 came with compute capability 8.0 (CUDA C++ Programming Guide).
    assert ({"bf16", "tf32"} <= set(rates)) == (card.compute_capability >= (8, 0))
    if "fp16" in rates:
        assert rates["fp32"] < rates["fp16"]
        assert rates.get("bf16", rates["fp16"]) == rates["fp16"]
    assert card.source
    # The size in a name is at most 7 % more than what NVML reports.
    for size in re.findall(r"(\d+)GB", " ".join((card.name, *card.aliases))):
        assert 0.93 < card.memory / (int(size) << 30) < 1.03


def test_an_inventory_of_cards_that_are_not_here_is_like_one_of_cards_that_are() -> None:
    found = simulate_inventory(["1x A100 80GB", "2 x T4"])
    assert found.simulated
    assert found.note == "Simulated: 1 x NVIDIA A100-SXM4-80GB, 2 x Tesla T4."
    assert [gpu.name for gpu in found.usable] == ["NVIDIA A100-SXM4-80GB", "Tesla T4", "Tesla T4"]
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2]
    assert found.gpus[1] == Gpu(
        index=1,
        uuid="",
        name="Tesla T4",
        memory_total=15360 << 20,
        memory_used=0,
        memory_free=15360 << 20,
        compute_capability=(7, 5),
        utilization=None,
        mig=False,
        usable=True,
        why_not="",
        power_limit=70,
    )


def test_a_plan_is_for_the_simulated_cards_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # is about cards that are here
    done = run(*PLAN, "4x RTX 6000 Ada", "--json")
    answer = json.loads(done.stdout)
    assert [card["name"] for card in answer["cards"]] == ["NVIDIA RTX 6000 Ada Generation"] * 4
    assert answer["plan"]["world"] == 4
    assert done.stderr.startswith("Simulated: 4 x NVIDIA RTX 6000 Ada Generation. Using cards 0 ")


def test_min_free_leaves_simulated_cards_out_too() -> None:
    done = run(*PLAN, "1x A100 80GB,2x T4", "--min-free", "20GiB", "--json")
    assert [card["index"] for card in json.loads(done.stdout)["cards"]] == [0]
    assert "Left out card 1: only 15.0 GiB free" in done.stderr


# Words of --gpus -> the one line.
REFUSED = {
    "3x RTX 4085": "'RTX 4085' is no card that is known here: did you mean RTX 40",
    "2x": "'2x' is no card that is known here: Known: RTX 6000 Ada, ",
    "2x A100": "'A100' comes in several sizes: say A100 40GB or A100 80GB",
    "0x T4": "'0x T4' are no cards: say 1x or more",
    "0,2x T4": "0 names a card of this machine and others do not: name either alone",
}


@pytest.mark.parametrize("words", REFUSED)
def test_words_are_refused_in_one_line(words: str) -> None:
    done = run(*PLAN, words)
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert f"--gpus: {REFUSED[words]}" in line


def test_simulated_cards_and_the_cpu_exclude_each_other() -> None:
    assert "exclude each other" in run(*PLAN, "2x T4", "--cpu").stderr


# What is asked of launch beside simulated cards, all of it to be refused.
REAL = {
    "a launch": (),
    "a detached one": ("--detach",),
    "a job of Slurm's": ("--submit",),
}


@pytest.mark.parametrize("options", REAL.values(), ids=REAL)
def test_nothing_runs_on_simulated_cards_such_as(options: tuple[str, ...]) -> None:
    done = run("launch", "--recipe", "graphcodebert", "--gpus", "2x T4", *options)
    assert done.exit_code == 2
    assert done.stderr == (
        "ddpfix: --gpus '2x T4': nothing can run on simulated cards; see what would with --dry-run "
        "or --emit\n"
    )


def test_a_name_that_could_begin_a_uuid_is_asked_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    said = run(*PLAN, "A10").stderr
    assert said.startswith("ddpfix: --gpus A10: No NVIDIA driver was found")
    assert said.endswith(" For cards that are not here say 1x A10.\n")
    assert run(*PLAN, "1x A10").exit_code == 0


def test_a_cards_name_is_not_known() -> None:
    assert cards.card_named("NVIDIA Test Card") is None
    with pytest.raises(InputError):
        cards.find_card("Test Card")
