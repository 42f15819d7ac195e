"""Fixture family D: an encoder that is thawed in training, and a contrastive loss by labels."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from ddpfix.fixtures import tiny
from ddpfix.fixtures.authorship import build_authored_data
from ddpfix.fixtures.families import VARIANTS
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.verifier import Verdict, verify
from ddpfix.patcher.engine.patch import patch
from forked import Forge

SCRIPT = Path(tiny.__file__).parent / "detector" / "train_detector.py"
BATCH = 8  # functions per optimizer step
SIZES = {"train": 24, "valid": 11}


def judged(folder: Path, forge: Forge, *, thaws: bool = True) -> Verdict:
    """The family's verdict, also without what has DDP synchronise what is thawed."""
    script, words = VARIANTS["Detector"].build(folder, **SIZES)
    arguments = words(folder / "out", BATCH, 1)
    if thaws:
        return verify(VerifyRequest(script, arguments, unsafe=True), start=forge.trace)
    patch(script, unsafe=True).write()
    text = script.read_text()
    assert text.count("requires_grad_(True)") == 1
    script.write_text(text.replace("requires_grad_(True)", "requires_grad_(False)"))
    return verify(
        VerifyRequest(script, arguments, as_is=True, accumulations=(1,)), start=forge.trace
    )


def test_frozen_at_first_every_promise_holds(forge: Forge, tmp_path: Path) -> None:
    verdict = judged(tmp_path, forge)
    assert verdict.holds, verdict.rows
    names = [run.name for run in verdict.evidence.groups]
    assert names == ["x1", "x2", "x1, accumulation 2", "x2, accumulation 2"]
    assert "predictions.txt" in verdict.row("C4").evidence


def test_without_the_edit_ranks_drift_apart_once_the_encoder_is_thawed(
    forge: Forge, tmp_path: Path
) -> None:
    row = judged(tmp_path, forge, thaws=False).row("C3")
    assert row.status == "broken"
    first = SIZES["train"] // BATCH + 1  # of the epoch that thaws
    assert f"the ranks' parameters differ after step {first}" in row.evidence


def test_the_script_keeps_its_legacy_habits() -> None:
    found = patch(SCRIPT).findings_before
    codes = {each.code for each in found if each.severity and each.severity.value != "N"}
    assert codes == {"DF201", "DF504", "DF601", "DF602", "DF702", "DF703"}
    assert {"DF307", "DF802"} <= {each.code for each in found}
    calls = [node for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.Call)]
    names = {ast.unparse(call.func) for call in calls}
    assert {"nn.DataParallel", "torch.compile", "GradScaler", "SupConLoss"} <= names
    assert "argparse" not in SCRIPT.read_text()


def test_both_authors_write_as_much(tmp_path: Path) -> None:
    folder = build_authored_data(tmp_path, train=10, valid=5)
    texts = [(folder / f"{name}.jsonl").read_text() for name in ("train", "valid")]
    assert [text.count('"label": 1') for text in texts] == [5, 2]
    with pytest.raises(ValueError, match="valid=0"):
        build_authored_data(tmp_path / "new", train=1, valid=0)
