"""Fixture family C: contrastive training in which two ranks meet the negatives that one has."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
from capable import made
from ddpfix.fixtures import tiny
from ddpfix.fixtures.families import VARIANTS
from ddpfix.fixtures.sentences import build_sentence_data, sentences
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.verifier import Verdict, verify
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job

SCRIPT = Path(tiny.__file__).parent / "anchor" / "anchor_train.py"
BATCH = 8  # pairs per optimizer step
SIZES = {"train": 24, "valid": 7}


@pytest.fixture(scope="module")
def verdict(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    folder = tmp_path_factory.mktemp("anchor")
    script, words = VARIANTS["Anchors"].build(folder, **SIZES)
    return verify(
        VerifyRequest(script, words(folder / "out", BATCH, 1), unsafe=True), start=forge.trace
    )


def test_with_all_ranks_negatives_every_promise_holds(verdict: Verdict) -> None:
    assert verdict.holds, verdict.rows
    names = [run.name for run in verdict.evidence.groups]
    assert names == ["x1", "x2", "x1, accumulation 2", "x2, accumulation 2"]
    assert "each accumulation is for itself" in verdict.row("C3").evidence
    assert "metrics.json, nearest.txt" in verdict.row("C4").evidence


def test_fewer_pairs_at_once_are_another_loss(verdict: Verdict) -> None:
    runs = {run.name: compare.steps(run.ranks)[0] for run in verdict.evidence.groups}
    assert runs["x1"].loss - runs["x1, accumulation 2"].loss == pytest.approx(math.log(2), abs=0.3)


def test_lora_and_gradient_checkpointing_train_alike_on_two_ranks(
    forge: Forge, tmp_path: Path
) -> None:
    script, words = VARIANTS["Anchors"].build(tmp_path, epochs=1, **SIZES)
    patch(script, unsafe=True).write()
    lora = ["--lora-rank=4", "--lora-alpha=8", "--gradient-checkpointing"]
    folders = {world: tmp_path / f"x{world}" for world in (1, 2)}
    jobs = [
        Job(at, script, [*words(at / "out", BATCH // world, 1), *lora], world, ["--no-dropout"])
        for world, at in folders.items()
    ]
    one, two = (compare.steps(run.ranks) for run in made(forge, jobs).values())
    assert len(one) == SIZES["train"] // BATCH
    assert compare.deviation(one, two, "loss").largest < 1e-6
    assert compare.deviation(one, two, "norm").largest < 1e-5


def test_the_script_keeps_its_legacy_habits() -> None:
    found = patch(SCRIPT).findings_before
    codes = {each.code for each in found if each.severity and each.severity.value != "N"}
    assert codes == {"DF201", "DF504", "DF601", "DF602", "DF702", "DF703"}
    assert [each.code for each in found].count("DF307") == 2
    calls = [node for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.Call)]
    names = {ast.unparse(call.func) for call in calls}
    assert {"nn.DataParallel", "torch.autocast", "get_peft_model", "F.cross_entropy"} <= names


def test_pairs_are_all_different_and_no_more_are_asked_for_than_there_are(tmp_path: Path) -> None:
    assert len({*sentences()}) == 500
    with pytest.raises(ValueError, match="500 together"):
        build_sentence_data(tmp_path / "new", train=499, valid=2)
    assert not (tmp_path / "new").exists()
