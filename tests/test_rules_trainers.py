"""Classes that own the model and the loop, and loops with several forwards in a step."""

from __future__ import annotations

import pytest
from cases import fixed, found
from test_rules import added_and_removed

TRAINER = """\
import torch
from torch import nn
class Trainer:
    def __init__(self, args, model, loader):
        self.args = args
        self.loader = loader
        self.model = model.to(args.device)
        self.model.to(args.device)
        {horizon}
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: n / total)
        {wrap}
    def train(self):
        for step, batch in enumerate(self.loader):
            {head}
            {loss}
            if {test}:
                self.optimizer.step()
    def test(self):
        {other}
def main():
    args = parser.parse_args()
    torch.distributed.init_process_group("gloo")
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    Trainer(args, model, loader).train()
main()
"""
DATA_PARALLEL = "if args.n_gpu > 1:\n            self.model = nn.DataParallel(self.model)"
DDP = "self.model = nn.parallel.DistributedDataParallel(self.model)"
NAMED = "last_micro_step = (step + 1) % self.args.accumulation == 0 or step + 1 == len(self.loader)"
CARD = "device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None"
STEPS = "+steps_per_epoch = -(-len({}) // args.accumulation)  # optimizer steps"


def trainer(horizon: str = "total = 9", wrap: str = DDP, **parts: str) -> str:
    plain = {
        "head": "pass",
        "loss": "self.model(batch).backward()",
        "test": "(step + 1) % self.args.accumulation == 0",
        "other": "pass",
    }
    return TRAINER.format(**plain | parts, horizon=horizon, wrap=wrap)


def encoders(first: str, second: str, wrap: str = "") -> str:
    return f"""\
import torch
def train(args, model):
    torch.distributed.init_process_group("gloo")
    model.to(args.device)
    if args.n_gpu > 1:
        model = torch.nn.DataParallel(model)
    {wrap}
    for step, batch in enumerate(loader):
        code = {first}
        words = {second}
        (code @ words.T).diagonal().sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
args = parser.parse_args()
train(args, model)
"""


NOOP = [
    ("DF702", "a class that counts optimizer steps in its other methods",
        trainer("total = -(-len(self.loader) // args.accumulation) * args.epochs")),
    ("DF702", "the length of another loader", trainer("total = len(self.dev_loader)")),
    ("DF702", "a number of another method that goes to no schedule",
        trainer(other="batches = len(self.loader)")),
    ("DF703", "a mean that is only logged", trainer(
        head=f"{NAMED}\n            self.model.require_backward_grad_sync = last_micro_step\n"
        "            mean = total / self.args.accumulation", test="last_micro_step")),
    ("DF703", "the model of a class is synchronised already", trainer(
        head=f"{NAMED}\n            self.model.require_backward_grad_sync = last_micro_step",
        test="last_micro_step")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in NOOP]
)
def test_left_alone(code: str, text: str) -> None:
    assert [finding.because for finding in found(code, text)] == []


FIX = [
    ("DF301", "the model of a class", trainer(wrap=DATA_PARALLEL), [
        "+if torch.distributed.is_initialized():",
        "+self.model = torch.nn.parallel.DistributedDataParallel(self.model, "
        f"{CARD}, find_unused_parameters=True)"]),
    ("DF301", "two forwards a step, in which neither's parameters are unused",
        encoders("model(a=batch)", "model(b=batch)"), [
        "+if torch.distributed.is_initialized():",
        f"+model = torch.nn.parallel.DistributedDataParallel(model, {CARD}, static_graph=True)"]),
    ("DF301", "a second model's forward is none of its own",
        encoders("model(a=batch)", "other(b=batch)"), [
        "+if torch.distributed.is_initialized():",
        "+model = torch.nn.parallel.DistributedDataParallel(model, "
        f"{CARD}, find_unused_parameters=True)"]),
    ("DF702", "a horizon in the method that makes the schedule",
        trainer("total = len(self.loader) // args.accumulation * args.epochs"), [
        "-total = len(self.loader) // args.accumulation * args.epochs",
        STEPS.format("self.loader"), "+total = steps_per_epoch * args.epochs"]),
    ("DF702", "the loader and the accumulation as the method got them",
        trainer("total = len(loader) * args.epochs"), [
        "-total = len(loader) * args.epochs",
        STEPS.format("loader"), "+total = steps_per_epoch * args.epochs"]),
    ("DF703", "a loss divided where it is made",
        trainer(loss="loss = (a + self.model(batch)) / self.args.accumulation\n"
                "            loss.backward()"), [
        "-loss = (a + self.model(batch)) / self.args.accumulation",
        "+loss = (a + self.model(batch)) * loss_share(step, self.loader, self.args.accumulation)"]),
    ("DF703", "a loss divided where it goes back",
        trainer(loss="(self.model(batch) / self.args.accumulation).backward()"), [
        "-(self.model(batch) / self.args.accumulation).backward()",
        "+(self.model(batch) * loss_share(step, self.loader, self.args.accumulation)).backward()"]),
    ("DF703", "a wrapper that another method made",
        trainer(head=NAMED, test="last_micro_step"), [
        "+self.model.require_backward_grad_sync = last_micro_step"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "diff"), [pytest.param(c, t, d, id=f"{c} {name}") for c, name, t, d in FIX]
)
def test_repaired(code: str, text: str, diff: list[str]) -> None:
    lines = added_and_removed(text, fixed(code, text))
    assert [line for line in diff if line not in lines] == []
