"""Every condition of a rule, with a script that just fails it, or just passes.

Rules that leave much alone are only half tested by the scripts that they repair.
"""

from __future__ import annotations

import textwrap

import pytest
from cases import RULES, changes, fixed, found
from ddpfix.patcher.findings import Severity
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


EVALUATED = """
import torch
torch.distributed.init_process_group("gloo")
def evaluate(model, loader):
    model.eval()
    for batch in loader:
        model(batch)
net = torch.nn.parallel.DistributedDataParallel(net)
loader = torch.utils.data.DataLoader(data, sampler={sampler})
if {test}:
    evaluate({model}, loader)
"""


@pytest.mark.parametrize(
    ("sampler", "test", "model", "severities"),
    [
        ("OrderedDistributedSampler(data)", "True", "net", ["DEGRADED"]),
        ("SequentialSampler(data)", "True", "net", ["NOTE"]),
        ("DistributedSampler(data)", "True", "net", ["NOTE"]),
        ("Shares(data)", "True", "net", ["ERROR"]),
        ("None", "torch.distributed.get_rank() == 0", "net", ["ERROR", "ERROR"]),
        ("None", "torch.distributed.get_rank() == 0", "average.net", ["DEGRADED", "DEGRADED"]),
    ],
)
def test_a_wrapper_in_an_evaluation_is_an_error_where_ranks_may_part(
    sampler: str, test: str, model: str, severities: list[str]
) -> None:
    text = EVALUATED.format(sampler=sampler, test=test, model=model)
    findings = [each for code in ("DF501", "DF504") for each in found(code, text)]
    assert [(each.severity or Severity.ERROR).name for each in findings] == severities


@pytest.mark.parametrize(
    ("line", "because"),
    [
        ("total = model(batch)", "what it keeps cannot be added up"),
        ("torch.distributed.all_reduce(loss := model(batch))", "combines the ranks' parts"),
        ("torch.distributed.barrier(); loss = model(batch)", "what it keeps cannot be added up"),
        ("print(mean_over_ranks(model(batch)))", "combines the ranks' parts"),
        ("hvd.allreduce(loss := model(batch))", "combines the ranks' parts"),
    ],
)
def test_parts_that_an_evaluation_puts_together_are_left_to_it(line: str, because: str) -> None:
    mean = "def mean_over_ranks(x):\n    return torch.distributed.reduce(x)\n"
    text = EVALUATED.replace("        model(batch)", f"        {line}")
    text = text.replace("def evaluate", f"import horovod.torch as hvd\n{mean}def evaluate")
    text = text.format(sampler="DistributedSampler(data)", test=1, model="net")
    (finding,) = found("DF503", text)
    assert because in finding.because
    assert bool(finding.edits) is ("cannot" in because)


@pytest.mark.parametrize(
    ("behind", "because"),
    [
        ("return mean(total), mean(right)", "combines the ranks' parts"),
        ("return mean(total), right", "gathers nothing"),
        ("return [*map(mean if ranks > 1 else float, [total, right])]", "combines the ranks'"),
        ("return total, right", "gathers nothing"),
    ],
)
def test_sums_that_an_evaluation_puts_together_are_left_to_it(behind: str, because: str) -> None:
    mean = "import horovod.torch as hvd\ndef mean(x):\n    return hvd.allreduce(x)\n"
    loop = "    total, right = 0.0, 0\n    for batch in loader:\n        y = model(batch)\n"
    loop += f"        total += y.sum()\n        right += y.max()\n    {behind}"
    text = EVALUATED.replace("    for batch in loader:\n        model(batch)", loop, 1)
    text = text.replace("def evaluate", f"{mean}def evaluate")
    (finding,) = found(
        "DF503", text.format(sampler="DistributedSampler(data)", test=1, model="net")
    )
    assert because in finding.because
