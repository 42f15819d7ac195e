"""Classes that own the model and the loop, and loops with several forwards in a step."""

from __future__ import annotations

import textwrap

import pytest
from cases import changes, fixed, found

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


def encoders(first: str, second: str) -> str:
    return f"""\
import torch
def train(args, model):
    torch.distributed.init_process_group("gloo")
    model.to(args.device)
    if args.n_gpu > 1:
        model = torch.nn.DataParallel(model)
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
        loss="(self.model(batch) * loss_share(step, self.loader, self.args.accumulation))"
            ".backward()",
        test="last_micro_step")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in NOOP]
)
def test_classes_that_count_and_synchronise_rightly_are_left_alone(code: str, text: str) -> None:
    assert [finding.because for finding in found(code, text)] == []


FIX = [
    ("DF301", "the model of a class", trainer(wrap=DATA_PARALLEL), """
        @@ -12,2 +12,4 @@
                     self.model = nn.DataParallel(self.model)
        +        if torch.distributed.is_initialized():
        +            self.model = torch.nn.parallel.DistributedDataParallel(self.model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             def train(self):
        """),  # noqa: E501
    ("DF301", "two forwards a step, in which neither's parameters are unused",
        encoders("model(a=batch)", "model(b=batch)"), """
        @@ -6,2 +6,4 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, static_graph=True)
             for step, batch in enumerate(loader):
        """),  # noqa: E501
    ("DF301", "two forwards a step, of which the second would change the first's averages",
        encoders("model(a=batch)", "model(b=batch)") + "torch.nn.BatchNorm1d(2)\n", """
        @@ -6,2 +6,4 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, broadcast_buffers=False, static_graph=True)
             for step, batch in enumerate(loader):
        """),  # noqa: E501
    ("DF301", "a second model's forward is none of its own",
        encoders("model(a=batch)", "other(b=batch)"), """
        @@ -6,2 +6,4 @@
                 model = torch.nn.DataParallel(model)
        +    if torch.distributed.is_initialized():
        +        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for step, batch in enumerate(loader):
        """),  # noqa: E501
    ("DF702", "a horizon in the method that makes the schedule",
        trainer("total = len(self.loader) // args.accumulation * args.epochs"), """
        @@ -8,3 +8,4 @@
                 self.model.to(args.device)
        -        total = len(self.loader) // args.accumulation * args.epochs
        +        steps_per_epoch = -(-len(self.loader) // args.accumulation)  # optimizer steps
        +        total = steps_per_epoch * args.epochs
                 self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: n / total)
        """),  # noqa: E501
    ("DF702", "the loader and the accumulation as the method got them",
        trainer("total = len(loader) * args.epochs"), """
        @@ -8,3 +8,4 @@
                 self.model.to(args.device)
        -        total = len(loader) * args.epochs
        +        steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
        +        total = steps_per_epoch * args.epochs
                 self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: n / total)
        """),  # noqa: E501
    ("DF703", "a loss divided where it is made",
        trainer(loss="loss = (a + self.model(batch)) / self.args.accumulation\n"
                "            loss.backward()"), """
        @@ -2,2 +2,11 @@
         from torch import nn
        +
        +
        +def loss_share(step, loader, accumulation): ...
         class Trainer:
        @@ -13,6 +22,7 @@
                 for step, batch in enumerate(self.loader):
        +            last_micro_step = (step + 1) % self.args.accumulation == 0 or step + 1 == len(self.loader)
                     pass
        -            loss = (a + self.model(batch)) / self.args.accumulation
        +            loss = (a + self.model(batch)) * loss_share(step, self.loader, self.args.accumulation)
                     loss.backward()
        -            if (step + 1) % self.args.accumulation == 0:
        +            if last_micro_step:
                         self.optimizer.step()
        """),  # noqa: E501
    ("DF703", "a loss divided where it goes back",
        trainer(loss="(self.model(batch) / self.args.accumulation).backward()"), """
        @@ -2,2 +2,11 @@
         from torch import nn
        +
        +
        +def loss_share(step, loader, accumulation): ...
         class Trainer:
        @@ -13,5 +22,6 @@
                 for step, batch in enumerate(self.loader):
        +            last_micro_step = (step + 1) % self.args.accumulation == 0 or step + 1 == len(self.loader)
                     pass
        -            (self.model(batch) / self.args.accumulation).backward()
        -            if (step + 1) % self.args.accumulation == 0:
        +            (self.model(batch) * loss_share(step, self.loader, self.args.accumulation)).backward()
        +            if last_micro_step:
                         self.optimizer.step()
        """),  # noqa: E501
    ("DF703", "a wrapper that another method made",
        trainer(head=NAMED, test="last_micro_step"), """
        @@ -14,2 +14,3 @@
                     last_micro_step = (step + 1) % self.args.accumulation == 0 or step + 1 == len(self.loader)
        +            self.model.require_backward_grad_sync = last_micro_step
                     self.model(batch).backward()
        """),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "diff"), [pytest.param(c, t, d, id=f"{c} {name}") for c, name, t, d in FIX]
)
def test_each_rule_repairs_exactly_this(code: str, text: str, diff: str) -> None:
    assert changes(text, fixed(code, text)) == textwrap.dedent(diff).lstrip("\n")
