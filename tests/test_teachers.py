"""DF301: a teacher that no optimizer trains is wrapped for the cards of a lone process only."""

from __future__ import annotations

import pytest
from cases import fixed

SCRIPT = """\
import torch
torch.distributed.init_process_group("gloo")
def main(args, student, teacher, loader):
    {above}
    student.to(args.device)
    teacher.to(args.device)
    if args.n_gpu > 1:
        student = torch.nn.DataParallel(student)
        teacher = torch.nn.DataParallel(teacher)
    optimizer = torch.optim.SGD({trained}, lr=0.1)
    for x, _ in loader:
        with torch.no_grad():
            wanted = teacher(x)
        {step}
        (student(x) - wanted).square().mean().backward()
        optimizer.step()
"""
FREEZE = "for weight in teacher.parameters():\n        weight.requires_grad = False"


def wrapped(
    above: str = "pass", trained: str = "student.parameters()", step: str = "pass"
) -> list[str]:
    text = fixed("DF301", SCRIPT.format(above=above, trained=trained, step=step))
    lines = [line.strip() for line in text.splitlines() if "DistributedDataParallel" in line]
    return [line.partition(" =")[0] for line in lines]


@pytest.mark.parametrize("above", ["pass", "teacher.eval()", FREEZE])
def test_the_student_alone_is_wrapped_for_ranks(above: str) -> None:
    assert wrapped(above) == ["student"]


@pytest.mark.parametrize(
    ("trained", "step"),
    [
        ("[*student.parameters(), *teacher.parameters()]", "pass"),
        ("student.parameters()", "wanted = teacher(x)"),
        ("student.parameters()", "adapt(teacher, x)"),
    ],
    ids=["an optimizer has it", "called with gradients", "used in ways that are not read"],
)
def test_what_may_be_trained_is_wrapped(trained: str, step: str) -> None:
    assert wrapped(trained=trained, step=step) == ["student", "teacher"]


SCORES = """\
def score(first, second, batches, others):
    second.eval()
    {line}
    with torch.no_grad():
        return [first(x) - second(y) for x, y in zip(batches, others)]
"""


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("pass", ["student"]),
        ("second(others).mean().backward()", ["student", "teacher"]),
        ("kept.append(second)", ["student", "teacher"]),
    ],
    ids=["under no_grad", "with gradients", "kept elsewhere"],
)
def test_a_teacher_that_a_function_asks_is_none_that_trains(line: str, names: list[str]) -> None:
    step = "score(student, teacher, batches, others)"
    script = SCRIPT.format(above="pass", trained="student.parameters()", step=step)
    text = fixed("DF301", SCORES.format(line=line) + script)
    lines = [line.strip() for line in text.splitlines() if "DistributedDataParallel" in line]
    assert [line.partition(" =")[0] for line in lines] == names
