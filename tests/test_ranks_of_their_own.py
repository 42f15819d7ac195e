"""What programs do that know their ranks already: rules written for others stay silent."""

from __future__ import annotations

import pytest
from cases import RULES, fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.findings import Severity

EVALUATION = """
import torch
import torch.distributed as dist
import horovod.torch as hvd

def make_sampler(data):
    if dist.is_initialized():
        return torch.utils.data.distributed.DistributedSampler(data)
    return None

def mean(value):
    value = value.clone()
    {mean}
    return value

def validate(loader, model):
    model.eval()
    meter = Meter()
    for batch in loader:
        loss = model(batch)
        meter.update(mean(loss))
    return meter.mean

def main(args, data, others, model):
    dist.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
    sampler = {sampler}
    held_out = torch.utils.data.DataLoader(others, sampler={held_out})
    loader = torch.utils.data.DataLoader(data, sampler=sampler)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(batch)
            loss.backward()
            optimizer.step()
        validate(held_out, model)
"""
DEALT = "torch.utils.data.distributed.DistributedSampler({data})"


def evaluation(**words: str) -> str:
    own = {"sampler": DEALT.format(data="data"), "held_out": DEALT.format(data="others")}
    return EVALUATION.format(**{**own, "mean": "dist.all_reduce(value)", **words})


EXIT = """
import os, torch
import torch.distributed as dist

def mean(value):
    value = value.clone()
    dist.all_reduce(value)
    return value

dist.init_process_group("nccl")
several = int(os.environ.get("WORLD_SIZE", 1)) > 1
loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))
model = torch.nn.parallel.DistributedDataParallel(model)
for batch in loader:
    loss = model(batch)
    if {test}:
        whole = mean(loss)
    else:
        whole = loss
    if torch.isnan(whole).any():
        continue
    loss.backward()
    optimizer.step()
"""

METHOD = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def validate(model, loader):
    model.eval()
    losses_of = {choice}
    total = 0
    with torch.no_grad():
        for batch in loader:
            total += losses_of(batch).item()
    return total

torch.distributed.init_process_group("nccl")
model = DDP(model)
for batch in torch.utils.data.DataLoader(data):
    model(batch).backward()
    optimizer.step()
validate(model, torch.utils.data.DataLoader(others))
"""
UNWRAPPED = "model.module.losses_of if isinstance(model, DDP) else model.losses_of"

KEYS = """
import torch
model = Net()
state = torch.load("pretrained.pt")
state = {{{key}: v for k, v in state.items()}}
model.load_state_dict(state, strict=False)
model = torch.nn.parallel.DistributedDataParallel(model)
for batch in torch.utils.data.DataLoader(data):
    model(batch).backward()
    optimizer.step()
torch.save(model.state_dict(), "last.pt")
"""

ASKS = """
import torch
def save(model):
    if isinstance(model, torch.nn.DataParallel):
        state = model.module.state_dict()
    {other}
    else:
        state = model.state_dict()
    torch.save(state, "last.pt")
model = torch.nn.parallel.DistributedDataParallel(model)
for batch in torch.utils.data.DataLoader(data):
    model(batch).backward()
    optimizer.step()
save(model)
"""

SET = """
import torch
def scale(net):
    return net.ratio
model = torch.nn.parallel.DistributedDataParallel(model)
{name}.ratio = 0.5
for batch in torch.utils.data.DataLoader(data):
    model(batch).backward()
    optimizer.step()
scale(model)
"""

CARDS = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
gpus = list(config.GPUS)
alone = args.local_rank == -1
if not alone:
    torch.distributed.init_process_group("nccl")
if {test}:
    size = 8
else:
    size = 8 * len(gpus)
if alone:
    model = torch.nn.DataParallel(model, device_ids=gpus)
else:
    model = torch.nn.parallel.DistributedDataParallel(model)
for batch in torch.utils.data.DataLoader(data, size):
    model(batch).backward()
    optimizer.step()
"""

MADE = """
import argparse, torch
args = argparse.ArgumentParser().parse_args()
def work(index, args):
    args.local_rank = {value}
    torch.cuda.set_device(args.local_rank)
torch.multiprocessing.spawn(work, args=(args,), nprocs=torch.cuda.device_count())
"""

OPTION = MADE.replace(
    "args = argparse.ArgumentParser().parse_args()",
    'parser = argparse.ArgumentParser()\nparser.add_argument("--local_rank", "--local-rank")\n'
    "args = parser.parse_args()",
)

GIVEN = """
import cluster, torch
def start(cfg):
    torch.cuda.set_device({spec}.local_rank)
"""

SLURM = """
import os, torch
def set_up(cfg):
    {branch}
        cfg.local_rank = int(os.environ["SLURM_LOCALID"])
    torch.distributed.init_process_group("nccl")
    torch.cuda.set_device(cfg.local_rank)
"""

BLOCK = """
import torch, torch.distributed as dist
class Blocks(torch.utils.data.Sampler):
    def __iter__(self):
        order = torch.randperm(self.count).tolist()
        begin = int({begin})
        return iter(order[begin : begin + self.count // 2])
dist.init_process_group("nccl")
for batch in torch.utils.data.DataLoader(data, sampler=Blocks(data)):
    model(batch).backward()
    optimizer.step()
"""
GOES_ON = BLOCK.replace("iter(order[begin : begin + self.count // 2])", "self.lines_from(begin)")

MAKES = """
import os, torch
torch.distributed.init_process_group("nccl")
{head}:
    os.{make}(folder)
"""

TYPED = """
import lightning as L, torch
from types import SimpleNamespace
def tell({kind}):
    if fabric.local_rank == 0:
        print(fabric)
torch.distributed.init_process_group("nccl")
tell(made())
"""

BESIDE = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
class Trainer:
    def __init__(self, net, data):
        self.data = data
        self.net = net.cuda()
        self.model = DDP(self.net)
    def fit(self):
        for batch in DataLoader(self.data, sampler=DistributedSampler(self.data)):
            self.model(batch).mean().backward()
            optimizer.step()
    def score(self):
        self.{name}.eval()
        for batch in DataLoader(self.data, sampler=Mine(self.data)):
            self.{name}(batch)
def main(data):
    torch.distributed.init_process_group("nccl")
    trainer = Trainer(torch.nn.Sequential(torch.nn.BatchNorm1d(4)), data)
    trainer.fit()
    trainer.score()
main(things())
"""
LOADS = """
import torch
def work(rank, size):
    torch.distributed.init_process_group("nccl", rank=rank, world_size=size)
    {inside}
def main():
    torch.multiprocessing.spawn(work, nprocs=2, args=(2,))
    {behind}
main()
"""
MADE_BY_CLASS = """
import os, torch
class Env:
    def __init__(self, rank):
        self.rank = rank
    @property
    def first(self):
        return self.rank == 0
    @classmethod
    def of_launcher(cls):
        return {made}(int(os.environ["RANK"]))
torch.distributed.init_process_group("nccl")
env = Env.of_launcher()
if env.first:
    open("log.txt", "w").write("x")
"""
LOAD = "model.load_state_dict(torch.load('model.pt'))"
EXISTS = """
except OSError as error:
    if error.errno == errno.EEXIST and os.path.isdir(out):
        {then}
    else:
        raise
"""

SILENT = [
    ("DF504", "the model beside its wrapper", BESIDE.format(name="net"),
     BESIDE.format(name="model")),
    ("DF602", "an object that a class method makes knows its rank",
     MADE_BY_CLASS.format(made="cls"), MADE_BY_CLASS.format(made="other")),
    ("DF604", "a process that has started the ranks", LOADS.format(inside="pass", behind=LOAD),
     LOADS.format(inside=LOAD, behind="pass")),
    ("DF101", "the number of a library's object", TYPED.format(kind="fabric: L.Fabric"),
     TYPED.format(kind="fabric")),
    ("DF101", "the number that Slurm gives", SLURM.format(branch="with quiet():"),
     SLURM.format(branch='if "SLURM_LOCALID" in os.environ:')),
    ("DF101", "the index of a spawned process", MADE.format(value="index"),
     MADE.format(value="-1")),
    ("DF101", "the index of a spawned process, beside an option", OPTION.format(value="index"),
     OPTION.format(value="-1")),
    ("DF101", "the number that a library gives", GIVEN.format(spec="cluster.spec()"),
     GIVEN.format(spec="cfg")),
    ("DF205", "what is divided by the cards of all ranks",
     CARDS.format(test="args.fast").replace("8 * len(gpus)", "8 // len(gpus)"),
     CARDS.format(test="args.fast")),
    ("DF205", "a lone process drives all cards", CARDS.format(test="not alone"),
     CARDS.format(test="args.fast")),
    ("DF305", "an elif asks for the other wrapper", ASKS.format(
        other="elif isinstance(model, torch.nn.parallel.DistributedDataParallel):\n"
              "        state = model.module.state_dict()"),
     ASKS.format(other="elif model is None:\n        state = {}")),
    ("DF305", "the load takes module. out of the keys",
     KEYS.format(key="k.replace('module.', '')"), KEYS.format(key="k.lower()")),
    ("DF305", "the wrapper was given the attribute", SET.format(name="model"),
     SET.format(name="other")),
    ("DF401", "a sampler's block of its order", BLOCK.format(
        begin="dist.get_rank() / dist.get_world_size() * self.count"),
     BLOCK.format(begin="self.epoch / self.epochs * self.count")),
    ("DF401", "what goes over lines begins at a rank's", GOES_ON.format(
        begin="self.first + self.global_rank * self.count // self.world_size"),
     GOES_ON.format(begin="self.first + self.epoch * self.count")),
    ("DF401", "a function makes the sampler", evaluation(sampler="make_sampler(data)"),
     evaluation(sampler="make_nothing(data)")),
    ("DF602", "rank 0 alone makes a folder",
     MAKES.format(head="if torch.distributed.get_rank() == 0", make="makedirs"),
     MAKES.format(head="if torch.distributed.get_rank() > 0", make="makedirs")),
    ("DF602", "the first of each machine makes a folder of its own",
     MAKES.format(head="if torch.distributed.get_rank() == 0", make="mkdir"),
     MAKES.format(head="if args.local_rank in [-1, 0]", make="mkdir")),
    ("DF602", "an error that nobody minds",
     MAKES.format(head="try", make="mkdir") + "except OSError:\n    pass\n",
     MAKES.format(head="try", make="mkdir") + "except ValueError:\n    pass\n"),
    ("DF602", "an error of a folder that is there",
     MAKES.format(head="try", make="mkdir") + EXISTS.format(then="pass"),
     MAKES.format(head="try", make="mkdir") + EXISTS.format(then="sys.exit(1)")),
    ("DF504", "the loop calls a method of the module", METHOD.format(choice=UNWRAPPED),
     METHOD.format(choice="model")),
    ("DF506", "all ranks take the branch that reduces", EXIT.format(test="several"),
     EXIT.format(test="fast")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "right", "wrong"), [pytest.param(c, r, w, id=f"{c} {n}") for c, n, r, w in SILENT]
)
def test_what_is_right_stays_silent(code: str, right: str, wrong: str) -> None:
    assert [finding.because for finding in found(code, right)] == []
    assert found(code, wrong)


IN_TURN = """
import torch
from contextlib import contextmanager

@contextmanager
def in_turn(rank):
    if rank not in (-1, 0):
        torch.distributed.barrier()
    yield
    if rank == 0:
        torch.distributed.barrier()

def write(path):
    torch.save(made, path)

{block}:
    write("features.pt")
for batch in torch.utils.data.DataLoader(data):
    model(batch).backward()
    optimizer.step()
"""

DOUBTFUL = [
    ("DF503", "horovod brings the parts together",
     evaluation(mean="value = hvd.allreduce(value)"), evaluation(mean="value = value / 2")),
    ("DF504", "a function makes the sampler, and all go equally far",
     evaluation(held_out="make_sampler(others)"), evaluation(held_out="Own(others)")),
    ("DF601", "ranks come in turn", IN_TURN.format(block="with in_turn(rank)"),
     IN_TURN.format(block="with torch.no_grad()")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "right", "wrong"), [pytest.param(c, r, w, id=f"{c} {n}") for c, n, r, w in DOUBTFUL]
)
def test_what_may_be_right_is_no_error(code: str, right: str, wrong: str) -> None:
    def severities(text: str) -> set[Severity]:
        return {finding.severity or Severity.ERROR for finding in found(code, text)}

    milder = Severity.NOTE if code == "DF504" else Severity.DEGRADED  # it only costs time
    assert severities(right) == {milder}
    assert Severity.ERROR in severities(wrong)


WRITES = """
import os, uuid, torch
class Writer:
    def update(self, results):
        for each in results:
            path = {path}
            with open({opened}, "wb") as file:
                file.write(each.pop("bytes"))
torch.distributed.init_process_group("nccl")
writer = Writer()
for batch in torch.utils.data.DataLoader(data):
    loss, results = model(batch)
    loss.backward()
    optimizer.step()
    writer.update(results)
"""


def test_files_of_a_ranks_own_results_keep_their_writers() -> None:
    own = WRITES.format(path="None", opened="os.path.join('out', each['name'])")
    (finding,) = found("DF602", own)
    assert "unless each has results of its own" in finding.because
    assert not finding.edits
    one = WRITES.format(path="None", opened="os.path.join('out', 'all.bin')")
    assert found("DF602", one)[0].edits


def test_a_name_that_each_process_has_another_of_is_its_own() -> None:
    unique = WRITES.format(path="'part_' + uuid.uuid4().hex", opened="path")
    assert found("DF602", unique) == []


RENAMED = """
import torch as th
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(model, device_ids=[card])
"""


def test_torch_under_another_name_is_imported_for_the_edit() -> None:
    text = fixed("DF202", RENAMED)
    assert "[card] if torch.cuda.is_available() else None" in text
    assert "import torch\n" in text


OTHER_SCRIPT = """
import argparse
def fetch():
    return 1
def main():
    args = argparse.ArgumentParser().parse_args()
    fetch(args)
if __name__ == "__main__":
    main()
"""


def test_torch_under_another_name_is_imported_for_the_back_end_alone() -> None:
    text = "import torch as th\nth.distributed.init_process_group('nccl')\n"
    new = fixed("DF202", f"{text}th.distributed.destroy_process_group()\n")
    assert "use_cuda = torch.cuda.is_available()" in new
    assert "import torch\n" in new


def test_what_a_module_parses_for_itself_says_nothing_of_the_rank() -> None:
    text = "import torch\nimport data\ndef f(cfg):\n    torch.cuda.set_device(cfg.local_rank)\n"
    program = Program(module(text), (module(OTHER_SCRIPT),))
    told = [finding.because for finding in RULES["DF101"].findings(program)]
    assert told == ["nothing in the script shows where it is set"]


def test_a_library_is_asked_for_the_local_rank() -> None:
    text = "import horovod.torch as hvd\nlog = f'logs/{hvd.local_rank()}'\n"
    assert found("DF101", f"import torch\n{text}") == []


def test_a_class_method_may_start_ranks_that_make_its_objects() -> None:
    text = """
        import torch as ch
        class Trainer:
            def __init__(self, gpu, size):
                ch.distributed.init_process_group("nccl", rank=gpu, world_size=size)
            @classmethod
            def launch(cls, size):
                ch.multiprocessing.spawn(cls.{worker}, args=(size,), nprocs=size)
            @classmethod
            def work(cls, *args):
                cls(*args).train()
            @classmethod
            def look(cls, *args):
                print(args)
        Trainer.launch(2)
        """
    (finding,) = found("DF105", text.format(worker="work"))
    assert "cls.work" in finding.because
    assert found("DF105", text.format(worker="look")) == []


RUNNER = """
import torch
from torch.utils.data import DataLoader, DistributedSampler

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

class Runner{bases}:
    def __init__(self, model):
        self.model = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    def eval(self):
        self.model.eval()
        return self
    def forward(self, batch):
        return self.model(batch)

def evaluate(runner: Runner, data):
    runner.eval()
    hits = 0
    for batch in DataLoader(data, sampler=Shares(data)):
        hits += runner.forward(batch.to({card})).argmax()
    return hits

def main(data):
    torch.distributed.init_process_group("gloo")
    runner = Runner(Net())
    best = 0
    for epoch in range(9):
        for batch in DataLoader(data, sampler=DistributedSampler(data)):
            runner.forward(batch).mean().backward()
            optimizer.step()
        if evaluate(runner, data) < best:
            break

main(things())
"""


@pytest.mark.parametrize("code", ["DF202", "DF504", "DF511"])
def test_an_object_that_keeps_the_model_is_asked_for_nothing_of_a_module(code: str) -> None:
    plain = RUNNER.format(bases="", card="0")
    assert found(code, plain)
    of_modules = ("runner.parameters", "averages_of_rank_0(runner", "'module'")
    assert not any(text in fixed(code, plain) for text in of_modules)
    module_of_its_own = RUNNER.format(bases="(torch.nn.Module)", card="0")
    assert any(each.edits for each in found(code, module_of_its_own))
