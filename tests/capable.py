"""What tests of capabilities share: family A without and with some, and how it ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cases import module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.capabilities import Capability, select_capabilities
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.engine.rounds import apply_round
from forked import Forge, Job, Run
from lone_copies import lone_copy


def plain_and_capable(folder: Path, names: Sequence[str]) -> tuple[Path, Path]:
    """Family A, patched without capabilities and with those named."""
    paths = []
    for name, capabilities in (("plain", ()), ("capable", select_capabilities(names))):
        paths.append(lone_copy(folder / name))
        result = patch(paths[-1], capabilities=capabilities)
        assert (result.refusal, result.capability_failures) == ("", ())
        result.write()
    return paths[0], paths[1]


def made(forge: Forge, jobs: Sequence[Job]) -> dict[str, Run]:
    """Runs by the name of their folder; all have to end well."""
    found = forge.run(jobs)
    for run in found:
        assert set(run.statuses) == {0}, run.log
    return {job.folder.name: run for job, run in zip(jobs, found, strict=True)}


def outputs(run: Run) -> dict[str, bytes]:
    """The files that a run wrote."""
    paths = [path for path in (run.folder / "out").rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in paths}


def assert_alike(before: Run, after: Run) -> None:
    """Every rank of two runs took the same steps, bit for bit, and wrote the same files."""
    for a, b in zip(before.ranks, after.ranks, strict=True):
        assert [step.loss for step in a.steps] == [step.loss for step in b.steps] != []
        assert [step.checksum for step in a.steps] == [step.checksum for step in b.steps]
    assert outputs(before) == outputs(after) != {}


def added(capability: Capability, text: str) -> str:
    """A script after a capability's edits, once it asks for nothing more."""
    program = Program(module(text))
    for _ in range(4):
        findings = [finding for finding in capability.findings(program) if finding.edits]
        if not findings:
            break
        program = apply_round(program, findings, {})
    assert not any(finding.edits for finding in capability.findings(program))
    return program.script.source.text


def reasons(capability: Capability, text: str) -> list[str]:
    """Why a capability cannot be added; all its findings are without edits."""
    findings = list(capability.findings(Program(module(text))))
    assert not any(finding.edits for finding in findings)
    return [finding.because for finding in findings]
