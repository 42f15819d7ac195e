"""Programs that train on several cards already, in ways that once looked wrong."""

from __future__ import annotations

import ast
import textwrap

import pytest
from cases import RULES, found, module
from ddpfix.patcher.analysis.language.call_graph import Callee, CallGraph
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.findings import Severity
from ddpfix.patcher.source.module import Module

GROUP = """
import itertools, os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
loader = DataLoader(data, sampler=DistributedSampler(data))
"""
STEPS = """
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FIRST = """
@contextlib.contextmanager
def rank_0_first(rank):
    if rank != 0:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()
"""
FLAGGED = """
class Images:
    def __init__(self, path, rank):
        self.is_main = rank in (-1, 0)
        self.check = False
        if os.path.exists(path):
            made = json.load(open(path))
        else:
            self.check = True
        if self.check and self.is_main:
            made = measure()
            with open(path, "w") as file:
                json.dump(made, file)
"""
SPLIT = """
class Trainer:
    def __init__(self):
        self.part_rank = dist.get_rank({asked})
        self.group = {group}
    def save(self):
        if dist.get_rank() == 0:
            dist.all_gather_object(parts, self.part, group=self.group)
Trainer().save()
"""
COUNTED = """
for (x, y), turn in zip(loader, {counter}):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    if turn % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
EVALUATION = """
def evaluate(model, data):
    model.eval()
    total, count = 0.0, 0
    for x, y in DataLoader(data, sampler=DistributedSampler(data, shuffle=False)):
        total += torch.nn.functional.cross_entropy(model(x), y) * len(y)
        count += len(y)
    mean = total / count
    {behind}
    return mean
evaluate(model, data)
"""
METRIC = """
def evaluate(model, data):
    from {package} import {name}
    model.eval()
    scores = {name}()
    for x, y in DataLoader(data, sampler=DistributedSampler(data, shuffle=False)):
        scores.append(model(x))
    return scores.aggregate()
evaluate(model, data)
"""
DEALER = """
class Dealt(torch.utils.data.Sampler[int]):
    def __init__(self, data, number=None):
        self.data, self.number = data, dist.get_rank() if number is None else number
        self.num_replicas = dist.get_world_size()
        self.total_size = len(data)
    def __iter__(self):
        return iter(range(len(self.data))[self.number : self.total_size : self.num_replicas])
loader = DataLoader(data, sampler=Dealt(data))
"""
GROUPED = """
def make(model):
    groups = decay(model)
    groups = by_rate(groups)
    return torch.optim.SGD(groups, lr=0.1)
optimizer = make(model)
class Scaler:
    def __call__(self, loss, optimizer, groups):
        loss.backward()
        size = norm([each for each in groups if each.grad is not None])
        optimizer.step()
        return size
scaler = Scaler()
for x, y in loader:
    scaler(model(x).sum(), optimizer, groups=model.groups())
"""
SHARES = """
class Lines({base}):
    def __init__(self, data, rank, world_size):
        self.data, self.rank, self.world_size = data, rank, dist.get_world_size()
        self.total_size = {size}
    def __iter__(self):
        return iter(self.data[dist.get_rank() : self.total_size : dist.get_world_size()])
"""
CACHED = """
class Zipped:
    def __init__(self, samples, rank, world_size):
        self.samples = [None for _ in samples]
        for i, path in enumerate(samples):
            if i % dist.get_world_size() == dist.get_rank():
                self.samples[i] = read(path)
            else:
                {otherwise}
"""
PARTS = """
mine = partition(files, dist.get_world_size(), even_divisible={even})[dist.get_rank()]
"""
BEST = """
def train(rank):
    for x, y in loader:
        model(x).sum().backward()
        optimizer.step()
    if dist.get_rank() == 0:
        is_best = look()
    if {test}:
        save(model)
train(0)
"""
SAVED = """
def save(epoch: int, path):
    weights = net.state_dict()
    torch.save({{'weights': weights, 'epoch': epoch, 'net': {net}}}, path / 'x.pt')

def load(path):
    state = torch.load(path)
    for callback in callbacks:
        callback.loaded(state)
    return state['{key}'](x)
"""
WRAPS = """
class Base:
    def wrap(self, net):
        if self.opt["dist"]:
            net = DistributedDataParallel(net)
        else:
            net = torch.nn.DataParallel(net)
        return net
"""
BAR = """
for epoch in range(3):
    bar = {made}
    for x, y in bar:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        bar.update(loss=loss.item())
"""
METER = """
loss = 0.0
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    meter.append(loss)
    loss = meter.aggregate()
"""
NOISED = """
for x, y in loader:
    x = schedule.{method}(x, y)
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
JOINED = (
    """
method = "tcp://"
method += os.getenv("MASTER_ADDR") + ":" + os.getenv("MASTER_PORT")
dist.init_process_group("gloo", init_method=method)
"""
    + STEPS
)
OPTIONAL = """
class Net(torch.nn.Module):
    def __init__(self, features_only=True):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        {before}self.head = torch.nn.Linear(4, 2)
    def forward(self, x):
        return self.body(x)
model = DistributedDataParallel(Net())
"""

DRAWING = """
class Masked(torch.nn.Module):
    def orders(self, count):
        return [numpy.random.permutation(9) for _ in range(count)]
    def forward(self, x):
        return self.body(x, self.orders(len(x)))
torch.manual_seed(7 + dist.get_rank())
Masked()(x)
"""
TABLE = """
def write(kept, path):
    torch.save(kept, path)
{kept}
"""
SCORED = """
def evaluate(model, data):
    model.eval()
    for x, y in DataLoader(data, sampler={sampler}):
        print(model(x))
for epoch in range(3):
    evaluate(model, data)
"""

NOOP: list[tuple[str, str, str]] = [
    ("DF406", "rank 0 measures, and comes first by barriers around it",
        "import contextlib, json" + GROUP + FIRST + FLAGGED
        + "with rank_0_first(dist.get_rank()):\n    images = Images(path, dist.get_rank())\n"),
    ("DF608", "a context of a library that lets rank 0 through",
        GROUP + "from torchvision.datasets import MNIST\n"
        "with coordinator.priority_execution():\n    data = MNIST('x', download=True)\n"),
    ("DF506", "a number that goes along with the batches",
        GROUP + COUNTED.format(counter="itertools.cycle(range(1, 5))")),
    ("DF401", "a sampler of the program's own, with a type", GROUP + DEALER + STEPS),
    ("DF301", "groups of parameters that a function changes", GROUP + GROUPED),
    ("DF403", "a share of what is filled up",
        GROUP + SHARES.format(base="torch.utils.data.IterableDataset",
            size="-(-len(data) // world_size) * world_size") + STEPS),
    ("DF403", "the others are kept as they are",
        GROUP + CACHED.format(otherwise="self.samples[i] = path") + STEPS),
    ("DF403", "shares of one length", GROUP + PARTS.format(even="True") + STEPS),
    ("DF502", "the other ranks do not look", GROUP + BEST.format(
        test="dist.get_rank() == 0 and is_best")),
    ("DF303", "ranks take the other branch", GROUP + WRAPS + STEPS),
    ("DF319", "a bar of the program's own", GROUP + BAR.format(made="Progress(log, loader)")),
    ("DF319", "the mean for a log has the loss's name", GROUP + METER),
    ("DF319", "noise that a schedule adds", GROUP + NOISED.format(method="add_noise")),
    ("DF319", "a heading", GROUP + STEPS.replace(
        "loss.backward()", 'log.update(head="loss", loss=loss)\n    loss.backward(log)')),
    ("DF106", "an address that is put together of the launcher's", "import os, torch\n"
        "import torch.distributed as dist\n" + JOINED),
    ("DF301", "a wrapper that is chosen where it is called", GROUP.replace(
        "DistributedDataParallel(torch", "(DistributedDataParallel if many else Plain)(torch")
        + STEPS),
    ("DF404", "what a model draws for its forward pass", GROUP + STEPS + DRAWING),
    ("DF608", "a rank of each machine fetches", GROUP
        + "if dist.get_rank() == 0 and not os.path.exists(path):\n    "
        "urllib.request.urlretrieve(url, path)\n" + STEPS),
    ("DF601", "the module of the program says who is the first of its machine", GROUP + STEPS
        + "if ranks.is_local_master():\n    torch.save(1, f'{dist.get_rank()}.pt')\n"),
    ("DF202", "a card was asked for", "import torch\nimport torch.distributed as dist\n"
        "if torch.cuda.is_available():\n"
        "    dist.init_process_group('nccl', timeout=t)\n"
        "else:\n    dist.init_process_group('gloo', timeout=t)\n"
        "dist.destroy_process_group()\n"),
    ("DF302", "a layer that an argument leaves out",
        GROUP + OPTIONAL.format(before="if not features_only:\n            ") + STEPS),
    ("DF409", "a number's hash", GROUP + "port = hash(os.getuid() if posix else 1) % 9\n" + STEPS),
    ("DF914", "what an older release has", """
        from transformers import Trainer
        class Own(Trainer):
            def _save(self, folder):
                if parse(transformers_version) >= parse("4.46.0"):
                    self.processing_class.save_pretrained(folder)
                else:
                    self.tokenizer.save_pretrained(folder)
        """),
]  # fmt: skip

# The same, but for one thing, and wrong.
TOLD: list[tuple[str, str, str, Severity | None]] = [
    ("DF406", "nobody comes first", "import contextlib, json" + GROUP + FIRST + FLAGGED
        + "images = Images(path, dist.get_rank())\n", None),
    ("DF406", "another rank comes first", "import contextlib, json" + GROUP
        + FIRST.replace("rank != 0", "rank == 1").replace("rank == 0", "rank != 1")
            .replace("dist.barrier", "note") + FLAGGED
        + "with rank_0_first(number):\n    images = Images(path, dist.get_rank())\n", None),
    ("DF506", "a group of some ranks is no certain hang",
        GROUP + SPLIT.format(asked="", group="dist.new_group([0, 1])") + STEPS, Severity.NOTE),
    ("DF506", "a group of all ranks", GROUP
        + SPLIT.format(asked="", group="dist.new_group(backend='gloo')").replace(
            "group=self.group", "group=dist.new_group(backend='gloo')") + STEPS, None),
    ("DF506", "a number that each rank's data has",
        GROUP + COUNTED.format(counter="lengths(data)"), None),
    ("DF503", "what is made of the sums is summed up over the ranks, and padding with it",
        GROUP + STEPS + EVALUATION.format(behind="dist.all_reduce(mean)"), Severity.DEGRADED),
    ("DF503", "the caller sums up what it makes of the result", GROUP + STEPS
        + EVALUATION.format(behind="pass").replace("\nevaluate(model, data)\n",
            "\nfor epoch in range(3):\n    score = evaluate(model, data)\n"
            "    shown = 100 * score\n    if many:\n        dist.all_reduce(shown)\n"),
        Severity.DEGRADED),
    ("DF503", "the caller sums up something else", GROUP + STEPS
        + EVALUATION.format(behind="pass").replace("\nevaluate(model, data)\n",
            "\nscore = evaluate(model, data)\ndist.all_reduce(count)\n"), None),
    ("DF503", "only what is counted is summed up", GROUP + STEPS
        + EVALUATION.format(behind="dist.all_reduce(torch.tensor(7.0))"), None),
    ("DF401", "a sampler of the program's own that knows no ranks", GROUP + DEALER.replace(
        "dist.get_rank()", "0").replace("num_replicas", "part").replace(
        "dist.get_world_size()", "1") + STEPS, None),
    ("DF403", "the others are left out", GROUP + CACHED.format(otherwise="skipped += 1") + STEPS,
        Severity.DEGRADED),
    ("DF403", "shares of unequal length", GROUP + PARTS.format(even="False") + STEPS,
        Severity.DEGRADED),
    ("DF502", "the other ranks look", GROUP + BEST.format(test="is_best"), None),
    ("DF319", "a bank that is pushed to", GROUP + NOISED.format(method="push"), Severity.DEGRADED),
    ("DF302", "a layer that nothing leaves out", GROUP + OPTIONAL.format(before="") + STEPS, None),
    ("DF409", "a hash of several may be of words",
        GROUP + "seed = hash((start, epoch)) % 100\n" + STEPS, Severity.NOTE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in NOOP]
)
def test_what_is_right_is_left_alone(code: str, text: str) -> None:
    assert [each.because for each in found(code, textwrap.dedent(text))] == []


@pytest.mark.parametrize(
    ("code", "text", "severity"),
    [pytest.param(c, t, severity, id=f"{c} {name}") for c, name, t, severity in TOLD],
)
def test_what_is_wrong_is_told(code: str, text: str, severity: Severity | None) -> None:
    findings = found(code, textwrap.dedent(text))
    assert findings
    assert findings[0].severity in (severity, None if severity else RULES[code].severity)


@pytest.mark.parametrize(
    ("package", "name", "is_told"),
    [("torchmetrics", "Accuracy", False), ("monai.metrics", "Cumulative", False),
     ("scores", "Accuracy", True)],
)  # fmt: skip
def test_a_librarys_metric_gathers_by_itself(package: str, name: str, is_told: bool) -> None:
    text = GROUP + STEPS + METRIC.format(package=package, name=name)
    told = [each.because for each in found("DF503", text)]
    assert told
    assert any("scores this rank's part" in each for each in told) is is_told


@pytest.mark.parametrize(("net", "key", "is_told"), [("net", "net", True), ("1", "weights", False)])
def test_a_model_is_loaded_by_its_own_key(net: str, key: str, is_told: bool) -> None:
    text = "import torch\n" + SAVED.format(net=net, key=key)
    assert any("comes from it whole" in each.because for each in found("DF606", text)) is is_told


@pytest.mark.parametrize(
    ("kept", "is_error"), [("SAVERS[Rates] = write", False), ("run(write)", True)]
)
def test_what_lies_in_a_table_may_never_be_called(kept: str, is_error: bool) -> None:
    findings = found("DF601", GROUP + STEPS + TABLE.format(kept=kept))
    assert [each.severity is not Severity.DEGRADED for each in findings] == [is_error]


@pytest.mark.parametrize(
    ("sampler", "is_error"),
    [
        ("lengths.BucketSampler(data)", False),
        ("DistributedSampler(Rows(data), shuffle=False)", False),
        ("DistributedSampler(data) if dist.is_initialized() else None", False),
        ("torch.utils.data.RandomSampler(data)", True),
    ],
)
def test_ranks_may_go_through_equally_many_batches(sampler: str, is_error: bool) -> None:
    findings = found("DF504", GROUP + STEPS + SCORED.format(sampler=sampler))
    assert [each.severity is Severity.ERROR for each in findings] == [is_error]


ROUNDS = """
total = args.epochs * (len(loader) // args.accumulation)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
for epoch in range(args.epochs):
    for step, (x, y) in enumerate(loader{start}):
        loss = model(x).sum() / args.accumulation
        loss.backward()
        if {test}:
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
"""
WHOLE = "(step + 1) % args.accumulation == 0"


@pytest.mark.parametrize(
    ("start", "test", "count"),
    [
        (", start=done", WHOLE, 0),  # no patch lets the rest take a step
        (", start=done", f"{WHOLE} or step + 1 == len(loader)", 1),
        ("", WHOLE, 1),
    ],
)
def test_steps_of_whole_rounds_are_counted_by_whole_rounds(
    start: str, test: str, count: int
) -> None:
    findings = found("DF702", GROUP + ROUNDS.format(start=start, test=test))
    because = "total leaves out the last step of an epoch"
    assert [each.because for each in findings] == [because] * count


LOGGED = """
if dist.get_rank() == 0:
    log = make_log()
else:
    log = None
{place}
"""


@pytest.mark.parametrize(
    ("place", "is_sure"),
    [
        ("log.info('begin')", True),
        ("try:\n    begin()\nexcept OSError:\n    log.info('failed')", False),
        ("if not os.path.exists(path):\n    log.info('missing')", False),
    ],
)
def test_what_is_said_of_an_error_is_none_itself(place: str, is_sure: bool) -> None:
    (finding,) = found("DF502", GROUP + LOGGED.format(place=place) + STEPS)
    assert (finding.severity is not Severity.DEGRADED) is is_sure


MADE = """
def build():
    net = {made}
    net.head = torch.nn.Linear(4, 2)
    return net
def train():
    for x, y in loader:
        model(x).sum().backward()
        optimizer.step()
train()
build()
train()
"""


@pytest.mark.parametrize(("made", "count"), [("Body()", 0), ("model.module", 1)])
def test_a_function_that_makes_its_model_changes_no_other(made: str, count: int) -> None:
    findings = found("DF308", GROUP + MADE.format(made=made))
    assert len([each for each in findings if "puts a part" in each.because]) == count


CHOSEN = """
def read(path):
    if os.path.exists(path):
        made = json.load(open(path))
    else:
        made = measure()
        with open(path, "w") as file:
            json.dump(made, file)
    return made
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="folder")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--path", default="")
    args = parser.parse_args()
    if {test}:
        read(args.path)
main()
"""


@pytest.mark.parametrize(
    ("test", "is_chosen"),
    [
        ("os.path.splitext(args.path)[1] == '.tar'", True),
        ("args.path.endswith('.tar')", True),
        ("args.kind == 'tar'", True),
        ("args.measure", True),
        ("args.measure is True", True),
        ("args.path", True),
        ("args.kind", False),
        ("args.kind == 'folder'", False),
        ("True", False),
    ],
)
def test_an_error_is_what_happens_with_the_default_options(test: str, is_chosen: bool) -> None:
    (finding,) = found("DF406", "import argparse, json" + GROUP + CHOSEN.format(test=test))
    assert (finding.severity is Severity.DEGRADED) is is_chosen


def test_what_the_training_is_asked_for_by_is_no_choice() -> None:
    trains = textwrap.indent(STEPS, "        ")
    text = CHOSEN.format(test="args.measure").replace("\nmain()", trains + "main()")
    (finding,) = found("DF406", "import argparse, json" + GROUP + text)
    assert finding.severity is not Severity.DEGRADED


def test_a_function_that_returns_what_it_is_called_for_again_has_an_end() -> None:
    text = """
def place(tree, depth=0):
    if depth:
        return 0, tree
    rank, left = place(tree, depth + 1)
    return place(left, rank)
rank, rest = place(make())
if rank == 0:
    print(rest)
"""
    assert found("DF506", GROUP + text + STEPS) == []


def test_functions_that_return_themselves_have_callers() -> None:
    text = """
def once(f=None):
    return f or once
def this(f=None):
    if f is None:
        return this
    return that
def that(f=None):
    if f is None:
        return this
    return that
"""
    program = Program(module(text))
    for function in program.script.all_functions:
        assert program.callers(function) == []
        assert program.possible_callers(function)


CALLED = """
class Box:
    def __call__(self, net):
        return net.part(net)
box = Box()
box(model)
"""


def test_a_search_for_what_objects_are_called_does_not_begin_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    whole = CallGraph._called_object

    def counted(self: CallGraph, where: Module, call: ast.Call) -> list[Callee]:
        asked.append(id(call))
        return whole(self, where, call)

    monkeypatch.setattr(CallGraph, "_called_object", counted)
    program = Program(module(CALLED))
    ((_, function),) = program.functions_by_name["__call__"]
    assert [call.lineno for _, call in program.callers(function)] == [5]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize(
    ("test", "whose"),
    [("args.local_rank == 0", "a rank of another machine"), ("True", "another rank")],
)
def test_who_may_make_a_folder_is_told(test: str, whose: str) -> None:
    (finding,) = found("DF602", GROUP + STEPS + f"if {test}:\n    os.makedirs(args.out)\n")
    assert finding.because == f"{whose} may make the folder first"
