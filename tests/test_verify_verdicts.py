"""Verdicts on numbers, shares and files that look wrong and are not, or right and prove nothing."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from ddpfix.errors import InputError
from ddpfix.launchers.running.runner import LOG, RunOutcome
from ddpfix.launchers.script.arguments import parse_flags
from ddpfix.launchers.script.flags import find_script_flags
from ddpfix.launchers.trace.clipped import ClippedGradient
from ddpfix.launchers.trace.events import (
    Backward,
    BatchEvent,
    Checksum,
    Clip,
    Event,
    Exit,
    Metric,
    Parameters,
    Pass,
    PassEnd,
    Site,
    Start,
    StepEvent,
)
from ddpfix.launchers.trace.read import RankTrace
from ddpfix.launchers.verify.check_evaluation import scores_once
from ddpfix.launchers.verify.check_training import trains_the_same
from ddpfix.launchers.verify.checks import collect_warnings, computes_the_same
from ddpfix.launchers.verify.evidence import TOKEN_MEANS, Evidence, Row, RunTrace
from ddpfix.launchers.verify.prediction_order import hidden_order
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.scripts import prepare_scripts
from ddpfix.launchers.verify.trace_compare import global_batches
from ddpfix.launchers.verify.verifier import verify
from ddpfix.patcher.engine.patch import patch
from forked import Forge
from sabotage import write

ENDED = RunOutcome(0, "", 1.0, 0)
NAN = math.nan
TRAIN = Site("/run.py", 9, "train")
EVALUATE = Site("/run.py", 30, "evaluate")


def start(rank: int, world: int) -> Start:
    return Start(
        schema=1,
        rank=rank,
        local_rank=rank,
        world_size=world,
        pid=1,
        host="h",
        started=0.0,
        script="/run.py",
        argv=[],
        cwd="/",
        python="3",
        hash_seed=None,
        options={},
    )


def step(
    number: int,
    loss: float = 1.0,
    norm: float = 2.0,
    clips: tuple[float, ...] = (),
    digest: str = "",
    *,
    draws: bool = False,
) -> StepEvent:
    return StepEvent(
        optimizer=0,
        optimizer_class="SGD",
        number=number,
        losses=[loss],
        loss=loss,
        clips=[Clip(norm=each, max_norm=1.0) for each in clips],
        grad_norm=norm,
        lrs=[0.1],
        checksum=Checksum(sha256=digest, sum=loss, norm=loss),
        collectives=0,
        draws=draws,
        site=TRAIN,
    )


def metric(key: str, value: float, site: Site) -> Metric:
    return Metric(key=key, value=value, shown=f"{value}", logger="root", site=site)


def drawn(
    pass_id: int,
    indices: tuple[int, ...],
    kind: str,
    length: int = 4,
    site: Site = TRAIN,
    dataset: str = "Rows",
) -> list[Event]:
    """A pass over a loader that drew these examples in one batch, or none."""
    begin = Pass(
        pass_id=pass_id,
        loader=pass_id,
        epoch=0,
        dataset=dataset,
        length=length,
        sampler="Sequential",
        batch_size=4,
        batches=1,
        workers=0,
        site=site,
    )
    end = PassEnd(
        pass_id=pass_id,
        kind=kind if indices else "other",
        batches=1,
        drawn=len(indices),
        backwards=0,
        training=False,
        grad=False,
        complete=True,
        limit=None,
    )
    batch = [BatchEvent(pass_id=pass_id, number=1, indices=list(indices))] if indices else []
    return [begin, *batch, end]


def run_of(folder: Path, name: str, *ranks: list[Event]) -> RunTrace:
    """A run whose ranks recorded these events, in folders of its own."""
    left = Exit(status=0, failure=None, group_alive=False)
    traces = tuple(
        RankTrace(start(number, len(ranks)), [*events, left]) for number, events in enumerate(ranks)
    )
    output, trace = folder / name / "output", folder / name / "trace"
    output.mkdir(parents=True, exist_ok=True)
    trace.mkdir(exist_ok=True)
    return RunTrace(name, len(ranks), 1, ENDED, traces, output, output, trace)


def training(*steps: StepEvent, indices: tuple[int, ...] = (0, 1, 2, 3)) -> list[Event]:
    begin, batch, end = drawn(1, indices, "train")
    repeated = [event for one in steps for event in (batch, one)]
    return [begin, *repeated, end]


def group(folder: Path, name: str, world: int, *steps: StepEvent) -> RunTrace:
    """A run in which the ranks share the four examples of every step."""
    shares = [tuple(range(rank, 4, world)) for rank in range(world)]
    return run_of(folder, name, *(training(*steps, indices=share) for share in shares))


def evidence(original: RunTrace, *groups: RunTrace) -> Evidence:
    row = Row("C8", "holds", "")
    return Evidence(original, "", original, groups, row, row)


# Evaluation


def test_a_rank_without_a_share_may_go_past_the_loader(tmp_path: Path) -> None:
    def small(pass_id: int, indices: tuple[int, ...]) -> list[Event]:
        return drawn(pass_id, indices, "eval", length=1, site=EVALUATE, dataset="Small")

    def large(pass_id: int, indices: tuple[int, ...]) -> list[Event]:
        return drawn(pass_id, indices, "eval", site=EVALUATE, dataset="Large")

    one = run_of(tmp_path, "x1", [*small(1, (0,)), *large(2, (0, 1, 2, 3))])
    passed = run_of(tmp_path, "x2", [*small(1, (0,)), *large(2, (0, 1))], [*large(1, (2, 3))])
    row = scores_once(evidence(one, one, passed))
    assert row.status == "holds", row.evidence
    missing = run_of(tmp_path, "x2", [*small(1, (0,)), *large(2, (0, 1))], [*large(1, (2,))])
    row = scores_once(evidence(one, one, missing))
    assert row.status == "broken"
    assert "evaluation 2 scores 3 of 4 examples, missing 3" in row.evidence


def test_what_a_rank_without_a_share_logs_in_training_is_no_score(tmp_path: Path) -> None:
    def events(share: tuple[int, ...], accuracy: float) -> list[Event]:
        return [
            *drawn(1, share, "eval", length=1, site=EVALUATE),
            metric("eval_loss", 0.5, EVALUATE),
            step(1),
            metric("acc", accuracy, TRAIN),  # of the rank's own batch
            *drawn(2, share, "eval", length=1, site=EVALUATE),
            metric("eval_loss", 0.25, EVALUATE),
        ]

    one = run_of(tmp_path, "x1", events((0,), 0.5))
    two = run_of(tmp_path, "x2", events((0,), 0.5), events((), 1.0))
    row = scores_once(evidence(one, one, two))
    assert row.status == "holds", row.evidence


@pytest.mark.parametrize(
    ("shares", "status"),
    [
        ([(2, 0, 3, 1), (1, 3, 2, 0)], "holds"),  # a loader that shuffles, on each rank of its own
        ([(2, 0, 3, 1), (1, 3, 2, 2)], "broken"),
        ([(2, 0, 3), (1, 3, 2)], "broken"),
    ],
)
def test_every_rank_may_score_the_whole_set_in_an_order_of_its_own(
    tmp_path: Path, shares: list[tuple[int, ...]], status: str
) -> None:
    one = run_of(tmp_path, "x1", drawn(1, (0, 1, 2, 3), "eval", site=EVALUATE))
    two = run_of(tmp_path, "x2", *(drawn(1, share, "eval", site=EVALUATE) for share in shares))
    row = scores_once(evidence(one, one, two))
    assert row.status == status, row.evidence


def test_scores_that_are_nan_on_one_side_alone_differ(tmp_path: Path) -> None:
    def scored(name: str, value: float) -> RunTrace:
        found = metric("eval_acc", value, EVALUATE)
        return run_of(tmp_path, name, [*drawn(1, (0, 1, 2, 3), "eval", site=EVALUATE), found])

    pairs = {(NAN, NAN): "holds", (NAN, 0.5): "broken", (0.5, NAN): "broken"}
    for (base, other), status in pairs.items():
        one = scored("x1", base)
        row = scores_once(evidence(one, one, scored("x2", other)))
        assert row.status == status, (base, other, row.evidence)


@pytest.mark.parametrize(
    ("text", "other", "status"),
    [
        ("epoch,train_loss,valid\n0,0.51,0.25\n", "epoch,train_loss,valid\n0,0.49,0.25\n", "holds"),
        ('{"train": 0.51, "valid": 0.25}', '{"train": 0.49, "valid": 0.25}', "holds"),
        ("epoch 0 loss 0.51\n", "epoch 0 loss 0.49\n", "unproven"),
        (
            "epoch,train_loss,valid\n0,0.51,0.25\n",
            "epoch,train_loss,valid\n0,0.51,0.2\n",
            "unproven",
        ),
        ('{"train": 0.51}', '{"train": 0.51, "valid": 0.2}', "broken"),
        ("0.51\n0.25\n0.7\n0.1\n", "0.25\n0.51\n0.7\n0.1\n", "broken"),  # of four examples
    ],
)
def test_numbers_of_training_in_a_log_are_no_scores(
    tmp_path: Path, text: str, other: str, status: str
) -> None:
    one, two = (
        run_of(tmp_path, name, drawn(1, (0, 1, 2, 3), "eval", site=EVALUATE))
        for name in ("x1", "x2")
    )
    (one.output / "history.csv").write_text(text)
    (two.output / "history.csv").write_text(other)
    row = scores_once(evidence(one, one, two))
    assert row.status == status, row.evidence
    told = "numbers of training in history.csv are of rank 0's share" in row.evidence
    assert told is (status == "holds")


# Clipping in several calls


def test_calls_for_several_parameters_are_one_norm() -> None:
    clipped = ClippedGradient()
    clipped.note({1}, 1, 3.0, 2.0)
    clipped.note({2}, 1, 4.0, 2.0)
    assert clipped.norm({1, 2}) == 5.0
    assert clipped.norm({2}) == 4.0
    assert clipped.norm({3}) is None


@pytest.mark.parametrize(
    ("calls", "norm"),
    [
        pytest.param([({1, 2}, 1, 3.0), ({1, 2}, 2, 7.0)], 7.0, id="after each backward pass"),
        pytest.param([({1, 2}, 1, 7.0), ({1, 2}, 1, 1.0)], 7.0, id="twice after the last one"),
        pytest.param([({1}, 1, 3.0), ({2}, 2, 4.0)], 5.0, id="of two losses"),
        pytest.param([({9}, 1, 8.0), ({1, 2}, 1, 4.0)], 4.0, id="of another model"),
    ],
)
def test_the_norm_is_that_of_each_parameters_last_gradient_before_clipping(
    calls: list[tuple[set[int], int, float]], norm: float
) -> None:
    clipped = ClippedGradient()
    for members, backward, size in calls:
        clipped.note(members, backward, size, 2.0)
    assert clipped.norm({1, 2}) == norm


def test_the_norm_of_one_small_parameter_breaks_nothing(tmp_path: Path) -> None:
    one = group(tmp_path, "x1", 1, step(1, clips=(2.0, 1e-7)))
    two = group(tmp_path, "x2", 2, step(1, clips=(2.0, 1.1e-7)))
    row = trains_the_same(evidence(one, one, two))
    assert row.status == "holds", row.evidence
    other = group(tmp_path, "x2", 2, step(1, clips=(2.1, 1e-7)))
    row = trains_the_same(evidence(one, one, other))
    assert row.status == "broken", "the last clip alone is compared"


# Random numbers of the steps


@pytest.mark.parametrize(("draws", "status"), [(False, "broken"), (True, "unproven")])
def test_steps_that_draw_prove_no_equal_losses(tmp_path: Path, draws: bool, status: str) -> None:
    one, again = (step(1, loss, draws=draws) for loss in (1.0, 1.5))
    runs = group(tmp_path, "x1", 1, one), group(tmp_path, "x2", 2, again)
    row = trains_the_same(evidence(runs[0], *runs))
    assert row.status == status, row.evidence
    assert ("draw random numbers" in row.evidence) is draws
    more = group(tmp_path, "x2", 2, one, step(2))
    assert trains_the_same(evidence(runs[0], runs[0], more)).status == "broken"


@pytest.mark.parametrize(("sampler", "status"), [("Mine", "broken"), ("DealtBatches", "unproven")])
def test_batches_of_the_scripts_own_sampler_have_other_examples_at_another_size(
    tmp_path: Path, sampler: str, status: str
) -> None:
    one = group(tmp_path, "x1", 1, step(1))
    shares = [training(step(1), indices=share) for share in ((0, 1), (4, 5))]
    for begin, *_ in shares:
        assert isinstance(begin, Pass)
        begin.sampler = sampler
    row = trains_the_same(evidence(one, one, run_of(tmp_path, "x2", *shares)))
    assert row.status == status, row.evidence
    assert "2 missing" in row.evidence


@pytest.mark.parametrize(("length", "is_epoch"), [(9, False), (4, True)])
def test_other_data_beside_is_of_no_epoch_of_its_own(
    tmp_path: Path, length: int, is_epoch: bool
) -> None:
    def events() -> list[Event]:
        begin, batch, end = drawn(1, (0, 1), "train")
        other, more, over = drawn(2, (2, 3), "train", length=length)
        end.t = over.t = 2.0
        return [begin, other, batch, more, step(1), end, over]

    one = run_of(tmp_path, "x1", events())
    (batch,) = global_batches(one.ranks)
    assert (len(batch.epochs) > 1) is is_epoch


def test_examples_of_batches_that_are_kept_and_dealt_again_are_said_to_be_unknown(
    tmp_path: Path,
) -> None:
    """``cycle(loader)`` goes through the loader once, and then through what it has kept."""

    def events(*indices: int) -> list[Event]:
        begin, batch, end = drawn(1, indices, "train")
        return [begin, batch, step(1), end, step(2), step(3)]

    one = run_of(tmp_path, "x1", events(0, 1, 2))
    row = trains_the_same(evidence(one, one, run_of(tmp_path, "x2", events(0, 1), events(2, 0))))
    assert row.status == "holds", row.evidence
    assert "the examples of every step of 1 epoch are, those of 2 steps are unknown" in row.evidence


# NaN


def test_nan_equals_nan_where_the_original_has_it_too_and_it_is_said(tmp_path: Path) -> None:
    lost = (step(1), step(2, loss=NAN, norm=NAN))
    alone, one = group(tmp_path, "original", 1, *lost), group(tmp_path, "x1", 1, *lost)
    row = trains_the_same(evidence(alone, one, group(tmp_path, "x2", 2, *lost)))
    assert row.status == "holds", row.evidence
    assert "loss or norm of 1 steps is NaN, in every run as in the original" in row.evidence
    found = group(tmp_path, "x2", 2, step(1), step(2))
    assert trains_the_same(evidence(alone, one, found)).status == "broken"
    healthy = group(tmp_path, "original", 1, step(1), step(2))
    row = trains_the_same(evidence(healthy, one, group(tmp_path, "x2", 2, *lost)))
    assert row.status == "unproven"
    assert "x1 computes NaN from step 2 on, original does not" in row.evidence


def test_nan_computed_alone_is_no_other_number(tmp_path: Path) -> None:
    def alone(name: str, digest: str) -> RunTrace:
        found = metric("loss", float("nan"), TRAIN)
        lost = step(1, loss=float("nan"), norm=float("nan"), digest=digest)
        return run_of(tmp_path, name, [*training(lost), found])

    before = alone("original", "a")
    row = computes_the_same(evolve(evidence(before), patched_alone=alone("patched", "a")))
    assert row.status == "holds", row.evidence
    row = computes_the_same(evolve(evidence(before), patched_alone=alone("patched", "b")))
    assert row.status == "broken"
    assert "another parameters" in row.evidence


@pytest.mark.parametrize(
    ("key", "shimmed", "status"),
    [
        ("n_gpu", True, "holds"),
        ("Number of GPUs", True, "holds"),
        ("n_gpu", False, "broken"),
        ("batch per gpu", True, "broken"),
    ],
)
def test_a_shimmed_original_sees_one_card_and_is_asked_for_no_number_of_them(
    tmp_path: Path, key: str, shimmed: bool, status: str
) -> None:
    runs = [
        run_of(tmp_path, name, [*training(step(1)), metric(key, cards, TRAIN)])
        for name, cards in (("original", 1.0), ("patched", 0.0))
    ]
    found = evolve(evidence(runs[0]), patched_alone=runs[1], original_needed_shims=shimmed)
    assert computes_the_same(found).status == status


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ([1.0, NAN], [1.0, NAN], "holds"),
        ([1.0, math.inf], [1.0, math.inf], "holds"),
        ([1.0, NAN], [1.0, 1.0], "broken"),
        ([1.0, 1.0], [1.0, math.inf], "broken"),
    ],
    ids=str,
)
def test_final_parameters_that_are_nan(
    tmp_path: Path, first: list[float], second: list[float], status: str
) -> None:
    runs = []
    for world, values in ((1, first), (2, second)):
        run = group(tmp_path, f"x{world}", world, step(1))
        np.savez(run.trace / "end.npz", weight=np.array(values, "f4"))
        saved = Parameters(
            optimizer=0,
            after_step=1,
            reason="exit",
            checksum=Checksum(sha256="", sum=0.0, norm=0.0),
            tensors={},
            file="end.npz",
        )
        run.ranks[0].events.append(saved)
        runs.append(run)
    row = trains_the_same(evidence(runs[0], *runs))
    assert row.status == status, row.evidence


# Rounding of norms


def off(factor: float) -> StepEvent:
    return step(1, norm=2.0 * (1 + factor))


@pytest.mark.parametrize(
    ("two", "four", "status"),
    [
        pytest.param(1.5e-5, 1e-8, "holds", id="two slightly, four not"),
        pytest.param(1.5e-5, 1.5e-5, "broken", id="both"),
        pytest.param(1e-8, 1.5e-5, "broken", id="four slightly"),
        pytest.param(1.5e-3, 1e-8, "broken", id="two by much"),
    ],
)
def test_a_norm_slightly_off_is_rounding_where_more_ranks_follow(
    tmp_path: Path, two: float, four: float, status: str
) -> None:
    runs = [
        group(tmp_path, "x1", 1, off(0.0)),
        group(tmp_path, "x2", 2, off(two)),
        group(tmp_path, "x4", 4, off(four)),
    ]
    row = trains_the_same(evidence(runs[0], *runs))
    assert row.status == status, row.evidence
    if status == "holds":
        assert "x2: the norm is 1.5e-05 off x1 by rounding: x4 splits each batch" in row.evidence


# What proves nothing


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        pytest.param("test_0.output", "0\ta a a\n1\ta a a\n2\ta a a\n", "same text", id="numbered"),
        pytest.param("hypotheses.txt", "a b\na b\na b\n", "same text", id="bare"),
        pytest.param(
            "out.jsonl",
            '{"id": 1, "text": "a"}\n{"id": 2, "text": "a"}\n{"id": 3, "text": "a"}\n',
            "same text",
            id="JSON",
        ),
        pytest.param("predictions.txt", "x 1\ny 1\n", "'1'", id="labels"),
        pytest.param("test_0.output", "0\ta a a\n1\ta b a\n2\ta a a\n", "", id="another text"),
        pytest.param("names.txt", "a\nb\nc\n", "", id="names alone"),
        pytest.param("dev.gold", "int f ( )\nint g ( )\nint h ( )\n", "", id="code"),
        pytest.param("notes.txt", "a\na\n", "", id="as many lines as no evaluation has"),
    ],
)
def test_predictions_that_are_all_the_same_prove_no_order(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert told in hidden_order(path, [3])
    assert bool(hidden_order(path, [3])) == bool(told)


def test_order_unproven_is_said_of_generated_text(tmp_path: Path) -> None:
    runs = []
    for world in (1, 2):
        shares = [tuple(range(rank * 4 // world, (rank + 1) * 4 // world)) for rank in range(world)]
        events = [drawn(1, share, "eval", site=EVALUATE) for share in shares]
        run = run_of(tmp_path, f"x{world}", *events)
        (run.output / "test.output").write_text("".join(f"{n}\tthe\n" for n in range(4)))
        runs.append(run)
    judged = evidence(runs[0], *runs)
    row = scores_once(judged)
    assert row.status == "holds"
    assert "order unproven: all lines of test.output predict the same" in row.evidence
    assert any(
        "test.output: only the same text is ever" in each for each in collect_warnings(judged)
    )
    for run in runs:
        (run.output / "test.output").write_text("".join(f"{n}\tthe {n % 3}\n" for n in range(4)))
    assert "unproven" not in scores_once(judged).evidence


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        pytest.param(((6, 6), (5, 5)), "as many targets as the others'", id="alike in each step"),
        pytest.param(((6, 6), (6, 5)), "", id="another length once"),
        pytest.param(((None, None),), "was not seen", id="unseen"),
    ],
)
def test_targets_of_one_length_prove_no_weights_of_tokens(
    tmp_path: Path, counts: tuple[tuple[int | None, int | None], ...], told: str
) -> None:
    def events(rank: int) -> list[Event]:
        begin, batch, end = drawn(1, (rank, rank + 2), "train")
        middle: list[Event] = []
        for number, both in enumerate(counts, 1):
            backward = Backward(loss=1.0, pass_id=1, targets=both[rank], collectives=0, site=TRAIN)
            middle += [batch, backward, step(number)]
        return [begin, *middle, end]

    steps = [step(number) for number in range(1, len(counts) + 1)]
    one, two = group(tmp_path, "x1", 1, *steps), run_of(tmp_path, "x2", events(0), events(1))
    judged = evolve(evidence(one, one, two), accumulation_note=TOKEN_MEANS)
    row = trains_the_same(judged)
    assert row.status == "holds", row.evidence
    assert ("token weights unproven" in row.evidence) == bool(told)
    assert told in row.evidence


# Flags and messages


def test_flags_that_a_module_beside_the_script_declares_are_found(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "options.py").write_text(
        "def add(parser):\n"
        "    parser.add_argument('--gradient_accumulation_steps', type=int, default=1)\n"
    )
    script = tmp_path / "run.py"
    script.write_text("from config.options import add\nadd(parser)\n")
    flags = find_script_flags(
        ["--output_dir", "o", "--train_batch_size", "8"], script, recipe=None, global_batch=None
    )
    assert flags.accumulation == "--gradient_accumulation_steps"


@pytest.mark.parametrize("words", [["-b", "12"], ["-b=12"], ["--size", "12", "-v"]])
def test_a_batch_is_found_by_any_spelling_of_its_option(tmp_path: Path, words: list[str]) -> None:
    flags = find_script_flags(
        words,
        tmp_path / "gone.py",
        recipe=None,
        global_batch=None,
        roles={"train_batch": ("--size", "-b")},
        default_batch=64,
    )
    assert (flags.train_batch, flags.global_batch) == (words[0].partition("=")[0], 12)
    told = flags.arguments(words, "out", 6, 1)
    assert parse_flags(told)[flags.train_batch] == "6"
    assert len(told) == len(words)


def test_a_negative_number_is_a_value() -> None:
    assert parse_flags(["--rank", "-1", "-x", "--fast"]) == {
        "--rank": "-1",
        "-x": None,
        "--fast": None,
    }


def test_a_script_in_words_of_old_is_patched_before_it_is_judged(tmp_path: Path) -> None:
    (tmp_path / "move.py").write_text("def to_card(x):\n    return x.cuda(async=True)\n")
    script = tmp_path / "train.py"
    text = "from move import to_card\nprint(to_card, lambda x: x.cuda(async=True))\n"
    text += "parser.add_argument('--epochs', type=int)\n"
    script.write_text(text + "if __name__ == '__main__':\n    to_card(None)\n")
    with pytest.raises(InputError, match=r"train.py:2: it does not compile"):
        prepare_scripts(VerifyRequest(script, [], as_is=True), tmp_path / "as_is")
    scripts = prepare_scripts(VerifyRequest(script, []), tmp_path / "runs")
    for name in ("train.py", "move.py"):
        assert "async=" not in (scripts.patched.parent / name).read_text()
        assert "async=" in (scripts.original.parent / name).read_text()
    assert scripts.added_flags == ()


def test_argparse_own_line_is_the_reason(tmp_path: Path) -> None:
    run = run_of(tmp_path, "patched", [])
    run.ranks[0].events[:] = [Exit(status=2, failure=None, group_alive=False)]
    (run.trace.parent / LOG).write_text(
        "usage: run.py [-h] [--x X]\nrun.py: error: unrecognized arguments: --y 3\n"
    )
    failed = evolve(run, outcome=RunOutcome(2, "failed with exit status 2", 1.0, 0))
    assert "run.py: error: unrecognized arguments: --y 3" in failed.failure_reason


def test_a_script_that_does_not_compile_is_named_before_anything_runs(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text("import torch\nreturn 3\n")  # it can be parsed
    request = VerifyRequest(script, ["--output_dir", "o", "--train_batch_size", "8"], as_is=True)
    with pytest.raises(InputError, match=r"run\.py:2: it does not compile \('return' outside fun"):
        verify(request)


# With real runs


def test_one_process_clips_each_parameter_and_so_do_two(tmp_path: Path, forge: Forge) -> None:
    script, arguments = write(tmp_path)
    patch(script).write()
    text = script.read_text()
    for old, new in {
        "        self.register_buffer": (
            "        self.shift = nn.Parameter(torch.zeros(1))  # its gradient is rounding alone\n"
            "        self.register_buffer"
        ),
        "logits = self.layers(x * self.scale)": "logits = self.layers(x * self.scale) + self.shift",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)": (
            "[torch.nn.utils.clip_grad_norm_(p, 0.1) for p in reversed(list(model.parameters()))]"
        ),
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    script.write_text(text)
    request = VerifyRequest(script, arguments, as_is=True, accumulations=(1,))
    verdict = verify(request, start=forge.trace)
    for run in verdict.evidence.groups:
        for one in run.ranks[0].steps:
            norms = [clip.norm for clip in one.clips]
            assert len(norms) == 7
            assert norms[-1] < 1e-6 < one.norm_before_clipping
            assert one.norm_before_clipping == pytest.approx(math.hypot(*norms), rel=1e-12)
    row = verdict.row("C3")
    assert row.status == "holds", row.evidence


def test_an_evaluation_of_fewer_examples_than_ranks(tmp_path: Path, forge: Forge) -> None:
    script, arguments = write(tmp_path)
    few = (tmp_path / "valid.jsonl").read_text().splitlines(keepends=True)[:2]
    (tmp_path / "valid.jsonl").write_text("".join(few))
    logged = "            loss.backward()\n            logger.info('acc = %.4f', float(x.mean()))\n"
    script.write_text(script.read_text().replace("            loss.backward()\n", logged))
    request = VerifyRequest(script, arguments, world_sizes=(1, 4), accumulations=(1,))
    verdict = verify(request, start=forge.trace)
    shares = [
        [len(one.indices) for one in trace.passes if one.begin.length == 2]
        for trace in verdict.evidence.groups[1].ranks
    ]
    assert shares[0] == [0, 0], "the rank that logs had to have no share"
    row = verdict.row("C4")
    assert row.status == "holds", row.evidence


SEEDS = "    set_seed(args.seed)\n"


@pytest.mark.parametrize("seeds", [True, False])
def test_a_script_without_a_seed_is_compared_with_the_same_start(
    tmp_path: Path, forge: Forge, seeds: bool
) -> None:
    script, arguments = write(tmp_path)
    if not seeds:
        text = script.read_text()
        assert text.count(SEEDS) == 2
        script.write_text(text.replace(SEEDS, ""))
    request = VerifyRequest(script, arguments, world_sizes=(1, 2), accumulations=(1,))
    verdict = verify(request, start=forge.trace)
    row = verdict.row("C3")
    assert row.status == "holds", row.evidence
    note = "the script sets no seed: in groups it began with that of the rank"
    assert (note in verdict.notes) is not seeds
