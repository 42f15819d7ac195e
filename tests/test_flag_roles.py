"""What a script's options mean, by where their values go and not by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import ROOT
from ddpfix.patcher.api import constant_batch, divides_batch, flag_roles, read_program

ODD_NAMES = """
import argparse
import torch
from torch.utils.data import DataLoader
from data import make_loader

def train(opt, model, data):
    loader = make_loader(data, opt.k)
    optimizer = torch.optim.SGD(model.parameters(), lr=opt.eta)
    for step, x in enumerate(loader):
        loss = model(x).mean() / opt.wait
        loss.backward()
        if (step + 1) % opt.wait == 0:
            optimizer.step()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-k", "--examples", dest="k", type=int, default=8)
    parser.add_argument("--eta", type=float)
    parser.add_argument("--wait", type=int, default=1)
    parser.add_argument("--passes", type=int)
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--draw", type=int)
    opt = parser.parse_args()
    torch.manual_seed(opt.draw)
    model = torch.nn.Linear(2, 2)
    data = torch.zeros(8, 2)
    for epoch in range(3):
        train(opt, model, data)
    for x in DataLoader(data, batch_size=opt.batch_size):
        model(x)

main() if __name__ == "__main__" else None
"""
DATA = """
from torch.utils.data import DataLoader

def make_loader(data, size):
    return DataLoader(data, batch_size=size)
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder / "run.py"


def flags_of(script: Path) -> dict[str, str]:
    return {role: one.flag for role, one in flag_roles(read_program(str(script))).items()}


def test_options_with_odd_names_have_the_roles_that_their_values_play(tmp_path: Path) -> None:
    script = write(tmp_path, run=ODD_NAMES, data=DATA)
    assert flags_of(script) == {
        "train_batch": "--examples",
        "eval_batch": "--batch_size",
        "accumulation": "--wait",
        "learning_rate": "--eta",
        "seed": "--draw",
    }


def test_a_role_names_the_line_that_the_value_reaches(tmp_path: Path) -> None:
    script = write(tmp_path, run=ODD_NAMES, data=DATA)
    role = flag_roles(read_program(str(script)))["train_batch"]
    line = Path(role.path).read_text().splitlines()[role.line - 1]
    assert "batch_size=size" in line
    assert role.default == 8


def test_a_loss_that_is_printed_for_each_example_accumulates_nothing(tmp_path: Path) -> None:
    printed = ODD_NAMES.replace(" / opt.wait", "").replace("(step + 1) % opt.wait == 0", "True")
    printed = printed.replace(
        "        loss.backward()\n",
        "        loss.backward()\n        print(loss.item() / len(x.to(opt.wait)))\n"
        "        shown_loss = loss.item() / len(x.to(opt.no_cuda))\n",
    )
    declared = 'parser.add_argument("--no-cuda", action="store_true")\n    opt = parser.parse_args'
    script = write(tmp_path, run=printed.replace("opt = parser.parse_args", declared), data=DATA)
    assert "accumulation" not in flags_of(script)


@pytest.mark.parametrize("fixture", ["bigclonebench", "graphcodebert"])
def test_the_family_has_the_roles_of_its_names(fixture: str) -> None:
    found = flags_of(ROOT / "fixtures" / fixture / "run.py")
    assert found["train_batch"] == "--train_batch_size"
    assert found["eval_batch"] == "--eval_batch_size"
    assert found["accumulation"] == "--gradient_accumulation_steps"
    assert found["learning_rate"] == "--learning_rate"
    assert found["output"] == "--output_dir"
    assert found["seed"] == "--seed"


def test_a_batch_made_of_two_attributes_is_the_option_and_not_the_count(tmp_path: Path) -> None:
    text = ODD_NAMES.replace("make_loader(data, opt.k)", "make_loader(data, opt.whole)").replace(
        "    torch.manual_seed",
        "    opt.n_gpu = 2\n    opt.whole = opt.k * max(1, opt.n_gpu)\n    torch.manual_seed",
    )
    assert flags_of(write(tmp_path, run=text, data=DATA))["train_batch"] == "--examples"


CONSTANT = """
import torch
from torch.utils.data import DataLoader
SIZE = 24
model = torch.nn.Linear(2, 2)
loader = DataLoader(torch.zeros(64, 2), batch_size=SIZE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    model(x).mean().backward()
    optimizer.step()
"""


def test_a_batch_without_an_option_is_the_number_in_the_script(tmp_path: Path) -> None:
    program = read_program(str(write(tmp_path, run=CONSTANT)))
    assert "train_batch" not in flag_roles(program)
    found = constant_batch(program)
    assert found is not None
    assert (found.size, found.line) == (24, 4)


def test_two_numbers_that_may_be_the_batch_are_none(tmp_path: Path) -> None:
    text = CONSTANT.replace(
        "SIZE = 24", "import os\nif os.name == 'x':\n    SIZE = 24\nelse:\n    SIZE = 48"
    )
    assert constant_batch(read_program(str(write(tmp_path, run=text)))) is None


@pytest.mark.parametrize(
    ("size", "is_divided"),
    [("opt.k", False), ("opt.k // opt.world_size", True), ("opt.k // opt.wait", False)],
)
def test_a_batch_divided_by_the_ranks_is_that_of_all(
    tmp_path: Path, size: str, is_divided: bool
) -> None:
    text = ODD_NAMES.replace("make_loader(data, opt.k)", f"make_loader(data, {size})")
    program = read_program(str(write(tmp_path, run=text, data=DATA)))
    assert divides_batch(program) is is_divided


OWN_WORDS = """
import sys
import torch
from torch.utils.data import DataLoader

class Settings:
    many: int = 8
    speed: float = 1e-3
    note = "no field"

class Other:
    speed: float = 2.0

def settings():
    made = Settings()
    for word in sys.argv[1:]:
        key, value = word.removeprefix("--").split("=", 1)
        setattr(made, key, type(getattr(made, key))(value))
    return made

def main():
    s = settings()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=s.speed)
    for x in DataLoader(torch.zeros(8, 2), batch_size=s.many):
        model(x).mean().backward()
        optimizer.step()

main() if __name__ == "__main__" else None
"""


def test_fields_that_the_script_sets_from_its_words_are_options(tmp_path: Path) -> None:
    script = write(tmp_path, run=OWN_WORDS)
    assert flags_of(script) == {"train_batch": "--many", "learning_rate": "--speed"}
    options = read_program(str(script)).options
    assert {dest: one.default for dest, one in options.items()} == {"many": 8, "speed": 1e-3}


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("sys.argv[1:]", "open('words')"),
        ('removeprefix("--")', "strip()"),
        ("setattr(made, key,", "setattr(made, 'many',"),
        ("made = Settings()", "made = read()"),
        (
            "s = settings()",
            "import argparse\n    p = argparse.ArgumentParser()\n    p.add_argument('--many')\n"
            "    s = p.parse_args()",
        ),
    ],
)
def test_other_fields_are_no_options(now: str, then: str, tmp_path: Path) -> None:
    assert OWN_WORDS.count(now) == 1
    script = write(tmp_path, run=OWN_WORDS.replace(now, then))
    assert "speed" not in read_program(str(script)).options
