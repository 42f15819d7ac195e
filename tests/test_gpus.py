"""The inventory of cards, through the real pynvml on a small libnvidia-ml of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ddpfix.launchers.gpus import hides_every_card, inventory

Machine = Callable[..., dict[str, str]]
GIB = 1 << 30
FOUR = "count = 4\n0.name = NVIDIA H100\n"


def gpus(environment: Mapping[str, str], *options: str) -> dict[str, Any]:
    """What `ddpfix gpus --json` prints under the environment."""
    command = [sys.executable, "-m", "ddpfix", "gpus", "--json", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def usable(answer: Mapping[str, Any]) -> list[int]:
    return [gpu["index"] for gpu in answer["gpus"] if gpu["usable"]]


def reasons(answer: Mapping[str, Any]) -> dict[int, str]:
    return {gpu["index"]: gpu["why_not"] for gpu in answer["gpus"] if gpu["why_not"]}


def test_one_idle_card_is_shown_with_everything_nvml_says(machine: Machine) -> None:
    answer = gpus(
        machine(
            "count=1\ndriver = 550.54.15\n0.name = NVIDIA H200\n0.total_mib = 143771\n"
            "0.used_mib = 10\n0.reserved_mib = 600\n0.utilization = 3\n0.capability = 9.0\n"
        )
    )
    assert answer["driver"] == "550.54.15"
    assert answer["note"] == ""
    assert answer["gpus"] == [
        {
            "index": 0,
            "uuid": "GPU-00000000-1111-2222-3333-444444444444",
            "name": "NVIDIA H200",
            "memory_total": 143771 << 20,
            "memory_used": 10 << 20,
            "memory_free": (143771 - 610) << 20,
            "compute_capability": [9, 0],
            "utilization": 3,
            "mig": False,
            "usable": True,
            "why_not": "",
        }
    ]


def test_four_idle_cards_can_all_be_used(machine: Machine) -> None:
    assert usable(gpus(machine(FOUR))) == [0, 1, 2, 3]


# Each row: what the machine says of card 1, and a word of the reason it is left out for.
UNUSABLE = {
    "busy": ("1.used_mib = 30000", "busy: 29.3 GiB"),
    "just above the bound": ("1.used_mib = 1025", "busy"),
    "a MIG parent": ("1.mig = 1", "MIG"),
    "lost at once": ("1.error = 15", "lost"),
    "lost half-way through its answers": ("1.error_after_name = 15", "lost"),
    "in need of a reset": ("1.error_after_name = 16", "reset"),
    "forbidden to this user": ("1.error = 4", "permission"),
    "in compute mode Prohibited": ("1.compute_mode = 2", "Prohibited"),
    "failing in a way nobody named": ("1.error = 999", "NVML says"),
}


@pytest.mark.parametrize(("line", "word"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_card_is_left_out_with_its_reason_when_it_is(
    line: str, word: str, machine: Machine
) -> None:
    answer = gpus(machine(f"count = 3\n{line}\n"))
    assert usable(answer) == [0, 2]
    assert set(reasons(answer)) == {1}
    assert word in reasons(answer)[1]


def test_a_card_with_mig_switched_off_and_a_full_gibibyte_in_use_is_still_usable(
    machine: Machine,
) -> None:
    assert usable(gpus(machine("count = 1\n0.mig = 0\n0.used_mib = 1024\n"))) == [0]


def test_the_bound_for_busy_is_the_users_to_move(machine: Machine) -> None:
    environment = machine("count = 2\n0.used_mib = 3000\n1.used_mib = 9000\n")
    assert usable(gpus(environment, "--busy-above", "4GiB")) == [0]


def test_a_card_that_becomes_busy_is_seen_at_the_next_look(
    machine: Machine, tmp_path: Path
) -> None:
    environment = machine("count = 1\n")
    assert usable(gpus(environment)) == [0]
    (tmp_path / "machine.txt").write_text("count = 1\n0.used_mib = 40000\n")
    assert usable(gpus(environment)) == []


# CUDA_VISIBLE_DEVICES -> the cards left, in CUDA's order, and a word of the note.
VISIBLE = {
    "0": ([0], ""),
    "2,0": ([2, 0], ""),
    " 1 , 3 ": ([1, 3], ""),
    "GPU-00000002-1111-2222-3333-444444444444": ([2], ""),
    "GPU-00000003,1": ([3, 1], ""),
    "GPU-0000000": ([], "several"),
    "": ([], "hides every card"),
    "-1": ([], "hides every card"),
    "-1,0": ([], "hides every card"),
    "0,-1,2": ([0], ""),
    "1,7,2": ([1], "'7' names none"),
    "1,,2": ([1], "'' names none"),
    "1,1": ([], "twice"),
    "cuda:0": ([], "'cuda:0' names none"),
    "MIG-4d1a": ([], "MIG slice"),
}


@pytest.mark.parametrize("value", VISIBLE, ids=lambda value: f"set to {value!r}")
def test_cuda_visible_devices_is_read_as_cuda_reads_it(value: str, machine: Machine) -> None:
    expected, word = VISIBLE[value]
    answer = gpus(machine(FOUR, CUDA_VISIBLE_DEVICES=value))
    assert usable(answer) == expected
    assert word in answer["note"]
    assert bool(answer["note"]) == bool(word)
    hidden = set(range(4)) - set(expected)
    assert reasons(answer) == dict.fromkeys(hidden, "hidden by CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("value", "hides"), [(None, False), ("", True), ("-1", True), ("0,-1", False), ("GPU-1", False)]
)
def test_only_an_empty_or_negative_first_entry_asks_for_the_cpu(
    value: str | None, hides: bool
) -> None:
    assert hides_every_card(value) is hides


# nvmlReturn_t of nvmlInit -> words of the note: the trouble and the way out.
START = {
    "driver and library of different versions": (18, "reboot"),
    "no permission": (4, "access to /dev/nvidia"),
    "driver not loaded": (9, "modprobe"),
    "no library": (12, "install the driver"),
    "an error nobody named": (999, "nvidia-smi"),
}


@pytest.mark.parametrize(("code", "way_out"), START.values(), ids=START.keys())
def test_when_nvml_cannot_start_the_inventory_is_empty_and_says_why(
    code: int, way_out: str, machine: Machine
) -> None:
    answer = gpus(machine(f"count = 2\ninit = {code}\n"))
    assert answer["gpus"] == []
    assert answer["driver"] == ""
    assert way_out in answer["note"]
    assert answer["note"].endswith((".", "`."))


def test_a_driver_that_sees_no_card_says_so(machine: Machine) -> None:
    answer = gpus(machine("count = 0\n"))
    assert answer["gpus"] == []
    assert "sees no card" in answer["note"]


def test_a_library_that_is_no_nvml_counts_as_a_driver_too_old(
    machine: Machine, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    source = tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    library = empty / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert "too old" in gpus(machine("count = 1\n", library=empty))["note"]


def test_an_old_driver_without_mig_or_compute_capability_still_gives_its_cards(
    machine: Machine, old_nvml_library: Path
) -> None:
    cards = "count = 2\n0.reserved_mib = 300\n1.reserved_mib = 300\n1.used_mib = 2000\n"
    answer = gpus(machine(cards, library=old_nvml_library))
    assert usable(answer) == [0]
    assert answer["gpus"][0]["compute_capability"] is None
    # The old call counts what the driver reserves as used.
    assert answer["gpus"][0]["memory_used"] == 304 << 20


def test_on_this_machine_asking_never_raises_and_says_something() -> None:
    found = inventory(dict(os.environ))
    assert found.gpus or found.note


def test_the_plain_table_has_one_line_per_card_and_no_escape_codes(machine: Machine) -> None:
    command = [sys.executable, "-m", "ddpfix", "gpus"]
    environment = machine("count = 2\n1.used_mib = 30000\n")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    header, first, second = done.stdout.splitlines()
    assert header.split()[0] == "card"
    assert "free" in first
    assert "busy: 29.3 GiB" in second
    assert "\x1b" not in done.stdout


def test_without_any_card_the_note_is_talk_and_standard_output_stays_empty(
    machine: Machine,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ddpfix", "gpus"],
        env=machine("count = 1\ninit = 9\n"),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "modprobe" in done.stderr


def test_a_size_that_is_no_size_is_one_line_and_exit_2(machine: Machine) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ddpfix", "gpus", "--busy-above", "lots"],
        env=machine("count = 1\n"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "'lots' is no size" in done.stderr
