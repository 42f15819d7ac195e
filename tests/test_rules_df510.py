"""DF510: Each rank decides by the loss of its own batches."""

from __future__ import annotations

import pytest
from cases import changes, fixed, found
from ddpfix.patcher.findings import Severity

SCRIPT = """
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(model, loader, optimizer{more}):
    total = 0.0
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()
        total += loss.item()
    {end}

def main(net, data):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(net)
    loader = DataLoader(data, sampler=DistributedSampler(data))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = {plan}
    for epoch in range(9):
        {body}

main(*things())
"""
CALL = "loss = train(model, loader, optimizer)"


def script(
    body: str, end: str = "return total / len(loader)", plan: str = "ReduceLROnPlateau(optimizer)",
    more: str = "",
) -> str:  # fmt: skip
    lines = body.replace("\n", "\n        ")
    return SCRIPT.format(body=lines, end=end, plan=plan, more=more)


SCORE = "\ndef score(net):\n    {}\n"
MEETS, PASSES = SCORE.format("torch.distributed.barrier()"), SCORE.format("net.eval(); net(1)")
SCORED = f"{CALL}\nif loss < 0.3:\n    score(model)"
TRIED = script(f"{CALL}\nplan.step(loss)").replace("    for epoch", "    try:\n      for epoch")
TRIED = TRIED.replace("\nmain(", "    finally: pass\nmain(")

NOOP = [
    ("a schedule that counts epochs", script(f"{CALL}\nplan.step()", plan="StepLR(optimizer, 3)")),
    ("a schedule that gets the epoch", script(f"{CALL}\nplan.step(epoch)")),
    ("a loss that is only printed", script(f"{CALL}\nprint(loss)")),
    ("a file that a test of the loss writes",
        script(f"{CALL}\nif loss < 1:\n    open('best', 'w').write(str(loss))")),
    ("the mean already", script("loss = mean_of_ranks(train(model, loader, optimizer))\n"
        "plan.step(loss)")),
    ("a rate that the epoch sets",
        script(f"{CALL}\nif epoch > 4:\n    optimizer.param_groups[0]['lr'] = 0.01")),
    ("a number of steps", script(f"{CALL}\nif loss > 99:\n    break", end="return len(loader)")),
    ("an evaluation in which no rank waits", script(SCORED) + SCORE.format("return net(1)")),
    ("an evaluation of the module", script(SCORED.replace("(model)", "(model.module)")) + PASSES),
    ("an evaluation by rank 0 alone, of the module it gets", script(SCORED)
        + SCORE.format("net = net.module; net.eval(); net(1)")),
    ("an evaluation by the number of steps, which is returned beside the loss", script(
        "steps, loss = train(model, loader, optimizer)\nif steps > 3:\n    score(model)",
        end="return len(loader), total") + MEETS),
    ("an evaluation by the epoch", script(f"{CALL}\nif epoch > 3:\n    score(model)") + MEETS),
    ("an optimizer that is handed back", script(
        "loss, optimizer = train(model, loader, optimizer)\n"
        "if optimizer.param_groups[0]['lr'] < 1e-5:\n    break", end="return total, optimizer")),
    ("an environment, which is no schedule", script("train(model, loader, optimizer)",
        end="world.step(total)")),
]  # fmt: skip
FIX = [
    ("a schedule of what a function returns", script(f"{CALL}\nplan.step(loss)"), """
             loss = train(model, loader, optimizer)
        +        loss = mean_of_ranks(loss)
             plan.step(loss)
        """),
    ("the first of two results", script("loss, hits = train(model, loader, optimizer)\n"
        "plan.step(loss)", end="return total / len(loader), total * 2"), """
        +        loss = mean_of_ranks(loss)
        +        hits = mean_of_ranks(hits)
        """),
    ("an evaluation in which ranks wait for each other", script(SCORED) + MEETS, """
        +        loss = mean_of_ranks(loss)
        """),
    ("an evaluation through the wrapper, which sends buffers", script(SCORED) + PASSES, """
        +        loss = mean_of_ranks(loss)
        """),
    ("the one of two results that decides", script(SCORED.replace("loss =", "loss, rate ="),
        end="return total / len(loader), optimizer.param_groups[0]['lr']") + MEETS, """
        +        loss = mean_of_ranks(loss)
        """),
    ("what is tried for all epochs", TRIED, """
        +        loss = mean_of_ranks(loss)
        """),
    ("a loop that is left", script(f"{CALL}\nif loss < 0.1:\n    break"), """
        +        loss = mean_of_ranks(loss)
        """),
    ("a schedule in the function itself", script("train(model, loader, optimizer, plan)",
        end="plan.step(total / len(loader))", more=", plan: ReduceLROnPlateau")
        .replace("plan", "scheduler"), """
        -    scheduler.step(total / len(loader))
        +    scheduler.step(mean_of_ranks(total / len(loader)))
        """),
]  # fmt: skip
METER = (
    script(
        "model.train()\nfor batch in loader:\n    loss = model(batch)\n"
        "    loss.backward()\n    optimizer.step()\n    meter.update(loss.item())\n"
        "if meter.avg < 0.3:\n    score(model)"
    )
    + MEETS
)
REPORT = [
    ("a result that may be a list", script("losses = train(model, loader, optimizer)\n"
        "plan.step(losses[0])", end="return [total]")),
    ("two ways to return", script(f"{CALL}\nplan.step(loss)",
        end="if total > 9:\n        return total\n    return 0.0")),
    ("not in each epoch", script(f"if epoch:\n    {CALL}\n    plan.step(loss)")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_what_all_ranks_decide_alike_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF510", text)] == []


@pytest.mark.parametrize(("text", "lines"), [pytest.param(t, c, id=n) for n, t, c in FIX])
def test_ranks_decide_by_their_mean(text: str, lines: str) -> None:
    made = [
        line.strip()
        for line in changes(text, fixed("DF510", text)).splitlines()
        if line[:1] in "+-"
    ]
    wanted = [line.strip() for line in lines.splitlines() if line.strip()[:1] in ("+", "-")]
    assert [line for line in made if "mean_of_ranks(" in line and "def " not in line] == [
        line for line in wanted if line.startswith("+")
    ]
    assert {line for line in wanted if line.startswith("-")} <= set(made)


def test_what_no_mean_can_be_made_of_lets_all_ranks_evaluate() -> None:
    after = fixed("DF510", METER)
    assert "if on_any_rank(meter.avg < 0.3):" in after
    assert found("DF510", after) == []


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in REPORT])
def test_what_is_no_certain_number_is_told(text: str) -> None:
    (finding,) = found("DF510", text)
    assert not finding.edits
    assert finding.severity in (None, Severity.ERROR)


def test_a_program_that_reduces_itself_is_no_certain_fault() -> None:
    text = script(f"{CALL}\nplan.step(loss)", end="share(total)\n    return total / len(loader)")
    text += "\ndef share(x):\n    torch.distributed.all_reduce(x)\n"
    (finding,) = found("DF510", text)
    assert finding.severity is Severity.DEGRADED


CLOSURE = """
import torch
from torch.utils.data import DataLoader
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = {optimizer}(model.parameters())
for epoch in range(3):
    for batch in DataLoader(data, shuffle=True):
        def closure():
            optimizer.zero_grad()
            loss = model(batch).mean()
            loss.backward()
            return loss
        optimizer.step({closure})
"""


@pytest.mark.parametrize(
    ("optimizer", "closure", "count"),
    [("torch.optim.LBFGS", "closure", 1), ("SAM", "closure", 0), ("torch.optim.LBFGS", "", 0)],
)
def test_a_search_goes_by_the_loss_of_each_rank(optimizer: str, closure: str, count: int) -> None:
    told = found("DF510", CLOSURE.format(optimizer=optimizer, closure=closure))
    assert ["LBFGS" in each.because for each in told] == [True] * count
    assert all(not each.edits for each in told)


def test_a_loop_trains_that_hands_its_step_what_goes_back() -> None:
    text = CLOSURE.format(optimizer="SAM", closure="closure")
    assert "DistributedSampler(data)" in fixed("DF401", text)


LOWER = "optimizer.param_groups[0]['lr'] *= 0.5"
IN_ONE = """
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
loader = DataLoader(data, sampler=DistributedSampler(data))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = float("inf")
for epoch in range(9):
    total = 0.0
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()
        total += loss.item()
    if {test}:
        best, kept = total, copy.deepcopy(model.state_dict())
    else:
        {change}
"""


@pytest.mark.parametrize("change", [LOWER, "model.load_state_dict(kept)"])
def test_ranks_that_change_their_training_by_a_loss_decide_by_the_mean(change: str) -> None:
    text = IN_ONE.format(test="total < best", change=change)
    after = fixed("DF510", text)
    assert "    total = mean_of_ranks(total)\n    if total < best:\n" in after
    assert found("DF510", after) == []


def test_so_do_those_that_get_the_loss_from_a_function() -> None:
    after = fixed("DF510", script(f"{CALL}\nif loss > 1:\n    {LOWER}"))
    assert "        loss = mean_of_ranks(loss)\n        if loss > 1:" in after
    assert found("DF510", after) == []


@pytest.mark.parametrize("test", ["worse(total)", "total < best or math.isnan(total)"])
def test_what_is_asked_in_another_way_is_only_told(test: str) -> None:
    (told,) = found("DF510", IN_ONE.format(test=test, change=LOWER))
    assert told.because.endswith("decides by the loss of this rank's batches")
    assert (told.edits == ()) is (test == "worse(total)")


def test_a_file_of_the_best_weights_changes_no_training() -> None:
    text = IN_ONE.format(test="total < best", change="torch.save(kept, 'best.pt')")
    assert [each.severity for each in found("DF510", text)] == [Severity.NOTE]


KEPT = """
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def main(net, data):
    {group}
    model = torch.nn.parallel.DistributedDataParallel(net)
    loader = DataLoader(data, sampler=DistributedSampler(data))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best = 9.0
    for epoch in range(9):
        total = 0.0
        for batch in loader:
            loss = model(batch)
            loss.backward()
            optimizer.step()
            total += loss.item()
        {test}

main(*things())
"""
OUR_GROUP = """\
if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        torch.distributed.init_process_group(backend='gloo', timeout=datetime.timedelta(hours=1))"""
THEIRS = 'torch.distributed.init_process_group("gloo")'
BEST = """\
if total < best:
            best = total
            torch.save(net.state_dict(), 'best.pt')"""
COPY = "kept = copy.deepcopy(net.state_dict())"
COPIED = BEST.replace(
    "torch.save(net.state_dict(), 'best.pt')", "kept = deepcopy(net.state_dict())"
)


@pytest.mark.parametrize(
    ("group", "test", "severities", "line"),
    [
        (OUR_GROUP, BEST, [Severity.DEGRADED], "        total = mean_of_ranks(total)\n"),
        (OUR_GROUP, BEST.replace("total < best", "epoch > 4"), [], ""),
        (OUR_GROUP, BEST.replace("torch.save", "show"), [], ""),
        (OUR_GROUP, COPIED, [Severity.DEGRADED], "        total = mean_of_ranks(total)\n"),
        (OUR_GROUP, BEST.replace("total < best", "meter.worse(total)"), [Severity.DEGRADED], ""),
        (THEIRS, BEST, [Severity.NOTE], ""),
    ],
)
def test_the_best_weights_are_chosen_by_the_loss_of_all_ranks(
    group: str, test: str, severities: list[Severity], line: str
) -> None:
    text = KEPT.format(group=group, test=test)
    assert [each.severity for each in found("DF510", text)] == severities
    assert line in fixed("DF510", text)
    assert ("mean_of_ranks" in fixed("DF510", text)) is bool(line)


KEEPER = """
class Keeper:
    def __init__(self):
        self.best = 9.0
    def __call__(self, loss, net):
        if loss < self.best:
            {does}

def keep(net, score):
    if score < 0.1:
        torch.save(net.state_dict(), 'best.pt')

keeper = Keeper()
"""
SAVE = "torch.save(net.state_dict(), 'best.pt')"


@pytest.mark.parametrize(
    ("does", "told", "line"),
    [
        (SAVE, "keeper(total, net)", "keeper(mean_of_ranks(total), net)"),
        (SAVE, "keep(net, score=total / 9)", "keep(net, score=mean_of_ranks(total / 9))"),
        (SAVE, "keep(net, total.worst)", "keep(net, total.worst)"),
        (SAVE, "keeper(epoch, net)", None),
        (SAVE, "keeper(mean_of_ranks(total), net)", None),
        ("self.best = loss", "keeper(total, net)", None),
    ],
)
def test_who_keeps_the_best_weights_is_told_the_loss_of_all_ranks(
    does: str, told: str, line: str | None
) -> None:
    text = KEPT.format(group=OUR_GROUP, test=told) + KEEPER.format(does=does)
    severities = [] if line is None else [Severity.DEGRADED]
    assert [each.severity for each in found("DF510", text)] == severities
    assert (line or told) in fixed("DF510", text)


def test_who_keeps_the_best_weights_is_told_what_the_training_returns() -> None:
    text = script(f"{CALL}\nkeeper(loss, net)") + KEEPER.format(does=SAVE)
    (one,) = found("DF510", text)
    assert (one.severity, one.because) == (
        Severity.NOTE,
        "train returns the loss of this rank's batches, and line 23 decides by it",
    )


def test_the_best_weights_are_chosen_by_what_the_training_returns() -> None:
    text = script(f"{CALL}\nif loss < 1:\n    torch.save(net.state_dict(), 'best.pt')")
    (one,) = found("DF510", text)
    assert (one.severity, fixed("DF510", text)) == (Severity.NOTE, text.lstrip("\n"))


def test_weights_that_are_kept_by_what_is_no_certain_number_are_only_noted() -> None:
    text = IN_ONE.format(test="meter.worse(total)", change="torch.save(kept, 'best.pt')")
    (told,) = found("DF510", text)
    assert (told.edits, told.severity) == ((), Severity.NOTE)


@pytest.mark.parametrize(
    ("rate", "after"),
    [
        (
            "lr = 0.1 * min(1, total)\n    for g in groups:\n        g['lr'] = lr",
            "mean_of_ranks(lr)",
        ),
        ("optimizer.param_groups[0]['lr'] = total / 9", "mean_of_ranks(total / 9)"),
        ("optimizer.param_groups[0]['lr'] *= total", ""),
        ("optimizer.param_groups[0]['lr'] = 0.1 / (epoch + 1)", None),
        ("optimizer.param_groups[0]['lr'] = mean_of_ranks(total)", None),
    ],
)
def test_a_rate_that_is_made_of_a_loss_is_that_of_all_ranks(rate: str, after: str | None) -> None:
    rate = rate.replace("groups:", "optimizer.param_groups:")
    text = IN_ONE.format(test="True", change="pass").split("    if True:")[0] + f"    {rate}\n"
    told = found("DF510", text)
    assert len(told) == (after is not None)
    if after:
        assert f"['lr'] = {after}\n" in fixed("DF510", text)
        assert found("DF510", fixed("DF510", text)) == []


SETTING = """
def set_rate(optimizer, loss, epoch):
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * min(1.0, loss) / (epoch + 1)
"""


@pytest.mark.parametrize(("passed", "is_own"), [("total / 9", True), ("0.5", False)])
def test_so_is_one_that_a_function_sets(passed: str, is_own: bool) -> None:
    text = SETTING + IN_ONE.format(test="True", change="pass").split("    if True:")[0]
    text += f"    set_rate(optimizer, {passed}, epoch)\n"
    after = fixed("DF510", text)
    assert ("    set_rate(optimizer, mean_of_ranks(total / 9), epoch)\n" in after) is is_own
    assert found("DF510", after) == []


def test_so_is_one_that_a_function_gives_its_caller() -> None:
    body = f"{CALL}\nfor group in optimizer.param_groups:\n    group['lr'] = 0.1 * loss"
    after = fixed("DF510", script(body))
    assert "        loss = mean_of_ranks(loss)\n        for group" in after
    assert found("DF510", after) == []


@pytest.mark.parametrize(
    "change",
    [
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)",
        "scheduler.step()",
        "adjust_learning_rate(optimizer, epoch)",
    ],
)
def test_a_rate_that_is_changed_in_another_way_is_so_by_the_mean_loss(change: str) -> None:
    after = fixed("DF510", IN_ONE.format(test="total < best", change=change))
    assert "    total = mean_of_ranks(total)\n    if total < best:\n" in after
    text = IN_ONE.format(test="True", change="pass").replace(
        "total += loss.item()",
        f"total += loss.item()\n        if loss.item() > 9:\n            {change}",
    )
    (told,) = found("DF510", text)
    assert (told.severity, told.edits) == (Severity.DEGRADED, ())


@pytest.mark.parametrize(
    "decision",
    [
        "if loss < 1:\n    torch.save(model.state_dict(), 'best.pt')",
        "optimizer.param_groups[0]['lr'] = 0.1 * loss",
        "plan.step(loss)",
    ],
)
def test_what_a_function_of_the_program_has_reduced_is_the_same_on_all_ranks(decision: str) -> None:
    text = script(f"loss = reduced(train(model, loader, optimizer))\n{decision}")
    text += "\ndef reduced(x):\n    torch.distributed.all_reduce(x)\n    return x\n"
    assert found("DF510", text) == []
