"""DF401 and DF402: a sampler of ranks that is made, told the epoch, and handed to no loader."""

from __future__ import annotations

import pytest
from audited import audited
from cases import fixed, found

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

torch.distributed.init_process_group("gloo")
data = torch.arange(64.0).view(32, 2)
other = data[8:]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
{made}
loader = DataLoader(data, batch_size=4{shuffle})
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.distributed.destroy_process_group()
"""
MADE = "sampler = DistributedSampler(data)"


def script(made: str = MADE, shuffle: str = ", shuffle=True") -> str:
    return SCRIPT.format(made=made, shuffle=shuffle)


@pytest.mark.parametrize(
    ("made", "shuffle", "after"),
    [
        (MADE, ", shuffle=True", ", shuffle=sampler is None, sampler=sampler"),
        (MADE, "", ", sampler=sampler"),
        (f"{MADE} if ddp else None", ", shuffle=True",
            ", shuffle=sampler is None, sampler=sampler"),
        (f"sampler = None\nif ddp:\n    {MADE}", ", shuffle=True",
            ", shuffle=sampler is None, sampler=sampler"),
        (f"if ddp:\n    {MADE}\nelse:\n    sampler = None", "", ", sampler=sampler"),
    ],
    ids=["shuffled", "in order", "or none", "none before", "none else"],
)  # fmt: skip
def test_the_loader_gets_the_sampler_that_was_made_for_it(
    made: str, shuffle: str, after: str
) -> None:
    text = fixed("DF401", script(made, shuffle))
    assert f"DataLoader(data, batch_size=4{after})" in text
    assert not found("DF402", text)
    assert "violated" not in {answer for code, answer, _ in audited(text) if code == "O4"}


@pytest.mark.parametrize(
    "made",
    [
        "sampler = DistributedSampler(other)",
        f"{MADE}\nprepare(sampler)",
        f"{MADE}\nif ddp:\n    sampler = shuffled(data)",
        f"if ddp:\n    {MADE}",
    ],
    ids=["other data", "given away", "another one", "not on each way"],
)
def test_a_sampler_that_may_serve_something_else_stays(made: str) -> None:
    assert "sampler=sampler" not in fixed("DF401", script(made))


MANY = "RandomSampler(data, replacement=True, num_samples={count}{more})"


@pytest.mark.parametrize(
    ("count", "more", "because"),
    [
        ("int(1e10)", "", "draws more examples than can be listed"),
        ("10**3", "", "no branch deals by rank"),
        ("1000", "", "no branch deals by rank"),
        ("int(1e10)", ", generator=torch.Generator().manual_seed(1 + rank)", ""),
    ],
)
def test_a_sampler_without_end_is_not_listed(count: str, more: str, because: str) -> None:
    sampler = f", sampler=torch.utils.data.{MANY.format(count=count, more=more)}"
    text = script("sampler = None", sampler).replace("sampler.set_epoch(epoch)", "pass")
    findings = found("DF401", text)
    assert [because in each.because for each in findings] == [True] * bool(because)
    assert not any(each.edits for each in findings if "listed" in each.because)
