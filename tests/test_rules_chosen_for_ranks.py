"""Programs of several cards that choose by the rank or the group, in ways that once looked wrong.

Each that is right stands beside one that is the same but for one thing, and wrong.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import RULES, found, module
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.engine.beside_training import weaker_beside_training
from ddpfix.patcher.engine.check import check
from ddpfix.patcher.findings import Severity

GROUP = """
import argparse, os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
"""
BUFFERED = GROUP.replace("torch.nn.Linear(4, 2)", "torch.nn.BatchNorm1d(4)")
LOADER = "loader = DataLoader(data, sampler=DistributedSampler(data))\n"
STEPS = """
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SAVER = """
class Saver:
    def save(self, model, step):
        torch.save(model.state_dict(), f"{{step}}.pt")
class Nothing{base}:
    def __getattr__(self, name):
        return self.skip
    def skip(self, *values):
        pass
if dist.get_rank() == 0:
    saver = Saver()
else:
    saver = {other}
saver.save(model, 3)
"""
STRIDES = """
def indices(data, rank, world_size, skipped):
    order = torch.randperm(len(data))
    return order[{begin} :: world_size].tolist()
places = indices(data, groups.get_data_parallel_rank(), groups.get_data_parallel_world_size(), 3)
loader = DataLoader(data, sampler=places)
"""
RESUMED = """
def train_epoch(loader, model):
    for x, y in loader:
        model(x).sum().backward()
        optimizer.step()
def fit(last, swap):
    for epoch in range(9):
        {train}
        if epoch {early} last:
            if dist.get_rank() == 0:
                torch.save(model.state_dict(), "{saved}")
        if epoch >= last:
            model.load_state_dict(torch.load("best.pth", map_location="cpu"))
fit(3, 4)
"""
FLAGGED = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
cfg = read(path)
model = torch.nn.Linear(4, 2)
if cfg.model.dist_train:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
loader = DataLoader(data, sampler=DistributedSampler(data))
for epoch in range(3):
    for x, y in loader:
        model(x).sum().backward()
        optimizer.step()
    if cfg.model.{flag}:
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), "x.pt")
    else:
        torch.save(model.state_dict(), "x.pt")
"""
ALONE = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
model = torch.nn.Linear(4, 2)
if args.distributed:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
loader = DataLoader(data, sampler=DistributedSampler(data))
for x, y in loader:
    model(x).sum().backward()
    optimizer.step()
if args.distributed:
    {ranks}
else:
    model.eval()
    for x, y in DataLoader(held_out):
        score(model(x), y)
"""
BOTH = """model.eval()
    for x, y in DataLoader(held_out):
        score(model.module(x), y)"""
BY_SUBCLASS = """
class Ahead(DataLoader):
    def __init__(self, card, **options):
        super().__init__(**options)
        self.card = card
loader = Ahead(card=0, dataset=data, sampler={sampler})
"""
BY_PLACE = """
class Again(DataLoader):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.batches = super().__iter__()
kind = DataLoader
if args.again:
    kind = Again
loader = kind(data, 4, sampler={sampler})
"""
BY_RANK = """
def validate(model, loader, log=None):
    model.eval()
    for x, y in loader:
        score(model(x), y)
if dist.get_rank() == 0:
    validate(model, loader, "log.txt")
else:
    {others}
"""
TIMED = """
import time
def step(batch, begun):
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    return {{"time": time.time() - begun}}
begun = time.time()
while True:
    for batch in loader:
        outputs = step(batch, time.time() - begun)
        if {test}:
            {leaves}
        print(outputs)
"""
CARD_OF = """
count = {count}
torch.cuda.set_device(dist.get_rank() % count)
"""
HELD = """
class Runner:
    def __init__(self, net):
        self.net, self.held = net, None
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
    @property
    def model(self):
        if self.held is None:
            self.held = DistributedDataParallel(self.net)
        return self.{returned}
    def train(self, loader):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
Runner(torch.nn.Linear(4, 2)).train(loader)
"""
ONE_BY_ONE = """
nets = [torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)]
{wraps}
optimizers = []
for net in nets:
    optimizers.append(torch.optim.SGD(net.parameters(), 0.1))
for x, y in loader:
    for net, optimizer in zip(nets, optimizers):
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
"""
OF_EACH = """
name = f"rank_{dist.get_rank()}"
for epoch in range(3):
    torch.save(model.state_dict(), f"{epoch}.{name}.pth")
    state = torch.load(f"last.{part}.pth", map_location="cpu")
"""
SENT = """
def energy(counter):
    if {test}:
        own = measured(counter)
        total = own.cuda() if torch.cuda.is_available() else total.float()
        dist.all_reduce(total)
        {use}
energy(3)
"""
BY_OPTION = """
class Evaluator:
    def __init__(self, net):
        self.net = net
        self.evaluate = getattr(self, args.how)
    def on_pictures(self, model):
        model.eval()
        for x, y in self.loader():
            score(model(x), y)
    def loader(self):
        return DataLoader(held_out, sampler=DistributedSampler(held_out))
    def run(self):
        self.evaluate(self.net)
Evaluator(model).run()
"""
LOADED = """
def test(net, path):
    net.load_state_dict(torch.load(path, map_location="cpu"))
    print(net(x))
net = {made}
if dist.get_rank() == 0:
    torch.save(net.state_dict(), "net.pt")
dist.barrier()
test({passed}, "net.pt")
"""
GATHERED = """
def gather(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts)
def evaluate(model, loader, many):
    model.eval()
    scores, names = [], []
    for x, name in loader:
        score = model(x)
        {gathers}
        scores.append(score)
        names.append(name)
    return torch.cat(scores).mean(), names
evaluate(model, DataLoader(held_out, sampler=DistributedSampler(held_out)), True)
"""
ENVIRONMENT = """
import os, torch
import torch.distributed as dist
try:
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
except KeyError:
    rank = {rank}
    world_size = 1
{again}
dist.init_process_group("gloo", rank=rank, world_size=world_size)
"""
AVERAGE = """
model.train()
slow = torch.nn.Linear(4, 2)
for {first}, {second} in zip(model.module.parameters(), slow.parameters()):
    {second}.data.copy_({first}.data)
    {frozen}.requires_grad = False
"""
STAGES = """
for stage, loader in enumerate(loaders):
    for epoch in range(epochs[{number}]):
        for x, y in loader:
            model(x).sum().backward()
            optimizer.step()
"""
SAVED_BY_NAME = """
from {package} import save as write
class Saver:
    def save(self, model):
        state = gathered(model)
        dist.barrier()
def gathered(model):
    return 1
def save(model):
    dist.barrier()
if dist.get_rank() == 0:
    {name}(model)
"""
STARTED = """
import argparse, torch
from multiprocessing import Process
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=0)
args = parser.parse_args()
def work(rank, args):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2), [args.local_rank])
for rank in range(2):
    args.local_rank = {number}
    process = Process(target=work, args=(rank, args))
    process.start()
"""
UNREAD = """
import argparse, torch, tools
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=0)
args = parser.parse_args()
tools.start(args)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2), [args.{card}])
"""
TAKEN_OUT = """
def bare(model):
    return model.module if isinstance(model, DistributedDataParallel) else model
def evaluate(model, loader):
    model.eval()
    for x, y in loader:
        print({how}(x))
evaluate(model, DataLoader(held_out, sampler=Own(held_out)))
"""
PAIRS = """
class Loss(torch.nn.Module):
    def forward(self, images, texts):
        labels = torch.arange(len(images))
        all_images, all_texts = {gather}([images, texts])
        scores = 9 * images @ all_texts.t()
        return torch.nn.functional.cross_entropy(scores, labels)
for x, y in loader:
    loss = Loss()(model(x), model(y))
    loss.backward()
    optimizer.step()
"""
LOCAL = """
class Classes:
    def __init__(self, rank, world_size, count):
        self.count = count // world_size + int(rank {op} count % world_size)
Classes(dist.get_rank(), dist.get_world_size(), 9)
"""
BATCHES = "for x, y in loader:\n    model(x).sum().backward()\n    optimizer.step()\n"
ACTING = """
def train(data):
    for i in range(len(data)):
        model(data[i]).sum().backward()
        optimizer.step()
train(rollouts)
"""

POOL = """
import multiprocessing
pool = multiprocessing.Pool(processes=max(9 // {by}, 4))
"""
NO_OTHER = """
import os, torch
import torch.distributed as dist
def start():
    dist.init_process_group("gloo")
if many:
    start()
if {test}:
    dist.init_process_group("gloo", world_size={count}, rank=0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
"""
LOGGED = """
mean = torch.zeros(1)
for step, (x, y) in enumerate(loader, start):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    {before}
    loss.backward()
    optimizer.step()
    mean = (mean * step + y.mean()) / (step + 1)
    state["step"] = {kept}
    print(mean)
"""
SAID = """
log = logging.getLogger("train")
if args.local_rank == 0:
    {what}
"""

NOOP: list[tuple[str, str, str]] = [
    ("DF401", "every n-th place from a rank's", GROUP
        + STRIDES.format(begin="(rank + skipped) % world_size") + STEPS),
    ("DF401", "a class hands its options on", GROUP
        + BY_SUBCLASS.format(sampler="DistributedSampler(data)") + STEPS),
    ("DF401", "a class hands its places on", GROUP
        + BY_PLACE.format(sampler="DistributedSampler(data)") + STEPS),
    ("DF501", "the other ranks evaluate in the other branch", BUFFERED + LOADER + STEPS
        + BY_RANK.format(others="validate(model, loader)")),
    ("DF506", "whether a step has returned something", GROUP + LOADER
        + TIMED.format(test="outputs is None", leaves="continue")),
    ("DF103", "a rank of as many as a machine has cards, or one", GROUP + LOADER + STEPS
        + CARD_OF.format(count="max(1, torch.cuda.device_count())")),
    ("DF301", "a property wraps what it returns", GROUP.replace("model = ", "other = ")
        + LOADER + HELD.format(returned="held")),
    ("DF301", "each of a list is wrapped", GROUP.replace("model = ", "other = ") + LOADER
        + ONE_BY_ONE.format(wraps="for i in range(2):\n"
            "    nets[i] = DistributedDataParallel(nets[i])")),
    ("DF604", "each rank loads what it has saved", GROUP + LOADER + STEPS
        + OF_EACH.replace("{part}", "{name}")),
    ("DF502", "a name that its only binding reads", GROUP + LOADER + STEPS
        + SENT.format(test="dist.is_initialized()", use="return total.item()")),
    ("DF604", "rounds that save load nothing", GROUP + LOADER + RESUMED.format(
        train="train_epoch(loader, model)", early="<", saved="best.pth")),
    ("DF604", "another file is saved", GROUP + LOADER + RESUMED.format(
        train="train_epoch(loader, model)", early=">", saved="last.pth")),
    ("DF501", "the ranks evaluate in the other branch", ALONE.format(ranks=BOTH)),
    ("DF504", "a function takes the module out", GROUP + LOADER + STEPS
        + TAKEN_OUT.format(how="bare(model).encode")),
    ("DF305", "the wrapped model is passed on and loaded", GROUP + LOADER + STEPS + LOADED.format(
        made="DistributedDataParallel(torch.nn.Linear(4, 2))", passed="net")),
    ("DF106", "numbers of a launcher, if there is one", ENVIRONMENT.format(rank=0, again="")
        + LOADER + STEPS.replace("model(x)", "net(x)")),
    ("DF308", "the other one of two models is frozen", GROUP + LOADER + AVERAGE.format(
        first="p", second="q", frozen="q") + STEPS),
    ("DF506", "as many epochs as a stage has", GROUP + STAGES.format(number="stage")),
    ("DF506", "a function of that name from elsewhere", GROUP + LOADER + STEPS
        + SAVED_BY_NAME.format(package="files", name="write")),
    ("DF101", "processes get their numbers", STARTED.format(number="rank") + LOADER + STEPS),
    ("DF307", "all of them, in two names", GROUP + LOADER + PAIRS.format(gather="all_gather")),
    ("DF405", "workers that are shared out", GROUP + LOADER + STEPS
        + POOL.format(by="dist.get_world_size()")),
    ("DF106", "a group of one where there is no other", NO_OTHER.format(
        test="not dist.is_initialized()", count=1) + LOADER + STEPS),
    ("DF319", "the number of a step, and a mean for a log", GROUP + LOADER
        + LOGGED.format(before="pass", kept="step")),
    ("DF104", "a line in the log of each node", "import logging" + GROUP + LOADER + STEPS
        + SAID.format(what='log.info("begun")')),
    ("DF301", "a function wraps in parts", GROUP.replace(
        "DistributedDataParallel(torch.nn.Linear(4, 2))", "wrap(torch.nn.Linear(4, 2))")
        .replace("model = ", "import functools\nfrom torch.distributed.fsdp import"
            " FullyShardedDataParallel as FSDP\nwrap = functools.partial(FSDP)\nmodel = ")
        + LOADER + STEPS),
    ("DF403", "a count of classes", GROUP + LOADER + LOCAL.format(op="<") + STEPS),
]  # fmt: skip

TOLD: list[tuple[str, str, str, Severity | None]] = [
    ("DF601", "rank 0 has an object that saves", GROUP + LOADER + STEPS
        + SAVER.format(base="", other="Nothing()"), Severity.NOTE),
    ("DF601", "all ranks have one", GROUP + LOADER + STEPS
        + SAVER.format(base="", other="Saver()"), None),
    ("DF601", "the others' may save, too", GROUP + LOADER + STEPS
        + SAVER.format(base="(library.Saver)", other="Nothing()"), None),
    ("DF601", "the test of the group is another one", FLAGGED.format(flag="careful"), None),
    ("DF601", "the test of the group", FLAGGED.format(flag="dist_train"), Severity.NOTE),
    ("DF401", "every n-th place from the first", GROUP
        + STRIDES.format(begin="skipped % world_size") + STEPS, None),
    ("DF401", "a class hands on that there is no sampler", GROUP
        + BY_SUBCLASS.format(sampler="None") + STEPS, None),
    ("DF401", "a class hands on by place that there is no sampler", GROUP
        + BY_PLACE.format(sampler="None") + STEPS, None),
    ("DF501", "the other ranks do something else in the other branch", BUFFERED + LOADER + STEPS
        + BY_RANK.format(others="train(model, loader)"), None),
    ("DF506", "how long a step has taken", GROUP + LOADER
        + TIMED.format(test="time.time() - begun > 9", leaves="break"), None),
    ("DF103", "a rank of as many as an option tells", GROUP + LOADER + STEPS
        + CARD_OF.format(count="max(1, args.gpus)").replace("count", "gpus"), None),
    ("DF301", "a property returns what is in the wrapper", GROUP.replace("model = ", "other = ")
        + LOADER + HELD.format(returned="net"), None),
    ("DF301", "one of a list is wrapped", GROUP.replace("model = ", "other = ") + LOADER
        + ONE_BY_ONE.format(wraps="head = DistributedDataParallel(nets[0])"), None),
    ("DF604", "each rank loads one file", GROUP + LOADER + STEPS
        + OF_EACH.replace("{part}", "{args.name}"), Severity.ERROR),
    ("DF504", "nobody is seen to call the evaluation", BUFFERED + LOADER + STEPS + BY_OPTION,
        Severity.DEGRADED),
    ("DF401", "what is not read makes the batches", GROUP
        + "loader = tools.loader(args)\n" + BATCHES, Severity.DEGRADED),
    ("DF401", "ranks act in environments of their own", GROUP + "import gym\n" + ACTING,
        Severity.DEGRADED),
    ("DF604", "nothing waits between rounds", GROUP + LOADER + STEPS + RESUMED.format(
        train="pass", early="<", saved="best.pth"), Severity.ERROR),
    ("DF604", "one round saves and loads", GROUP + LOADER + RESUMED.format(
        train="train_epoch(loader, model)", early=">", saved="best.pth"), Severity.ERROR),
    ("DF501", "the ranks do not evaluate", ALONE.format(ranks="pass"), None),
    ("DF504", "a lone process evaluates in the other branch", ALONE.format(ranks=BOTH),
        Severity.NOTE),
    ("DF504", "some batches go through the wrapper", GROUP + LOADER + STEPS
        + TAKEN_OUT.format(how="model"), None),
    ("DF305", "another one is loaded", GROUP + LOADER + STEPS + LOADED.format(
        made="DistributedDataParallel(torch.nn.Linear(4, 2))", passed="torch.nn.Linear(4, 2)"),
        None),
    ("DF503", "what is kept is gathered in part", GROUP + LOADER + STEPS + GATHERED.format(
        gathers="score = gather(score)"), Severity.DEGRADED),
    ("DF503", "nothing that is kept is gathered", GROUP + LOADER + STEPS + GATHERED.format(
        gathers="pass"), None),
    ("DF106", "the script's own number comes last", ENVIRONMENT.format(rank=0, again="rank = 0")
        + LOADER + STEPS.replace("model(x)", "net(x)"), Severity.ERROR),
    ("DF308", "the wrapped one of two models is frozen", GROUP + LOADER + AVERAGE.format(
        first="p", second="q", frozen="p") + STEPS, None),
    ("DF506", "rank 0 alone calls the program's own", GROUP + LOADER + STEPS
        + SAVED_BY_NAME.format(package="files", name="save"), None),
    ("DF101", "processes get one number", STARTED.format(number="0") + LOADER + STEPS, None),
    ("DF101", "what is not read may know the rank", UNREAD.format(card="gpu") + LOADER + STEPS,
        Severity.DEGRADED),
    ("DF101", "the option says which card", UNREAD.format(card="local_rank") + LOADER + STEPS,
        None),
    ("DF405", "workers of each rank", GROUP + LOADER + STEPS + POOL.format(by="2"), None),
    ("DF106", "two ranks where there is no other", NO_OTHER.format(
        test="not dist.is_initialized()", count=2) + LOADER + STEPS, None),
    ("DF319", "a mean that the next loss is made of", GROUP + LOADER
        + LOGGED.format(before="loss = loss * mean", kept="step"), Severity.DEGRADED),
    ("DF104", "a file of each node", "import logging" + GROUP + LOADER + STEPS
        + SAID.format(what='torch.save(1, "x.pt")'), None),
    ("DF402", "whether anything shuffles cannot be told", GROUP
        + "sampler = DistributedSampler(data)\nfor epoch in range(3):\n    "
        "for x, y in tools.batches(sampler):\n        model(x).sum().backward()\n"
        "        optimizer.step()\n", Severity.NOTE),
    ("DF202", "a group for cards that stays", GROUP.replace("gloo", "nccl") + LOADER + STEPS,
        Severity.NOTE),
    ("DF601", "rank 0 writes in place", GROUP + LOADER + STEPS
        + 'if dist.get_rank() == 0:\n    torch.save(model.state_dict(), "x.pt")\n',
        Severity.NOTE),
    ("DF307", "this rank's, in two names", GROUP + LOADER + PAIRS.format(gather="normalize"),
        Severity.NOTE),
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
    strongest = {each.severity or RULES[code].severity for each in findings}
    expected = severity or RULES[code].severity
    assert expected in strongest
    assert expected is Severity.ERROR or Severity.ERROR not in strongest


@pytest.mark.parametrize(("passed", "is_told"), [("", False), (", as_model=False", True)])
def test_what_every_call_passes_by_is_not_told(passed: str, is_told: bool) -> None:
    text = (
        GROUP
        + LOADER
        + STEPS
        + f"""
def convert(model, as_model=True):
    if as_model:
        return model
    torch.save(model, "converted.pt")
convert(model{passed})
"""
    )
    findings = check(Program(module(text)), [RULES["DF601"]])
    assert bool(findings) is is_told


LIBRARY = """
import torch
class Box:
    def keep(self, x):
        torch.save(x, "kept.pt")
def convert(kind):
    kinds[kind]().keep(1)
"""


@pytest.mark.parametrize(
    ("use", "expected"), [("", Severity.NOTE), ("tools.Box().keep(1)", Severity.ERROR)]
)
def test_a_file_of_library_code_is_a_note_unless_it_is_called(
    tmp_path: Path, use: str, expected: Severity
) -> None:
    script = tmp_path / "train.py"
    (tmp_path / "tools.py").write_text(LIBRARY)
    script.write_text(f"import tools\n{GROUP}{LOADER}{STEPS}{use}\n")
    program = read_program(str(script))
    (finding,) = RULES["DF601"].findings(program)
    assert weaker_beside_training(program, finding).severity is expected
