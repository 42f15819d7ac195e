"""Gradients that a helper of the script reduces over the ranks: DDP does not do it once more."""

from __future__ import annotations

import pytest
from audited import audited
from cases import found

REDUCED = """\
import torch
import torch.distributed as dist
def over_all(tensors):
    whole = torch.cat([each.view(-1) for each in tensors])
    def exchange():
        dist.all_reduce(whole)
        whole.div_(dist.get_world_size())
    exchange()
def main():
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 1)
    if torch.cuda.device_count() > 1:
        model = torch.nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in load(dist.get_rank()):
        loss = model(batch).mean()
        loss.backward()
        {made}
        over_all(exchanged)
        optimizer.step()
if __name__ == "__main__":
    main()
"""
OF_GRADIENTS = REDUCED.format(made="exchanged = [p.grad.data for p in model.parameters()]")
OF_LOSSES = REDUCED.format(made="exchanged = [loss]")

LISTED = """\
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in load(dist.get_rank()):
    loss = model(batch).mean()
    loss.backward()
    parts = []
    for p in model.parameters():
        if p.grad is not None:
            parts.append({part})
    whole = torch.cat(parts)
    dist.all_reduce(whole)
    put_back(whole, model)
    optimizer.step()
"""


@pytest.mark.parametrize(("part", "count"), [("p.grad.view(-1)", 0), ("p.data.view(-1)", 1)])
def test_gradients_that_are_joined_from_a_list_are_averaged(part: str, count: int) -> None:
    assert len(found("DF301", LISTED.format(part=part))) == count


def test_gradients_that_a_helper_reduces_are_not_averaged_by_ddp_as_well() -> None:
    assert not found("DF301", OF_GRADIENTS)
    assert found("DF301", OF_LOSSES)


def test_the_audit_knows_them_as_averaged_and_a_reduced_loss_as_none() -> None:
    answers = [
        {answer for code, answer, _ in audited(text) if code == "O2"}
        for text in (OF_GRADIENTS, OF_LOSSES)
    ]
    assert answers == [set(), {"violated"}]


SHARDED = """\
import torch
import torch.distributed as dist
class Sharded:
    def step(self):
        for each in self.parameters:
            dist.reduce_scatter_tensor(self.part, {what})
def main():
    dist.init_process_group("nccl")
    model = torch.nn.Linear(4, 1).cuda()
    managed = Managed(model, Sharded)
    for batch in load(dist.get_rank()):
        model(batch).mean().backward()
        managed.optimizer.step()
if __name__ == "__main__":
    main()
"""


def test_gradients_that_an_optimizer_reduces_in_parts_may_be_averaged() -> None:
    answers = [
        {answer for code, answer, _ in audited(SHARDED.format(what=what)) if code == "O2"}
        for what in ("each.grad", "each.sum")
    ]
    assert answers in ([set(), {"violated"}], [{"unknown"}, {"violated"}])


SUMMED = """\
import torch
import torch.distributed as dist
def exchange(tensors, divisor):
    for each in tensors:
        dist.all_reduce(each{how})
        {divided}
def main(args):
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in load(dist.get_rank()):
        loss = model(batch).mean() / args.accumulation
        {loss}
        loss.backward()
        exchange([p.grad.data for p in model.parameters()], {divisor})
        optimizer.step()
        print(loss / dist.get_world_size())
if __name__ == "__main__":
    main(parse())
"""


@pytest.mark.parametrize(
    ("parts", "is_told"),
    [
        ({}, True),
        ({"divided": "each.div_(divisor)"}, True),
        ({"divided": "each.div_(divisor)", "divisor": "dist.get_world_size()"}, False),
        ({"divided": "each /= dist.get_world_size()"}, False),
        ({"how": ", op=dist.ReduceOp.AVG"}, False),
        ({"how": ", op=dist.ReduceOp.SUM"}, True),
        ({"loss": "loss = loss / dist.get_world_size()"}, False),
    ],
)
def test_gradients_that_are_only_summed_are_told_of(parts: dict[str, str], is_told: bool) -> None:
    rest = {"how": "", "divided": "pass", "loss": "pass", "divisor": "float(1)"}
    answers = {
        answer for code, answer, _ in audited(SUMMED.format(**{**rest, **parts})) if code == "O2"
    }
    assert answers == ({"unknown"} if is_told else set())
