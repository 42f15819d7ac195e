"""Models, ranks and horizons that are shared otherwise than by DDP under its name."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity

GROUP = """
import argparse
import functools
import os
import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
"""
STEPS = """
loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))
for batch in loader:
    model(batch).mean().backward()
    optimizer.step()
"""
SHARED = {
    "a wrapper that is handed on": "model.wrap_parts(functools.partial(DistributedDataParallel))",
    "a model that is split over the ranks": "model = load(name, tp_plan='auto')",
    "gradients that a hook flattens": (
        "def meet():\n    grads = [p.grad for p in model.parameters()]\n    flat = flatten(grads)\n"
        "    torch.distributed.all_reduce(flat)\nmodel.register_hook(meet)"
    ),
    "a model on a mesh": "model = load(name, device_mesh=mesh)",
}
TEST = "isinstance(model, DistributedDataParallel)"


@pytest.mark.parametrize("line", SHARED.values(), ids=SHARED)
def test_what_keeps_models_alike_need_not_be_a_call_of_ddp(line: str) -> None:
    assert found("DF301", GROUP + line + STEPS) == []


BATCHES = """
from other import create_loader, fit
def train_epoch(model, optimizer, batches):
    for batch in batches:
        model(batch).mean().backward()
        optimizer.step()
train_epoch(model, optimizer, create_loader(data, distributed={told}))
"""


@pytest.mark.parametrize(("told", "count"), [("args.distributed", 0), ("False", 1)])
def test_a_library_that_is_told_of_ranks_may_deal_by_them(told: str, count: int) -> None:
    assert len(found("DF401", GROUP + BATCHES.format(told=told))) == count


def test_a_test_for_the_wrapper_wraps_nothing() -> None:
    assert len(found("DF301", GROUP + f"kind = {TEST}" + STEPS)) == 1


def test_ranks_with_work_of_their_own_may_train_models_of_their_own() -> None:
    search = GROUP + textwrap.dedent("""
        def fit(strength, rows):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for row in rows:
                loss = strength * model(row).mean()
                loss.backward()
                optimizer.step()

        for index in range(torch.distributed.get_rank(), 100):
            fit(index, torch.load("rows.pt"))
        """)
    (finding,) = found("DF301", search)
    assert (finding.severity, finding.edits) == (Severity.DEGRADED, ())


@pytest.mark.parametrize(
    "test",
    [
        "isinstance(model, torch.nn.DataParallel) or " + TEST,
        TEST + " or isinstance(model, torch.nn.DataParallel)",
    ],
)
def test_both_wrappers_may_be_asked_for_one_by_one(test: str) -> None:
    wrap = "model = DistributedDataParallel(model)\n"
    assert found("DF305", GROUP + wrap + f"if {test}:\n    model = model.module\n" + STEPS) == []


def test_a_test_of_another_object_asks_for_one_wrapper_only() -> None:
    wrap = "model = DistributedDataParallel(model)\n"
    test = (
        "isinstance(model, torch.nn.DataParallel) or isinstance(teacher, DistributedDataParallel)"
    )
    assert len(found("DF305", GROUP + wrap + f"if {test}:\n    pass\n" + STEPS)) == 1


OPTION = """
import argparse
import os
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=0)
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("rank = int(os.environ['RANK'])", 0),
        ("rank = int(os.environ['RANK'])\ncard = args.local_rank", 1),
        ("rank = int(os.environ['RANK'])\ncard = vars(args)['local_rank']", 1),
        ("", 1),
    ],
    ids=["a rank from the environment", "read as well", "read by its name", "no rank at all"],
)
def test_an_option_for_the_launcher_of_old_that_nobody_reads(lines: str, count: int) -> None:
    assert len(found("DF101", OPTION + lines)) == count


RANK = """
import torch
import torch.distributed as dist

def evaluate(model, data):
    loader = torch.utils.data.DataLoader(data)
    model.eval()
    scores = []
    for batch in loader:
        with torch.no_grad():
            scores.append(model(batch))
    return sum(scores)

def main(args, model, loader):
    dist.init_process_group("gloo")
    card = dist.get_rank() % args.cards
    args.{name} = card + args.node * args.cards
    for batch in loader:
        model(batch).mean().backward()
        if args.{name} == 0 and args.validate:
            evaluate(model, args.data)
"""


@pytest.mark.parametrize("name", ["global_rank", "rank"])
def test_a_rank_that_is_made_of_the_groups_is_0_in_a_lone_process(name: str) -> None:
    text = RANK.format(name=name)
    assert "        if args.validate:\n" in fixed("DF501", text)
    unknown = text.replace("dist.get_rank()", "args.first + args.local_rank")
    assert f"if args.{name} == 0 and args.validate:" in fixed("DF501", unknown)


HORIZON = """
import torch
from torch.utils.data import DataLoader
from transformers import get_linear_schedule_with_warmup

def steps_of(length, args):
    return length {divided} * args.epochs

def train(args, data, model):
    loader = DataLoader(data)
    if args.augmented:
        total = {augmented}
    else:
        total = len(loader) // args.accumulation * args.epochs
    schedule = get_linear_schedule_with_warmup(optimizer, 0, total)
    loader = DataLoader(data)
    for step, batch in enumerate(loader):
        loss = model(batch) / args.accumulation
        loss.backward()
        if (step + 1) % args.accumulation == 0:
            optimizer.step()
            schedule.step()
"""


def test_a_length_for_a_function_that_divides_it_itself_is_left_alone() -> None:
    divided = HORIZON.format(
        divided="// args.accumulation", augmented="steps_of(len(loader), args)"
    )
    assert "steps_of(len(loader), args)" in fixed("DF702", divided)
    whole = HORIZON.format(divided="", augmented="steps_of(len(loader), args)")
    assert "steps_of(steps_per_epoch, args)" in fixed("DF702", whole)


def test_each_branch_has_the_steps_that_it_counts_by() -> None:
    text = HORIZON.format(divided="", augmented="len(loader) // args.accumulation * 2")
    namespace: dict[str, object] = {}
    after = fixed("DF702", text)
    body = after[after.index("    if args.augmented") : after.index("    schedule =")]
    code = "def total_of(args, loader):\n" + body + "    return total\n"
    exec(code, namespace)
    args = type("Args", (), {"augmented": False, "accumulation": 4, "epochs": 3})()
    total_of = namespace["total_of"]
    assert callable(total_of)
    assert total_of(args, range(10)) == 9
    args.augmented = True
    assert total_of(args, range(10)) == 6


def test_processes_that_a_script_starts_explain_nothing_where_no_step_is_seen() -> None:
    """No loop steps a model that could be shared: what else starts processes is not asked."""
    script = GROUP + textwrap.dedent("""
        from torch.multiprocessing import Process
        Process(target=fill).start()
        for batch in torch.utils.data.DataLoader(data):
            model(batch).mean().backward()
        """)
    (finding,) = found("DF301", script)
    assert "starts processes" not in finding.because
    assert finding.severity is Severity.ERROR


ENGINE = """
import deepspeed
import torch
from torch.utils.data import DataLoader, DistributedSampler
{above}
loader = DataLoader(data, {deals})
engine, _, _, _ = deepspeed.initialize(model=net, {gets})
for batch in loader:
    engine.backward(engine(batch).mean())
    engine.step()
"""


@pytest.mark.parametrize(
    ("above", "deals", "gets", "count"),
    [
        ("pass", "shuffle=True", "config=c", 1),
        ("deepspeed.init_distributed()", "batch_size=2", "config=c", 1),
        ("deepspeed.init_distributed()", "sampler=DistributedSampler(data)", "config=c", 0),
        ("pass", "sampler=sampler_of(data)", "config=c", 0),
        ("data = data[rank::world_size]", "shuffle=True", "config=c", 0),
        ("pass", "shuffle=True", "training_data=data", 0),
    ],
)
def test_deepspeed_deals_its_own_loader_alone(
    above: str, deals: str, gets: str, count: int
) -> None:
    findings = found("DF401", ENGINE.format(above=above, deals=deals, gets=gets))
    assert len(findings) == count
    assert all("deals no loader but that of its training_data" in f.because for f in findings)


@pytest.mark.parametrize(
    ("above", "deals", "severity"),
    [
        ("pass", "shuffle=True", Severity.DEGRADED),
        ("torch.manual_seed(1)", "shuffle=True", Severity.ERROR),
        ("pass", "shuffle=False", Severity.ERROR),
    ],
)
def test_ranks_that_shuffle_without_a_seed_have_batches_of_their_own(
    above: str, deals: str, severity: Severity
) -> None:
    (finding,) = found("DF401", ENGINE.format(above=above, deals=deals, gets="config=c"))
    assert finding.severity is severity
