"""`verify --with`: capabilities are judged too, in low precision by tolerances of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.errors import InputError
from ddpfix.launchers.script.flags import remove_flag
from ddpfix.launchers.script.source import declared_flag_names
from ddpfix.launchers.verify import scripts as subject
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.tolerances import BF16, FP32
from ddpfix.launchers.verify.verifier import verify
from forked import Forge
from sabotage import write


def test_bf16_is_held_to_its_own_tolerances_and_lone_runs_stay_in_fp32(
    tmp_path: Path, forge: Forge
) -> None:
    script, arguments = write(tmp_path)
    words = [*arguments, "--amp", "bf16"]
    verdict = verify(
        VerifyRequest(script, words, capabilities=["amp"], world_sizes=(1, 2), accumulations=(1,)),
        start=forge.trace,
    )
    statuses = {row.code: row.status for row in verdict.rows}
    assert {code for code, status in statuses.items() if status == "holds"} == {
        *("C1", "C2", "C3", "C4", "C5", "C6", "C8", "C9")
    }, verdict.rows
    assert "in bf16 the first step may be 7.8e-03 apart" in verdict.row("C3").evidence
    told = {run.name: "--amp" in run.ranks[0].start.argv for run in verdict.runs}
    assert told == {"original": False, "patched": False, "x1": True, "x2": True}
    one, two = (compare.steps(run.ranks) for run in verdict.evidence.groups)
    off = compare.deviation(one, two, "loss").largest
    assert FP32.loss < off < BF16.loss, "fp32 would have been off by less"


def test_flags_of_capabilities_are_kept_from_an_original_that_lacks_them(tmp_path: Path) -> None:
    script, _ = write(tmp_path)
    what = subject.prepare_scripts(
        VerifyRequest(script, [], capabilities=["amp", "resume"]), tmp_path / "copies"
    )
    assert what.original is not None
    assert {"--amp", "--resume"} <= declared_flag_names(what.patched)
    words = ["--seed=1", "--amp", "bf16", "--resume", "--epoch", "2"]
    assert what.arguments_for_original(words) == ["--seed=1", "--epoch", "2"]
    assert what.patching_row.status == "holds"


def test_a_flag_goes_with_its_value_however_it_is_written() -> None:
    words = ["--amp", "bf16", "--amp=fp16", "--amplify", "2", "--amp", "--fast"]
    assert remove_flag(words, "--amp", takes_value=True) == ["--amplify", "2", "--fast"]
    assert remove_flag(words, "--fast") == words[:-1]


@pytest.mark.parametrize(
    ("options", "words", "complaint"),
    [
        ({"capabilities": ["lora"]}, [], "lora cannot be added: "),
        ({"capabilities": ["speed"]}, [], "no capability speed; there are "),
        ({"exact": True}, ["--amp", "bf16"], "leave --as-is, --amp and the like out"),
        ({}, ["--amp", "fp8"], "--amp fp8: it takes no, bf16 or fp16"),
    ],
    ids=[
        "a capability that the script cannot have",
        "a capability that there is not",
        "steps that have to be exact in low precision",
        "a precision that there is not",
    ],
)
def test_capabilities_that_cannot_be_had_are_refused(
    options: dict[str, object], words: list[str], complaint: str, tmp_path: Path
) -> None:
    script, arguments = write(tmp_path)
    with pytest.raises(InputError, match=complaint):
        verify(VerifyRequest(script, [*arguments, *words], **options))  # type: ignore[arg-type]
