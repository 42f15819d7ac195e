"""What is lowered when a run is out of memory, and what is remembered of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.launchers.backends.command import ScriptCall
from ddpfix.launchers.gpus.model import Gpu
from ddpfix.launchers.memory.step import FSDP_FLAG
from ddpfix.launchers.planning.plan import solve, solve_shared
from ddpfix.launchers.running.failure import RunFailure, first_failure
from ddpfix.launchers.running.oom_history import OomHistory
from ddpfix.launchers.running.oom_ladder import CHECKPOINTING, LaunchSettings, next_rung
from ddpfix.launchers.running.output_monitor import MAX_LOSSES, OutputMonitor, last_progress
from ddpfix.recipes.load import load
from ddpfix.recipes.model import Recipe
from ddpfix.record import replace
from hypothesis import given
from hypothesis import strategies as st

RECIPE = """
description = "for tests"
family = "test"
script = "run.py"
task = "to be lowered"
[flags]
train_batch = "--batch"
eval_batch = "--eval_batch"
accumulation = "--accumulation"
output = "--out"
sequence_length = "--block"
[batch]
global_batch = 16
per_device_cap = 8
eval_per_device = 4
[data]
folder = "."
files = {}
[output]
folder = "made"
[arguments]
"--block" = 400
[out_of_memory]
"--lora_r" = 5
"--block" = 100
"""

TRAINING, EVALUATION = (
    RunFailure(out_of_memory=True),
    RunFailure(out_of_memory=True, in_evaluation=True),
)
CARD = Gpu(0, "GPU-0", "Card", 80 << 30, 0, 80 << 30, (9, 0), 0, False, True, "")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "own.toml").write_text(RECIPE)
    return load(str(tmp_path / "own.toml"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "run.py").write_text("")
    return tmp_path / "run.py"


def words(setting: LaunchSettings, script: Path) -> str:
    """What the script is given."""
    call = ScriptCall(
        setting.recipe, script, setting.plan, Path("/r"), setting.extra, setting.added_flags
    )
    arguments, _ = call.arguments()
    return " ".join(arguments)


def all_the_way(setting: LaunchSettings, script: Path, failure: RunFailure = TRAINING) -> list[str]:
    """What the script is given on each rung, after "anew: " where it is another training."""
    told = []
    while step := next_rung(setting, failure):
        setting = step.setting
        told.append("anew: " * step.restarts_training + words(setting, script))
    return told


def test_batch_then_checkpointing_then_what_the_recipe_allows_each_to_its_least(
    recipe: Recipe, script: Path
) -> None:
    declared = frozenset({CHECKPOINTING, "--lora_r", "--block"})
    start = LaunchSettings(recipe, solve(2, 16, 8), ("--lora_r", "8"), declared)
    rest = "--eval_batch 4 --accumulation 8 --out /r/made"
    assert all_the_way(start, script) == [
        "--block 400 --batch 4 --eval_batch 4 --accumulation 2 --out /r/made --lora_r 8",
        "--block 400 --batch 2 --eval_batch 4 --accumulation 4 --out /r/made --lora_r 8",
        f"--block 400 --batch 1 {rest} --lora_r 8",
        f"--block 400 --batch 1 {rest} {CHECKPOINTING} --lora_r 8",
        f"anew: --block 400 --batch 1 {rest} {CHECKPOINTING} --lora_r 5",
        f"anew: --block 200 --batch 1 {rest} {CHECKPOINTING} --lora_r 5",
        f"anew: --block 100 --batch 1 {rest} {CHECKPOINTING} --lora_r 5",
    ]


def test_weights_are_sharded_after_checkpointing_and_before_another_training(
    recipe: Recipe, script: Path
) -> None:
    declared = frozenset({CHECKPOINTING, FSDP_FLAG, "--block"})
    start = LaunchSettings(recipe, solve(2, 2, 1), (), declared)
    rest = "--block 400 --batch 1 --eval_batch 4 --accumulation 1 --out /r/made"
    assert all_the_way(start, script)[:3] == [
        f"{rest} {CHECKPOINTING}",
        f"{rest} {CHECKPOINTING} {FSDP_FLAG}",
        f"anew: {rest} {CHECKPOINTING} {FSDP_FLAG}".replace("400", "200"),
    ]


@pytest.mark.parametrize("because", ["one rank", "--compile", "asked for", "unequal parts"])
def test_weights_are_not_sharded(because: str, recipe: Recipe, script: Path) -> None:
    plan = solve(1, 1, 1) if because == "one rank" else solve(2, 2, 1)
    plan = solve_shared(2, 3, 2) if because == "unequal parts" else plan
    extra = {"--compile": ("--compile",), "asked for": (FSDP_FLAG,)}.get(because, ())
    start = LaunchSettings(recipe, plan, extra, frozenset({FSDP_FLAG, "--compile"}))
    told = all_the_way(start, script)
    plain = LaunchSettings(recipe, plan, extra, frozenset({"--compile"}))
    assert told == all_the_way(plain, script)


def test_what_the_script_does_not_declare_or_the_recipe_not_allow_is_left_alone(
    recipe: Recipe, script: Path
) -> None:
    start = LaunchSettings(recipe, solve(1, 2, 2), ("--lora_r", "8"))
    assert len(all_the_way(start, script)) == 1
    strict = replace(recipe, out_of_memory={})
    start = LaunchSettings(strict, solve(1, 1, 1), (), frozenset({"--lora_r", "--block"}))
    assert all_the_way(start, script) == []


def test_the_users_own_batch_is_lowered_in_their_words(recipe: Recipe, script: Path) -> None:
    plan = solve(1, 12, 8, per_device=6, accumulation=2)
    start = LaunchSettings(recipe, plan, ("--batch=6", "--x", "--accumulation", "2"))
    assert all_the_way(start, script) == [
        "--block 400 --eval_batch 4 --out /r/made --batch=3 --x --accumulation 4",
        "--block 400 --eval_batch 4 --out /r/made --batch=1 --x --accumulation 12",
    ]


def test_memory_that_runs_out_in_evaluation_halves_its_batch_first(
    recipe: Recipe, script: Path
) -> None:
    start = LaunchSettings(recipe, solve(1, 2, 2), ("--eval_batch", "2"))
    assert all_the_way(start, script, EVALUATION) == [
        "--block 400 --batch 2 --accumulation 1 --out /r/made --eval_batch 1",
        "--block 400 --batch 1 --accumulation 2 --out /r/made --eval_batch 1",
    ]


@given(
    world=st.integers(1, 16),
    target=st.integers(8, 1024),
    cap=st.integers(1, 64),
    shared=st.booleans(),
)
def test_no_rung_changes_the_global_batch(world: int, target: int, cap: int, shared: bool) -> None:
    recipe = load("codegpt-bigclonebench")
    plan = (solve_shared if shared else solve)(world, target, cap)
    setting = LaunchSettings(recipe, plan, ())
    while step := next_rung(setting, TRAINING):
        less = step.setting.plan
        assert less.global_batch == plan.global_batch
        assert 1 <= less.per_device <= setting.plan.per_device / 2
        assert shared or less.per_device * less.accumulation * world == plan.global_batch
        setting = step.setting
    assert setting.plan.per_device == 1


# --- what is remembered ---


def lowered(setting: LaunchSettings, rungs: int) -> LaunchSettings:
    for _ in range(rungs):
        step = next_rung(setting, TRAINING)
        assert step
        setting = step.setting
    return setting


def test_what_fitted_is_used_by_the_next_run_of_its_kind_alone(
    recipe: Recipe, tmp_path: Path
) -> None:
    declared = frozenset({CHECKPOINTING, FSDP_FLAG, "--block"})
    start = LaunchSettings(recipe, solve(2, 16, 8), (), declared)
    OomHistory(tmp_path, [CARD], start).save(lowered(start, 6))
    used, said = OomHistory(tmp_path, [CARD], start).apply(start)
    assert (used.plan.per_device, used.plan.accumulation) == (1, 8)
    assert {CHECKPOINTING, FSDP_FLAG} <= set(used.added_flags)
    assert used.value("--block") == "200"
    assert "1 per device and --gradient_checkpointing and --fsdp." in said

    other_card = replace(CARD, memory_total=40 << 30)
    longer = replace(start, recipe=replace(recipe, arguments={"--block": 512}))
    for cards, setting in (([other_card], start), ([], start), ([CARD], longer)):
        assert OomHistory(tmp_path, cards, setting).apply(setting) == (setting, "")
    more_cards = replace(start, plan=solve(3, 24, 8), extra=("--out", "x", "--resume"))
    used, _ = OomHistory(tmp_path, [CARD, replace(CARD, index=1)], more_cards).apply(more_cards)
    assert (used.plan.per_device, used.plan.global_batch) == (1, 24)


def test_a_note_that_cannot_be_read_is_said_and_not_used(recipe: Recipe, tmp_path: Path) -> None:
    start = LaunchSettings(recipe, solve(2, 16, 8), ())
    memory = OomHistory(tmp_path, [], start)
    memory.save(lowered(start, 1))
    [note] = (tmp_path / "memory").iterdir()
    for text in ("", "[]", '{"per_device": "8"}'):
        note.write_text(text)
        used, said = memory.apply(start)
        assert used == start
        assert str(note) in said


# --- what failed first, and how far a run is ---

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
OOM = f"""\
10%|#         | 1/10 [00:01<00:09]Traceback (most recent call last):
  File "/x/run.py", line 3, in main
    train()
{MEMORY}
"""
LOST = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/x/run.py", line 9, in <module>
[rank0]: RuntimeError: Connection closed by peer
"""
MINE = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/x/run.py", line 5, in train
[rank1]: KeyError: 'label'
"""
ROOT = """\
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {} (pid: 7)
"""


@pytest.mark.parametrize(
    ("output", "rank", "sentence"),
    [
        pytest.param("", None, "", id="nothing is told"),
        pytest.param(OOM, None, f"The run failed first: {MEMORY}", id="one process, after a bar"),
        pytest.param(
            LOST + MINE + ROOT.format(1),
            1,
            "Rank 1 failed first: KeyError: 'label'",
            id="the rank that the launcher saw first, though another one was printed first",
        ),
        pytest.param(
            LOST + ROOT.format(-9),
            1,
            "Rank 1 failed first, with SIGKILL",
            id="a killed rank has no traceback, and another one's is no cause",
        ),
        pytest.param(
            "ddpfix: rank 2 ended with exit status 3; the other ranks are stopped\n",
            2,
            "Rank 2 failed first, with exit status 3",
            id="the direct back end",
        ),
        pytest.param(
            MINE.replace("KeyError: 'label'", MEMORY)
            + LOST
            + ROOT.format(1).replace(": 1 (", ": 0 ("),
            1,
            f"Rank 1 failed first: {MEMORY}",
            id="memory is never a consequence, whoever ended first",
        ),
        pytest.param(
            MINE + "[rank1]: \n[rank1]: During handling of the above exception, another "
            "exception occurred:\n[rank1]: \n"
            + MINE.replace("KeyError: 'label'", "ValueError: no label"),
            1,
            "Rank 1 failed first: ValueError: no label",
            id="a chain ends in what ended the rank",
        ),
    ],
)
def test_what_failed_first_is_told_from_what_followed_it(
    output: str, rank: int | None, sentence: str
) -> None:
    failure = first_failure(output.encode())
    assert (failure.rank, failure.sentence) == (rank, sentence)
    assert failure.out_of_memory == (MEMORY in output)


@pytest.mark.parametrize(
    ("frame", "is_evaluation"),
    [
        ('File "/x/run.py", line 3, in evaluate', True),
        ('File "/x/run.py", line 3, in test_model', True),
        ('File "/x/run.py", line 3, in train', False),
        ('File "/v/site-packages/torch/x.py", line 3, in validate', False),
    ],
)
def test_memory_that_ran_out_in_evaluation_is_told_from_training(
    frame: str, is_evaluation: bool
) -> None:
    output = OOM.replace('File "/x/run.py", line 3, in main', frame)
    assert first_failure(output.encode()).in_evaluation == is_evaluation


def test_steps_and_losses_are_read_from_bars_and_lines_in_any_pieces() -> None:
    text = b"".join(
        b"\repoch 0 loss %.2f:  %d%%|##  | %d/4000 [00:01<00:09, 3it/s]" % (1 / step, step, step)
        for step in range(1, 3001)
    )
    monitor = OutputMonitor()
    for start in range(0, len(text), 77):
        monitor.take(2, text[start : start + 77])
    assert (monitor.step, monitor.steps) == (2999, 4000)  # the last bar may still be drawn
    steps = [step for _, step, _ in monitor.losses]
    assert MAX_LOSSES / 2 <= len(steps) <= MAX_LOSSES
    assert steps == sorted(step for step in steps if step is not None)


def test_the_longest_pass_of_a_bar_tells_how_long_its_steps_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monitor = OutputMonitor()
    # Seconds, how far a bar is, of how many: an epoch, an evaluation, an epoch that goes further.
    for when, step, steps in (
        (1, 2, 90),
        (4, 8, 90),
        (5, 1, 9),
        (6, 9, 9),
        (7, 1, 90),
        (17, 11, 90),
    ):
        monkeypatch.setattr("time.monotonic", lambda when=when: float(when))
        monitor.take(2, b"\r%d%%|##| %d/%d [00:01<00:09, 3it/s]\n" % (step, step, steps))
    assert monitor.units == {90: (10, 10.0), 9: (8, 1.0)}


def test_the_bar_of_a_model_that_is_loaded_or_saved_is_no_step() -> None:
    """Else the silence in which a script prepares its data would count as a hang."""
    monitor = OutputMonitor()
    shown = b"Loading weights: 100%|##| 39/39 [00:00<00:00, 9it/s]"
    monitor.take(2, b"\r" + shown + b"\n")
    assert (monitor.step, monitor.units) == (None, {})
    epoch = b"Epoch 1:  50%|##| 4/8 [00:01<00:01, 4it/s, loss=0.5]"
    monitor.take(2, epoch + b"\n" + shown + b"\n")
    assert (monitor.step, monitor.steps) == (4, 8)
    assert last_progress(epoch + b"\n" + shown + b"\n") == (4, 8, 0.5)


def test_losses_are_read_from_lines_too() -> None:
    monitor = OutputMonitor()
    monitor.take(1, b"loss = 3e-05\nloss function\nepoch 1 step 2 loss 0.25\neval_loss: 7.0\n")
    assert [loss for _, _, loss in monitor.losses] == [3e-05, 0.25]


def test_tracebacks_of_ranks_that_write_at_once_are_told_apart() -> None:
    own = MINE.replace("[rank1]: ", "")
    told = [own.replace("label", f"label {rank}").encode() for rank in (0, 1)]
    monitor = OutputMonitor()
    for start in range(0, len(told[0]), 7):
        for rank, text in enumerate(told):
            monitor.take(2, text[start : start + 7], rank)
    monitor.take(2, b"ddpfix: rank 1 ended with exit status 1; the other ranks are stopped")
    failure = first_failure(monitor.output())
    assert failure.sentence == "Rank 1 failed first: KeyError: 'label 1'"
    assert failure.traceback == told[1].decode().rstrip()
