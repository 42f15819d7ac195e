"""DF301 where a step trains two models, or goes back through gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch

STEP = """\
import torch
torch.distributed.init_process_group('gloo', timeout=t)
critic = Critic().to(device)
if not torch.distributed.is_initialized():
    critic = torch.nn.DataParallel(critic)
for batch in torch.utils.data.DataLoader(data):
    {first}
    slope = torch.autograd.grad(critic(batch).sum(), batch, create_graph=True)[0]
    {second}
    optimizer.step()
"""
TRAIN = """\
import torch
from score import score

if __name__ == "__main__":
    body = torch.nn.DataParallel(torch.nn.Linear(4, 4))
    head = torch.nn.DataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.1)
    for epoch in range(3):
        for batch in torch.utils.data.DataLoader(torch.rand(8, 4), shuffle=True):
            optimizer.zero_grad()
            head(body(batch)).sum().backward()
            optimizer.step()
        print(score(body))
"""
SCORE = """\
import torch

def score(body):
    return sum(weight.norm() for weight in body.parameters())

if __name__ == "__main__":
    body = torch.nn.DataParallel(torch.load("body.pt", weights_only=False))
    print(score(body))
"""


def test_a_penalty_in_the_one_backward_of_a_step_is_no_obstacle() -> None:
    joint = STEP.format(first="pass", second="(critic(batch).mean() + slope.norm()).backward()")
    apart = STEP.format(first="critic(batch).mean().backward()", second="slope.norm().backward()")
    flat = apart.replace("create_graph=True", "create_graph=False")
    findings = [found("DF301", text)[0] for text in (joint, apart, flat)]
    assert ["by hand" in each.because for each in findings] == [False, True, False]
    assert all(each.edits for each in findings)


def test_each_model_is_wrapped_where_an_imported_script_wraps_one_of_that_name(
    tmp_path: Path,
) -> None:
    (tmp_path / "score.py").write_text(SCORE)
    (tmp_path / "train.py").write_text(TRAIN)
    done = patch(tmp_path / "train.py")
    new = next(each.text for each in done.changes if each.source.name.endswith("train.py"))
    for name in ("body", "head"):
        assert f"{name} = torch.nn.parallel.DistributedDataParallel({name}, " in new


DRAWN = """\
import torch
torch.distributed.init_process_group('gloo', timeout=t)
net = Net().to(device)
whole = net
if not torch.distributed.is_initialized():
    whole = torch.nn.DataParallel(whole)
{line}
optimizer = torch.optim.SGD(whole.parameters())
for batch in torch.utils.data.DataLoader(data):
    whole(batch).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("whole.apply(draw)", 8),  # the wrapper comes behind it
        ("net.head.apply(draw)", 0),
        ("init_weights(net)", 0),
        ("net.head.reset_parameters()", 0),
        ("net.load_state_dict(torch.load(path))", 7),
        ("if fp16: whole.head = 1; net.half()", 0),
        ("net.eval().bfloat16()", 0),
        ("net.eval().cpu()", 7),  # once, and not in a loop
    ],
)
def test_ranks_wrap_a_model_when_its_weights_are_drawn(line: str, place: int) -> None:
    text = DRAWN.format(line=line)
    wrapped = [
        number
        for number, each in enumerate(fixed("DF301", text).splitlines(), 1)
        if each == "if torch.distributed.is_initialized():"
    ]
    assert wrapped == ([place] if place else [])
    assert ("draws or converts weights" in found("DF301", text)[0].because) is (not place)


@pytest.mark.parametrize(("made", "is_told"), [("Net()", False), ("whole.to(device)", True)])
def test_a_model_that_is_made_anew_behind_the_training_is_another(made: str, is_told: bool) -> None:
    text = DRAWN.format(line="pass") + f"whole = {made}\nif fp16:\n    whole.half()\n"
    finding = found("DF301", text)[0]
    assert ("draws or converts weights" in finding.because) is is_told
    assert ("by hand" in finding.because) is is_told
    assert finding.edits


SOLVER = """\
import torch
from torch import nn

class Solver:
    def __init__(self):
        self.gen = nn.DataParallel(nn.Linear(4, 4))
        self.dis = {dis}
        self.optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in ()]
        self.first = torch.optim.SGD(self.gen.parameters(), 0.1)
        self.second = torch.optim.SGD(self.dis.parameters(), 0.1)

    def judge(self, real):
        self.dis(real).sum().backward()
        self.second.step()

    def draw(self, real):
        self.dis(self.gen(real)).sum().backward()
        self.first.step()

    def train(self, data):
        torch.distributed.init_process_group("gloo")
        for real in torch.utils.data.DataLoader(data):
            self.judge(real)
            self.draw(real)

Solver().train(torch.rand(8, 4))
"""


def test_a_model_that_a_method_of_the_step_trains_is_not_left_out() -> None:
    alone = found("DF301", SOLVER.format(dis="nn.Linear(4, 1)"))
    assert [each.because for each in alone] == [
        "self.dis is trained, and nothing wraps it: ranks average the gradients by hand"
    ]
    both = found("DF301", SOLVER.format(dis="nn.DataParallel(nn.Linear(4, 1))"))
    assert not any("nothing wraps it" in each.because for each in both)


ENCODER = """\
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = self.shared_out(body)
        {parts}

    def shared_out(self, body):
        body = nn.DataParallel(body)
        return body

    def forward(self, x):
        return self.body(x)
{more}
torch.distributed.init_process_group("gloo")
model = Encoder(nn.Linear(4, 4))
optimizer = torch.optim.SGD(chosen(model), 0.1)
for x in torch.utils.data.DataLoader(torch.rand(8, 4)):
    model(x).sum().backward()
    optimizer.step()
"""
STEPS = """
    def step(self, x):
        self(x).backward()
"""


@pytest.mark.parametrize(
    ("parts", "more", "is_part"),
    [
        ("self.head = nn.Linear(4, 1)", "", True),
        ("self.drop = nn.Dropout(0.1)", "", False),
        ("self.head = nn.Linear(4, 1)", STEPS, False),
    ],
)
def test_a_model_that_wraps_one_of_its_parts_is_to_be_wrapped_whole(
    parts: str, more: str, is_part: bool
) -> None:
    (finding,) = found("DF301", ENCODER.format(parts=parts, more=more))
    assert ("only a part of Encoder is wrapped" in finding.because) == is_part


HEADS = """\
import torch
torch.distributed.init_process_group("gloo")
body, head = torch.nn.DataParallel(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 1)
body = torch.nn.DataParallel(body)
norms, weights = split(body)
{more}
loss = torch.nn.MSELoss()
optimizer = torch.optim.SGD([{{"params": norms + weights}}, {{"params": others}}], 0.1)
for x, y in torch.utils.data.DataLoader(data):
    loss(head(body(x)), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("more", "is_bare"),
    [("_, others = split(head)", True), ("others = split(loss)", False), ("others = []", False)],
)
def test_a_model_whose_parameters_a_function_lists_is_not_left_out(
    more: str, is_bare: bool
) -> None:
    text = HEADS.format(more=more)
    because = [each.because for each in found("DF301", text) if "nothing wraps it" in each.because]
    assert (
        because
        == ["head is trained, and nothing wraps it: ranks average the gradients by hand"] * is_bare
    )


def test_what_a_model_is_built_from_is_no_model() -> None:
    text = HEADS.format(more="others = []\nnet = build(size)")
    text = text.replace("norms + weights", "net.parameters()")
    text = text.replace("    optimizer.step()", "    optimizer.step()\n    total += y.size(0)")
    assert not [each for each in found("DF301", text) if "size is trained" in each.because]


HANDED_ON = """\
import torch

def make(args):
    encoder = Net(args)
    return encoder, torch.optim.SGD(encoder.parameters(), 0.1)

def spread(model, optimizer):
    model = torch.nn.parallel.DistributedDataParallel(model)
    return model, optimizer

def loss_of(model, batch):
    return model(batch).mean()

class Trainer:
    def __init__(self, args):
        model, optimizer = MAKERS[args.kind](args)
        model, optimizer = spread(model, optimizer)
        self.encoder = {kept}
        self.optimizer = optimizer

    def train(self, data):
        for batch in torch.utils.data.DataLoader(data):
            loss_of(self.encoder, batch).backward()
            self.optimizer.step()

MAKERS = {"one": make}
torch.distributed.init_process_group("gloo")
Trainer(parser.parse_args()).train(torch.rand(8, 4))
"""


@pytest.mark.parametrize(("kept", "is_bare"), [("model", False), ("Net(args)", True)])
def test_a_wrapper_is_followed_to_the_attribute_that_keeps_it(kept: str, is_bare: bool) -> None:
    findings = found("DF301", HANDED_ON.replace("{kept}", kept))
    assert ["encoder is trained" in each.because for each in findings] == [True] * is_bare
