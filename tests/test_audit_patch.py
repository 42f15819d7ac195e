"""The audit of a patch: what it breaks refuses it, what cannot be told is told."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import module
from command_line import run
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import all_obligations, audit
from ddpfix.patcher.audit.verdict import Answer, AuditVerdict
from ddpfix.patcher.capabilities import Capability
from ddpfix.patcher.editing.edits import Replace
from ddpfix.patcher.engine.audited import UNREADABLE, WAYS_OUT, way_out
from ddpfix.patcher.engine.disk_lines import line_on_disk
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Finding
from planted import GOOD


def replaced(old: str, new: str) -> Capability:
    """A capability that replaces a statement of one line."""

    def findings(program: Program) -> Iterator[Finding]:
        script = program.script
        for stmt in [*script.nodes(ast.Assign), *script.nodes(ast.Expr)]:
            if script.text(stmt) == old:
                yield Finding(script, stmt, "", (Replace(stmt, new),))

    return Capability("edit", "Edit", "", 0, (), findings)


CASES = [
    pytest.param(
        "loss = ((net(x) - y) ** 2).mean()",
        "loss = ((model(x) - y) ** 2).mean()",
        "O2 line 65 (`model` is called",
        id="past the wrapper",
    ),
    pytest.param(
        "scores = gathered(scores)",
        "scores = gathered([lambda: 0])",
        "O9 line 45 (what is gathered",
        id="a lambda is gathered",
    ),
    pytest.param("global_step = 0", "step = 0", "O1 line 74 (`global_step`", id="an unbound name"),
]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.py"
    path.write_text(GOOD["ddp"])
    return path


@pytest.mark.parametrize(("old", "new", "said"), CASES)
def test_a_patch_that_breaks_an_obligation_is_refused_with_the_line_of_the_original(
    script: Path, old: str, new: str, said: str
) -> None:
    result = patch(script, capabilities=[replaced(old, new)])
    assert "the result would not keep" in result.refusal
    assert result.refusal.endswith(", and patch again")
    assert said in result.refusal
    assert result.changes == ()
    assert script.read_text() == GOOD["ddp"]


def test_a_patch_that_keeps_them_is_written(script: Path) -> None:
    result = patch(script, capabilities=[replaced("global_step = 0", "global_step = int()")])
    assert result.refusal == ""
    assert result.audit == ()
    assert len(result.changes) == 1


def test_what_the_original_violates_in_the_same_way_is_told(script: Path) -> None:
    text = GOOD["ddp"].replace("        sampler.set_epoch(epoch)\n", "")
    script.write_text(text)
    result = patch(
        script, ignore=["DF402"], capabilities=[replaced("global_step = 0", "global_step = int()")]
    )
    assert result.refusal == ""
    assert [(each.code, each.answer.value) for each in result.audit] == [("O4", "violated")]


def test_the_command_tells_what_the_audit_says(
    script: Path,
) -> None:
    text = GOOD["ddp"].replace("        sampler.set_epoch(epoch)\n", "")
    script.write_text(text)
    done = run("patch", "--dry-run", "--ignore", "DF402", script)
    assert done.exit_code == 1
    told = next(line for line in done.stderr.splitlines() if line.startswith("audit: "))
    assert re.fullmatch(
        rf"audit: {script}:\d+: O4 violated: the sampler never learns the epoch: .*", told
    )


def test_json_holds_the_audit_and_the_diff(script: Path) -> None:
    script.write_text(GOOD["ddp"].replace("        sampler.set_epoch(epoch)\n", ""))
    done = run("patch", "--dry-run", "--json", "--ignore", "DF402", script)
    (one,) = json.loads(done.stdout)["scripts"]
    assert json.loads(done.stdout)["failures"] == []
    assert (one["path"], one["files"]) == (str(script), [str(script)])
    assert [(each["obligation"], each["answer"]) for each in one["audit"]] == [("O4", "violated")]
    assert one["diff"].startswith("--- a/")
    assert one["findings_before"] > len(one["findings_after"])
    refused = run("patch", "--json", "-", stdin=b"")
    assert (refused.exit_code, refused.stdout) == (2, "")


LINES = [
    ("a\nb\nc\n", "a\nb\nc\n", 2, 2),
    ("a\nb\nc\n", "new\na\nb\nc\n", 3, 2),
    ("a\nb\nc\n", "a\nB\nc\n", 2, 2),
    ("a\nb\nc\n", "a\nb\nnew\nc\n", 3, 2),
    ("a\nb\nc\n", "a\nnew\nnew\nc\n", 3, 2),
]


@pytest.mark.parametrize(("old", "new", "line", "expected"), LINES)
def test_a_line_of_the_result_is_one_of_the_original(
    old: str, new: str, line: int, expected: int
) -> None:
    assert line_on_disk(module(old), module(new), line) == expected


ON_RANK_0 = """
import torch
import torch.distributed as dist

def gathered(value):
    pieces = [None] * dist.get_world_size()
    dist.all_gather_object(pieces, value)
    return pieces

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
for batch in torch.utils.data.DataLoader(torch.randn(8, 2)):
    model(batch).mean().backward()
if dist.get_rank() == 0:
    print(gathered([1]))
"""


def test_a_helper_that_only_rank_0_calls_is_told_where_it_is_called() -> None:
    told = [each for each in audit(Program(module(ON_RANK_0))) if each.code == "O6"]
    assert [(each.line, each.because) for each in told] == [
        (14, "only rank 0 can come to gathered(); the other side waits")
    ]


def test_every_obligation_has_a_way_out() -> None:
    assert {each.code for each in all_obligations()} == WAYS_OUT.keys()


@pytest.mark.parametrize(
    ("because", "expected"),
    [
        ("`auc` is read, and nothing binds it", WAYS_OUT["O1"]),
        ("libcst cannot read it: x", UNREADABLE),
    ],
)
def test_a_file_that_cannot_be_read_has_a_way_out_of_its_own(because: str, expected: str) -> None:
    text = module("x = 1")
    verdict = AuditVerdict(text, text.tree, Answer.VIOLATED, because, "O1")
    assert way_out(verdict) == expected
