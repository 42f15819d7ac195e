"""What well-meaning people do to a patched script is caught, and named by the promise it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.verifier import verify
from forked import Forge
from sabotage import SABOTAGES, spoil, write


@pytest.mark.parametrize("name", SABOTAGES)
def test_sabotage_is_caught_and_named(name: str, tmp_path: Path, forge: Forge) -> None:
    sabotage = SABOTAGES[name]
    script, arguments = write(tmp_path)
    spoil(script, sabotage)
    verdict = verify(
        VerifyRequest(
            script,
            arguments,
            as_is=True,
            world_sizes=sabotage.worlds,
            accumulations=sabotage.accumulations,
            timeout=sabotage.timeout,
        ),
        folder=tmp_path / "runs",
        start=forge.trace,
    )
    row = verdict.row(sabotage.row)
    assert row.status == "broken", verdict.rows
    assert sabotage.says in row.evidence
    assert verdict.exit_status == 1
