"""C4, on traces written by hand: what is judged of evaluations, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from ddpfix.launchers.running.runner import RunOutcome
from ddpfix.launchers.trace.events import BatchEvent, Exit, Pass, PassEnd, Start
from ddpfix.launchers.trace.read import RankTrace
from ddpfix.launchers.verify.check_evaluation import scores_once
from ddpfix.launchers.verify.evidence import Evidence, Row, RunTrace

ALL = ((0, 1, 2, 3),)
ENDED, FAILED = RunOutcome(0, "", 1.0, 0), RunOutcome(1, "it failed", 1.0, 0)


def rank(number: int, world: int, shares: tuple[int, ...] | None) -> RankTrace:
    """A rank that evaluates a share of four examples, or evaluates nothing."""
    start = Start(
        schema=1,
        rank=number,
        local_rank=number,
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
    left = Exit(status=0, failure=None, group_alive=False)
    if shares is None:
        return RankTrace(start, [left])
    begin = Pass(
        pass_id=1,
        loader=1,
        epoch=1,
        dataset="Dev",
        length=4,
        sampler="Sequential",
        batch_size=4,
        batches=1,
        workers=0,
        site=None,
    )
    batch = BatchEvent(pass_id=1, number=1, indices=list(shares))
    end = PassEnd(
        pass_id=1,
        kind="eval",
        batches=1,
        drawn=len(shares),
        backwards=0,
        training=False,
        grad=False,
        complete=True,
        limit=None,
    )
    return RankTrace(start, [begin, batch, end, left])


def observed(
    folder: Path, name: str, *shares: tuple[int, ...] | None, outcome: RunOutcome = ENDED
) -> RunTrace:
    """A run of so many ranks, which wrote nothing."""
    ranks = tuple(rank(number, len(shares), share) for number, share in enumerate(shares))
    return RunTrace(name, len(shares), 1, outcome, ranks, folder, folder, folder / name)


def evidence(alone: RunTrace, *groups: RunTrace) -> Evidence:
    row = Row("C8", "holds", "")
    return Evidence(None, "", alone, groups, row, row)


def test_an_evaluation_is_judged_where_one_was_made(tmp_path: Path) -> None:
    one, two = observed(tmp_path, "x1", *ALL), observed(tmp_path, "x2", (0, 1), (2, 3))
    row = scores_once(evidence(one, one, two))
    assert (row.status, row.evidence.partition(":")[0]) == (
        "holds",
        "1 evaluations (4 examples) in each of 2 groups",
    )


def test_a_run_that_evaluates_nothing_is_not_judged(tmp_path: Path) -> None:
    alone, one = observed(tmp_path, "patched", None), observed(tmp_path, "x1", None)
    row = scores_once(evidence(alone, one, observed(tmp_path, "x2", None, None)))
    assert row == Row("C4", "not judged", "patched evaluated nothing")


def test_a_run_alone_that_failed_is_no_model_of_what_is_evaluated(tmp_path: Path) -> None:
    alone = observed(tmp_path, "patched", None, outcome=FAILED)
    one = observed(tmp_path, "x1", *ALL)
    assert scores_once(evidence(alone, one)).status == "holds"
    empty = observed(tmp_path, "x1", None)
    assert scores_once(evidence(alone, empty)) == Row("C4", "not judged", "x1 evaluated nothing")


def test_evaluations_that_were_cut_short_are_not_judged(tmp_path: Path) -> None:
    one = observed(tmp_path, "x1", (0, 1))
    cut = evolve(
        evidence(one, one, observed(tmp_path, "x2", (0,), (2,))), evaluations_cut_short=True
    )
    because = "evaluations were cut short; no example was scored twice"
    assert scores_once(cut) == Row("C4", "not judged", because)


@pytest.mark.parametrize(
    ("shares", "because"),
    [
        pytest.param(
            ((0, 1), (1, 2)), "scores 3 of 4 examples, missing 3, repeating 1", id="a repeat"
        ),
        pytest.param(((0, 1), (2,)), "scores 3 of 4 examples, missing 3", id="one left out"),
        pytest.param((None, None), "0 evaluations where one process makes 1", id="none at all"),
    ],
)
def test_each_example_that_is_not_scored_once_breaks_it(
    tmp_path: Path, shares: tuple[tuple[int, ...] | None, ...], because: str
) -> None:
    one, two = observed(tmp_path, "x1", *ALL), observed(tmp_path, "x2", *shares)
    row = scores_once(evidence(one, one, two))
    assert row.status == "broken"
    assert because in row.evidence
    assert "x2" in row.evidence


def test_an_example_that_is_scored_twice_breaks_an_evaluation_that_was_cut_short_too(
    tmp_path: Path,
) -> None:
    one, two = observed(tmp_path, "x1", (0, 1)), observed(tmp_path, "x2", (0,), (0,))
    assert (
        scores_once(evolve(evidence(one, one, two), evaluations_cut_short=True)).status == "broken"
    )


def test_a_group_that_failed_leaves_it_unproven(tmp_path: Path) -> None:
    one = observed(tmp_path, "x1", *ALL)
    failed = observed(tmp_path, "x2", (0, 1), (2, 3), outcome=FAILED)
    row = scores_once(evidence(one, one, failed))
    assert row.status == "unproven"
    assert "x2 did not end well" in row.evidence


def test_a_part_that_every_rank_scores_is_whole_where_one_process_scores_no_more(
    tmp_path: Path,
) -> None:
    one, two = observed(tmp_path, "x1", (0, 1)), observed(tmp_path, "x2", (0, 1), (1, 0))
    assert scores_once(evidence(one, one, two)).status == "holds"
    less = observed(tmp_path, "x2 less", (0,), (0,))
    assert scores_once(evidence(one, one, less)).status == "broken"
