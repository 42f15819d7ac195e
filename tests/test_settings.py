"""Precision, loader workers and horizon of a plan, and which scripts are told of them."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest
from command_line import run
from ddpfix.errors import InputError
from ddpfix.fixtures.tiny import copy_family
from ddpfix.launchers.gpus.model import Gpu
from ddpfix.launchers.planning.plan import solve, solve_shared
from ddpfix.launchers.planning.precision import Precision, choose_precision, requested_precision
from ddpfix.launchers.planning.settings import choose_settings, workers_per_process
from ddpfix.launchers.planning.training_steps import compute_horizon, steps_per_epoch
from ddpfix.launchers.script.source import declared_flag_names
from ddpfix.patcher.capabilities import all_capabilities
from ddpfix.patcher.engine.patch import patch
from ddpfix.recipes.load import load
from ddpfix.record import replace

RECIPE = load("codegpt-bigclonebench")
HOPPER = Gpu(0, "GPU-0", "card", 80 << 30, 0, 80 << 30, (9, 0), 0, False, True, "")
AMPERE = replace(HOPPER, index=1, compute_capability=(8, 0))
TURING = replace(HOPPER, index=2, compute_capability=(7, 5))
PASCAL = replace(HOPPER, index=3, compute_capability=(6, 1))
SILENT = replace(HOPPER, index=4, compute_capability=None)
AMP = frozenset({"--amp"})
RUN = Path("run.py")

# What is asked, the cards, and the script's flags -> precision, whether it is told, words of why.
PRECISIONS = {
    "bf16 on cards that all have it": (
        ("auto", [HOPPER, AMPERE], AMP),
        ("bf16", True, "is 8.0, and bfloat16"),
    ),
    "fp16 where one card is older": (
        ("auto", [HOPPER, TURING], AMP),
        ("fp16", True, "is 7.5, and bfloat16 is there from 8.0 on; losses are scaled"),
    ),
    "fp32 on cards older still": (
        ("auto", [HOPPER, PASCAL], AMP),
        ("fp32", True, "is 6.1, and float16"),
    ),
    "fp32 where a card does not tell": (
        ("auto", [HOPPER, SILENT], AMP),
        ("fp32", True, "card 4 does not tell"),
    ),
    "fp32 on the CPU": (("auto", [], AMP), ("fp32", True, "on the CPU")),
    "fp32 where the script has no flag": (
        ("auto", [HOPPER], frozenset()),
        ("fp32", False, "no --amp, which `ddpfix patch --with amp` adds; the cards could do bf16"),
    ),
    "what is asked": (("fp16", [HOPPER], AMP), ("fp16", True, "as asked")),
    "what is asked on the CPU": (("bf16", [], AMP), ("bf16", True, "as asked")),
    "fp32 as asked without a flag": (("fp32", [HOPPER], frozenset()), ("fp32", False, "as asked")),
    "what is asked, with a warning": (
        ("bf16", [TURING], AMP),
        ("bf16", True, "card 2 (7.5) has no units for it"),
    ),
}


@pytest.mark.parametrize(("case", "expected"), PRECISIONS.values(), ids=PRECISIONS.keys())
def test_the_precision_is_the_lowest_that_all_cards_and_the_script_have(
    case: tuple[str, list[Gpu], frozenset[str]], expected: tuple[str, bool, str]
) -> None:
    found = choose_precision(RUN, *case, mine={})
    name, told, words = expected
    assert (found.name, found.told) == (name, told)
    assert words in found.why


def test_what_the_user_passes_to_the_script_is_the_precision() -> None:
    passed = choose_precision(RUN, "auto", [HOPPER], AMP, mine={"--amp": "no"})
    assert passed == Precision("fp32", "as passed to the script", told=True)


OWN = {
    "a switch of the script's": ({"--bf16": None}, "bf16"),
    "which is set": ({"--bf16": "True"}, "bf16"),
    "which is not set": ({"--bf16": "False"}, None),
    "beside the flag that patching adds": ({"--bf16": None, "--amp": "no"}, "fp32"),
    "neither": ({"--fast": None}, None),
}


@pytest.mark.parametrize(("mine", "expected"), OWN.values(), ids=OWN.keys())
def test_the_users_arguments_ask_for_a_precision(
    mine: dict[str, str | None], expected: str | None
) -> None:
    assert requested_precision(mine) == expected


def test_what_the_script_computes_in_by_itself_is_the_precision_and_not_told() -> None:
    own = Precision("bf16", "by the script itself", told=False)
    assert choose_precision(RUN, "auto", [TURING], AMP, {}, "bf16") == own
    assert choose_precision(RUN, "bf16", [HOPPER], frozenset(), {}, "bf16") == own
    assert choose_precision(RUN, "fp16", [HOPPER], AMP, {}, "bf16").name == "fp16"


def test_a_precision_that_the_script_cannot_be_told_is_refused() -> None:
    with pytest.raises(InputError, match=r"--precision bf16: run\.py has no --amp; `ddpfix patch"):
        choose_precision(RUN, "bf16", [HOPPER], frozenset(), mine={})


@pytest.mark.parametrize(
    ("world", "cores", "workers"), [(1, 1, 0), (2, 2, 0), (2, 8, 3), (4, 64, 8), (8, 64, 7)]
)
def test_a_process_has_its_share_of_the_cores_for_loading_less_its_own(
    world: int, cores: int, workers: int
) -> None:
    assert workers_per_process(world, cores) == workers


def test_flags_are_those_of_the_script_and_of_the_modules_beside_it_that_it_imports(
    tmp_path: Path,
) -> None:
    (tmp_path / "run.py").write_text("import options\np.add_argument('--a')\n# --b")
    (tmp_path / "options.py").write_text("from configs import *")
    (tmp_path / "configs.py").write_text('p.add_argument("--grad-accum", "--c_d")')
    assert declared_flag_names(tmp_path / "run.py") == {"--a", "--grad-accum", "--c_d"}


@pytest.mark.parametrize(
    "loop",
    [
        "for name in ('--a', '--b'):\n    p.add_argument(name, type=int)\n",
        "for name, size in [('--a', 1), ['--b', 2]]:\n    p.add_argument(name, default=size)\n",
    ],
)
def test_flags_are_also_those_that_a_loop_over_their_names_declares(
    tmp_path: Path, loop: str
) -> None:
    (tmp_path / "run.py").write_text(loop + "for other in ('--c',):\n    print(other)\n")
    assert declared_flag_names(tmp_path / "run.py") == {"--a", "--b"}


def test_flags_of_a_script_that_runs_another_one_are_those_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "wrapper.py").write_text("import runpy\nrunpy.run_path('run.py')\n")
    (tmp_path / "run.py").write_text("p.add_argument('--a')")
    assert declared_flag_names(tmp_path / "wrapper.py") == {"--a"}
    assert declared_flag_names(tmp_path / "gone.py") == frozenset()


# --- the horizon ---


def place(folder: Path, lines: int) -> Path:
    """A script with a training file of so many lines where the recipe expects it."""
    (folder / "code").mkdir(parents=True)
    (folder / "dataset").mkdir()
    (folder / "dataset" / "train.txt").write_text("a\tb\t1\n" * lines + "\n")
    script = folder / "code" / "run.py"
    script.touch()
    return script


def test_the_horizon_counts_optimizer_steps_of_the_examples_trained_on(tmp_path: Path) -> None:
    script = place(tmp_path, 10_000)
    found = compute_horizon(RECIPE, solve(2, 64, 8), script, {})
    assert found is not None
    assert (found.examples, found.steps_per_epoch, found.steps) == (1000, 16, 32)
    assert found.why == (
        "32 optimizer steps: 2 x 16 for 1000 training examples "
        "(10000 lines of train.txt, of which 0.1 is used)"
    )
    more = compute_horizon(RECIPE, solve(2, 64, 8), script, {"--epoch": "5"})
    assert more is not None
    assert more.steps == 80


def test_the_horizon_is_that_of_the_users_own_file(tmp_path: Path) -> None:
    script = place(tmp_path, 10)
    (tmp_path / "other.txt").write_text("a\n" * 640)
    mine = {"--train_data_file": str(tmp_path / "other.txt")}
    found = compute_horizon(load("graphcodebert"), solve(1, 64, 16), script, mine)
    assert found is not None
    assert (found.examples, found.steps) == (640, 10)


@pytest.mark.parametrize(
    ("mine", "steps", "epochs"),
    [
        pytest.param({"--max_steps": "8"}, 8, 0.5, id="a number of steps goes before epochs"),
        pytest.param({"--max_steps": "-1"}, 32, 2, id="one below 1 stands for none"),
        pytest.param({"--max_steps": "8", "--epoch": "9"}, 8, 0.5, id="also before the user's"),
    ],
)
def test_a_number_of_steps_ends_the_training_where_the_script_obeys_it(
    mine: dict[str, str | None], steps: int, epochs: float, tmp_path: Path
) -> None:
    script, plan = place(tmp_path, 10_000), solve(2, 64, 8)
    obeying = replace(RECIPE, flags=replace(RECIPE.flags, max_steps="--max_steps"))
    found = compute_horizon(obeying, plan, script, mine)
    assert found is not None
    assert (found.steps, found.epochs) == (steps, epochs)
    assert found.why.startswith(f"{steps} optimizer steps: {'by --max_steps, ' * (steps == 8)}")
    assert compute_horizon(RECIPE, plan, script, mine) is None  # it may overwrite it


@pytest.mark.parametrize("mine", [{"--train_data_file": "gone.txt"}, {"--epoch": "x"}], ids=str)
def test_without_examples_or_epochs_there_is_no_horizon(
    mine: dict[str, str | None], tmp_path: Path
) -> None:
    assert compute_horizon(RECIPE, solve(2, 64, 8), place(tmp_path, 10), mine) is None


@pytest.mark.parametrize("shared", [False, True], ids=["with torch's sampler", "sharing batches"])
def test_steps_of_an_epoch_are_those_of_a_loader(shared: bool) -> None:
    from ddpfix.patcher.editing.helper_code import SharedBatchSampler
    from torch.utils.data import DataLoader, Dataset, DistributedSampler, SequentialSampler

    class Numbers(Dataset[int]):
        def __init__(self, count: int) -> None:
            self.count = count

        def __len__(self) -> int:
            return self.count

    draw = random.Random(0)
    for _ in range(200):
        examples, world, target = draw.randint(1, 500), draw.randint(1, 8), draw.randint(8, 64)
        data = Numbers(examples)
        plan = (solve_shared if shared else solve)(world, target, draw.randint(1, 16))
        if shared:
            batches = SharedBatchSampler(
                SequentialSampler(data), plan.global_micro_batch, drop_last=False
            )
            loader = DataLoader(data, batch_sampler=batches)
        else:
            sampler: DistributedSampler[int] = DistributedSampler(data, num_replicas=world, rank=0)
            loader = DataLoader(data, sampler=sampler, batch_size=plan.per_device)
        steps = sum(
            (number + 1) % plan.accumulation == 0 or number + 1 == len(loader)
            for number in range(len(loader))
        )
        assert steps_per_epoch(examples, plan) == steps


# --- on the command line, with a script that has every flag ---


@pytest.fixture(scope="module")
def able(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("able")
    path = copy_family("bigclonebench", folder / "code")
    patch(path, capabilities=all_capabilities()).write()
    (folder / "dataset").mkdir()
    for name in ("train.txt", "valid.txt", "test.txt", "data.jsonl"):
        (folder / "dataset" / name).write_text("a\tb\t1\n" * 640)
    return path


def test_a_script_is_passed_only_what_it_declares(able: Path, tmp_path: Path) -> None:
    plan = solve(2, 64, 8)
    found = choose_settings(RECIPE, able, plan, [HOPPER, AMPERE], cores=16)
    assert found.arguments.items() >= {"--amp": "bf16", "--dataloader_num_workers": "7"}.items()
    assert ("--save_total_limit" in declared_flag_names(able)) == (
        "--save_total_limit" in found.arguments
    )
    bare = choose_settings(RECIPE, place(tmp_path, 1), plan, [HOPPER, AMPERE], cores=16)
    assert (bare.arguments, bare.workers, bare.precision.name) == ({}, None, "fp32")


def test_plan_and_launch_say_and_pass_the_same(able: Path) -> None:
    words = ["--cpu", "--recipe", "codegpt-bigclonebench", "--script", able]
    planned = run("plan", *words, "--precision", "bf16").stdout.splitlines()
    assert planned[0].startswith("global batch 64 = 8 per device x 4 accumulated x 2 processes")
    assert planned[1] == "bf16: as asked"
    assert planned[2].startswith("loader workers per process: ")
    assert planned[3].startswith("2 optimizer steps: 2 x 1 for 64 training examples (640 lines")
    facts = json.loads(run("plan", *words, "--json").stdout)
    assert facts["precision"] == {"name": "fp32", "why": "on the CPU", "told": True}
    assert facts["horizon"]["steps"] == 2
    launched = run("launch", *words, "--precision", "bf16", "--dry-run")
    assert "--amp bf16 --dataloader_num_workers" in launched.stdout
    assert planned[1] in launched.stderr
    own = run("launch", *words, "--dry-run", "--", "--amp", "no")
    assert own.stdout.count("--amp") == 1


def test_the_workers_of_simulated_cards_are_not_counted_from_the_cores_here(
    able: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = set()
    for cores in (2, 64):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: {*range(cores)})
        words = ("--recipe", "codegpt-bigclonebench", "--script", able, "--gpus", "4x A100 80GB")
        emitted = run("launch", *words, "--emit", "sbatch")
        assert emitted.exit_code == 0, emitted.output
        told |= {*re.findall(r"--dataloader_num_workers \d+|cpus-per-task=\d+", emitted.stdout)}
    # 4 cores for each of 4 processes, which runs on one of them itself.
    assert told == {"--dataloader_num_workers 3", "cpus-per-task=16"}


def test_exact_is_for_a_script_that_is_patched_so(able: Path) -> None:
    words = ["--cpu", "--recipe", "codegpt-bigclonebench", "--script", able, "--exact"]
    planned = run("plan", *words, "--processes", "3", "--per-device", "22")
    assert "64 = (22 + 21 + 21) x 1 accumulated on 3 processes" in planned.stdout
    refused = run("launch", *words, "--dry-run")
    assert refused.exit_code == 2
    assert "shares no batches out; `ddpfix patch --exact` it first" in refused.stderr
