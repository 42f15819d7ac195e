"""DF506: who reaches a collective, and who leaves a training loop."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import changes, fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import audit
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Severity
from forked import Forge, Job

LOOP = """\
import math
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(args, data, model):
    torch.distributed.init_process_group('gloo')
    loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=4)
    best, patience, global_step = None, 0, 0
    {early}
    for epoch in range(9):
        total = 0.0
        losses = []
        for step, batch in enumerate(loader):
            loss = model(batch)
            {inside}
            loss.backward()
            total += loss.item()
            losses.append(loss.item())
            global_step += 1
            {behind}
        {epoch}
"""
QUIET = {"early": "pass", "inside": "pass", "behind": "pass", "epoch": "pass"}
STOPPING = """\
        if best is None or total < best:
            best, patience = total, 0
        else:
            patience += 1
            if patience > 2:
                break
"""


def loop(**parts: str) -> str:
    """A training script with lines added at a place."""
    return LOOP.format(**{**QUIET, **parts})


def stopping(before: str = "pass") -> str:
    """A training script that stops when its loss no longer falls."""
    return loop(epoch=before) + STOPPING


CLOSURE = """
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    def step(signal, optimizer, model):
        def closure():
            if rank == 0:
                dist.broadcast(signal, src=0)
            return model.loss()
        if rank == 0:
            optimizer.step(closure)
        else:
            while signal.item():
                {other}
                closure()
    step(signal, optimizer, model)
    """


STEPS = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

torch.distributed.init_process_group('gloo')
for images, labels in DataLoader(data, sampler=DistributedSampler(data)):
    known = labels < 192
    count = {count}
    loss = lose(model(images), labels)
    if {test}:
        loss.backward()
        optimizer.step()
    else:
        {otherwise}
"""


def steps(count: str = "1", test: str = "count > 0", otherwise: str = "pass") -> str:
    """A training script whose steps hang on a test."""
    return STEPS.format(count=count, test=test, otherwise=otherwise)


NOOP = [
    ("a step by the size of the batch", steps("labels[:4].size(0)")),
    ("a step by the length of the batch", steps("len(labels)")),
    ("a step where there are gradients", steps(test="loss.requires_grad")),
    ("a step in either branch",
        steps("labels[known].size(0)", otherwise="(0 * loss).backward(); optimizer.step()")),
    ("a step by an option", steps(test="args.steps")),
    (
        "training that rank 0 has other processes run, by remote calls",
        "from torch.distributed import rpc\n"
        + loop()
        + "def main(rank, args):\n    if rank == 0:\n"
        "        for name in args.names:\n            rpc.rpc_async(name, train)\n"
        "        train(args, args.data, args.model)\n",
    ),
    ("all ranks count the same steps", loop(behind="if global_step > args.max_steps: break")),
    ("a list's length tells nothing", loop(behind="if len(losses) > args.max_steps: break")),
    ("what one rank prints changes no decision",
        loop(behind="if loss.item() > 9: print(loss)")),
    ("the loss is made equal first", stopping("total = mean_of_ranks(total)")),
    ("a collective makes it equal in place", stopping("torch.distributed.all_reduce(total)")),
    ("the script's own mean over the ranks", stopping("total = mean(total)") + """
def mean(x):
    t = torch.tensor(x)
    torch.distributed.all_reduce(t)
    return t.item() / torch.distributed.get_world_size()
"""),
    ("evaluation goes through the whole set on every rank", loop(epoch="""
        total = 0.0
        for batch in DataLoader(data):
            loss = model(batch)
            total += loss.item()
"""[9:]) + STOPPING),
    ("a search inside the loop is nobody else's business", loop(inside="""
            for number in losses:
                if number > loss:
                    break
"""[13:])),
    ("a lone process stops when it likes", stopping().replace("init_process_group('gloo')", "x")
        .replace("DistributedSampler", "RandomSampler")),
    ("an exit by the number of the step, from wherever it counts",
        loop(inside="if step > args.steps:\n                break").replace(
            "enumerate(loader)", "enumerate(loader, start=args.first + 1)")),
    ("rank 0 and the others each have a way out", loop(behind="""
            if args.rank == 0 and global_step > 3:
                break
            elif args.rank != 0 and global_step > 3:
                break
"""[13:])),
    ("what has no gradient has none on all ranks",
        loop().replace("            loss.backward()",
            "            if loss.requires_grad and 'x' in batch:\n"
            "                loss.backward()")),
    ("each branch goes back", loop().replace("            loss.backward()",
        "            if loss.item() > 1:\n                (2 * loss).backward()\n"
        "            else:\n                loss.backward()")),
    ("a step by gradients, which are averaged", loop(
        behind="norm = clip(model.parameters())\n"
        "            if math.isfinite(norm):\n                optimizer.step()")),
    ("a clock that rank 0 reads for all", "import time\n" + loop(
        early="start = time.time()",
        epoch="late = torch.tensor(time.time() - start > 9)\n"
        "        torch.distributed.broadcast(late, 0)\n        if late: break")),
    ("an error by the clock, which ends the job", "import sys, time\n" + loop(
        early="start = time.time()",
        epoch="if time.time() - start > 9: sys.exit('it took too long')")),
    ("a clock that nothing but a message hangs on", "import time\n" + loop(
        early="start = time.time()",
        epoch="if time.time() - start > 9:\n            print('slow')\n"
        "            start = time.time()")),
    ("a run that has its name from a clock", "import time\n" + loop(
        early="folder = f'runs/{int(time.time())}'; games = make(folder)",
        epoch="if games.are_over(): break")),
    ("a search inside the loop that takes its time", "import time\n" + loop(
        early="start = time.time()",
        inside="for number in losses:\n                if time.time() - start > 9: break")),
    ("two pairs of barriers in one function", """
        import torch
        def main(args):
            for part in ("model", "data"):
                if args.local_rank not in [-1, 0]:
                    torch.distributed.barrier()
                load(part)
                if args.local_rank == 0:
                    torch.distributed.barrier()
        """),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_what_all_ranks_do_alike_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF506", text)] == []


TESTED_STEPS = {
    "if not math.isnan(loss):": "if not on_any_rank(math.isnan(loss)):",
    "if args.all or torch.isfinite(loss):": (
        "if not on_any_rank(not (args.all or torch.isfinite(loss))):"
    ),
    "if math.isnan(loss):\n                print(step)\n            else:": (
        "if on_any_rank(math.isnan(loss)):\n                print(step)\n            else:"
    ),
    "if loss.item() > 0.1:": "if mean_of_ranks(loss.item()) > 0.1:",
    "if loss.item() > 0.1 and args.all:": "if loss.item() > 0.1 and args.all:",
}


@pytest.mark.parametrize(("test", "after"), TESTED_STEPS.items())
@pytest.mark.parametrize("steps_alone", [True, False])
def test_all_ranks_step_where_each_may(test: str, after: str, steps_alone: bool) -> None:
    text = loop(behind=f"{test}\n                optimizer.step()")
    if not steps_alone:
        back = "            loss.backward()"
        text = loop().replace(back, f"            {test}\n    {back}")
    (finding,) = found("DF506", text)
    assert bool(finding.edits) is (test != after)
    new = fixed("DF506", text)
    assert f"            {after}\n" in new
    assert len(found("DF506", new)) == (test == after)


@pytest.mark.parametrize(
    ("rounds", "is_told"),
    [
        ("2 if loss.item() > 1 else 1", True),
        ("int(loss)", True),
        ("len(batch)", False),
        ("args.rounds", False),
        ("int(mean_of_ranks(loss))", False),
    ],
)
def test_ranks_step_as_often_as_each_other(rounds: str, is_told: bool) -> None:
    text = loop(
        behind=f"n = {rounds}\n            for _ in range(n):\n"
        "                model(batch).mean().backward()\n                optimizer.step()"
    )
    told = [each for each in found("DF506", text) if "as often as its own batch" in each.because]
    assert len(told) == is_told


def test_a_list_of_numbers_is_no_number() -> None:
    text = loop(behind="kept.append(loss.item())\n            if kept[-1] > 4 * min(kept): break")
    assert "if on_any_rank(kept[-1] > 4 * min(kept)): break" in fixed("DF506", text)


FIX = [
    ("ranks stop together when time is up", "import time\n" + loop(
        early="start = time.time()",
        epoch="spent = time.time() - start\n        if spent > args.seconds: break"), """
        @@ -5,2 +5,11 @@
         from torch.utils.data.distributed import DistributedSampler
        +
        +
        +def on_any_rank(test): ...

        @@ -23,2 +32,2 @@
                 spent = time.time() - start
        -        if spent > args.seconds: break
        +        if on_any_rank(spent > args.seconds): break
        """),
    ("ranks stop by the mean of their losses", stopping(), """
        @@ -4,2 +4,11 @@
         from torch.utils.data.distributed import DistributedSampler
        +
        +
        +def mean_of_ranks(value): ...

        @@ -22,2 +31,3 @@
                 pass
        +        total = mean_of_ranks(total)
                 if best is None or total < best:
        """),
    (
        "although an evaluation that nothing calls has this rank's part of the data",
        stopping() + """
def score(model, data):
    model.eval()
    loader = DataLoader(data, sampler=DistributedSampler(data))
    for batch in loader:
        try:
            with torch.no_grad():
                print(model(batch))
        except RuntimeError:
            continue

if __name__ == "__main__":
    train(args, data, model)
""", """
        @@ -4,2 +4,11 @@
         from torch.utils.data.distributed import DistributedSampler
        +
        +
        +def mean_of_ranks(value): ...

        @@ -22,2 +31,3 @@
                 pass
        +        total = mean_of_ranks(total)
                 if best is None or total < best:
        """),
    ("all ranks skip a batch that one cannot use",
        loop(inside="if math.isnan(loss):\n                continue"), """
        @@ -4,2 +4,11 @@
         from torch.utils.data.distributed import DistributedSampler
        +
        +
        +def on_any_rank(test): ...

        @@ -15,3 +24,3 @@
                     loss = model(batch)
        -            if math.isnan(loss):
        +            if on_any_rank(math.isnan(loss)):
                         continue
        """),
    ("all ranks skip a batch of which one selects nothing",
        loop(inside="rows = torch.nonzero(batch > 0)\n            if len(rows) == 0:\n"
             "                continue"), """
        @@ -4,2 +4,11 @@
         from torch.utils.data.distributed import DistributedSampler
        +
        +
        +def on_any_rank(test): ...

        @@ -16,3 +25,3 @@
                     rows = torch.nonzero(batch > 0)
        -            if len(rows) == 0:
        +            if on_any_rank(len(rows) == 0):
                         continue
        """),
    ("all take a step, or none, where each has to have something to learn from",
        steps("labels[known].size(0)"), """
        @@ -3,2 +3,11 @@
         from torch.utils.data.distributed import DistributedSampler
        +
        +
        +def on_any_rank(test): ...

        @@ -9,3 +18,3 @@
             loss = lose(model(images), labels)
        -    if count > 0:
        +    if not on_any_rank(not (count > 0)):
                 loss.backward()
        """),
    ("all leave when one does, where the loss itself is still to go backward",
        loop(inside="if loss > 10: return"), """
        @@ -4,2 +4,11 @@
         from torch.utils.data.distributed import DistributedSampler
        +
        +
        +def mean_of_ranks(value): ...

        @@ -15,3 +24,3 @@
                     loss = model(batch)
        -            if loss > 10: return
        +            if mean_of_ranks(loss) > 10: return
                     loss.backward()
        """),
    ("the others leave with rank 0", loop(behind="""
            if args.rank == 0 and global_step == args.max_steps:
                save(model)
                return
"""[13:]), """
        @@ -22,2 +22,3 @@
                         save(model)
        +            if torch.distributed.is_initialized() and global_step == args.max_steps:
                         return
        """),
    ("a lone process leaves as before", loop(behind="""
            if args.rank in [-1, 0] and global_step == args.max_steps:
                save(model)
                break
"""[13:]), """
        @@ -22,2 +22,3 @@
                         save(model)
        +            if global_step == args.max_steps:
                         break
        """),
    ("an exit that rank 0 takes without more ado",
        loop(behind="if args.rank == 0 and global_step == args.max_steps: break"), """
        @@ -20,3 +20,3 @@
                     global_step += 1
        -            if args.rank == 0 and global_step == args.max_steps: break
        +            if torch.distributed.is_initialized() and global_step == args.max_steps: break
                 pass
        """),
    ("a barrier for rank 0 alone is for all", """
        import torch
        def main(args):
            if args.local_rank == 0:
                torch.distributed.barrier()
        """, """
        @@ -2,3 +2,3 @@
         def main(args):
        -    if args.local_rank == 0:
        +    if torch.distributed.is_initialized():
                 torch.distributed.barrier()
        """),
    ("the barrier that is left over, not those that meet", """
        import torch.distributed as dist
        def main(args):
            if args.local_rank not in [-1, 0]:
                dist.barrier()
            load()
            if args.local_rank == 0:
                dist.barrier()
            if args.do_train:
                if args.local_rank not in [-1, 0]:
                    dist.barrier()
                read()
        """, """
        @@ -8,3 +8,3 @@
             if args.do_train:
        -        if args.local_rank not in [-1, 0]:
        +        if dist.is_initialized():
                     dist.barrier()
        """),
]  # fmt: skip


@pytest.mark.parametrize(("text", "diff"), [pytest.param(t, d, id=name) for name, t, d in FIX])
def test_every_rank_takes_the_way_out_exactly_like_this(text: str, diff: str) -> None:
    text = textwrap.dedent(text).lstrip("\n")
    new = fixed("DF506", text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert found("DF506", new) == []


REPORTED = [
    ("a training loop that only rank 0 enters", loop(early="if args.rank > 0: return")),
    ("a barrier in a loop of which nothing is known", """
        import torch
        def main(args):
            for part in parts():
                if args.local_rank == 0:
                    torch.distributed.barrier()
        """),
    ("a barrier that a lone process meets too", """
        import torch
        def main(args):
            if args.local_rank in [-1, 0]:
                torch.distributed.barrier()
        """),
    ("a stop that hangs on a part of the validation set", stopping("total = score(data)") + """
def score(data):
    model.eval()
    total = 0.0
    for batch in DataLoader(data, sampler=DistributedSampler(data)):
        total += model(batch)
    return total
"""),
    ("an exit by the clock for which an option has to be given", "import time\n" + loop(
        early="start = time.time()",
        epoch="if args.limit:\n            if time.time() - start > args.limit: break")),
    ("an exit of rank 0 whose test its own block changes", loop(behind="""
            if args.rank == 0 and global_step == args.max_steps:
                global_step = save(model)
                return
"""[13:])),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in REPORTED])
def test_what_cannot_be_made_alike_is_reported_and_not_touched(text: str) -> None:
    findings = found("DF506", text)
    assert findings
    assert not any(finding.edits for finding in findings)


SCRIPT = """\
import argparse, os
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)
args = parser.parse_args()
args.local_rank = int(os.environ.get("LOCAL_RANK", -1))

def train(args, model):
    data = TensorDataset(torch.arange(8.0)[:, None])
    sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(
        data, shuffle=False)
    loader = DataLoader(data, sampler=sampler, batch_size=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    skipped = 0
    for epoch in range(6):
        loader.sampler.set_epoch(epoch) if args.local_rank != -1 else None
        seen = 0.0
        for step, (batch,) in enumerate(loader):
            loss = model(batch).sum()
            if loss.item() == 6:  # on one rank: the other is at 7
                skipped += 1
                continue
            loss.backward()
            optimizer.step()
            seen = loss.item()
        if seen * epoch > 13.5:  # 6.5 of the mean, 7 of one rank
            break
    print("left", epoch, skipped)

if args.local_rank != -1:
    torch.distributed.init_process_group("gloo", timeout=__import__("datetime").timedelta(hours=1))
    if args.local_rank not in [-1, 0]:
        torch.distributed.barrier()
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(model.weight)
train(args, model)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""


def test_ranks_leave_together_where_they_hung(tmp_path: Path, forge: Forge) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    patched = patch(script)
    assert patched.refusal == ""
    patched.write()
    for helper in ("mean_of_ranks(seen)", "on_any_rank(loss.item() == 6)"):
        assert helper in script.read_text()
    (run,) = forge.run([Job(tmp_path / "two", script, [], world=2)])
    assert run.statuses == (0, 0), run.log
    # Behind the skipped batch the ranks have seen 4 and 5: 4.5 * 4 is the first beyond 13.5.
    assert [line for line in run.log.splitlines() if line.startswith("left")] == ["left 4 5"] * 2


LEAVING = """
import torch
import torch.distributed as dist

def merged(rows, rank, only_on_first):
    dist.barrier()
    if only_on_first:
        if rank != 0:
            dist.barrier()
            return None
    whole = read_all(rows)
    {end}
    return whole

def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    merged([1], rank, True)
    for batch in torch.utils.data.DataLoader(torch.randn(8, 2)):
        model(batch).mean().backward()

main()
"""


@pytest.mark.parametrize(
    ("end", "is_right"),
    [
        ("dist.barrier()", True),
        ("pass", False),
        ("dist.barrier(); dist.barrier()", False),
        ("for row in rows: dist.barrier()", False),
    ],
    ids=["once", "never", "twice", "in_a_loop"],
)
def test_who_leaves_early_meets_those_that_stay_as_often(end: str, is_right: bool) -> None:
    text = LEAVING.format(end=end)
    assert (found("DF506", text) == []) is is_right
    said = [each for each in audit(Program(module(text))) if each.code == "O6"]
    assert any(each.is_violated for each in said) is not is_right


OWN_METHOD = """
import torch
import torch.distributed as dist

class Encoder(torch.nn.Module):
    def {name}(self):
        return self.state_dict()

def main(model):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        state = unwrapped(model).get_state_dict()
    for batch in torch.utils.data.DataLoader(torch.randn(8, 2)):
        model(batch).mean().backward()

main(torch.nn.parallel.DistributedDataParallel(Encoder()))
"""


@pytest.mark.parametrize(("name", "meets"), [("get_state_dict", False), ("states", True)])
def test_a_method_of_the_programs_own_is_not_accelerates(name: str, meets: bool) -> None:
    said = audit(Program(module(OWN_METHOD.format(name=name))))
    assert any(each.code == "O6" and each.is_violated for each in said) is meets


FUNCTION = """
import torch
import torch.distributed as dist
from accelerate import Accelerator
from {package} import get_state_dict

accelerator = Accelerator()

def main(model, average):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        state = {call}(average)
    for batch in torch.utils.data.DataLoader(torch.randn(8, 2)):
        model(batch).mean().backward()

main(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1)), None)
"""


@pytest.mark.parametrize(
    ("package", "call", "meets"),
    [
        ("timm.utils", "get_state_dict", False),
        ("timm.utils", "accelerator.get_state_dict", True),
        ("torch.distributed.checkpoint.state_dict", "get_state_dict", True),
    ],
)
def test_a_function_of_a_library_is_not_accelerates(package: str, call: str, meets: bool) -> None:
    said = audit(Program(module(FUNCTION.format(package=package, call=call))))
    assert any(each.code == "O6" and each.is_violated for each in said) is meets


STOPPED = """
import torch
import torch.distributed as dist
{imports}
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
def train(calls):
    for batch in torch.utils.data.DataLoader(torch.randn(8, 2)):
        model(batch).mean().backward()
        optimizer.step()
        if dist.get_rank() == 0:
            calls.run(batch)
            if calls.stopped:
                return
train(found())
{behind}
"""


@pytest.mark.parametrize(("behind", "is_error"), [("", False), ("calls.stopped = more()", True)])
def test_an_exit_by_what_nothing_sets_is_no_error(behind: str, is_error: bool) -> None:
    text = STOPPED.format(imports="from elsewhere import found", behind=behind)
    (finding,) = found("DF506", text)
    assert (finding.severity is not Severity.DEGRADED) is is_error
    told = [each for each in audit(Program(module(text))) if each.code == "O6"]
    assert [each.is_violated for each in told] == [is_error]


def test_a_closure_of_rank_0_sends_what_the_others_wait_for_around_it() -> None:
    assert found("DF506", CLOSURE.format(other="dist.broadcast(signal, src=0)")) == []
    for other in ("dist.broadcast(model, src=0)", "pass"):
        found_there = found("DF506", CLOSURE.format(other=other))
        assert "only rank 0 can reach it" in [each.because for each in found_there]


@pytest.mark.parametrize("end", ["sys.exit()", "exit(0)", "raise SystemExit"])
def test_a_run_that_ends_by_the_clock(end: str) -> None:
    text = loop(early="start = time.time()", behind=f"if time.time() - start > 9:\n{' ' * 16}{end}")
    text = f"import sys, time\n{text}"
    because = [each.because for each in found("DF506", text)]
    assert because == ["each rank leaves the training by its own clock in line 22"]
    assert "if on_any_rank(time.time() - start > 9):" in fixed("DF506", text)


def test_who_calls_the_training_asks_its_clock_too() -> None:
    caller = """
def main(args, data, model):
    start = time.monotonic()
    try:
        for part in data:
            train(args, part, model)
            if time.monotonic() - start > args.seconds:
                return
    except KeyboardInterrupt:
        print("stopped")
"""
    text = "import time\n" + loop() + caller
    assert "if on_any_rank(time.monotonic() - start > args.seconds):" in fixed("DF506", text)
    assert found("DF506", text.replace("            if time", "        if time")
        .replace("                return", "            return")) == []  # fmt: skip


STOPPER = """
class Stopper:
    def __init__(self):
        self.best, self.stops = None, False
    def {method}(self, loss):
        self.stops = self.best is not None and loss > self.best
        self.best = loss

stopper = {made}
"""


@pytest.mark.parametrize(
    ("method", "told", "made", "is_own"),
    [
        ("__call__", "stopper(total)", "Stopper()", True),
        ("step", "stopper.step(total)", "Stopper()", True),
        ("step", "stopper.step(epoch)", "Stopper()", False),
        ("step", "stopper.step(total)", "library.Stopper()", False),
    ],
)
def test_an_object_that_is_told_a_ranks_loss_stops_that_rank(
    method: str, told: str, made: str, is_own: bool
) -> None:
    text = STOPPER.format(method=method, made=made) + loop(
        epoch=f"{told}\n        if stopper.stops: break"
    )
    assert ("if on_any_rank(stopper.stops): break" in fixed("DF506", text)) is is_own


@pytest.mark.parametrize(
    ("inside", "test", "leaves"),
    [
        ("state.steps += 1; state.took += time.time() - start", "state.steps > 9", 0),
        ("state.steps += 1; state.loss = loss.item()", "state.steps > 9", 0),
        ("state.steps += 1; state.took += time.time() - start", "state.took > 9", 1),
        ("state.steps += 1; state.loss = loss.item()", "state.loss > 9", 1),
        ("state.took = time.time() - start", "late(state)", 1),
        ("state.took = time.time() - start", "state.is_late()", 1),
        ("state.took = time.time() - start", "state.is_late", 1),
        ("state.steps = 1; state = timed(time.time())", "state.steps > 9", 1),
    ],
    ids=[
        "another part than the time",
        "another part than the loss",
        "the time",
        "the loss",
        "a function of the whole",
        "a method of the whole",
        "a part that nothing sets",
        "the whole is another",
    ],
)
def test_one_part_of_an_object_tells_nothing_of_another(
    inside: str, test: str, leaves: int
) -> None:
    text = "import time\n" + loop(
        early="start = time.time()", inside=inside, behind=f"if {test}: break"
    )
    assert len(found("DF506", text)) == leaves


SENT = """
import torch
import torch.distributed as dist

class Scorer:
    def __init__(self, distributed=False):
        self.distributed, self.found = distributed, []

    def score(self):
        if {test}:
            metric = sum(self.found)
            if self.distributed:
                dist.{sent}(torch.tensor(metric), 0)
        else:
            metric = torch.tensor(0)
            dist.broadcast(metric, 0)
        return metric

dist.init_process_group("gloo")
Scorer(args.distributed).score()
"""


@pytest.mark.parametrize(
    ("test", "sent", "told"),
    [
        ("not self.distributed or dist.get_rank() == 0", "broadcast", 0),
        ("not self.distributed or dist.get_rank() == 0", "all_reduce", 2),
        ("not self.distributed and dist.get_rank() == 0", "broadcast", 0),
        ("self.found or dist.get_rank() == 0", "broadcast", 0),
    ],
)
def test_rank_0_sends_in_one_branch_what_the_others_get_in_the_other(
    test: str, sent: str, told: int
) -> None:
    assert len(found("DF506", SENT.format(test=test, sent=sent))) == told


GAMES = """
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    torch.manual_seed({seed})
    for round in range(9):
        for epoch in range(3):
            for part in order:
                ratio = policy(games[part])
                ratio.mean().backward()
                for p in policy.parameters():
                    dist.all_reduce(p.grad)
                optimizer.step()
            if (ratio - 1).mean() > 0.1:
                break
"""


@pytest.mark.parametrize(("seed", "count"), [("dist.get_rank()", 1), ("0", 0)])
def test_ranks_with_games_of_their_own_leave_by_their_own_ratio(seed: str, count: int) -> None:
    findings = found("DF506", textwrap.dedent(GAMES.format(seed=seed)))
    assert [f.because for f in findings] == [
        "each rank decides by its own ratio in line 13"
    ] * count


COUNTED = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

class Painter:
    def __init__(self, net):
        self.net, self.iteration = net, 0
        self.optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(self, batch):
        {counts}
        self.optimizer.zero_grad()
        self.net(batch).mean().backward()
        self.optimizer.step()

def main(data):
    torch.distributed.init_process_group("gloo")
    painter = Painter(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)))
    loader = DataLoader(data, sampler=DistributedSampler(data))
    for epoch in range(9):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            painter.step(batch)
            done = painter.iteration
            if done > 99:
                break

main(torch.rand(64, 2))
"""


@pytest.mark.parametrize(
    ("counts", "is_alike"),
    [
        ("self.iteration += 1", True),
        ("if batch.max() > 1:\n            self.iteration += 1", False),
        ("self.iteration += len(batch)", False),
    ],
)
def test_an_object_that_counts_its_steps_counts_alike_on_all_ranks(
    counts: str, is_alike: bool
) -> None:
    assert (found("DF506", COUNTED.format(counts=counts)) == []) is is_alike


DRAWN = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

def main(data, args):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(data, sampler=DistributedSampler(data))
    batches = iter(loader)
    for number in range(args.start, args.steps):
        loss = model(next(batches)).mean()
        loss.backward()
        if {test}:
            {behind}

main(torch.rand(64, 2), parser.parse_args())
"""


@pytest.mark.parametrize(
    ("test", "behind", "is_alike"),
    [
        ("(number + 1) % args.critic == 0", "optimizer.step()", True),
        ("number > 9", "break", True),
        ("loss.item() > 9", "break", False),
    ],
)
def test_the_number_of_a_step_is_the_same_on_all_ranks(
    test: str, behind: str, is_alike: bool
) -> None:
    assert (found("DF506", DRAWN.format(test=test, behind=behind)) == []) is is_alike


COUNTING = """
        if total < best - 0.1:
            best, bad = total, 0
        else:
            bad += 1
        if bad > 2:
            break
"""


def test_ranks_that_count_by_their_losses_do_so_by_the_mean_of_them() -> None:
    after = fixed("DF506", loop(before="best, bad = 9, 0") + COUNTING)
    assert "        total = mean_of_ranks(total)\n        if total < best - 0.1:\n" in after
    assert "mean_of_ranks(bad)" not in after
    assert found("DF506", after) == []


def test_a_count_by_a_number_that_another_branch_sets_is_asked_of_all_ranks() -> None:
    inner = ("\n        value = score(model)" + COUNTING.replace("total", "value")).replace(
        "\n", "\n    "
    )
    counting = f"        if args.data:{inner}\n        else:\n            best = total\n"
    after = fixed("DF506", loop(early="bad = 0") + counting)
    assert "if on_any_rank(bad > 2):" in after
    assert found("DF506", after) == []


@pytest.mark.parametrize(
    ("test", "after"),
    [
        ("loss.item() > 9 * first", "if mean_of_ranks(loss.item()) > 9 * first:"),
        ("(step + 1) % 4 != 0", ""),
    ],
)
def test_a_step_that_a_rank_skips_behind_its_backward_pass_is_skipped_by_all(
    test: str, after: str
) -> None:
    skips = f"if {test}:\n                continue\n            optimizer.step()"
    text = loop(early="first = 1.0; optimizer = torch.optim.SGD(model.parameters())", behind=skips)
    if after:
        assert after in fixed("DF506", text)
    else:
        assert found("DF506", text) == []


def test_a_number_by_which_losses_are_written_down_is_all_ranks_own() -> None:
    leaves = "            if global_step > 99:\n                break"
    behind = f"kept[:, global_step] = loss.item()\n{leaves}"
    text = loop(early="kept = torch.zeros(1, 100)", behind=behind)
    assert found("DF506", text) == []
    assert found("DF506", text.replace("if global_step > 99", "if kept[0, 0] > 99")) != []


TASKS = """
import torch.distributed as dist
dist.init_process_group("gloo")
def evaluate(args, model):
    names = ("mnli", "mnli-mm") if args.task == "mnli" else (args.task,)
    for name, folder in zip({names}, ["out"]):
        {first}
        dist.barrier()
def score(args, model):
    return evaluate(args, model)
for batch in torch.utils.data.DataLoader(data):
    model(batch).backward()
if dist.get_rank() == 0:
    score(args, model)
evaluate(args, model)
"""


@pytest.mark.parametrize(
    ("names", "first", "meets"),
    [
        pytest.param("names", "pass", True, id="of tasks that are written out"),
        pytest.param("enumerate(names)", "pass", True, id="numbered"),
        pytest.param("args.names", "pass", False, id="of tasks that may be none"),
        pytest.param("()", "pass", False, id="of none"),
        pytest.param("names", "if has(name): continue", False, id="whose round may go past it"),
    ],
)
def test_rank_0_alone_scores_in_a_loop_that_certainly_goes_round(
    names: str, first: str, meets: bool
) -> None:
    text = "import torch.utils.data\n" + TASKS.format(names=names, first=first)
    because = [each.because for each in found("DF506", text)]
    assert because == ["only rank 0 calls score(), where ranks wait for each other"] * meets
    told = [each for each in audit(Program(module(text))) if each.code == "O6"]
    assert {each.is_violated for each in told} == ({True} if meets else set())


SKIPPED = {
    "random.random() < 0.1": "what_rank_0_has(random.random()) < 0.1",
    "np.random.rand() < args.p": "what_rank_0_has(np.random.rand()) < args.p",
    "torch.rand(1).item() < 0.1": "what_rank_0_has(torch.rand(1)).item() < 0.1",
    "args.skip and random.random() < 0.1": "args.skip and random.random() < 0.1",
}
IMPORTS = "import random\nimport numpy as np\n"


@pytest.mark.parametrize(("test", "after"), SKIPPED.items())
@pytest.mark.parametrize("early", ["pass", "random.seed(); np.random.seed(args.seed + rank)"])
def test_ranks_skip_by_what_rank_0_draws(test: str, after: str, early: str) -> None:
    text = IMPORTS + loop(early=early, inside=f"if {test}:\n                continue")
    (finding,) = found("DF506", text)
    assert "by what it draws itself" in finding.because
    assert bool(finding.edits) is (test != after)
    new = fixed("DF506", text)
    assert f"            if {after}:\n" in new
    assert len(found("DF506", new)) == (test == after)


def test_a_step_that_hangs_on_a_draw_above_it_is_taken_by_all() -> None:
    back = "            loss.backward()"
    tested = f"            luck = random.random()\n            if luck > 0.1:\n    {back}"
    text = IMPORTS + loop().replace(back, tested)
    new = fixed("DF506", text)
    assert "            luck = what_rank_0_has(random.random())\n" in new
    assert found("DF506", new) == []


@pytest.mark.parametrize(
    ("early", "inside"),
    [
        ("random.seed(1)", "if random.random() < 0.1:\n                continue"),
        ("random.seed(args.seed)", "if random.random() < 0.1:\n                continue"),
        (
            "random.seed(1); torch.manual_seed(rank)",
            "if random.random() < 0.1:\n                continue",
        ),
        ("draw_alike()", "if random.random() < 0.1:\n                continue"),
        ("pass", "if random.random() < 0.1:\n                batch = -batch"),
        ("pass", "if random.random() < 0.1:\n                print(step)"),
    ],
)
def test_what_ranks_draw_alike_or_go_on_with_is_left_alone(early: str, inside: str) -> None:
    assert found("DF506", IMPORTS + loop(early=early, inside=inside)) == []
