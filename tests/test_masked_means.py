"""DF310: a sum that the script divides by the sum of a mask is weighed like a cross entropy."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import torch
def masked(losses, labels):
    {mask}
    {mean}
    {result}
model = torch.nn.parallel.DistributedDataParallel(net)
for batch in loader:
    losses = model(batch)
    {call}
    loss.backward()
"""
PARTS = {
    "mask": "mask = labels.ne(0)",
    "mean": "loss = losses.sum() / mask.sum().float()",
    "result": "return loss",
    "call": "loss = masked(losses, batch)",
}
WEIGHED = "loss = weighed_by_tokens(loss, mask.sum())"


COUNTED = {
    "mask": "mask = labels.ne(0)\n    count = mask.sum().item()",
    "mean": "loss = losses.masked_select(mask).sum() / count",
}
THROUGH = """
def performance(losses, labels):
    loss = masked(losses, labels)
    return loss, losses.argmax().eq(labels)
def evaluate(model, data):
    model.eval()
    total = 0
    with torch.no_grad():
        for batch in DataLoader(data):
            total += {scored}
    return total
model = torch"""


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"mask": "mask = (labels > 0) & labels.ne(3)"},
        COUNTED,
        {"mean": "loss = torch.sum(losses * mask) / (mask.sum())", "result": "return loss, mask"},
    ],
)
def test_it_is_weighed_by_the_sum_of_the_mask(parts: dict[str, str]) -> None:
    text = fixed("DF310", script(**parts))
    mean = {**PARTS, **parts}["mean"]
    assert f"    {mean}\n    {WEIGHED}\n" in text
    assert found("DF310", text) == []


@pytest.mark.parametrize(
    "parts",
    [
        {"mask": "mask = torch.sigmoid(labels)"},  # a gradient may come through it
        {"mean": "loss = losses.sum(1) / mask.sum(1)"},
        {"result": "return losses, loss"},  # a score, as far as is known
    ],
)
def test_another_quotient_is_noted_at_most(parts: dict[str, str]) -> None:
    assert all(finding.edits == () for finding in found("DF310", script(**parts)))


@pytest.mark.parametrize(
    "call",
    [
        "if batch.any():\n        loss = masked(losses, batch)",
        "loss = choose(masked)(losses, batch) + masked(losses, batch)",
    ],
)
def test_what_ranks_may_not_all_call_is_reported(call: str) -> None:
    (finding,) = found("DF310", script(call=call))
    assert not finding.edits


@pytest.mark.parametrize(
    ("call", "scored", "count"),
    [
        ("loss, right = performance(losses, batch)", "masked(model(batch), batch)", 1),
        ("loss = losses.mean()", "performance(model(batch), batch)[0]", 0),
        ("loss = losses.mean() + evaluate(model, data)", "performance(model(batch), batch)[0]", 0),
    ],
)
def test_a_function_between_the_step_and_the_mean(call: str, scored: str, count: int) -> None:
    text = script(call=call).replace("\nmodel = torch", THROUGH.replace("{scored}", scored), 1)
    assert len(found("DF310", text)) == count


SELECTED = """\
import torch
from torch import nn
def {name}(made, wanted, mask):
    return {mean}
def evaluate(model, data):
    model.eval()
    for batch in DataLoader(data):
        show({name}(model(batch), batch, batch > 0))
model = torch.nn.parallel.DistributedDataParallel(net)
for batch in loader:
    mask = {mask}
    loss = {name}(model(batch), batch, mask)
    loss.backward()
"""
SMOOTH = "nn.functional.smooth_l1_loss(made[mask], wanted[mask], size_average=True)"


@pytest.mark.parametrize(
    ("mean", "mask", "name", "count"),
    [
        (SMOOTH, "(batch > 0) & (batch < 9)", "depth_loss", 1),
        ("nn.L1Loss()(made[mask], wanted[mask])", "batch.gt(0)", "depth_loss", 1),
        ("(made - wanted)[mask].mean()", "batch != 0", "depth_loss", 1),
        ("(made - wanted).masked_select(mask).mean()", "drawn(batch)", "depth_loss", 1),
        ("torch.masked_select(made - wanted, mask).mean()", "drawn(batch)", "depth_loss", 1),
        ("-spread(made[mask]).log_prob(wanted[mask]).mean()", "batch > 0", "depth_loss", 1),
        ("(made - wanted).masked_select(mask).sum()", "drawn(batch)", "depth_loss", 0),
        (SMOOTH.replace("[mask]", "[rows]"), "batch > 0", "depth_loss", 0),  # as many everywhere
        (SMOOTH.replace("[mask]", "[valid_mask]"), "batch > 0", "depth_loss", 1),
        (SMOOTH.replace("[mask]", "[batch['mask']]"), "batch > 0", "depth_loss", 1),
        (SMOOTH, "batch > 0", "score", 0),
        (SMOOTH.replace("size_average=True", "reduction='none'"), "batch > 0", "depth_loss", 0),
        (SMOOTH.replace("mask", "0"), "batch > 0", "depth_loss", 0),
    ],
)
def test_a_mean_over_what_a_mask_selects_is_noted(
    mean: str, mask: str, name: str, count: int
) -> None:
    told = found("DF310", SELECTED.format(mean=mean, mask=mask, name=name))
    assert [each.edits for each in told] == [()] * count


CELLS = """\
import torch
from torch import nn
model = nn.DataParallel(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def detection_loss(made, cells):
    b, y, x = cells
    {asked}
    own = made[b, y, x]
    return nn.BCEWithLogitsLoss()(own[:, 5:], torch.ones(2))
for batch in torch.utils.data.DataLoader(data, shuffle=True):
    optimizer.zero_grad()
    detection_loss(model(batch), cells_of(batch)).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("asked", "count"), [("n = b.shape[0]", 1), ("if len(b) == 0: return 0", 1), ("pass", 0)]
)
def test_a_mean_over_the_cells_of_boxes_is_noted(asked: str, count: int) -> None:
    assert len(found("DF310", CELLS.format(asked=asked))) == count


COUNTS = [
    ("n = mask.sum(1).sum()", "loss = losses.sum()\n    loss /= n", True),
    ("n = mask.long().sum(1, keepdim=True)\n    n = n.data.sum()", "loss = losses / n", True),
    ("n = max(1, mask.float().sum())", "loss = (losses.sum() + 1) / n", True),
    ("n = float(mask.sum())", "loss = losses.sum()\n    loss /= n", True),
    ("n = torch.clamp(mask.sum(), min=1)", "loss = (losses.sum() + 1) / n", True),
    ("n = mask.sum() + 1e-6", "loss = (losses.sum() + 1) / n", True),
    ("n = mask.sum()", "loss = (losses.sum() + 1) / (n + epsilon)", True),
    ("n = mask.sum()", "loss = (losses.sum() + 1) / (n + len(labels))", False),
    ("n = torch.nonzero(mask, as_tuple=False).size()[0]", "loss = losses.sum() / n", True),
    ("n = 2", "loss = n * losses.sum() / (mask.nonzero().size(0))", True),
    ("found = mask.nonzero()\n    n = max(1, len(found))", "loss = (losses.sum() + 1) / n", True),
    ("kept = labels[mask].view(-1)\n    n = kept.size(0)", "loss = losses.sum() / n", True),
    ("labels = labels[mask, :]\n    n = len(labels)", "loss = losses.sum() / n", True),
    ("n = labels[:4].size(0)", "loss = losses.sum() / n", False),
    ("n = torch.count_nonzero(mask)", "loss = losses.sum() / n", True),
    ("n = torch.count_nonzero(mask, 1)", "loss = losses.sum(1) / n", False),
    ("n = mask.size(0)", "loss = losses.sum() / n", False),
    ("n = max(1, len(labels))", "loss = losses.sum() / n", False),
    ("n = mask.sum()", "accuracy = losses.argmax() / n\n    loss = losses.mean()", False),
]


@pytest.mark.parametrize(("count", "mean", "is_told"), COUNTS)
def test_a_loss_over_the_number_of_positives_is_noted(count: str, mean: str, is_told: bool) -> None:
    parts = {"mask": f"mask = labels > 0\n    {count}", "mean": mean}
    told = found("DF310", script(**parts).replace("masked(", "loss_of("))
    assert ["the mean is over what mask leaves in" in each.because for each in told] == (
        [True] * is_told
    )


@pytest.mark.parametrize(
    ("mean", "is_told"),
    [
        ("losses *= labels.view(-1)\n    loss = losses.sum() / labels.float().sum()", True),
        ("loss = (losses * labels).sum() / labels.float().sum()", True),
        ("losses *= 2\n    loss = losses.sum() / labels.sum()", False),
    ],
)
def test_a_mean_by_a_mask_that_is_multiplied_is_noted(mean: str, is_told: bool) -> None:
    told = found("DF310", script(mean=mean, mask="pass"))
    assert ["what labels leaves in" in each.because for each in told].count(True) == is_told


ALIAS = """\
import torch
def depth_loss(made, wanted):
    mask = wanted > 0
    return torch.nn.functional.l1_loss(made[mask], wanted[mask])
loss_of = depth_loss
def step(model, batch{own}):
    loss = loss_of(model(batch), batch)
    loss.backward()
model = torch.nn.parallel.DistributedDataParallel(net)
def main():
    for batch in loader:
        step(model, batch)
        optimizer.step()
main()
"""


@pytest.mark.parametrize(("own", "count"), [("", 1), (", loss_of=other", 0)])
def test_a_loss_under_another_name_of_the_module_is_read(own: str, count: int) -> None:
    told = [each.because for each in found("DF310", ALIAS.format(own=own))]
    assert len([because for because in told if "mask leaves in" in because]) == count


JOINED = """\
import torch
from torch import nn
class PairLoss(nn.Module):
    def forward(self, scores, wanted):
        loss = -(scores.log_softmax(-1) * wanted).sum(1)
        return loss.{mean}
class Model(nn.Module):
    def __init__(self):
        self.loss_fnt = PairLoss()
    def forward(self, rows, labels):
        scores = self.scores(rows)
        {rows}
        loss = self.loss_fnt(scores.float(), wanted.float())
        return loss, scores
model = torch.nn.parallel.DistributedDataParallel(Model())
for batch in loader:
    loss = model(batch[0], batch[1])[0]
    loss.backward()
"""
ROWS = "labels = [torch.tensor(row) for row in labels]\n        wanted = torch.cat(labels, dim=0)"
FILLED = """\
found = []
        for row in labels:
            found.append(torch.LongTensor(row).to(rows))
        wanted = torch.cat(found).to(rows)"""


@pytest.mark.parametrize(
    ("rows", "mean", "told"),
    [
        (ROWS, "mean()", "labels"),
        (FILLED, "mean()", "found"),
        (ROWS, "sum()", ""),
        (ROWS.replace("dim=0", "dim=1"), "mean()", ""),
        (ROWS.replace("torch.tensor(row)", "self.embed(row)"), "mean()", ""),  # of views, as many
        ("wanted = torch.cat([labels, rows])", "mean()", ""),
    ],
)
def test_a_mean_over_rows_of_which_each_example_has_its_own_number_is_noted(
    rows: str, mean: str, told: str
) -> None:
    notes = found("DF310", JOINED.format(rows=rows, mean=mean))
    assert [each.because.split(":")[0] for each in notes] == [
        f"the mean is over all rows of {name}" for name in told.split()
    ]


PACKED = """\
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
model = torch.nn.parallel.DistributedDataParallel(net)
criterion = nn.CrossEntropyLoss({options})
for captions, lengths in loader:
    scores = model(captions)
    {pack}
    loss = criterion({scores}, targets)
    loss.backward()
"""
CALL = "pack_padded_sequence(captions, lengths, batch_first=True)"


COLLATED = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler
def collate(batch):
    labels = [each["labels"] for each in batch]
    {rows}
    return torch.stack([each["x"] for each in batch]), wanted
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), collate_fn=collate)
model = torch.nn.parallel.DistributedDataParallel(Net())
for x, y in loader:
    loss = model(x, y)[0]{end}
    loss.backward()
"""


@pytest.mark.parametrize(
    ("rows", "end", "told"),
    [
        (ROWS.replace("wanted", "labels"), "", True),
        (ROWS.replace("wanted", "labels"), ".pow(2).sum()", False),
        ("labels = torch.tensor(labels)", "", False),
    ],
)
def test_rows_that_batches_join_are_noted(rows: str, end: str, told: bool) -> None:
    text = COLLATED.format(rows=rows.replace("\n        ", "\n    "), end=end)
    notes = found("DF310", text.replace("wanted", "labels"))
    assert ["join all rows of labels" in each.because for each in notes] == [True] * told


@pytest.mark.parametrize(
    ("pack", "options", "is_told"),
    [
        (f"targets = {CALL}.data", "", True),
        (f"targets = {CALL}[0]", "", True),
        (f"targets, _ = {CALL}", "", True),
        (f"packed = {CALL}.data\n    targets = packed", "", True),
        (f"targets = {CALL}.batch_sizes", "", False),
        ("targets = captions", "", False),
        (f"targets = {CALL}.data", "reduction='none'", False),
    ],
)
def test_a_mean_over_packed_steps_is_noted(pack: str, options: str, is_told: bool) -> None:
    told = found("DF310", PACKED.format(pack=pack, options=options, scores="scores"))
    assert ["all steps that line 8 packs" in each.because for each in told] == [True] * is_told


OF_A_NAME = """\
import torch
class MaskedLoss(torch.nn.Module):
    def forward(self, made, wanted):
        valid = {mask}
        rest = made - wanted
        {lines}
        return self.loss
model = torch.nn.parallel.DistributedDataParallel(net)
criterion = MaskedLoss()
for batch, wanted in loader:
    criterion(model(batch), wanted).backward()
"""
SELECTIONS = [
    ("self.loss = rest[valid].abs().mean()", 1),
    ("rest = rest[valid]\n        self.loss = (rest ** 2).mean()", 1),
    ("rest = rest[valid].abs()\n        self.loss = torch.mean(rest)", 1),
    ("made = made[valid]\n        wanted = wanted[valid]\n"
     "        self.loss = torch.nn.functional.l1_loss(made, wanted)", 1),
    ("rest = rest[valid]\n        self.loss = (rest ** 2).sum()", 0),
    ("rest[valid] = 0\n        self.loss = rest.mean()", 0),
    ("part = rest[valid].sum()\n        self.loss = (rest + part).mean()", 0),
    ("part = rest[valid]\n        part = rest\n        self.loss = part.mean()", 0),
]  # fmt: skip


@pytest.mark.parametrize("mask", ["(wanted > 0).detach()", "wanted > 0"])
@pytest.mark.parametrize(("lines", "told"), SELECTIONS)
def test_a_mean_over_what_is_selected_under_a_name_is_noted(
    mask: str, lines: str, told: int
) -> None:
    notes = found("DF310", OF_A_NAME.format(mask=mask, lines=lines))
    assert [each.because.split(":")[0] for each in notes] == [
        "the mean is over what valid leaves in"
    ] * told


PADDED = """\
import torch
from torch import nn
def collate(rows):
    {pads}
def train(model, loader):
    model = torch.nn.parallel.DistributedDataParallel(model)
    for x, mask in loader:
        losses = model(x)
        {loss}
        loss.backward()
"""
LONGEST = "return nn.utils.rnn.pad_sequence(rows)"


@pytest.mark.parametrize(
    ("pads", "loss", "is_told"),
    [
        (LONGEST, "loss = (losses * mask).mean()", True),
        (LONGEST, "losses *= mask.float()\n        loss = torch.mean(losses)", True),
        (LONGEST, "loss = (losses * (x != 0)).mean()", True),
        ("return tokenizer(rows, padding=True)", "loss = (mask * losses).mean()", True),
        ("n = max(len(row) for row in rows)", "loss = (mask * losses).mean()", True),
        ("return tokenizer(rows, padding='max_length')", "loss = (losses * mask).mean()", False),
        (LONGEST, "loss = (losses * mask).mean(1).sum()", False),
        (LONGEST, "loss = (losses * weight).mean()", False),
        (LONGEST, "accuracy = (losses * mask).mean()\n        loss = losses[0]", False),
    ],
)
def test_a_mean_that_counts_padding_is_noted(pads: str, loss: str, is_told: bool) -> None:
    told = found("DF310", PADDED.format(pads=pads, loss=loss))
    assert ["leaves out as well" in each.because for each in told] == [True] * is_told
    assert all(not each.edits for each in told)


LOSSES = """\
import torch
def masked(made, wanted):
    mask = (wanted > 0).float()
    loss = torch.sum((made - wanted).abs() * mask) / (torch.sum(mask) + 1e-6)
    return loss
"""
BY_MODULE = """\
import importlib, torch
losses = importlib.import_module("losses")
criterion = losses.{name}
def train(model):
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch, wanted in torch.utils.data.DataLoader(torch.load("data.pt")):
        loss = criterion(model(batch), wanted)
        loss.backward()
        optimizer.step()
if __name__ == "__main__":
    train(torch.load("model.pt"))
"""


@pytest.mark.parametrize(("name", "is_told"), [("masked", True), ("other", False)])
def test_a_loss_of_a_module_that_is_imported_by_name_is_of_a_step(
    name: str, is_told: bool, tmp_path: Path
) -> None:
    (tmp_path / "losses.py").write_text(LOSSES)
    path = tmp_path / "train.py"
    path.write_text(BY_MODULE.format(name=name))
    assert ("DF310" in {each.code for each in patch(path).findings_before}) is is_told
