"""Losses whose networks are in DataParallel, and options that decide whether there are any."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.engine.patch import Patch, patch

LOSSES = """\
import argparse
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.DataParallel(nn.Linear(3, 1))
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=0.01)

    def forward(self, made, wanted):
        self.optimizer.zero_grad()
        loss = (self.critic(made.detach()) - self.critic(wanted)).mean()
        loss.backward()
        self.optimizer.step()
        return -self.critic(made).mean()

class Loss(nn.Module):
    def __init__(self, args):
        super().__init__()
        if args.loss == "l1":
            loss = nn.L1Loss()
        elif args.loss == "gan":
            loss = Gan()
        self.parts = nn.ModuleList([loss])
        if args.cuda:
            self.parts = nn.DataParallel(self.parts)
        self.loss = loss

    def forward(self, made, wanted):
        return self.loss(made, wanted)

parser = argparse.ArgumentParser()
parser.add_argument("--loss", default="l1")
parser.add_argument("--cuda", action="store_true")
args = parser.parse_args()
loader = DataLoader(torch.rand(64, 3), batch_size=4, shuffle=True)
model = nn.DataParallel(nn.Linear(3, 3))
criterion = Loss(args)
optimizer = torch.optim.Adam({optimized}, lr=0.01)
for epoch in range(3):
    for x in loader:
        optimizer.zero_grad()
        criterion(model(x), x).backward()
        optimizer.step()
"""
OF_BOTH = "[*model.parameters(), *criterion.parameters()]"


def patched(tmp_path: Path, text: str) -> Patch:
    path = tmp_path / "train.py"
    path.write_text(text)
    return patch(path)


def test_an_option_still_decides_which_loss_there_is(tmp_path: Path) -> None:
    (change,) = patched(tmp_path, LOSSES.format(optimized="model.parameters()")).changes
    assert '        elif args.loss == "gan":\n' in change.text


def test_parts_of_a_loss_that_nothing_steps_get_no_wrapper_of_ranks(tmp_path: Path) -> None:
    (change,) = patched(tmp_path, LOSSES.format(optimized="model.parameters()")).changes
    assert "        if args.cuda and not torch.distributed.is_initialized():\n" in change.text
    assert "self.parts = torch.nn.parallel.Distr" not in change.text


def test_those_that_are_stepped_are_not_left_out(tmp_path: Path) -> None:
    result = patched(tmp_path, LOSSES.format(optimized=OF_BOTH))
    assert "wraps it" in result.refusal


LOADERS = """\
import argparse
import torch
from loaders import loaders_of
parser = argparse.ArgumentParser()
args = {parse}
train_loader, test_loader = loaders_of(4)
model = torch.nn.DataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    for x in train_loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
if __name__ == "__main__":
    for epoch in range(3):
        train()
"""
MAKERS = """\
import argparse
import torch
from torch.utils.data import DataLoader
def settings():
    return argparse.ArgumentParser().parse_known_args()
def loaders_of(size):
    data = torch.rand(64, 3)
    return DataLoader(data, size, shuffle=True), DataLoader(data, size)
"""


@pytest.mark.parametrize("parse", ["parser.parse_args()", "argparse.Namespace()"])
def test_the_group_is_made_above_loaders_of_another_module(parse: str, tmp_path: Path) -> None:
    (tmp_path / "loaders.py").write_text(MAKERS)
    result = patched(tmp_path, LOADERS.format(parse=parse))
    text = next(each.text for each in result.changes if each.source.path.name == "train.py")
    assert text.index("init_process_group") < text.index("loaders_of(4)")


def test_so_is_it_where_a_function_parses_the_arguments(tmp_path: Path) -> None:
    (tmp_path / "loaders.py").write_text(MAKERS)
    script = LOADERS.format(parse="settings()")
    of_function = "def settings():\n    args = parser.parse_args()\n    return args\nargs = "
    result = patched(tmp_path, script.replace("args = ", of_function, 1))
    text = next(each.text for each in result.changes if each.source.path.name == "train.py")
    group = text.index("init_process_group")
    assert text.index("args = settings()") < group < text.index("loaders_of(4)")


def test_the_group_stays_below_the_guard_that_its_loaders_stand_under(tmp_path: Path) -> None:
    (tmp_path / "loaders.py").write_text(MAKERS)
    script = LOADERS.format(parse="parser.parse_args()")
    below = script.index("parser = ")
    lines = script[below:].replace('if __name__ == "__main__":\n', "").splitlines()
    guarded = "".join(f"    {line}\n" for line in lines)
    text = f'{script[:below]}if __name__ == "__main__":\n{guarded}'
    result = patched(tmp_path, text)
    text = next(each.text for each in result.changes if each.source.path.name == "train.py")
    guard, loaders = text.index("if __name__"), text.index("loaders_of(4)")
    assert guard < text.index("init_process_group") < loaders


READ = """\
import pickle
import torch
from torch.utils.data import DataLoader
rows = pickle.load(open("rows.pkl", {mode!r}))
model = torch.nn.DataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x in DataLoader(rows, 4, shuffle=True):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("mode", ["rb", "rb+", "r+b"])
def test_what_is_opened_to_be_read_alone_has_no_writer(mode: str, tmp_path: Path) -> None:
    result = patched(tmp_path, READ.format(mode=mode))
    assert result.changes
    assert "DF602" not in {each.code for each in result.findings_after}
