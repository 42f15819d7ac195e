"""Every condition of a rule, with a script that just fails it, or just passes.

Rules that leave much alone are only half tested by the scripts that they repair.
"""

from __future__ import annotations

import textwrap

import pytest
from cases import RULES, changes, fixed, found
from near_misses import data, evaluations, files, libraries, ranks, steps, wrappers
from near_misses.evidence import EVIDENCE

TABLES = (ranks, wrappers, data, evaluations, files, steps, libraries)
UNTOUCHED = [row for table in TABLES for row in table.UNTOUCHED]
REPORTED = [row for table in TABLES for row in table.REPORTED]
REPAIRED = [row for table in TABLES for row in table.REPAIRED]


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in UNTOUCHED]
)
def test_what_only_looks_like_a_hazard_is_left_alone(code: str, text: str) -> None:
    assert [finding.because for finding in found(code, textwrap.dedent(text))] == []


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in REPORTED]
)
def test_a_hazard_of_which_too_little_is_known_is_reported_and_not_touched(
    code: str, text: str
) -> None:
    findings = found(code, textwrap.dedent(text))
    assert findings
    assert [finding.edits for finding in findings if finding.edits] == []


@pytest.mark.parametrize(
    ("code", "text", "diff"),
    [pytest.param(c, t, d, id=f"{c} {name}") for c, name, t, d in REPAIRED],
)
def test_what_just_passes_is_repaired_exactly_like_this(code: str, text: str, diff: str) -> None:
    text = textwrap.dedent(text).lstrip("\n")
    new = fixed(code, text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert [finding for finding in found(code, new) if finding.edits] == []


@pytest.mark.parametrize(
    ("code", "text", "line", "severity", "because"),
    [pytest.param(c, t, *rest, id=f"{c} {name}") for c, name, t, *rest in EVIDENCE],
)
def test_a_finding_names_its_line_and_its_evidence(
    code: str, text: str, line: int, severity: str, because: str
) -> None:
    (finding,) = found(code, text)
    assert (finding.line, finding.because) == (line, because)
    assert (finding.severity or RULES[code].severity).value == severity


def test_an_evaluation_that_a_sampler_of_its_own_deals_is_no_certain_fault() -> None:
    text = textwrap.dedent("""
        import torch
        torch.distributed.init_process_group("gloo")
        def evaluate(model, loader):
            model.eval()
            for batch in loader:
                model(batch)
        loader = torch.utils.data.DataLoader(data, sampler={}(data))
        evaluate(torch.nn.parallel.DistributedDataParallel(net), loader)
        """)
    severities = [
        each.severity.name
        for name in ("OrderedDistributedSampler", "SequentialSampler")
        for each in found("DF504", text.format(name))
    ]
    assert severities == ["DEGRADED", "ERROR"]
