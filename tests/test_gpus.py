"""The inventory of cards, through the real pynvml on a small libnvidia-ml of our own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest
from ddpfix.launchers.gpus.nvml import inventory
from ddpfix.launchers.gpus.visibility import hides_every_card

Machine = Callable[..., dict[str, str]]
GIB = 1 << 30
FOUR = "count = 4\n0.name = NVIDIA H100\n"


ASKER = """
import json, os, sys
from ddpfix.launchers.gpus.nvml import inventory
from ddpfix.record import as_dict
for line in sys.stdin:
    description, environment, options = json.loads(line)
    os.environ["TEST_NVML"] = description
    print(json.dumps(as_dict(inventory(environment, **options))), flush=True)
"""


class Asker:
    """One process that looks again at whatever machine its file describes by then."""

    def __init__(self, library: Path, description: Path) -> None:
        self.description = description
        environment = os.environ | {"LD_LIBRARY_PATH": str(library)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, cards: str, environment: Mapping[str, str] | None = None, **options: int
    ) -> dict[str, Any]:
        self.description.write_text(cards)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        question = (str(self.description), environment or {}, options)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer


@pytest.fixture(scope="module")
def look(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    asker = Asker(nvml_library, tmp_path_factory.mktemp("look") / "machine.txt")
    yield asker
    assert asker.process.stdin is not None
    asker.process.stdin.close()
    assert asker.process.wait() == 0


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
            "0.temperature = 41\n0.power_mw = 71234\n0.limit_mw = 700000\n0.minor = 2\n"
            "0.pci = 00000000:3B:00.0\n0.processes = 77:4 78\n"
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
            "power": 71.234,
            "power_limit": 700.0,
            "temperature": 41,
            "pci": "00000000:3B:00.0",
            "minor": 2,
            "compute_mode": "default",
            "processes": [{"pid": 77, "memory": 4 << 20}, {"pid": 78, "memory": None}],
            "slices": [],
        }
    ]


def test_four_idle_cards_can_all_be_used(machine: Machine) -> None:
    assert usable(gpus(machine(FOUR))) == [0, 1, 2, 3]


# Each row: what the machine says of card 1, and a word of the reason it is left out for.
UNUSABLE = {
    "busy": ("1.used_mib = 30000", "busy: 29.3 GiB in use"),
    "busy by somebody": (
        "1.used_mib = 30000\n1.processes = 77:20000 78:9000",
        "busy: 29.3 GiB in use by processes 77, 78",
    ),
    "just above the bound": ("1.used_mib = 1025", "busy"),
    "a MIG parent": ("1.mig = 1", "split by MIG, and DDP"),
    "a MIG parent with slices": ("1.mig = 1\n1.slices = 9728 19968", "split by MIG into 2"),
    "lost at once": ("1.error = 15", "lost"),
    "lost half-way through its answers": ("1.error_after_name = 15", "lost"),
    "in need of a reset": ("1.error_after_name = 16", "reset"),
    "forbidden to this user": ("1.error = 4", "ask for access"),
    "without enough power": ("1.error = 8", "power cables"),
    "in trouble with interrupts": ("1.error_after_name = 11", "dmesg"),
    "no longer found": ("1.error = 28", "reset it or reboot"),
    "of a corrupt infoROM": ("1.error_after_name = 14", "infoROM"),
    "in compute mode Prohibited": ("1.compute_mode = 2", "Prohibited"),
    "exclusive and taken": (
        "1.compute_mode = 3\n1.processes = 77:300",
        "exclusive-process mode with process 77 on it: nvidia-smi -c 0",
    ),
    "silent on its memory": ("1.silent = memory", "how much memory"),
    "failing in a way nobody named": ("1.error = 999", "NVML says: "),
}


@pytest.mark.parametrize(("line", "word"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_card_is_left_out_with_its_reason_when_it_is(line: str, word: str, look: Asker) -> None:
    answer = look(f"count = 3\n{line}\n")
    assert usable(answer) == [0, 2]
    assert set(reasons(answer)) == {1}
    assert word in reasons(answer)[1]


# Each row: what the machine says of card 0, which stays usable, and what is known of it then.
USABLE = {
    "with MIG switched off and just a gibibyte in use": ("0.mig = 0\n0.used_mib = 1024", {}),
    "exclusive and free": ("0.compute_mode = 3", {"compute_mode": "exclusive process"}),
    "with a display server on it": (
        "0.processes = 77:300\n0.used_mib = 300",
        {"processes": [{"pid": 77, "memory": 300 << 20}]},
    ),
    "silent on load, heat and power": (
        "0.silent = utilization temperature power limit",
        {"utilization": None, "temperature": None, "power": None, "power_limit": None},
    ),
    "silent on its place": ("0.silent = pci minor links", {"pci": "", "minor": None}),
    "silent on its processes": ("0.silent = processes", {"processes": []}),
    "silent on its compute capability": ("0.silent = capability", {"compute_capability": None}),
    "hot": ("0.temperature = 93\n0.power_mw = 699500", {"temperature": 93, "power": 699.5}),
}


@pytest.mark.parametrize(("line", "known"), USABLE.values(), ids=USABLE.keys())
def test_a_card_can_be_used_that_is(line: str, known: dict[str, Any], look: Asker) -> None:
    answer = look(f"count = 1\n{line}\n")
    assert usable(answer) == [0]
    assert answer["gpus"][0].items() >= known.items()


def test_a_card_lost_half_way_keeps_what_it_still_said(look: Asker) -> None:
    [gpu] = look("count = 1\n0.name = NVIDIA T4\n0.error_after_name = 15\n")["gpus"]
    assert gpu["name"] == "NVIDIA T4"
    assert gpu["uuid"].startswith("GPU-")
    assert gpu["memory_total"] == 0


def test_slices_are_listed_with_their_sizes(look: Asker) -> None:
    [gpu] = look("count = 1\n0.mig = 1\n0.slices = 9728 19968\n")["gpus"]
    assert [part["memory_total"] for part in gpu["slices"]] == [9728 << 20, 19968 << 20]
    assert all(part["uuid"].startswith("MIG-") for part in gpu["slices"])


# Each row: what the machine says, and how its cards are joined.
JOINED = {
    "by the interconnect of two CPUs": ("count = 2", {"0-1": "SYS"}),
    "by one host bridge, and two by a PCIe bridge": (
        "count = 3\ntopology = 30\ntopology.1.2 = 10",
        {"0-1": "PHB", "0-2": "PHB", "1-2": "PIX"},
    ),
    "by bridges or a NUMA node": (
        "count = 3\ntopology = 20\ntopology.0.2 = 40",
        {"0-1": "PXB", "0-2": "NODE", "1-2": "PXB"},
    ),
    "by two NVLinks of which one is down": (
        "count = 2\n0.links = 1 -\n1.links = 0 -",
        {"0-1": "NV1"},
    ),
    "in pairs by NVLink": (
        "count = 4\ntopology = 40\n0.links = 1 1\n1.links = 0 0\n2.links = 3 3\n3.links = 2 2",
        {"0-1": "NV2", "0-2": "NODE", "0-3": "NODE", "1-2": "NODE", "1-3": "NODE", "2-3": "NV2"},
    ),
    "by a switch that one of them reaches by fewer links": (
        "count = 3\n0.links = s s s\n1.links = s s -\n2.links = s s s",
        {"0-1": "NV2", "0-2": "NV3", "1-2": "NV2"},
    ),
    "in a way the driver does not tell": ("count = 2\ntopology = -1", {}),
    "as far as the one that is lost does not matter": (
        "count = 3\n1.error = 15",
        {"0-2": "SYS"},
    ),
}


@pytest.mark.parametrize(("cards", "expected"), JOINED.values(), ids=JOINED.keys())
def test_links_tell_how_each_two_cards_are_joined(
    cards: str, expected: dict[str, str], look: Asker
) -> None:
    links = look(f"{cards}\n")["links"]
    assert {f"{one['first']}-{one['second']}": one["path"] for one in links} == expected


def test_the_bound_for_busy_is_the_users_to_move(machine: Machine) -> None:
    environment = machine("count = 2\n0.used_mib = 3000\n1.used_mib = 9000\n")
    assert usable(gpus(environment, "--busy-above", "4GiB")) == [0]


def test_with_min_free_only_what_is_free_counts_unless_busy_above_is_given_too(
    look: Asker,
) -> None:
    cards = "count = 3\n1.used_mib = 30000\n2.total_mib = 16384\n"
    assert usable(look(cards, min_free=30 * GIB)) == [0, 1]
    assert usable(look(cards, min_free=30 * GIB, busy_above=GIB)) == [0]
    assert reasons(look(cards, min_free=60 * GIB)) == {
        1: "only 50.7 GiB free, less than --min-free 60.0 GiB",
        2: "only 16.0 GiB free, less than --min-free 60.0 GiB",
    }


# What happens to card 0 in one process between two looks: before, after, and what is seen then.
CHANGES = {
    "becomes busy": ("", "0.used_mib = 40000", "busy"),
    "is lost": ("", "0.error = 15", "lost"),
    "is split": ("", "0.mig = 1", "MIG"),
    "is taken": ("0.compute_mode = 3", "0.compute_mode = 3\n0.processes = 7:9", "process 7 on it"),
    "recovers": ("0.error = 16", "", ""),
}


@pytest.mark.parametrize(("before", "after", "word"), CHANGES.values(), ids=CHANGES.keys())
def test_a_card_that_changed_is_seen_at_the_next_look(
    before: str, after: str, word: str, look: Asker
) -> None:
    assert usable(look(f"count = 1\n{before}\n")) == ([] if before == "0.error = 16" else [0])
    answer = look(f"count = 1\n{after}\n")
    assert usable(answer) == ([] if word else [0])
    assert word in answer["gpus"][0]["why_not"]


def test_a_driver_that_goes_away_is_seen_at_the_next_look(look: Asker) -> None:
    assert usable(look("count = 1\n")) == [0]
    assert "reboot" in look("count = 1\ninit = 18\n")["note"]
    assert usable(look("count = 1\n")) == [0]


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
    "NoDevFiles": ([], "no cards for this job"),
}


@pytest.mark.parametrize("value", VISIBLE, ids=lambda value: f"set to {value!r}")
def test_cuda_visible_devices_is_read_as_cuda_reads_it(value: str, look: Asker) -> None:
    expected, word = VISIBLE[value]
    answer = look(FOUR, {"CUDA_VISIBLE_DEVICES": value})
    assert usable(answer) == expected
    assert word in answer["note"]
    assert bool(answer["note"]) == bool(word)
    hidden = set(range(4)) - set(expected)
    assert reasons(answer) == dict.fromkeys(hidden, "hidden by CUDA_VISIBLE_DEVICES")


# What Slurm set -> the cards of four that are left, and words of the note.
SLURM = {
    "its CUDA_VISIBLE_DEVICES": (
        {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"},
        ([2, 3], "Slurm gave job 42 cards 2, 3."),
    ),
    "cards of the job, CUDA_VISIBLE_DEVICES being unset again": (
        {"SLURM_JOB_GPUS": "1,3"},
        ([1, 3], "Slurm gave job 42 cards 1, 3."),
    ),
    "a step with fewer cards than its job": (
        {"SLURM_JOB_GPUS": "0,1,2,3", "SLURM_STEP_GPUS": "1"},
        ([1], "Slurm gave job 42 card 1."),
    ),
    "as many cards as it lets the job see, by the numbers of the whole node": (
        {"SLURM_JOB_GPUS": "4,5,6,7"},
        ([0, 1, 2, 3], "Slurm gave job 42 cards 0, 1, 2, 3."),
    ),
    "cards that are not here": ({"SLURM_JOB_GPUS": "2,9"}, ([], "set CUDA_VISIBLE_DEVICES")),
    "no cards": ({"CUDA_VISIBLE_DEVICES": ""}, ([], "Slurm job 42: if it was given no cards, ask")),
    "no word on cards": ({}, ([0, 1, 2, 3], "")),
}


@pytest.mark.parametrize(("variables", "expected"), SLURM.values(), ids=SLURM.keys())
def test_in_a_slurm_job_the_cards_are_what_slurm_gave(
    variables: dict[str, str], expected: tuple[list[int], str], look: Asker
) -> None:
    cards, words = expected
    answer = look(FOUR, {"SLURM_JOB_ID": "42", **variables})
    assert usable(answer) == cards
    assert words in answer["note"]
    assert bool(answer["note"]) == bool(words)


def test_slurm_counts_cards_by_their_device_files(look: Asker) -> None:
    cards = "count = 3\n0.minor = 2\n1.minor = 0\n2.minor = 1\n"
    answer = look(cards, {"SLURM_JOB_ID": "42", "SLURM_JOB_GPUS": "0"})
    assert usable(answer) == [1]
    assert reasons(answer)[0] == "not given to Slurm job 42"


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
    "a lost card": (15, "dmesg"),
    "a card in need of a reset": (16, "--gpu-reset"),
    "an error nobody named": (999, "nvidia-smi"),
}


@pytest.mark.parametrize(("code", "way_out"), START.values(), ids=START.keys())
def test_when_nvml_cannot_start_the_inventory_is_empty_and_says_why(
    code: int, way_out: str, look: Asker
) -> None:
    answer = look(f"count = 2\ninit = {code}\n")
    assert answer["gpus"] == []
    assert answer["driver"] == ""
    assert way_out in answer["note"]
    assert answer["note"].endswith((".", "`."))


def test_a_driver_that_sees_no_card_says_so(look: Asker) -> None:
    answer = look("count = 0\n")
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


def test_a_driver_without_the_old_names_is_asked_by_the_new_ones(
    machine: Machine, new_nvml_library: Path
) -> None:
    answer = gpus(machine("count = 1\n0.temperature = 55\n", library=new_nvml_library))
    assert answer["gpus"][0]["temperature"] == 55


def test_on_this_machine_asking_never_raises_and_says_something() -> None:
    found = inventory(dict(os.environ))
    assert found.gpus or found.note


def run(environment: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ddpfix", "gpus", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_plain_table_has_a_line_per_card_slice_and_link_and_no_escape_codes(
    machine: Machine,
) -> None:
    cards = "count = 3\n1.used_mib = 30000\n2.mig = 1\n2.slices = 9728\n0.processes = 7:9\n"
    done = run(machine(f"{cards}0.links = 1 1\n1.links = 0 0\n"))
    header, first, second, third, part, nvlink, system = done.stdout.splitlines()
    assert header.split()[0] == "card"
    assert "30 °C  70 of 700  free, with process 7" in first
    assert "busy: 29.3 GiB" in second
    assert "split by MIG into 1" in third
    assert "card 2 has the slice MIG-" in part
    assert "9.5 GiB" in part
    assert nvlink == "joined by NV2 (that many NVLinks): 0-1"
    assert system == "joined by SYS (the interconnect between NUMA nodes): 0-2, 1-2"
    assert "\x1b" not in done.stdout


# --gpus -> the cards left, in its order.
NAMED = {
    "2,0": [2, 0],
    "GPU-00000001,3": [1, 3],
    "00000003-1111": [3],
}


@pytest.mark.parametrize("names", NAMED, ids=lambda names: f"to {names}")
def test_the_user_narrows_the_cards_down(names: str, machine: Machine) -> None:
    answer = gpus(machine(FOUR), "--gpus", names)
    assert usable(answer) == NAMED[names]
    rest = set(range(4)) - set(NAMED[names])
    assert reasons(answer) == dict.fromkeys(rest, "not among --gpus")


# --gpus that cannot be -> words of the one line.
MISNAMED = {
    "7": "'7' is no card: there are 0, 1, 2, 3",
    "0000": "'0000' fits 4 cards",
    "1,GPU-00000001": "GPU-00000001 is card 1 again",
    "1,,2": "name cards as 0,2",
    "card": "'card' is no card",
}


@pytest.mark.parametrize("names", MISNAMED, ids=lambda names: f"as {names}")
def test_names_that_fit_no_card_are_refused_in_one_line(names: str, machine: Machine) -> None:
    done = run(machine(FOUR), "--gpus", names)
    assert (done.returncode, done.stdout) == (2, "")
    [complaint] = done.stderr.splitlines()
    assert MISNAMED[names] in complaint


PLAN = [sys.executable, "-m", "ddpfix", "plan", "--recipe", "codegpt-bigclonebench"]


def plan(environment: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PLAN, *options], env=environment, capture_output=True, text=True)


def test_a_plan_takes_the_named_cards_alone_and_in_their_order(machine: Machine) -> None:
    done = plan(machine("count = 3\n1.used_mib = 30000\n"), "--gpus", "2,0", "--json")
    assert [card["index"] for card in json.loads(done.stdout)["cards"]] == [2, 0]
    assert done.stderr == "Using cards 2 (NVIDIA Test Card), 0 (NVIDIA Test Card).\n"


# A machine, options -> words of the one line that says why there is no plan.
NO_PLAN = {
    "a named card is busy": (
        "count = 2\n1.used_mib = 30000\n",
        ("--gpus", "0,1"),
        "--gpus: card 1 cannot be used: busy: 29.3 GiB in use",
    ),
    "a named card is lost": (
        "count = 2\n1.error = 15\n",
        ("--gpus", "1"),
        "card 1 cannot be used: lost",
    ),
    "no card has so much memory free": (
        "count = 1\n",
        ("--min-free", "90GiB"),
        "card 0: only 80.0 GiB free, less than --min-free 90.0 GiB",
    ),
    "a card is named and the CPU asked for": (
        "count = 1\n",
        ("--gpus", "0", "--cpu"),
        "--gpus and --cpu exclude each other",
    ),
    "cards are named where there is no driver": (
        "init = 9\n",
        ("--gpus", "0"),
        "--gpus 0: The NVIDIA driver is installed but not loaded",
    ),
}


@pytest.mark.parametrize(("cards", "options", "words"), NO_PLAN.values(), ids=NO_PLAN.keys())
def test_a_plan_on_cards_that_cannot_be_had_is_refused_in_one_line(
    cards: str, options: tuple[str, ...], words: str, machine: Machine
) -> None:
    done = plan(machine(cards), *options)
    assert (done.returncode, done.stdout) == (2, "")
    [complaint] = done.stderr.splitlines()
    assert words in complaint


def test_a_named_card_that_the_environment_hides_is_no_reason_to_take_the_cpu(
    machine: Machine,
) -> None:
    done = plan(machine("count = 2\n", CUDA_VISIBLE_DEVICES=""), "--gpus", "1")
    assert done.returncode == 2
    assert "card 1 cannot be used: hidden by CUDA_VISIBLE_DEVICES" in done.stderr


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


# --- watching ---

WATCH = [sys.executable, "-m", "ddpfix", "gpus", "--watch", "--every", "0.2"]


def next_with(lines: IO[str], word: str) -> str:
    """The next line that has the word in it; the file's end or too many others are a failure."""
    for line in itertools.islice(lines, 1000):
        if word in line:
            return line
    raise AssertionError(f"no line with {word!r}")


@pytest.mark.parametrize("form", ["plain", "json"])
def test_watching_writes_a_line_a_look_and_sees_a_card_change_until_ctrl_c(
    form: str, machine: Machine, tmp_path: Path
) -> None:
    environment = machine("count = 2\n0.utilization = 7\n")
    options = ["--json"] if form == "json" else []
    with subprocess.Popen(
        [*WATCH, *options], env=environment, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        first = next_with(watching.stdout, "7")
        (tmp_path / "machine.txt").write_text("count = 2\n0.error = 15\n1.temperature = 88\n")
        later = next_with(watching.stdout, "lost")
        (tmp_path / "machine.txt").write_text("init = 18\n")
        last = next_with(watching.stdout, "reboot")
        watching.send_signal(signal.SIGINT)
        assert watching.wait() == 0
    if form == "json":
        assert json.loads(first)["gpus"][0]["utilization"] == 7
        assert json.loads(later)["gpus"][1]["temperature"] == 88
        assert json.loads(last)["broken"] is True
    else:
        assert "0: 7 %, 0.0 of 80.0 GiB, 30 °C, 70 W | 1: 0 %" in first
        assert "88 °C" in later


def test_watching_on_a_terminal_shows_bars_in_place(machine: Machine) -> None:
    environment = machine("count = 1\n0.used_mib = 40960\n") | {"TERM": "xterm", "COLUMNS": "160"}
    ours, theirs = pty.openpty()
    with subprocess.Popen(WATCH, env=environment, stdout=theirs, stderr=theirs) as watching:
        os.close(theirs)
        seen = b""
        for _ in range(1000):  # so that a failure does not hang the tests
            if seen.count("██████░░░░░░".encode()) > 1:
                break
            seen += os.read(ours, 1 << 16)
        watching.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # its end is gone: the watch is over
            while rest := os.read(ours, 1 << 16):
                seen += rest
        assert watching.wait() == 0
    os.close(ours)
    assert seen.count("██████░░░░░░".encode()) > 1
    assert b"\x1b[?1049h" in seen
    assert seen.count(b"\x1b[?1049l") == 1
    assert b"busy: 40.0 GiB" in seen
