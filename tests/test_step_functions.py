"""Training steps in functions of their own, and what only looks like training."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import found, module
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.analysis.training.train_loops import backward_calls
from ddpfix.patcher.engine.patch import patch

HEAD = """\
import sys
import torch
from torch.utils.data import DataLoader

"""
STEP = """\
def step_on(model, batch, optimizer):
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()


"""
MAIN = """\
def main():
    loader = DataLoader(torch.randn(8, 2), batch_size=2)
    model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        for batch in loader:
            step_on(model, batch, optimizer)


if __name__ == "__main__":
    main()
"""
LOOPS = {
    "a function": STEP + MAIN,
    "a function of a function": STEP + "def outer(*a):\n    step_on(*a)\n\n\n"
    + MAIN.replace("step_on", "outer"),
    "the step beside the call": STEP.replace("    optimizer.step()\n", "")
    + MAIN.replace("batch, optimizer)", "batch, optimizer)\n            optimizer.step()"),
    "an attack inside of the step": STEP.replace(
        "    opt", "    for t in range(3):\n        model(batch).mean().backward()\n    opt"
    ) + MAIN,
}  # fmt: skip


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
def test_the_loop_around_the_call_of_a_step_trains(text: str) -> None:
    program = Program(module(HEAD + text))
    (loop,) = program.train_loops
    assert loop.module.text(loop.steps).startswith("for batch in loader")
    assert loop.epochs is not None
    assert loop.loader is not None
    assert loop.goes_back_elsewhere
    _, first = backward_calls(program, loop)[0]
    assert program.script.text(first) == "loss.backward()"


def test_a_script_with_a_step_of_its_own_is_patched(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + STEP + MAIN)
    result = patch(script)
    assert result.refusal == ""
    assert "+    train_dataset = torch.randn(8, 2)" in result.diff()  # read once, by all ranks
    assert "DistributedSampler(train_dataset, shuffle=False)" in result.diff()
    assert "+        model = torch.nn.parallel.DistributedDataParallel(" in result.diff()
    assert "set_epoch" not in result.diff()  # it has one order


def test_exact_is_refused_where_the_backward_pass_is_elsewhere(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + STEP + MAIN)
    assert "a function of its own goes back and steps" in patch(script, exact=True).refusal


def test_an_attack_that_steps_nothing_is_no_training() -> None:
    attack = STEP.replace("    optimizer.step()\n", "")
    assert Program(module(HEAD + attack + MAIN)).train_loops == []


def test_training_that_no_loop_can_be_seen_around_is_said(tmp_path: Path) -> None:
    text = (
        HEAD
        + STEP
        + MAIN.replace("step_on(", "STEPS[0](").replace(
            "if __name__", "STEPS = dict(enumerate([step_on]))\n\n\nif __name__"
        )
    )
    (finding,) = found("DF201", text)
    assert finding.because.startswith("no loop around this backward pass can be seen")
    assert not finding.edits


LEAVES = MAIN.replace(
    "    model = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n",
    "    model = torch.nn.Linear(2, 2)\n    if len(sys.argv) > 1:\n"
    "        model = torch.nn.DataParallel(model)\n        print(model(torch.randn(2)))\n"
    "        sys.exit(0)\n    model = torch.nn.DataParallel(model)\n",
)


def test_a_wrapper_of_a_branch_that_ends_the_program_serves_no_training(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + STEP + LEAVES)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    assert change.text.count("DistributedDataParallel(") == 1
    assert change.text.index("sys.exit(0)") < change.text.index("DistributedDataParallel(")


def test_a_file_that_is_made_once_is_named_and_gets_no_barrier_under_its_test(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    fetch = """\
def fetch(folder):
    if not os.path.exists(folder):
        name = os.path.join(folder, "data.bin")
        with open(name, "wb") as file:
            file.write(b"data")
        print(open(name).read())
    return folder


"""
    main = MAIN.replace("    loader", '    fetch("data")\n    loader', 1)
    script.write_text("import os\n" + HEAD + fetch + STEP + main)
    told = [each for each in found("DF602", script.read_text()) if each.edits]
    assert told == []
    refusal = patch(script).refusal
    assert "O7" in refusal
    assert "every rank comes to write `name`" in refusal
    assert "barrier" not in refusal


def test_a_script_that_only_evaluates_does_not_train_with_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HEAD + STEP + "def load():\n    return 1\n\n\n" + MAIN)
    infer = tmp_path / "infer.py"
    infer.write_text("from train import load\n\nif __name__ == '__main__':\n    print(load())\n")
    program = read_program(str(infer))
    assert program.train_loops == []
    assert not program.is_training_program
    assert patch(infer).changes == ()


CHOICES = [
    "    train = train_a if len(sys.argv) > 1 else train_b\n",
    "    if len(sys.argv) > 1:\n        train = train_a\n    else:\n        train = train_b\n",
]


@pytest.mark.parametrize("choice", CHOICES)
def test_the_loader_of_an_epoch_that_a_test_chooses_is_dealt(choice: str, tmp_path: Path) -> None:
    steps = (
        "def train_a(model, loader, optimizer):\n    for batch in loader:\n"
        "        optimizer.zero_grad()\n        model(batch).mean().backward()\n"
        "        optimizer.step()\n\n\n"
    )
    epoch = "        for batch in loader:\n            step_on(model, batch, optimizer)\n"
    whole = MAIN.replace(epoch, "        train(model, loader, optimizer)\n")
    whole = whole.replace("    loader =", f"{choice}    loader =")
    path = tmp_path / "train.py"
    path.write_text(HEAD + steps + steps.replace("train_a", "train_b") + whole)
    result = patch(path)
    assert result.refusal == ""
    (change,) = result.changes
    assert change.text.count("DistributedSampler(") == 1
    assert change.text.count("over_ranks(model)(batch)") in (0, 2)
