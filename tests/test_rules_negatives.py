"""DF307: in-batch negatives are those of the rank's own batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Safety, Severity
from forked import Forge, Job

TRAIN = """\
import torch
def train(args, model):
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loader:
        code, text = model(batch), model(batch)
        {lines}
        loss.backward()
"""


def training(*lines: str) -> str:
    return TRAIN.format(lines="\n        ".join(lines))


LABELS = "torch.arange(text.size(0), device=scores.device)"
LOSS = f"loss = loss_fct(scores, {LABELS})"
NOOP = [
    ("classes, not examples", training("scores = torch.mm(text, weight.t())",
        "loss = loss_fct(scores, labels)")),
    ("positions of a sentence", training("scores = head(text)", LOSS)),
    ("attention", training("scores = torch.einsum('abc,acd->abd', text, code)", LOSS)),
    ("all ranks' vectors", training("scores = text @ WithOtherRanks.apply(code).t()", LOSS)),
    ("gathered by the script", training("every = all_gather(code)", "scores = text @ every.t()",
        LOSS)),
    ("no ranks", training("scores = text @ code.t()", LOSS)
        .replace("nn.parallel.DistributedDataParallel", "compile")),
    ("nothing trains on it", training("loss = model(text)") + f"""
def evaluate(text, code):
    scores = text @ code.t()
    {LOSS}
"""),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF307", text)] == []


FIX = [
    ("einsum", "torch.einsum('ab,cb->ac', text, code)",
        "torch.einsum('ab,cb->ac', text, WithOtherRanks.apply(code))"),
    ("mm", "torch.mm(text, code.t()) * 20", "torch.mm(text, WithOtherRanks.apply(code).t()) * 20"),
    ("matmul", "text @ code.T", "text @ WithOtherRanks.apply(code).T"),
    ("a sum of products", "(text[:, None, :] * code[None, :, :]).sum(-1)",
        "(text[:, None, :] * WithOtherRanks.apply(code)[None, :, :]).sum(-1)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(old, new, id=name) for name, old, new in FIX]
)
def test_gathered(old: str, new: str) -> None:
    inline = training(f"loss = loss_fct({old}, torch.arange(4))")
    assert f"loss_fct({new}, torch.arange(4))" in fixed("DF307", inline)
    if old != FIX[1][1]:
        named = training(f"scores = {old}", LOSS)
        assert f"scores = {new}\n" in fixed("DF307", named)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            training("scores = text @ code.t()", LOSS, "print(scores.diagonal())"),
            id="the scores are used elsewhere too",
        ),
        pytest.param(
            training("loss = loss_fct(text @ model(batch).t(), torch.arange(4))"),
            id="vectors without a name",
        ),
        pytest.param(
            training("loss = model(batch)")
            + """
class Model:
    def forward(self, out, labels):
        scores = torch.mm(out, out.t())
        return scores * (labels[:, None] == labels[None, :])
""",
            id="a mask of equal labels",
        ),
    ],
)
def test_noted_and_not_touched(text: str) -> None:
    (finding,) = found("DF307", text)
    assert finding.edits == ()


def test_it_is_a_note() -> None:
    (finding,) = found("DF307", training("scores = text @ code.t()", LOSS))
    assert finding.severity is Severity.NOTE
    assert finding.safety is Safety.UNSAFE


SCRIPT = """\
import json, os, sys
import torch

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
data = torch.randn(8, 3)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.code, self.text = torch.nn.Linear(3, 5), torch.nn.Linear(3, 5)

    def forward(self, x):
        code, text = self.code(x), self.text(x)
        scores = torch.einsum("ab,cb->ac", text, code)
        loss = torch.nn.functional.cross_entropy(
            scores, torch.arange(x.size(0), device=scores.device))
        return loss

model = inner = Model()
if world > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
for batch in [data[rank * 8 // world : (rank + 1) * 8 // world]]:
    loss = model(batch)
    loss.backward()
with torch.no_grad():  # ranks may evaluate different numbers of batches
    for batch in range(rank):
        inner(data[:3])
grads = torch.cat([p.grad.flatten() for p in inner.parameters()]).tolist()
open(f"{sys.argv[1]}.{rank}", "w").write(json.dumps([loss.item(), grads]))
if world > 1:
    torch.distributed.destroy_process_group()
"""


def test_two_ranks_have_the_loss_and_gradients_of_one_at_the_global_batch(
    tmp_path: Path, forge: Forge
) -> None:
    new = fixed("DF307", SCRIPT)
    assert "WithOtherRanks.apply(code)" in new
    results: dict[str, list[tuple[float, list[float]]]] = {}
    for name, text, world in (("alone", SCRIPT, None), ("old", SCRIPT, 2), ("new", new, 2)):
        script = tmp_path / f"{name}.py"
        script.write_text(text)
        (run,) = forge.run([Job(tmp_path / name, script, [str(tmp_path / name)], world=world)])
        assert set(run.statuses) == {0}, run.log
        files = sorted(tmp_path.glob(f"{name}.[01]"))
        results[name] = [json.loads(path.read_text()) for path in files]
    ((loss, gradient),) = results["alone"]
    losses = {name: sum(r[0] for r in ranks) / len(ranks) for name, ranks in results.items()}
    assert losses["new"] == pytest.approx(loss, rel=1e-6)
    assert losses["old"] != pytest.approx(loss, rel=1e-2)
    assert len(results["new"]) == 2
    for _, found_gradient in results["new"]:
        assert found_gradient == pytest.approx(gradient, rel=1e-5, abs=1e-7)
    assert results["old"][0][1] != pytest.approx(gradient, rel=1e-2, abs=1e-3)
