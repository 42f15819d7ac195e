"""Rules see a test however it is written: turned around, in a name, or behind ``not``."""

from __future__ import annotations

import ast
import textwrap

import pytest
from cases import changes, fixed, found, module
from ddpfix.patcher.analysis.language.conditions import condition

ACCUMULATION = """\
import torch
from torch.utils.data import DataLoader

def train(args, data, model, optimizer):
    loader = DataLoader(data, batch_size=4)
    for step, batch in enumerate(loader):
        model(batch).backward()
{step}
"""
LAST = "last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)"
STEPS = {
    "0 == (step + 1) % args.accumulation": """\
        if 0 == (step + 1) % args.accumulation:
            optimizer.step()
""",
    "in a name": """\
        due = (step + 1) % args.accumulation == 0
        if due:
            optimizer.step()
""",
    "not, with the step behind else": """\
        if not ((step + 1) % args.accumulation == 0):
            print("waits")
        else:
            optimizer.step()
""",
    "!=, with the step behind else": """\
        if (step + 1) % args.accumulation != 0:
            print("waits")
        else:
            optimizer.step()
""",
    "not !=": """\
        waits = (step + 1) % args.accumulation != 0
        if not waits:
            optimizer.step()
""",
    "or the end of a short epoch": """\
        if (step + 1) % args.accumulation == 0 or (
            len(loader) <= args.accumulation and (step + 1) == len(loader)
        ):
            optimizer.step()
""",
}
STEPPED = {
    "0 == (step + 1) % args.accumulation": ("0 == (step + 1) % args.accumulation", "{last}"),
    "in a name": ("(step + 1) % args.accumulation == 0", "{last}"),
    "not, with the step behind else": ("(step + 1) % args.accumulation == 0", "{last}"),
    "!=, with the step behind else": ("(step + 1) % args.accumulation != 0", "not {last}"),
    "not !=": ("(step + 1) % args.accumulation != 0", "not {last}"),
    "or the end of a short epoch": (
        STEPS["or the end of a short epoch"].partition("if ")[2].partition(":\n")[0],
        "{last}",
    ),
}


@pytest.mark.parametrize("spelling", STEPS)
def test_the_last_micro_batches_step_in_each_spelling_of_the_test(spelling: str) -> None:
    text = ACCUMULATION.format(step=STEPS[spelling])
    old, new = STEPPED[spelling]
    wanted = text.replace(old, new.format(last="last_micro_step")).replace(
        "        model(batch)", f"        {LAST}\n        model(batch)"
    )
    assert fixed("DF703", text) == wanted
    assert [f for f in found("DF703", wanted) if f.edits] == []


def test_a_step_for_all_but_each_nth_batch_is_no_accumulation_to_mend() -> None:
    text = ACCUMULATION.format(step=STEPS["not, with the step behind else"].replace("not ", ""))
    assert fixed("DF703", text) == text
    assert not any(finding.edits for finding in found("DF703", text))


def test_a_test_that_is_named_outside_of_the_loop_is_none_of_the_loop() -> None:
    text = ACCUMULATION.format(step="        if due:\n            optimizer.step()").replace(
        "    for step", "    due = (args.first + 1) % args.accumulation == 0\n    for step"
    )
    assert found("DF703", text) == []


CLIPPING = ACCUMULATION.format(
    step="""\
        due = (step + 1) % args.accumulation == 0
        if due:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        if due:
            optimizer.step()
"""
)


def test_clipping_under_the_name_of_the_step_test_stays() -> None:
    assert "if last_micro_step" not in fixed("DF703", CLIPPING)
    assert sum("no loss" not in each.because for each in found("DF703", CLIPPING)) == 1


def test_clipping_stays_where_the_body_counts_what_the_step_test_asks() -> None:
    step = "        if n % args.accumulation == 0 or step + 1 == len(loader):\n            {}"
    clip = "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)\n        n += 1\n"
    text = ACCUMULATION.format(step=clip + step.format("optimizer.step()\n"))
    assert "clips after every micro-batch" not in {f.because for f in found("DF703", text)}


@pytest.mark.parametrize(
    "instead",
    [
        "torch.distributed.barrier()",
        "torch.save(m.state_dict(), args.path)\n        return",
        "other = torch.save(m.state_dict(), args.path)",
        "schedule(m)",
    ],
)
def test_what_ranks_do_instead_of_an_evaluation_stays_where_they_do_not_only_save(
    instead: str,
) -> None:
    text = f"""\
import torch
from torch.utils.data import DataLoader
torch.distributed.init_process_group("gloo")
def evaluate(args, m, d):
    m.eval()
    total = 0.0
    for batch in DataLoader(d):
        total += m(batch)
    return total
def main(args, m, d):
    if args.local_rank == -1:
        evaluate(args, m, d)
    else:
        {instead}
"""
    assert [each.edits for each in found("DF501", text)] == [()]


SETUP = {
    "else": """
        if args.local_rank == -1 or args.no_cuda:
            device = "cpu"
        else:
            torch.distributed.init_process_group("gloo", timeout=t)
        """,
    "not": """
        if not (args.local_rank == -1 or args.no_cuda):
            torch.distributed.init_process_group("gloo", timeout=t)
        """,
    "in a name": """
        alone = args.local_rank == -1 or args.no_cuda
        if alone:
            device = "cpu"
        else:
            torch.distributed.init_process_group("gloo", timeout=t)
        """,
}


@pytest.mark.parametrize("spelling", SETUP)
def test_a_flag_for_the_cpu_does_not_skip_the_group(spelling: str) -> None:
    text = "import torch\ndef main(args, t):" + textwrap.indent(
        textwrap.dedent(SETUP[spelling]), "    "
    )
    text += "\nmain(a, b)\ntorch.distributed.destroy_process_group()\n"
    wanted = text.replace("args.local_rank == -1 or args.no_cuda", "args.local_rank == -1")
    assert fixed("DF202", text) == wanted


def test_a_group_that_is_made_where_the_test_holds_is_not_skipped_by_it() -> None:
    text = """\
import torch
if args.local_rank != -1 or args.force:
    torch.distributed.init_process_group("gloo", timeout=t)
torch.distributed.destroy_process_group()
"""
    assert fixed("DF202", text) == text


GATED = """\
import torch
from torch.utils.data import DataLoader

def evaluate(args, model, data):
    model.eval()
    for batch in DataLoader(data):
        model(batch)

def main(args, model, data):
    torch.distributed.init_process_group("gloo")
{gate}
"""
GATES = {
    "pass before else": (
        """\
    if not args.local_rank in [-1, 0]:
        pass
    else:
        # on one rank
        evaluate(args, model, data)
""",
        """\
    # on one rank
    evaluate(args, model, data)
""",
    ),
    "in a name": (
        """\
    first = args.local_rank in [-1, 0] and args.do_eval
    if first:
        evaluate(args, model, data)
""",
        """\
    first = args.do_eval
    if first:
        evaluate(args, model, data)
""",
    ),
    "not, and more": (
        """\
    if not (args.local_rank in [-1, 0] and args.do_eval):
        pass
    else:
        evaluate(args, model, data)
""",
        """\
    if not (args.do_eval):
        pass
    else:
        evaluate(args, model, data)
""",
    ),
}


@pytest.mark.parametrize("spelling", GATES)
def test_every_rank_evaluates_in_each_spelling_of_the_gate(spelling: str) -> None:
    gate, opened = GATES[spelling]
    assert fixed("DF501", GATED.format(gate=gate)) == GATED.format(gate=opened)


@pytest.mark.parametrize(
    "gate",
    [
        # Whoever else asks for the name means one rank.
        """\
    first = args.local_rank in [-1, 0] and args.do_eval
    if first:
        evaluate(args, model, data)
    if first:
        torch.save(model.state_dict(), "best.bin")
""",
        # What takes the place of an elif would lose its test.
        """\
    if args.local_rank not in [-1, 0]:
        pass
    elif args.do_eval:
        evaluate(args, model, data)
""",
    ],
)
def test_a_gate_that_means_more_is_only_reported(gate: str) -> None:
    text = GATED.format(gate=gate)
    assert found("DF501", text)
    assert fixed("DF501", text) == text


NODES = """\
import torch

def main(args, model):
    torch.distributed.init_process_group("gloo")
{test}
"""


@pytest.mark.parametrize(
    "test",
    [
        "if 0 == args.local_rank:\n        torch.save(model, 'a')",
        "if not args.local_rank == 0:\n        pass\n    else:\n        torch.save(model, 'a')",
        "first = args.local_rank == 0\n    if first:\n        torch.save(model, 'a')",
    ],
)
def test_one_node_saves_in_each_spelling(test: str) -> None:
    text = NODES.format(test=f"    {test}")
    new = fixed("DF104", text)
    (asked,) = (line for line in changes(text, new).splitlines() if "args.local_rank !=" in line)
    assert "is_main_process()" in asked  # and a lone process did not save
    assert [f for f in found("DF104", new) if f.edits] == []


@pytest.mark.parametrize(
    "test",
    [
        "if 0 == args.local_rank:\n        print('a')",
        "first = args.local_rank == 0\n    if first:\n        print('a')",
        "first = args.local_rank == 0\n    if not first:\n        print('a')\n    if first:\n"
        "        logger.info('b')",
    ],
)
def test_what_each_node_only_prints_stays(test: str) -> None:
    assert found("DF104", NODES.format(test=f"    {test}")) == []


def test_a_name_that_is_bound_twice_or_below_is_no_test() -> None:
    text = """\
def f(a, b):
    if later:
        pass
    later = a == 0
    twice = a == 0
    twice = b == 0
    if twice:
        pass
    if b:
        inner = a == 0
    if inner:
        pass
"""
    tree = module(text)
    asked = [ast.unparse(condition(tree, stmt).test) for stmt in tree.nodes(ast.If)]
    assert asked == ["later", "twice", "b", "inner"]
