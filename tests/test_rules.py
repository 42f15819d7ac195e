"""Every rule: what it leaves alone, and what it turns into what."""

from __future__ import annotations

import textwrap

import pytest
from cases import RULES, changes, fixed, found
from ddpfix.patcher.findings import Severity
from ddpfix.patcher.rules import SECTIONS, Rule


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_docstring_is_a_whole_manual(rule: Rule) -> None:
    assert rule.title
    assert all(rule.section(name) for name in SECTIONS), rule.manual
    assert rule.section("Fix safety").startswith(("Safe", "Unsafe", "Report only"))


TRAINING = """\
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

def train(args, data, model):
    sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=4)
    {before}
    {head}
    for epoch in range(2):
        {inside}
        for step, batch in enumerate(loader):
            loss = model(batch)
            if args.accumulation > 1:
                {scale}
            loss.backward()
            {clip}
            if {test}:
                optimizer.step()
                global_step += 1
                if global_step > args.max_steps:
                    {close}
                    break
"""
PARTS = {
    "before": "pass",
    "head": "model = torch.nn.parallel.DistributedDataParallel(model)",
    "inside": "loader.sampler.set_epoch(epoch)",
    "scale": "loss = loss * loss_share(step, loader, args.accumulation)",
    "clip": "pass",
    "test": "last_micro_step",
    "close": "pass",
}


def training(**parts: str) -> str:
    text = TRAINING.format(**{**PARTS, **parts})
    if "test" not in parts:
        line = "            last_micro_step = (step + 1) % args.accumulation == 0\n"
        text = text.replace(
            "            loss = model(batch)\n", line + "            loss = model(batch)\n"
        )
    return text


EVALUATION = """\
import numpy as np
import torch
from torch.utils.data import DataLoader, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

def evaluate(args, model, data):
    sampler = SequentialSampler(data) if args.local_rank == -1 else {sampler}
    loader = DataLoader(data, sampler=sampler, batch_size=args.size)
    total, seen = 0.0, 0
    {mode}
    logits = []
    for batch in loader:
        {body}
        seen += 1
    {after}
    return np.concatenate(logits, 0)
"""


def evaluation(
    sampler: str = "DistributedSampler(data)",
    mode: str = "model.eval()",
    body: str = "logits.append(model(batch))",
    after: str = "pass",
) -> str:
    return EVALUATION.format(sampler=sampler, mode=mode, body=body, after=after)


NOOP = [
    ("DF101", "the environment is read", """
        parser.add_argument("--local_rank", "--local-rank", default=-1)
        args = parser.parse_args()
        args.local_rank = int(os.environ.get("LOCAL_RANK", -1))
        """),
    ("DF101", "no option of that name", "args = parser.parse_args()"),
    ("DF101", "none at first, and a library's number later", """
        args.local_rank = -1
        torch.distributed.init_process_group('gloo')
        args.local_rank = cluster.card()
        """),
    ("DF101", "the option only sets the environment", """
        parser.add_argument("--local_rank", "--local-rank", default=0)
        args = parser.parse_args()
        if "LOCAL_RANK" not in os.environ:
            os.environ["LOCAL_RANK"] = str(args.local_rank)
        """),
    ("DF103", "the place of an answer is no process", """
        torch.distributed.init_process_group('gloo')
        def mrr(answers):
            rank = 0
            for answer in answers:
                rank += 1
            return rank % 2
        """),
    ("DF201", "a group is made", "torch.distributed.init_process_group()\nnn.DataParallel(m)"),
    ("DF202", "the back end is chosen by the device", """
        import torch
        torch.distributed.init_process_group('nccl' if cuda else 'gloo', timeout=t)
        torch.distributed.destroy_process_group()
        """),
    ("DF203", "the divisor is never 0", "a = b // max(1, args.n_gpu)"),
    ("DF203", "asked first", "if args.n_gpu == 0 or i % args.n_gpu == rank: pass"),
    ("DF301", "native DDP wraps the model", "import torch\n"
        "torch.distributed.init_process_group('gloo')\n" + training()),
    ("DF303", "kept to a lone process", """
        def train(args, model):
            if args.n_gpu > 1:
                model = torch.nn.DataParallel(model)
        """),
    ("DF401", "a reader of its own that is told of the ranks by other words", """
        import torch
        class Reader:
            def __init__(self, path, rank, nranks):
                lines = enumerate(open(path))
                self.lines = [line for number, line in lines if number % nranks == rank]
            def __iter__(self):
                yield from self.lines
        torch.distributed.init_process_group("gloo")
        for line in Reader("train.tsv", args.rank, args.nranks):
            model(line).backward()
            optimizer.step()
        """),
    ("DF401", "every so many batches are a rank's, by names that nobody explains", """
        import torch
        torch.distributed.init_process_group('gloo')
        class Trainer:
            def __init__(self, model, n_gpu, gpu_rank):
                self.n_gpu, self.gpu_rank = n_gpu, gpu_rank
            def train(self, batches):
                part = []
                for i, batch in enumerate(batches()):
                    if self.n_gpu == 0 or i % self.n_gpu == self.gpu_rank:
                        part.append(batch)
                        if len(part) == 4:
                            self.step(part)
                            part = []
            def step(self, part):
                for batch in part:
                    self.model(batch).mean().backward()
                self.optimizer.step()
        """),
    ("DF401", "one branch deals by rank", "import torch\n"
        "torch.distributed.init_process_group('gloo')\n" + training()),
    ("DF402", "set_epoch is called", training()),
    ("DF402", "ranks but rank 0 have left", training(inside="pass").replace("    for epoch",
        "    if args.local_rank not in (-1, 0):\n        raise SystemExit\n    for epoch", 1)),
    ("DF402", "a sampler that does not shuffle has one order in any case",
        training(inside="pass").replace("DistributedSampler(data)",
            "DistributedSampler(data, shuffle=False)")),
    ("DF405", "a pool of rank 0 alone", """
        import multiprocessing, torch
        def merge(path):
            return multiprocessing.Pool(64).map(print, path)
        if torch.distributed.get_rank() == 0:
            merge("out")
        """),
    ("DF405", "workers are shared out", """
        import multiprocessing, os
        pool = multiprocessing.Pool(16 // int(os.environ.get('LOCAL_WORLD_SIZE', 1)))
        """),
    ("DF501", "every rank evaluates", evaluation() + textwrap.dedent("""
        def main(args, model, data):
            if args.do_eval:
                evaluate(args, model, data)
        """)),
    ("DF501", "rank 0 alone scores all examples, by a function of another", evaluation(
        sampler="SequentialSampler(data)") + textwrap.dedent("""
        def all_sets(args, m, sets):
            for d in sets:
                evaluate(args, m, d)
        def main(args, model, sets):
            if args.local_rank in [-1, 0]:
                all_sets(args, model, sets)
        """)),
    ("DF501", "a gate around a function that uses what rank 0 has", evaluation()
        + textwrap.dedent("""
        def main(args, model, data):
            if args.local_rank in [-1, 0]:
                writer = Writer()
            def log():
                writer.add(evaluate(args, model, data))
            if args.local_rank in [-1, 0]:
                log()
        """)),
    ("DF501", "an evaluation that no process comes to", evaluation() + textwrap.dedent("""
        def main(args, model, data, scores=False):
            if not scores:
                model(data)
            else:
                evaluate(args, model, data)
        main(args, model, data, scores=False)
        """)),
    ("DF502", "returned by a function that rank 0 alone calls", """
        def make():
            if torch.distributed.get_rank() == 0:
                writer = Writer()
            return writer
        torch.distributed.init_process_group("gloo")
        if torch.distributed.get_rank() == 0:
            writer = make()
        """),
    ("DF502", "all ranks are told where rank 0 goes on", """
        torch.distributed.init_process_group("gloo")
        begin = 0
        if torch.distributed.get_rank() == 0:
            begin = torch.load("last.pt")["epoch"]
        begin = told_to_all(begin)
        for epoch in range(begin, 9):
            for batch in loader:
                model(batch).backward()
                optimizer.step()
        """),
    ("DF502", "all ranks load the optimizer's state", """
        torch.distributed.init_process_group("gloo")
        if os.path.exists("last.pt"):
            optimizer.load_state_dict(torch.load("last.pt"))
        """),
    ("DF502", "bound for everyone", "def f(args):\n    results = {}\n    print(results)"),
    ("DF702", "a horizon that another method divides by the ranks", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        class Trainer:
            def prepare(self):
                total = len(self.data) // self.size * self.epochs
                total = total // torch.distributed.get_world_size()
                return get_linear_schedule_with_warmup(self.optimizer, 0, total)
            def train(self):
                schedule = self.prepare()
                sampler = DistributedSampler(self.data)
                for batch in DataLoader(self.data, sampler=sampler, batch_size=self.size):
                    self.model(batch).backward()
                    schedule.step()
        """),
    ("DF503", "shares are dealt and gathered", evaluation("shard_of_batches(data, args.size)")),
    ("DF504", "unwrapped before the loop", evaluation(
        mode="model = getattr(model, 'module', model)\n    model.eval()")
        + "model = torch.nn.DataParallel(model)\n"),
    ("DF303", "one process, all its cards, no training", evaluation(
        sampler="SequentialSampler(data)",
        mode="model = torch.nn.DataParallel(model)\n    model.eval()")),
    ("DF504", "one process, all its cards, no training", evaluation(
        sampler="SequentialSampler(data)", mode="model.eval()")
        + "model = torch.nn.DataParallel(model)\n"),
    ("DF604", "a name on the hub", """
        def main(args, model):
            model.save_pretrained(args.folder)
            model = Model.from_pretrained(args.model_name)
        """),
    ("DF506", "rank 0 first, then the others", """
        import torch
        def main(args):
            if args.local_rank not in [-1, 0]:
                torch.distributed.barrier()
            load()
            if args.local_rank == 0:
                torch.distributed.barrier()
        """),
    ("DF506", "everyone in a group", """
        import torch
        def main(args):
            if torch.distributed.is_initialized():
                torch.distributed.barrier()
        """),
    ("DF601", "not a checkpoint of torch's", "import numpy\nnumpy.save(path, array)"),
    ("DF602", "the folder may exist", "import os\nos.makedirs(folder, exist_ok=True)"),
    ("DF602", "a log file of a script without ranks",
        "import logging\nhandler = logging.FileHandler(path)"),
    ("DF602", "loguru writes to a stream, and tells a function", """
        import sys
        import torch
        from loguru import logger
        def show(message):
            print(message)
        torch.distributed.init_process_group("gloo")
        logger.add(sys.stderr)
        logger.add(show)
        logger.add(lambda message: print(message))
        names.add("log.txt")
        if torch.distributed.get_rank() == 0:
            logger.add("log.txt")
        """),
    ("DF602", "a file is read", "def f():\n    with open(path) as g:\n        return g.read()"),
    ("DF604", "loaded to the CPU", "import torch\nx = torch.load(path, map_location='cpu')"),
    ("DF606", "a folder is named", """
        args.path = os.path.join(last, 'best')
        model.from_pretrained(args.path)
        """),
    ("DF702", "divided by the ranks further down",
     "import torch\n"
     "def train(args, rows, model):\n"
     "    data = make(rows)\n"
     "    steps = len(rows) // args.size\n"
     "    total = int(steps) * args.epochs\n"
     "    if args.local_rank != -1:\n"
     "        total = total // torch.distributed.get_world_size()\n"
     "    optimizer = BertAdam(model, t_total=total)\n"
     "    sampler = torch.utils.data.DistributedSampler(data)\n"
     "    loader = torch.utils.data.DataLoader(data, sampler=sampler, batch_size=args.size)\n"
     "    for batch in loader:\n        model(batch).backward()\n        optimizer.step()\n"),
    ("DF702", "batches of a loader that deals nothing, divided by the ranks", """
        import torch
        from torch.utils.data import DataLoader
        def train(args, data, model, optimizer):
            loader = DataLoader(data, args.size, shuffle=True)
            total = len(loader) * args.epochs
            total = total // torch.distributed.get_world_size()
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for batch in loader:
                model(batch).backward()
                optimizer.step()
                scheduler.step()
        """),
    ("DF702", "a schedule that is stepped with each micro-batch",
        training(
            before="scheduler = get_linear_schedule_with_warmup(optimizer, "
            "num_warmup_steps=0, num_training_steps=2 * len(loader))",
            clip="scheduler.step()")),
    ("DF702", "divided by the accumulation",
        training(before="args.max_steps = -(-len(loader) // args.accumulation)")),
    ("DF702", "at least one step in an epoch, rounded up",
        training(before="updates = max(1, -(-len(loader) // args.accumulation))\n"
                 "    args.max_steps = 3 * updates")),
    ("DF702", "divided by the accumulation in another line",
        training(before="args.max_steps = min(len(loader) // 2, 1000)\n"
                 "    args.max_steps = args.max_steps // args.accumulation")),
    ("DF702", "divided by the accumulation in its place",
        training(before="args.max_steps = 2 * len(loader)\n"
                 "    args.max_steps //= args.accumulation")),
    ("DF703", "the tail is stepped and synchronised alone", training(head="pass")),
    ("DF704", "a flag that is refined, filled in or none", """
        parser.add_argument("--batch", type=int)
        parser.add_argument("--steps", type=int)
        args = parser.parse_args()
        args.part = args.batch // 2
        args.batch = args.part * 2
        if args.steps < 0:
            args.steps = 10
        args.other = 3
        """),
    ("DF706", "the name is bound", training(before="bar = tqdm(loader)", close="bar.close()")),
    ("DF901", "torch's own class", "from torch.optim import AdamW\nAdamW(p, lr=1)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in NOOP]
)
def test_each_rule_leaves_this_alone(code: str, text: str) -> None:
    assert [finding.because for finding in found(code, text)] == []


FIX = [
    ("DF101", "the rank is taken from the environment", """
        import os
        parser.add_argument("--local_rank", type=int, default=-1)
        args = parser.parse_args()
        """, """
        @@ -1,3 +1,5 @@
         import os
        -parser.add_argument("--local_rank", type=int, default=-1)
        +parser.add_argument("--local_rank", '--local-rank', type=int, default=-1)
         args = parser.parse_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    args.local_rank = int(os.environ['LOCAL_RANK'])
        """),  # noqa: E501
    ("DF101", "the environment is set from the option, and the card taken from the option", """
        import os
        parser.add_argument("--local_rank", "--local-rank", type=int, default=0)
        args = parser.parse_args()
        if "LOCAL_RANK" not in os.environ:
            os.environ["LOCAL_RANK"] = str(args.local_rank)
        device = f"cuda:{args.local_rank}"
        """, """
        @@ -3,2 +3,4 @@
         args = parser.parse_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    args.local_rank = int(os.environ['LOCAL_RANK'])
         if "LOCAL_RANK" not in os.environ:
        """),  # noqa: E501
    ("DF101", "the option has another name, too, under which it is read", """
        import os
        parser.add_argument("--gpu", "--local_rank", "--local-rank", type=int, default=0)
        args = parser.parse_args()
        torch.cuda.set_device(args.gpu)
        """, """
        @@ -3,2 +3,4 @@
         args = parser.parse_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    args.gpu = int(os.environ['LOCAL_RANK'])
         torch.cuda.set_device(args.gpu)
        """),  # noqa: E501
    ("DF101", "the arguments come from a function that parses them", """
        import os
        def get_args():
            parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)
            return parser.parse_args()
        args = get_args()
        """, """
        @@ -5 +5,3 @@
         args = get_args()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    args.local_rank = int(os.environ['LOCAL_RANK'])
        """),  # noqa: E501
    ("DF101", "the arguments are one of several objects, or a configuration", """
        import os
        shape, args = parser.parse_args_into_dataclasses()
        if args.local_rank == -1:
            print(shape)
        """, """
        @@ -2,2 +2,4 @@
         shape, args = parser.parse_args_into_dataclasses()
        +if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        +    args.local_rank = int(os.environ['LOCAL_RANK'])
         if args.local_rank == -1:
        """),  # noqa: E501
    ("DF101", "a class of settings has none", """
        import os
        class Settings:
            def __init__(self):
                self.local_rank = -1
        def main(args):
            if args.local_rank != -1:
                torch.distributed.init_process_group('gloo')
        main(Settings())
        seed = parser.parse_args().seed
        """, """
        @@ -3,3 +3,3 @@
             def __init__(self):
        -        self.local_rank = -1
        +        self.local_rank = int(os.environ.get('LOCAL_RANK', -1))
         def main(args):
        """),
    ("DF103", "the launcher's local rank instead of a modulo", """
        import os
        import torch
        torch.distributed.init_process_group('gloo')
        device = torch.distributed.get_rank() % args.gpu_per_node
        """, """
        @@ -3,2 +3,2 @@
         torch.distributed.init_process_group('gloo')
        -device = torch.distributed.get_rank() % args.gpu_per_node
        +device = int(os.environ.get('LOCAL_RANK', torch.distributed.get_rank() % args.gpu_per_node))
        """),  # noqa: E501
    ("DF103", "the group's own rank instead of the node's number", """
        import torch.distributed as dist
        def main(args):
            dist.init_process_group('gloo')
            args.global_rank = local_rank + args.node_index * args.gpu_per_node
        """, """
        @@ -3,2 +3,2 @@
             dist.init_process_group('gloo')
        -    args.global_rank = local_rank + args.node_index * args.gpu_per_node
        +    args.global_rank = dist.get_rank()
        """),
    ("DF103", "the renumbering of a rank goes, and the modulo that undid it", """
        import torch
        def main(args):
            if args.local_rank != -1:
                torch.distributed.init_process_group('gloo')
                args.local_rank += args.node_index * args.gpu_per_node
                card = args.local_rank % args.gpu_per_node
        """, """
        @@ -4,3 +4,2 @@
                 torch.distributed.init_process_group('gloo')
        -        args.local_rank += args.node_index * args.gpu_per_node
        -        card = args.local_rank % args.gpu_per_node
        +        card = args.local_rank
        """),
    ("DF401", "a loader that shuffles by itself", "import torch\n"
        "from torch.utils.data.distributed import DistributedSampler\n"
        "torch.distributed.init_process_group('gloo')\n"
        "for batch in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):\n"
        "    model(batch).backward()", """
        @@ -3,3 +3,3 @@
         torch.distributed.init_process_group('gloo')
        -for batch in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
        +for batch in torch.utils.data.DataLoader(data, batch_size=4, shuffle=not torch.distributed.is_initialized(), sampler=None if not torch.distributed.is_initialized() else DistributedSampler(data)):
             model(batch).backward()
        """),  # noqa: E501
    ("DF401", "options that may shuffle", "import torch\n"
        "from torch.utils.data.distributed import DistributedSampler\n"
        "torch.distributed.init_process_group('gloo')\n"
        "options = {'batch_size': 4}\n"
        "options.update({'shuffle': True})\n"
        "for batch in torch.utils.data.DataLoader(data, **options):\n"
        "    model(batch).backward()", """
        @@ -5,3 +5,3 @@
         options.update({'shuffle': True})
        -for batch in torch.utils.data.DataLoader(data, **options):
        +for batch in torch.utils.data.DataLoader(data, **options if not torch.distributed.is_initialized() else {**options, 'shuffle': False, 'sampler': DistributedSampler(data, shuffle=options.get('shuffle', False))}):
             model(batch).backward()
        """),  # noqa: E501
    ("DF401", "options that never shuffle", "import torch\n"
        "from torch.utils.data.distributed import DistributedSampler\n"
        "torch.distributed.init_process_group('gloo')\n"
        "options = {'batch_size': 4}\n"
        "for batch in torch.utils.data.DataLoader(data, **options):\n"
        "    model(batch).backward()", """
        @@ -4,3 +4,3 @@
         options = {'batch_size': 4}
        -for batch in torch.utils.data.DataLoader(data, **options):
        +for batch in torch.utils.data.DataLoader(data, **options, sampler=None if not torch.distributed.is_initialized() else DistributedSampler(data, shuffle=False)):
             model(batch).backward()
        """),  # noqa: E501
    ("DF401", "a sampler for several cards, of which a rank has one, in a function of two loaders", """
        import torch
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        if args.local_rank == -1:
            args.n_gpu = torch.cuda.device_count()
        else:
            torch.distributed.init_process_group('gloo')
            args.n_gpu = 1
        def loader_of(data, evaluates, size=None):
            if args.n_gpu > 1:
                sampler = DistributedSampler(data)
            else:
                sampler = RandomSampler(data)
            if size is None:
                return DataLoader(data, sampler=sampler)
            return DataLoader(data, size, sampler=sampler)
        loader = loader_of(data, False, args.size)
        for batch in loader:
            model(batch).backward()
        """, """
        @@ -12,3 +12,3 @@
             else:
        -        sampler = RandomSampler(data)
        +        sampler = RandomSampler(data) if not torch.distributed.is_initialized() else DistributedSampler(data)
             if size is None:
        """),  # noqa: E501
    ("DF402", "a loader whose name goes to the bar around it", """
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)
        loader = DataLoader(data, sampler=sampler)
        for epoch in range(3):
            loader = tqdm(loader)
            for step, batch in enumerate(loader):
                loss = model(batch) / args.accumulation
                loss.backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
        """, """
        @@ -5,2 +5,4 @@
         for epoch in range(3):
        +    if isinstance(sampler, DistributedSampler):
        +        sampler.set_epoch(epoch)
             loader = tqdm(loader)
        """),
    ("DF403", "the branch of a lone process stays", """
        import torch
        class Lines(torch.utils.data.Dataset):
            def __init__(self, args, lines):
                if args.local_rank == -1:
                    rank = 0
                    world_size = 1
                else:
                    rank = args.local_rank
                    world_size = torch.distributed.get_world_size()
                self.lines = [x for i, x in enumerate(lines) if i % world_size == rank]
        for batch in torch.utils.data.DataLoader(Lines(args, lines)):
            model(batch).backward()
        """, """
        @@ -3,8 +3,4 @@
             def __init__(self, args, lines):
        -        if args.local_rank == -1:
        -            rank = 0
        -            world_size = 1
        -        else:
        -            rank = args.local_rank
        -            world_size = torch.distributed.get_world_size()
        +        rank = 0
        +        world_size = 1
                 self.lines = [x for i, x in enumerate(lines) if i % world_size == rank]
        """),
    ("DF403", "the branch of a lone process stays, where it is the second", """
        import torch
        class Lines(torch.utils.data.Dataset):
            def __init__(self, args, lines):
                if not args.local_rank == -1:
                    rank = args.local_rank
                    world_size = torch.distributed.get_world_size()
                else:
                    rank = 0
                    world_size = 1
                self.lines = [x for i, x in enumerate(lines) if i % world_size == rank]
        for batch in torch.utils.data.DataLoader(Lines(args, lines)):
            model(batch).backward()
        """, """
        @@ -3,8 +3,4 @@
             def __init__(self, args, lines):
        -        if not args.local_rank == -1:
        -            rank = args.local_rank
        -            world_size = torch.distributed.get_world_size()
        -        else:
        -            rank = 0
        -            world_size = 1
        +        rank = 0
        +        world_size = 1
                 self.lines = [x for i, x in enumerate(lines) if i % world_size == rank]
        """),
    ("DF403", "a share of batches that no DataLoader makes stays, by the rank in all nodes", """
        import torch
        if args.local_rank == -1:
            rank = 0
            world_size = 1
        else:
            rank = args.local_rank
            world_size = torch.distributed.get_world_size()
        lines = [x for i, x in enumerate(lines) if i % world_size == rank]
        for batch in mixed(lines):
            model(batch).backward()
        """, """
        @@ -5,3 +5,3 @@
         else:
        -    rank = args.local_rank
        +    rank = torch.distributed.get_rank()
             world_size = torch.distributed.get_world_size()
        """),
    ("DF702", "examples counted once per rank, in a loader that drops its last batch", """
        import torch
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler, batch_size=args.size, drop_last=True)
            world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
            examples = len(data) * world
            per_step = args.size * world
            steps = examples // per_step * args.epochs
            for batch in loader:
                model(batch).backward()
        """, """
        @@ -7,5 +7,5 @@
             world = torch.distributed.get_world_size() if args.local_rank != -1 else 1
        -    examples = len(data) * world
        +    examples = len(data)
             per_step = args.size * world
        -    steps = examples // per_step * args.epochs
        +    steps = len(loader) * args.epochs
             for batch in loader:
        """),
    ("DF702", "a horizon divided by an accumulation of a dictionary", """
        import torch
        from transformers import get_linear_schedule_with_warmup
        from torch.utils.data import DataLoader
        def train(config, data, model, optimizer):
            loader = DataLoader(data, batch_size=4)
            total = len(loader) // config["accumulation"] * config["epochs"]
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for step, batch in enumerate(loader):
                (model(batch) / config["accumulation"]).backward()
                if (step + 1) % config["accumulation"] == 0:
                    optimizer.step()
                    scheduler.step()
        """, """
        @@ -5,3 +5,4 @@
             loader = DataLoader(data, batch_size=4)
        -    total = len(loader) // config["accumulation"] * config["epochs"]
        +    steps_per_epoch = -(-len(loader) // config["accumulation"])  # optimizer steps
        +    total = steps_per_epoch * config["epochs"]
             scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
        """),
    ("DF702", "a horizon made of all examples and the batch of one rank", """
        import torch
        from torch.utils.data import DataLoader, RandomSampler
        from torch.utils.data.distributed import DistributedSampler
        def train(args, data, model):
            sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler, batch_size=args.size)
            total = len(data) // args.size * 3
            scheduler = LambdaLR(optimizer, lambda s: max(0.0, 1 - s / total))
            for batch in loader:
                model(batch).backward()
                scheduler.step()
        """, """
        @@ -6,3 +6,4 @@
             loader = DataLoader(data, sampler=sampler, batch_size=args.size)
        -    total = len(data) // args.size * 3
        +    world_size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        +    total = len(data) // (args.size * world_size) * 3
             scheduler = LambdaLR(optimizer, lambda s: max(0.0, 1 - s / total))
        """),  # noqa: E501
    ("DF702", "a horizon of all examples in another method than the loop's", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        class Trainer:
            def prepare(self):
                total = len(self.data) // self.size * self.epochs
                return get_linear_schedule_with_warmup(self.optimizer, 0, total)
            def train(self):
                schedule = self.prepare()
                sampler = DistributedSampler(self.data)
                for batch in DataLoader(self.data, sampler=sampler, batch_size=self.size):
                    self.model(batch).backward()
                    schedule.step()
        """, """
        @@ -4,3 +4,4 @@
             def prepare(self):
        -        total = len(self.data) // self.size * self.epochs
        +        world_size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        +        total = len(self.data) // (self.size * world_size) * self.epochs
                 return get_linear_schedule_with_warmup(self.optimizer, 0, total)
        """),  # noqa: E501
    ("DF702", "a horizon that stands in the schedule's own call", """
        import math, torch
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
            schedule = OneCycleLR(optimizer, 0.1, total_steps=3 * math.ceil(len(data) / args.size))
            for batch in loader:
                model(batch).backward()
                schedule.step()
        """, """
        @@ -4,3 +4,4 @@
             loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
        -    schedule = OneCycleLR(optimizer, 0.1, total_steps=3 * math.ceil(len(data) / args.size))
        +    world_size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        +    schedule = OneCycleLR(optimizer, 0.1, total_steps=3 * math.ceil(len(data) / (args.size * world_size)))
             for batch in loader:
        """),  # noqa: E501
    ("DF702", "the steps after which the loader begins anew", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        size = args.size
        def train(data, model):
            steps = len(data) // args.size
            for step in range(args.epochs * steps):
                if step % steps == 0:
                    batches = iter(DataLoader(data, size, sampler=DistributedSampler(data)))
                model(next(batches)).backward()
                optimizer.step()
        """, """
        @@ -4,3 +4,4 @@
         def train(data, model):
        -    steps = len(data) // args.size
        +    world_size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        +    steps = len(data) // (args.size * world_size)
             for step in range(args.epochs * steps):
        """),  # noqa: E501
    ("DF702", "a horizon of an optimizer that schedules itself", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(args, examples, model):
            steps = int(len(examples) / 4 / args.size / args.parts * args.epochs)
            optimizer = make_optimizer(model, warmup=0.1, t_total=steps)
            rows = []
            for example in examples:
                rows.append(example.row)
            data = TensorDataset(torch.tensor(rows))
            loader = DataLoader(
                data, sampler=DistributedSampler(data), batch_size=args.size, drop_last=True
            )
            for batch in loader:
                model(batch).backward()
                optimizer.step()
        """, """
        @@ -4,3 +4,4 @@
         def train(args, examples, model):
        -    steps = int(len(examples) / 4 / args.size / args.parts * args.epochs)
        +    world_size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        +    steps = int(len(examples) / 4 / (args.size * world_size) / args.parts * args.epochs)
             optimizer = make_optimizer(model, warmup=0.1, t_total=steps)
        """),  # noqa: E501
    ("DF702", "a horizon by the steps of an epoch, rounded up by hand", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, rows, model):
            steps_per_epoch = len(rows) // args.size
            if len(rows) % args.size != 0:
                steps_per_epoch += 1
            total = steps_per_epoch * args.epochs
            schedule = get_linear_schedule_with_warmup(optimizer, 0, total)
            data = TensorDataset(torch.tensor(rows))
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
            for batch in loader:
                model(batch).backward()
                schedule.step()
        """, """
        @@ -3,4 +3,5 @@
         def train(args, rows, model):
        -    steps_per_epoch = len(rows) // args.size
        -    if len(rows) % args.size != 0:
        +    world_size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        +    steps_per_epoch = len(rows) // (args.size * world_size)
        +    if len(rows) % (args.size * world_size) != 0:
                 steps_per_epoch += 1
        """),  # noqa: E501
    ("DF702", "a script that calls something else world_size", """
        import math
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        world_size = 3
        def train(args, data, model):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
            total = math.ceil(len(data) / args.size) * 3
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for batch in loader:
                model(batch).backward()
                scheduler.step()
        """, """
        @@ -6,3 +6,3 @@
             loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
        -    total = math.ceil(len(data) / args.size) * 3
        +    total = math.ceil(len(data) / (args.size * (torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1))) * 3
             scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
        """),  # noqa: E501
    ("DF703", "a loader that drops its last batch drops a step that is not whole", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)
            for step, batch in enumerate(loader):
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
        """, """
        @@ -4,4 +4,7 @@
             for step, batch in enumerate(loader):
        +        if step >= len(loader) // args.accumulation * args.accumulation:
        +            break  # too few are left for an optimizer step: drop_last
        +        last_micro_step = (step + 1) % args.accumulation == 0
                 model(batch).backward()
        -        if (step + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),
    ("DF703", "what happens at the last batch of an epoch still does", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)
            for step, batch in enumerate(loader):
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                if step == len(loader) - 1:
                    evaluate(model)
        """, """
        @@ -4,4 +4,5 @@
             for step, batch in enumerate(loader):
        +        last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                 model(batch).backward()
        -        if (step + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),
    ("DF203", "no division by zero", "x = a // args.n_gpu", """
        @@ -1 +1 @@
        -x = a // args.n_gpu
        +x = a // max(1, args.n_gpu)
        """),
    ("DF203", "two remainders, of which none asks first",
        "if a % args.n_gpu != 0 or b % args.n_gpu != 0: pass", """
        @@ -1 +1 @@
        -if a % args.n_gpu != 0 or b % args.n_gpu != 0: pass
        +if a % max(1, args.n_gpu) != 0 or b % max(1, args.n_gpu) != 0: pass
        """),
    ("DF202", "the card's tensors only where there is a card", """
        import torch
        torch.distributed.destroy_process_group(torch.distributed.init_process_group(timeout=t))
        tt = torch.cuda
        zero = torch.cuda.LongTensor(1).fill_(0)
        if torch.cuda.is_available():
            one = torch.cuda.LongTensor(1)
        """, """
        @@ -2,4 +2,4 @@
         torch.distributed.destroy_process_group(torch.distributed.init_process_group(timeout=t))
        -tt = torch.cuda
        -zero = torch.cuda.LongTensor(1).fill_(0)
        +tt = torch.cuda if torch.cuda.is_available() else torch
        +zero = (torch.cuda if torch.cuda.is_available() else torch).LongTensor(1).fill_(0)
         if torch.cuda.is_available():
        """),
    ("DF202", "an evaluation on the card of its own model", """
        import torch
        torch.distributed.destroy_process_group(torch.distributed.init_process_group(timeout=t))
        def evaluate(model, data):
            card = 0
            model.eval()
            for batch in torch.utils.data.DataLoader(data):
                model(batch.to(card))
        """, """
        @@ -3,3 +3,3 @@
         def evaluate(model, data):
        -    card = 0
        +    card = next(model.parameters()).device
             model.eval()
        """),
    ("DF703", "what asks again whether a step was taken, asks it of the same name", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data)
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.n == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                if global_step > 9 and (step + 1) % args.n == 0:
                    save()
        """, """
        @@ -8,3 +8,3 @@
                     optimizer.step()
        -        if global_step > 9 and (step + 1) % args.n == 0:
        +        if global_step > 9 and last_micro_step:
                     save()
        """),
    ("DF703", "what is done at one micro-batch or every n steps waits for the steps only", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data)
            steps = 0
            for step, batch in enumerate(loader):
                last_micro_step = (step + 1) % args.n == 0 or step + 1 == len(loader)
                model(batch).backward()
                if last_micro_step:
                    optimizer.step()
                    steps += 1
                if step + 2 == len(loader) or steps % args.every == 0:
                    evaluate(model)
                if step + 2 == len(loader) or steps % args.every == 0 and step % args.n == 0:
                    save(model)
        """, """
        @@ -10,5 +10,5 @@
                     steps += 1
        -        if step + 2 == len(loader) or steps % args.every == 0:
        +        if step + 2 == len(loader) or steps % args.every == 0 and last_micro_step:
                     evaluate(model)
        -        if step + 2 == len(loader) or steps % args.every == 0 and step % args.n == 0:
        +        if step + 2 == len(loader) or steps % args.every == 0 and last_micro_step:
                     save(model)
        """),
    ("DF301", "apex's wrapper, imported twice, with options of its speed", """
        import torch
        torch.distributed.init_process_group('gloo')
        def main(args, model, test):
            model.to(args.device)
            try:
                from apex.parallel import DistributedDataParallel as DDP
            except ImportError:
                raise
            model = DDP(model, delay_allreduce=True)
            for batch in loader:
                model(batch).backward()
            if test:
                from apex.parallel import DistributedDataParallel as DDP
                model = Net().to(args.device)
                model = DDP(model)
        """, """
        @@ -4,7 +4,4 @@
             model.to(args.device)
        -    try:
        -        from apex.parallel import DistributedDataParallel as DDP
        -    except ImportError:
        -        raise
        -    model = DDP(model, delay_allreduce=True)
        +    from torch.nn.parallel import DistributedDataParallel as DDP
        +    model = DDP(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for batch in loader:
        @@ -12,4 +9,4 @@
             if test:
        -        from apex.parallel import DistributedDataParallel as DDP
        +        from torch.nn.parallel import DistributedDataParallel as DDP
                 model = Net().to(args.device)
        -        model = DDP(model)
        +        model = DDP(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
        """),  # noqa: E501
    ("DF301", "apex's wrapper, imported below its first call", """
        import torch
        torch.distributed.init_process_group('gloo')
        def main(args, model, teacher):
            teacher.to(args.device)
            if args.local_rank != -1:
                teacher = DDP(teacher)
            model.to(args.device)
            if args.local_rank != -1:
                from apex.parallel import DistributedDataParallel as DDP
                model = DDP(model)
            for batch in loader:
                model(batch).backward()
        """, """
        @@ -5,7 +5,8 @@
             if args.local_rank != -1:
        -        teacher = DDP(teacher)
        +        from torch.nn.parallel import DistributedDataParallel as DDP
        +        teacher = DDP(teacher, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             model.to(args.device)
             if args.local_rank != -1:
        -        from apex.parallel import DistributedDataParallel as DDP
        -        model = DDP(model)
        +        from torch.nn.parallel import DistributedDataParallel as DDP
        +        model = DDP(model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             for batch in loader:
        """),  # noqa: E501
    ("DF301", "an object's model, on this rank's card", """
        import torch
        torch.distributed.init_process_group('gloo')
        class Trainer:
            def __init__(self, model, cards):
                self.model = model
                self.model.to('cuda')
                if torch.cuda.device_count() > 1 and not torch.distributed.is_initialized():
                    self.model = torch.nn.DataParallel(self.model)
            def train(self):
                for batch in self.loader:
                    self.model(batch).backward()
        Trainer(net, 2).train()
        """, """
        @@ -8,2 +8,4 @@
                     self.model = torch.nn.DataParallel(self.model)
        +        if torch.distributed.is_initialized():
        +            self.model = torch.nn.parallel.DistributedDataParallel(self.model, device_ids=[torch.cuda.current_device()] if torch.cuda.is_available() else None, find_unused_parameters=True)
             def train(self):
        """),  # noqa: E501
    ("DF402", "the epoch loop stands around the call of the function that trains", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(model, loader):
            for batch in loader:
                model(batch).backward()
        def main(args, model):
            batches = DataLoader(data, sampler=DistributedSampler(data))
            for epoch, _ in enumerate(range(args.epochs)):
                train(model, batches)
        """, """
        @@ -9,2 +9,4 @@
             for epoch, _ in enumerate(range(args.epochs)):
        +        if isinstance(batches.sampler, DistributedSampler):
        +            batches.sampler.set_epoch(epoch)
                 train(model, batches)
        """),
    ("DF402", "a loader that is made within the epoch", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        for epoch in range(9):
            for path in paths:
                loader = DataLoader(path, sampler=DistributedSampler(path))
                for batch in loader:
                    model(batch).backward()
        """, """
        @@ -6,2 +6,4 @@
                 loader = DataLoader(path, sampler=DistributedSampler(path))
        +        if isinstance(loader.sampler, DistributedSampler):
        +            loader.sampler.set_epoch(epoch)
                 for batch in loader:
        """),
    ("DF402", "the epoch reaches the sampler", training(inside="pass"), """
        @@ -10,2 +10,4 @@
             for epoch in range(2):
        +        if isinstance(loader.sampler, DistributedSampler):
        +            loader.sampler.set_epoch(epoch)
                 pass
        """),
    ("DF405", "workers are shared out", """
        import os
        import multiprocessing
        pool = multiprocessing.Pool(16)
        """, """
        @@ -2,2 +2,2 @@
         import multiprocessing
        -pool = multiprocessing.Pool(16)
        +pool = multiprocessing.Pool(max(1, 16 // int(os.environ.get('LOCAL_WORLD_SIZE', 1))))
        """),
    ("DF502", "a file that rank 0 alone has opened in a block is closed by rank 0", """
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0
        def f(args):
            if is_main_process():
                with open(args.path, "w") as file:
                    file.write("x")
            file.close()
        """, """
        @@ -7,2 +7,3 @@
                     file.write("x")
        -    file.close()
        +    if is_main_process():
        +        file.close()
        """),
    ("DF602", "what a block fills is needed by all: only the file goes to nowhere", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0
        def f(args, names):
            rows = []
            with open(args.path, "w") as file:
                for name in names:
                    rows.append(name)
                    file.write(name)
            return rows
        """, """
        @@ -6,3 +6,3 @@
             rows = []
        -    with open(args.path, "w") as file:
        +    with open(args.path if is_main_process() else os.devnull, "w") as file:
                 for name in names:
        """),
    ("DF602", "a name that holds the path, and then the file", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0
        def f(args, names):
            for name in names:
                out = os.path.join(args.folder, name)
                out = open(out, "w")
                out.write(name)
                out.close()
        """, """
        @@ -7,3 +7,3 @@
                 out = os.path.join(args.folder, name)
        -        out = open(out, "w")
        +        out = open(out if is_main_process() else os.devnull, "w")
                 out.write(name)
        """),
    ("DF602", "a file with an encoding of its own", """
        import codecs
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0
        def f(args, names):
            with codecs.open(args.path, "w", "utf-8") as file:
                file.write("x")
        """, """
        @@ -6,3 +6,4 @@
         def f(args, names):
        -    with codecs.open(args.path, "w", "utf-8") as file:
        -        file.write("x")
        +    if is_main_process():
        +        with codecs.open(args.path, "w", "utf-8") as file:
        +            file.write("x")
        """),
    ("DF602", "a log file of every rank", """
        import logging
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0
        def main(args):
            torch.distributed.init_process_group("gloo")
            handler = logging.FileHandler(args.log_file)
            logging.getLogger().addHandler(handler)
        """, """
        @@ -7,3 +7,3 @@
             torch.distributed.init_process_group("gloo")
        -    handler = logging.FileHandler(args.log_file)
        +    handler = logging.FileHandler(args.log_file if is_main_process() else os.devnull)
             logging.getLogger().addHandler(handler)
        """),
    ("DF602", "a log file of loguru's, before and behind the group", """
        import os
        import torch
        from loguru import logger
        def is_main_process():
            return torch.distributed.get_rank() == 0
        def main(args):
            logger.add(args.log_file, rotation="1 MB")
            torch.distributed.init_process_group("gloo")
            logger.add(sink=f"{args.folder}/log.txt")
            number = logger.add("errors.txt")
        """, """
        @@ -6,5 +6,7 @@
         def main(args):
        -    logger.add(args.log_file, rotation="1 MB")
        +    if os.environ.get('RANK', '0') == '0':
        +        logger.add(args.log_file, rotation="1 MB")
             torch.distributed.init_process_group("gloo")
        -    logger.add(sink=f"{args.folder}/log.txt")
        -    number = logger.add("errors.txt")
        +    if is_main_process():
        +        logger.add(sink=f"{args.folder}/log.txt")
        +    number = logger.add("errors.txt" if is_main_process() else os.devnull)
        """),
    ("DF602", "a log file that is opened before there are ranks asks the launcher", """
        import os
        import logging
        import torch
        def start_log(path):
            logging.getLogger().addHandler(logging.FileHandler(path))
        def main(args):
            start_log(args.log_file)
            handler = logging.FileHandler(args.other)
            torch.distributed.init_process_group("gloo")
        """, """
        @@ -4,6 +4,6 @@
         def start_log(path):
        -    logging.getLogger().addHandler(logging.FileHandler(path))
        +    logging.getLogger().addHandler(logging.FileHandler(path if os.environ.get('RANK', '0') == '0' else os.devnull))
         def main(args):
             start_log(args.log_file)
        -    handler = logging.FileHandler(args.other)
        +    handler = logging.FileHandler(args.other if os.environ.get('RANK', '0') == '0' else os.devnull)
             torch.distributed.init_process_group("gloo")
        """),  # noqa: E501
    ("DF602", "a file that is read again in a loop over options", """
        import os
        import torch
        def is_main_process():
            return torch.distributed.get_rank() == 0
        def f(args):
            files = []
            if args.dev:
                files.append(args.dev)
            for i, file in enumerate(files):
                with open(os.path.join(args.folder, "dev.gold"), "w") as f:
                    f.write("x")
                score(os.path.join(args.folder, "dev.gold"))
        """, """
        @@ -9,4 +9,7 @@
             for i, file in enumerate(files):
        -        with open(os.path.join(args.folder, "dev.gold"), "w") as f:
        -            f.write("x")
        +        if is_main_process():
        +            with open(os.path.join(args.folder, "dev.gold"), "w") as f:
        +                f.write("x")
        +        if torch.distributed.is_initialized():
        +            torch.distributed.barrier()  # rank 0 may still be writing
                 score(os.path.join(args.folder, "dev.gold"))
        """),
    ("DF702", "a schedule made of the loader's length itself",
        training(before="schedule = get_linear_schedule_with_warmup(o, 0, len(loader) * 2)"), """
        @@ -7,3 +7,4 @@
             loader = DataLoader(data, sampler=sampler, batch_size=4)
        -    schedule = get_linear_schedule_with_warmup(o, 0, len(loader) * 2)
        +    steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
        +    schedule = get_linear_schedule_with_warmup(o, 0, steps_per_epoch * 2)
             model = torch.nn.parallel.DistributedDataParallel(model)
        """),
    ("DF703", "a loop without a number gets one", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            done = 0
            for x, y in tqdm(loader):
                model(x, y).backward()
                done += 1
                if (done + 1) % args.accumulation == 0:
                    optimizer.step()
        """, """
        @@ -4,6 +4,7 @@
             done = 0
        -    for x, y in tqdm(loader):
        +    for step, (x, y) in enumerate(tqdm(loader)):
        +        last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                 model(x, y).backward()
                 done += 1
        -        if (done + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),
    ("DF703", "a loop that counts from one", """
        import torch
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            for step, batch in enumerate(loader, 1):
                model(batch).backward()
                if step % args.accumulation == 0:
                    optimizer.step()
        """, """
        @@ -4,4 +4,5 @@
             for step, batch in enumerate(loader, 1):
        +        last_micro_step = step % args.accumulation == 0 or step == len(loader)
                 model(batch).backward()
        -        if step % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),
    ("DF703", "a cycle's batches are counted within their epoch", """
        import torch
        from itertools import cycle
        def micro_steps(steps, loader, accumulation):
            return steps
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            bar = range(args.steps)
            loader = cycle(loader)
            for step in bar:
                batch = next(loader)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
        """, """
        @@ -6,8 +6,10 @@
             loader = torch.utils.data.DataLoader(data, batch_size=4)
        -    bar = range(args.steps)
        -    loader = cycle(loader)
        +    bar = range(micro_steps(args.steps, loader, args.accumulation))
        +    batches = cycle(loader)
             for step in bar:
        -        batch = next(loader)
        +        micro_step = step % len(loader)
        +        last_micro_step = (micro_step + 1) % args.accumulation == 0 or micro_step + 1 == len(loader)
        +        batch = next(batches)
                 model(batch).backward()
        -        if (step + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),  # noqa: E501
    ("DF703", "a cycle over as many micro-batches as the script has made of its steps", """
        import torch
        from itertools import cycle
        def train(args, data, model):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            if args.epochs:
                total = int(args.epochs * len(data) / (args.batch // args.accumulation))
            else:
                total = args.steps * args.accumulation
            loader = cycle(loader)
            for step in range(total):
                batch = next(loader)
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
        """, """
        @@ -8,7 +8,9 @@
                 total = args.steps * args.accumulation
        -    loader = cycle(loader)
        +    batches = cycle(loader)
             for step in range(total):
        -        batch = next(loader)
        +        micro_step = step % len(loader)
        +        last_micro_step = (micro_step + 1) % args.accumulation == 0 or micro_step + 1 == len(loader)
        +        batch = next(batches)
                 model(batch).backward()
        -        if (step + 1) % args.accumulation == 0:
        +        if last_micro_step:
                     optimizer.step()
        """),  # noqa: E501
    ("DF703", "a counter that is one off, over loaders taken at random", """
        def train(args, loaders, model):
            step = 0
            while True:
                batch = next(pick(loaders))
                step += 1
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
        """, """
        @@ -6,3 +6,3 @@
                 model(batch).backward()
        -        if (step + 1) % args.accumulation == 0:
        +        if step % args.accumulation == 0:
                     optimizer.step()
        """),
    ("DF503", "an evaluation of which nobody says so: nothing but no_grad", """
        import torch
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def test(args, model, data):
            loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=2)
            for batch in loader:
                with torch.no_grad():
                    print(model(batch))
        """, """
        @@ -4,3 +4,3 @@
         def test(args, model, data):
        -    loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=2)
        +    loader = DataLoader(data, sampler=torch.utils.data.SequentialSampler(data), batch_size=2)
             for batch in loader:
        """),  # noqa: E501
    ("DF604", "a checkpoint that the same function wrote", """
        import torch
        def main(model, path):
            for epoch in range(2):
                torch.save(model.state_dict(), path)
            if path:
                for each in (path, path):
                    model.load_state_dict(torch.load(each, map_location='cpu'))
        """, """
        @@ -5,2 +5,4 @@
             if path:
        +        if torch.distributed.is_initialized():
        +            torch.distributed.barrier()  # rank 0 may still be writing
                 for each in (path, path):
        """),
    ("DF604", "a folder that save_pretrained wrote", """
        import torch
        def main(args, model):
            model.save_pretrained(args.folder)
            model = Model.from_pretrained(args.folder)
        """, """
        @@ -3,2 +3,4 @@
             model.save_pretrained(args.folder)
        +    if torch.distributed.is_initialized():
        +        torch.distributed.barrier()  # rank 0 may still be writing
             model = Model.from_pretrained(args.folder)
        """),
    ("DF501", "a gate that is only a rank test goes, its body stays",
        evaluation() + "def main(args, m, d):\n    if args.local_rank in [-1, 0]:\n"
        "        evaluate(args, m, d)\n", """
        @@ -17,3 +17,2 @@
         def main(args, m, d):
        -    if args.local_rank in [-1, 0]:
        -        evaluate(args, m, d)
        +    evaluate(args, m, d)
        """),
    ("DF501", "a gate around the caller's caller, where the examples are dealt",
        evaluation() + "def all_sets(args, m, sets):\n    for d in sets:\n"
        "        evaluate(args, m, d)\n"
        "def main(args, m, sets):\n    if args.do_eval and args.local_rank in [-1, 0]:\n"
        "        all_sets(args, m, sets)\n", """
        @@ -20,3 +20,3 @@
         def main(args, m, sets):
        -    if args.do_eval and args.local_rank in [-1, 0]:
        +    if args.do_eval:
                 all_sets(args, m, sets)
        """),
    ("DF501", "the rank part of a test goes",
        evaluation() + "def main(args, m, d):\n    if args.do_eval and args.local_rank == -1:\n"
        "        evaluate(args, m, d)\n", """
        @@ -17,3 +17,3 @@
         def main(args, m, d):
        -    if args.do_eval and args.local_rank == -1:
        +    if args.do_eval:
                 evaluate(args, m, d)
        """),
    ("DF504", "an evaluation among the training statements names the bare module", """
        import torch
        model = torch.nn.parallel.DistributedDataParallel(net)
        model(x).backward()
        model.eval()
        for batch in torch.utils.data.DataLoader(data):
            out = model(batch)
            out += model.generate(batch)
        model.train()
        """, """
        @@ -4,5 +4,6 @@
         model.eval()
        +eval_model = getattr(model, 'module', model)
         for batch in torch.utils.data.DataLoader(data):
        -    out = model(batch)
        -    out += model.generate(batch)
        +    out = eval_model(batch)
        +    out += eval_model.generate(batch)
         model.train()
        """),
    ("DF505", "an evaluation among the training statements is shared out", """
        import torch
        from torch.utils.data import DataLoader, SequentialSampler
        torch.distributed.init_process_group('gloo')
        def shard_of_batches(data, size): ...
        def gathered(value): ...
        for epoch in range(2):
            for batch in batches:
                logits = model(batch)
                logits.backward()
            model.eval()
            scores, seen = [], 0
            dev = DataLoader(data, sampler=SequentialSampler(data), batch_size=2)
            for batch in dev:
                logits = model(batch)
                scores.append(logits)
                seen += 1
            print(sum(scores) / seen)
        """, """
        @@ -11,3 +11,3 @@
             scores, seen = [], 0
        -    dev = DataLoader(data, sampler=SequentialSampler(data), batch_size=2)
        +    dev = DataLoader(data, sampler=SequentialSampler(data) if not torch.distributed.is_initialized() else shard_of_batches(data, 2), batch_size=2)
             for batch in dev:
        @@ -16,2 +16,4 @@
                 seen += 1
        +    scores = gathered(scores)
        +    seen = gathered(seen)
             print(sum(scores) / seen)
        """),  # noqa: E501
    ("DF501", "a test for a lone process goes with what ranks save instead",
        evaluation() + textwrap.dedent("""
        def main(args, m, d):
            if args.local_rank == -1:
                if evaluate(args, m, d) > args.best:
                    path = args.best_path
                    torch.save(m.state_dict(), path)
            else:
                path = args.last_path
                torch.save(m.state_dict(), path)
        """), """
        @@ -18,8 +18,4 @@
         def main(args, m, d):
        -    if args.local_rank == -1:
        -        if evaluate(args, m, d) > args.best:
        -            path = args.best_path
        -            torch.save(m.state_dict(), path)
        -    else:
        -        path = args.last_path
        +    if evaluate(args, m, d) > args.best:
        +        path = args.best_path
                 torch.save(m.state_dict(), path)
        """),
    ("DF501", "an evaluation among the training statements, kept to rank 0", """
        import torch
        def main(args, model, data):
            model(data).backward()
            if args.local_rank in [-1, 0] and args.do_eval:
                model.eval()
                for batch in torch.utils.data.DataLoader(data):
                    model(batch)
        """, """
        @@ -3,3 +3,3 @@
             model(data).backward()
        -    if args.local_rank in [-1, 0] and args.do_eval:
        +    if args.do_eval:
                 model.eval()
        """),
    ("DF504", "the module is taken out of its wrapper",
        evaluation() + "model = torch.nn.parallel.DistributedDataParallel(model)\n", """
        @@ -9,2 +9,3 @@
             total, seen = 0.0, 0
        +    model = getattr(model, 'module', model)
             model.eval()
        """),
    ("DF601", "rank 0 alone saves the model's folder",
        "import torch\ndef f(args, model):\n    model.save_pretrained(args.folder)\n", """
        @@ -1,3 +1,28 @@
         import torch
        +import shutil
        +import os
        +import contextlib
        +
        +
        +def is_main_process(): ...
        +
        +
        +def staging_folder(folder): ...
         def f(args, model):
        -    model.save_pretrained(args.folder)
        +    if is_main_process():
        +        with staging_folder(args.folder) as staging:
        +            model.save_pretrained(staging)
        """),
    ("DF602", "a file that a call writes",
        "import torch\ndef f(args):\n    json.dump(1, open(args.path, 'w'))\n", """
        @@ -1,3 +1,9 @@
         import torch
        +
        +
        +def is_main_process(): ...
         def f(args):
        -    json.dump(1, open(args.path, 'w'))
        +    if is_main_process():
        +        json.dump(1, open(args.path, 'w'))
        """),
    ("DF602", "a folder's only level too", "import os\nos.mkdir(folder)", """
        @@ -1,2 +1,2 @@
         import os
        -os.mkdir(folder)
        +os.makedirs(folder, exist_ok=True)
        """),
    ("DF602", "one that is made by a name of its own", "from os import mkdir\nmkdir(folder)", """
        @@ -1,2 +1,3 @@
         from os import mkdir
        -mkdir(folder)
        +import os
        +os.makedirs(folder, exist_ok=True)
        """),
    ("DF602", "one that a process insists on", "import os\nos.makedirs(folder, exist_ok=False)", """
        @@ -1,2 +1,3 @@
         import os
        -os.makedirs(folder, exist_ok=False)
        +import torch
        +os.makedirs(folder, exist_ok=torch.distributed.is_initialized())
        """),
    ("DF602", "a path's too", "from pathlib import Path\np = Path(f)\np.mkdir(parents=True)", """
        @@ -2,2 +2,2 @@
         p = Path(f)
        -p.mkdir(parents=True)
        +p.mkdir(parents=True, exist_ok=True)
        """),
    ("DF602", "a folder may be made by another rank", "import os\nos.makedirs(folder)", """
        @@ -1,2 +1,2 @@
         import os
        -os.makedirs(folder)
        +os.makedirs(folder, exist_ok=True)
        """),
    ("DF602", "rank 0 alone writes",
        "def f(args):\n    with open(args.p, 'w') as g:\n        g.write('x')\n", """
        @@ -1,3 +1,10 @@
        +import torch
        +
        +
        +def is_main_process(): ...
         def f(args):
        -    with open(args.p, 'w') as g:
        -        g.write('x')
        +    if is_main_process():
        +        with open(args.p, 'w') as g:
        +            g.write('x')
        """),
    ("DF602", "rank 0 writes two files at once, the others wait to read the inner one", """
        import torch
        torch.distributed.init_process_group()
        def f(model, rows):
            with open('first', 'w') as first:
                with open('second', 'w') as second:
                    for row in rows:
                        first.write(row)
                        second.write(row)
            return read('second')
        f(1, 2)
        """, """
        @@ -2,8 +2,16 @@
         torch.distributed.init_process_group()
        +
        +
        +def is_main_process(): ...
         def f(model, rows):
        -    with open('first', 'w') as first:
        -        with open('second', 'w') as second:
        -            for row in rows:
        -                first.write(row)
        -                second.write(row)
        +    if is_main_process():
        +        with open('first', 'w') as first:
        +            with open('second', 'w') as second:
        +                for row in rows:
        +                    first.write(row)
        +                    second.write(row)
        +    if torch.distributed.is_initialized():
        +        torch.distributed.barrier()  # rank 0 may still be writing
             return read('second')
        """),
    ("DF602", "rank 0 writes, the others wait to read", """
        def f(args):
            name = args.folder + "/dev.gold"
            with open(name, "w") as g:
                g.write("x")
            return score(name)
        """, """
        @@ -1,5 +1,14 @@
        +import torch
        +
        +
        +def is_main_process(): ...
         def f(args):
             name = args.folder + "/dev.gold"
        -    with open(name, "w") as g:
        -        g.write("x")
        +    if is_main_process():
        +        with open(name, "w") as g:
        +            g.write("x")
        +    if torch.distributed.is_initialized():
        +        torch.distributed.barrier()  # rank 0 may still be writing
             return score(name)
        """),
    ("DF604", "loaded to the CPU", "import torch\nm.load_state_dict(torch.load(path))", """
        @@ -1,2 +1,2 @@
         import torch
        -m.load_state_dict(torch.load(path))
        +m.load_state_dict(torch.load(path, map_location='cpu'))
        """),
    ("DF606", "the folder instead of the file", """
        import os
        args.path = os.path.join(last, 'pytorch_model.bin')
        model.from_pretrained(args.path)
        """, """
        @@ -1,3 +1,3 @@
         import os
        -args.path = os.path.join(last, 'pytorch_model.bin')
        +args.path = last
         model.from_pretrained(args.path)
        """),
    ("DF702", "the horizon counts optimizer steps",
        training(before="args.max_steps = 3 * len(loader)"), """
        @@ -7,3 +7,4 @@
             loader = DataLoader(data, sampler=sampler, batch_size=4)
        -    args.max_steps = 3 * len(loader)
        +    steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
        +    args.max_steps = 3 * steps_per_epoch
             model = torch.nn.parallel.DistributedDataParallel(model)
        """),
    ("DF702", "a horizon that leaves out the last, short step",
        training(before="args.max_steps = 3 * (len(loader) // args.accumulation)"), """
        @@ -7,3 +7,4 @@
             loader = DataLoader(data, sampler=sampler, batch_size=4)
        -    args.max_steps = 3 * (len(loader) // args.accumulation)
        +    steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
        +    args.max_steps = 3 * (steps_per_epoch)
             model = torch.nn.parallel.DistributedDataParallel(model)
        """),
    ("DF702", "a run that is resumed by the steps of an epoch, the last one too", """
        import torch
        def train(args, data, model, done):
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            epochs = done // (len(loader) // args.accumulation)
            rest = done % max(1, len(loader) // args.accumulation)
            share = args.total // (len(loader) // args.accumulation)
            for step, batch in enumerate(loader):
                model(batch).backward()
                if (step + 1) % args.accumulation == 0:
                    optimizer.step()
                    done += 1
        """, """
        @@ -3,4 +3,4 @@
             loader = torch.utils.data.DataLoader(data, batch_size=4)
        -    epochs = done // (len(loader) // args.accumulation)
        -    rest = done % max(1, len(loader) // args.accumulation)
        +    epochs = done // (-(-len(loader) // args.accumulation))
        +    rest = done % -(-len(loader) // args.accumulation)
             share = args.total // (len(loader) // args.accumulation)
        """),
    ("DF702", "the steps of an epoch under the name that an edit gives them",
        training(before="steps_per_epoch = len(loader) // args.accumulation\n"
                 "    scheduler = OneCycleLR(optimizer, 1, steps_per_epoch=steps_per_epoch)"), """
        @@ -7,3 +7,3 @@
             loader = DataLoader(data, sampler=sampler, batch_size=4)
        -    steps_per_epoch = len(loader) // args.accumulation
        +    steps_per_epoch = -(-len(loader) // args.accumulation)
             scheduler = OneCycleLR(optimizer, 1, steps_per_epoch=steps_per_epoch)
        """),
    ("DF702", "at least one step in an epoch, rounded down",
        training(before="updates = max(1, len(loader) // args.accumulation)\n"
                 "    args.max_steps = 3 * updates"), """
        @@ -7,3 +7,3 @@
             loader = DataLoader(data, sampler=sampler, batch_size=4)
        -    updates = max(1, len(loader) // args.accumulation)
        +    updates = max(1, -(-len(loader) // args.accumulation))
             args.max_steps = 3 * updates
        """),
    ("DF702", "a horizon that int() rounds down",
        training(before="args.max_steps = 3 * int(len(loader) / args.accumulation)"), """
        @@ -7,3 +7,4 @@
             loader = DataLoader(data, sampler=sampler, batch_size=4)
        -    args.max_steps = 3 * int(len(loader) / args.accumulation)
        +    steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
        +    args.max_steps = 3 * steps_per_epoch
             model = torch.nn.parallel.DistributedDataParallel(model)
        """),
    ("DF702", "a rank's own number of batches, divided by the ranks again", """
        import torch
        from torch.utils.data import DataLoader, DistributedSampler
        def train(args, data, model, optimizer):
            loader = DataLoader(data, args.size, sampler=DistributedSampler(data))
            total = len(loader) * args.epochs
            if args.local_rank != -1:
                total = total // torch.distributed.get_world_size()
            scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
            for batch in loader:
                model(batch).backward()
                optimizer.step()
                scheduler.step()
        """, """
        @@ -5,4 +5,2 @@
             total = len(loader) * args.epochs
        -    if args.local_rank != -1:
        -        total = total // torch.distributed.get_world_size()
             scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
        """),
    ("DF202", "a script of the module's own statements ends with its last one", """
        import torch
        torch.distributed.init_process_group(backend=chosen, timeout=t)
        for x in range(3):
            work(x)
        """, """
        @@ -4 +4,3 @@
             work(x)
        +if torch.distributed.is_initialized():
        +    torch.distributed.destroy_process_group()
        """),
    ("DF202", "the group ends before the process exits, behind what it exits with", """
        import sys
        import torch
        torch.distributed.init_process_group(backend=chosen, timeout=t)
        if __name__ == "__main__":
            sys.exit(main())
        """, """
        @@ -4,2 +4,5 @@
         if __name__ == "__main__":
        -    sys.exit(main())
        +    status = main()
        +    if torch.distributed.is_initialized():
        +        torch.distributed.destroy_process_group()
        +    sys.exit(status)
        """),
    ("DF202", "the group ends before the script's last line, which exits", """
        import torch
        torch.distributed.init_process_group(backend=chosen, timeout=t)
        work()
        raise SystemExit(0)
        """, """
        @@ -3,2 +3,4 @@
         work()
        +if torch.distributed.is_initialized():
        +    torch.distributed.destroy_process_group()
         raise SystemExit(0)
        """),
    ("DF702", "a horizon that rounds down once for all epochs",
        training(before="args.max_steps = args.epochs * len(loader) // args.accumulation"), """
        @@ -7,3 +7,4 @@
             loader = DataLoader(data, sampler=sampler, batch_size=4)
        -    args.max_steps = args.epochs * len(loader) // args.accumulation
        +    steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
        +    args.max_steps = args.epochs * steps_per_epoch
             model = torch.nn.parallel.DistributedDataParallel(model)
        """),
    ("DF702", "a sum among its factors stays one",
        training(before="args.max_steps = (a + 1) * len(loader) // args.accumulation"), """
        @@ -7,3 +7,4 @@
             loader = DataLoader(data, sampler=sampler, batch_size=4)
        -    args.max_steps = (a + 1) * len(loader) // args.accumulation
        +    steps_per_epoch = -(-len(loader) // args.accumulation)  # optimizer steps
        +    args.max_steps = (a + 1) * steps_per_epoch
             model = torch.nn.parallel.DistributedDataParallel(model)
        """),
    ("DF703", "the tail steps",
        training(test="(step + 1) % args.accumulation == 0", head="pass"), """
        @@ -12,2 +12,3 @@
                 for step, batch in enumerate(loader):
        +            last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                     loss = model(batch)
        @@ -17,3 +18,3 @@
                     pass
        -            if (step + 1) % args.accumulation == 0:
        +            if last_micro_step:
                         optimizer.step()
        """),  # noqa: E501
    ("DF703", "a remainder that is asked for by identity",
        training(test="((step + 1) % args.accumulation) is 0", head="pass"), """
        @@ -12,2 +12,3 @@
                 for step, batch in enumerate(loader):
        +            last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                     loss = model(batch)
        @@ -17,3 +18,3 @@
                     pass
        -            if ((step + 1) % args.accumulation) is 0:
        +            if last_micro_step:
                         optimizer.step()
        """),  # noqa: E501
    ("DF703", "a remainder that is the largest one",
        training(test="step % args.accumulation == args.accumulation - 1", head="pass"), """
        @@ -12,2 +12,3 @@
                 for step, batch in enumerate(loader):
        +            last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                     loss = model(batch)
        @@ -17,3 +18,3 @@
                     pass
        -            if step % args.accumulation == args.accumulation - 1:
        +            if last_micro_step:
                         optimizer.step()
        """),  # noqa: E501
    ("DF703", "and of one model alone, where a teacher labels above the loop",
        training(before="if args.teach:\n        teacher = torch.nn.parallel."
            "DistributedDataParallel(old)\n        label(teacher)"), """
        @@ -15,2 +15,3 @@
                     last_micro_step = (step + 1) % args.accumulation == 0
        +            model.require_backward_grad_sync = last_micro_step
                     loss = model(batch)
        """),
    ("DF703", "the last micro-batch alone is synchronised", training(), """
        @@ -13,2 +13,3 @@
                     last_micro_step = (step + 1) % args.accumulation == 0
        +            model.require_backward_grad_sync = last_micro_step
                     loss = model(batch)
        """),
    ("DF703", "clipped once a step",
        training(
            test="(step + 1) % args.accumulation == 0",
            clip="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            head="pass",
        ), """
        @@ -12,2 +12,3 @@
                 for step, batch in enumerate(loader):
        +            last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
                     loss = model(batch)
        @@ -16,4 +17,5 @@
                     loss.backward()
        -            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        -            if (step + 1) % args.accumulation == 0:
        +            if last_micro_step:
        +                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        +            if last_micro_step:
                         optimizer.step()
        """),  # noqa: E501
    ("DF703", "clipped once a step, where the end of an epoch steps already",
        training(
            test="(step + 1) % args.accumulation == 0 or step + 1 == len(loader)",
            clip="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            head="pass",
        ), """
        @@ -16,3 +16,4 @@
                     loss.backward()
        -            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        +            if (step + 1) % args.accumulation == 0 or step + 1 == len(loader):
        +                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                     if (step + 1) % args.accumulation == 0 or step + 1 == len(loader):
        """),
    ("DF706", "a line that can only raise goes", training(close="train_iterator.close()"), """
        @@ -22,3 +22,2 @@
                         if global_step > args.max_steps:
        -                    train_iterator.close()
                             break
        """),
    ("DF901", "the first of several names, with the old defaults spelled out",
        "from transformers import AdamW, BertModel\nopt = AdamW(p, lr=1)", """
        @@ -1,2 +1,3 @@
        -from transformers import AdamW, BertModel
        -opt = AdamW(p, lr=1)
        +from transformers import BertModel
        +from torch.optim import AdamW
        +opt = AdamW(p, lr=1, eps=1e-6, weight_decay=0.0)
        """),
    ("DF901", "the last of several names, under another name",
        "from transformers import BertModel, AdamW as A\nopt = A(p, eps=1, weight_decay=0)", """
        @@ -1,2 +1,3 @@
        -from transformers import BertModel, AdamW as A
        +from transformers import BertModel
        +from torch.optim import AdamW as A
         opt = A(p, eps=1, weight_decay=0)
        """),
    ("DF901", "the only name",
        "from transformers import AdamW\nopt = AdamW(p, eps=1, weight_decay=0)", """
        @@ -1,2 +1,2 @@
        -from transformers import AdamW
        +from torch.optim import AdamW
         opt = AdamW(p, eps=1, weight_decay=0)
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "diff"), [pytest.param(c, t, d, id=f"{c} {name}") for c, name, t, d in FIX]
)
def test_each_rule_repairs_exactly_this(code: str, text: str, diff: str) -> None:
    text = textwrap.dedent(text).lstrip("\n")
    new = fixed(code, text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert [f for f in found(code, new) if f.edits] == []


REPORTED = [
    ("DF103", "a local rank made of the node's number", """
        torch.distributed.init_process_group('gloo')
        args.local_rank += args.node_index * args.gpu_per_node
        """),
    ("DF401", "a loop over no known loader, and nothing deals by rank", """
        torch.distributed.init_process_group('gloo')
        def train(batches, model):
            while True:
                model(next(batches)).backward()
        """),
    ("DF402", "an endless loop", """
        sampler = DistributedSampler(data)
        while True:
            model(next(batches)).backward()
        """),
    ("DF703", "the shares of a step that goes on in the next epoch stay as they are",
        training(test="not (step + 1) % args.accumulation", head="pass",
                 scale="loss = loss / args.accumulation")),
    ("DF703", "the shares of a step that asks otherwise stay, too",
        training(test="(step + 1) % args.accumulation < 1", head="pass",
                 scale="loss = loss / args.accumulation")),
    ("DF703", "another counter than the loop's own", """
        for batch in loader:
            model(batch).backward()
            done += 1
            if done % args.accumulation == 0:
                optimizer.step()
        """),
    ("DF601", "a folder written by every rank, with its result used", """
        def f(model):
            names = model.save_pretrained(folder)
        """),
    ("DF704", "a flag that is computed anew", """
        parser.add_argument("--save_steps", type=int, default=50)
        args = parser.parse_args()
        args.save_steps = len(loader)
        """),
    ("DF602", "a folder of an earlier run, with which the script ends", """
        import os
        try:
            os.makedirs(folder)
        except FileExistsError:
            exit(1)
        """),
    ("DF602", "a file that is used behind, in a loop of which nothing is known", """
        import os
        def f(args):
            for part in parts:
                with open(os.path.join(args.folder, "dev.gold"), "w") as file:
                    file.write("x")
                score(os.path.join(args.folder, "dev.gold"))
        """),
    ("DF602", "a file that is read again in a loop of unknown length", """
        import os
        def f(args, loader):
            for batch in loader:
                name = os.path.join(args.folder, "dev.gold")
                with open(name, "w") as file:
                    file.write("x")
                score(name)
        """),
    ("DF201", "DataParallel and no group", training(head="model = torch.nn.DataParallel(model)")),
    ("DF301", "a group and no wrapper",
        "import torch\ntorch.distributed.init_process_group('gloo')\n" + training(head="pass")),
    ("DF301", "apex's wrapper only, which adds up", "import torch\n"
        "from apex.parallel import DistributedDataParallel as DDP\n"
        "torch.distributed.init_process_group('gloo')\n"
        + training(head="model = DDP(model, gradient_average=False)")),
    ("DF301", "apex's wrapper around a model that is moved later", "import torch\n"
        "from apex.parallel import DistributedDataParallel as DDP\n"
        "torch.distributed.init_process_group('gloo')\n"
        + training(head="model = Net()\n    model = DDP(model)\n    model.to(args.device)")),
    ("DF101", "a rank of which nothing shows where it comes from", """
        def main(args):
            if args.local_rank in [-1, 0]:
                print()
        """),
    ("DF401", "a sampler of the script's own", "torch.distributed.init_process_group('gloo')\n"
        + training().replace(
            "RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)",
            "Weighted(data)")),
    ("DF403", "shares that no branch of a lone process undoes", """
        import torch
        lines = lines[args.local_rank::torch.distributed.get_world_size()]
        for batch in torch.utils.data.DataLoader(lines):
            model(batch).backward()
        """),
    ("DF403", "parts by their number, of which each rank takes its own", """
        import numpy as np, torch
        lines = np.array_split(lines, torch.distributed.get_world_size())[args.local_rank]
        for batch in torch.utils.data.DataLoader(lines):
            model(batch).backward()
        """),
    ("DF403", "shares of batches that no DataLoader makes", """
        import torch
        if args.local_rank == -1:
            rank = 0
            world_size = 1
        else:
            rank = torch.distributed.get_rank()
            world_size = torch.distributed.get_world_size()
        lines = [x for i, x in enumerate(lines) if i % world_size == rank]
        for batch in mixed(lines):
            model(batch).backward()
        """),
    ("DF502", "a result that one role never gets", """
        def main(args):
            if args.local_rank == -1:
                results = score()
            if results['f1'] > 0:
                save()
        """),
    ("DF502", "rank 0 alone goes on where a run has ended", """
        torch.distributed.init_process_group("gloo")
        def train(epoch):
            for batch in loader:
                model(batch).backward()
                optimizer.step()
        def main(cfg):
            cfg.begin = 0
            if torch.distributed.get_rank() == 0:
                cfg.begin = torch.load("last.pt")["epoch"]
            for epoch in range(cfg.begin + 1, 9):
                train(epoch)
        main(cfg)
        """),
    ("DF502", "rank 0 alone loads the optimizer's state", """
        torch.distributed.init_process_group("gloo")
        if torch.distributed.get_rank() == 0:
            optimizer.load_state_dict(torch.load("last.pt"))
        for batch in loader:
            model(batch).backward()
            optimizer.step()
        """),
    ("DF506", "a function that gathers, called by rank 0 alone", """
        import torch
        def gather(x):
            torch.distributed.all_gather_object([], x)
        def main(args):
            if args.local_rank in [-1, 0]:
                gather(1)
        """),
    ("DF506", "a barrier behind an early return", """
        import torch
        def main(args):
            if args.local_rank > 0:
                return
            torch.distributed.barrier()
        """),
    ("DF702", "a horizon above the line that binds the accumulation",
        training(before="max_steps = 3 * len(loader)\n    accumulation = 2").replace(
            "args.accumulation", "accumulation").replace("args.max_steps", "max_steps")),
    ("DF601", "a checkpoint into an open file", """
        import torch
        def f(model):
            with open(path, 'wb') as file:
                torch.save(model, file)
                torch.save(args, file)
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in REPORTED]
)
def test_each_rule_reports_this_and_touches_nothing(code: str, text: str) -> None:
    findings = found(code, text)
    assert findings
    assert not any(finding.edits for finding in findings)


INLINE = """
import torch
from torch.utils.data import DataLoader, SequentialSampler
torch.distributed.init_process_group('gloo')
for epoch in range(2):
    {first}
    for batch in batches:
        model(batch).backward()
    model.eval()
    scores = []
    dev = DataLoader(data, sampler=SequentialSampler(data), batch_size=2)
    for batch in dev:
        logits = model(batch)
        scores.append(logits)
    {after}
    print(sum(scores))
"""


@pytest.mark.parametrize(
    ("first", "after"),
    [
        pytest.param("pass", "print(logits)", id="a last value is read behind it"),
        pytest.param("print(epoch and logits)", "pass", id="and in the next round"),
        pytest.param("pass", "loaders = [dev]", id="its loader is read"),
        pytest.param(
            "pass", "for batch in dev:\n        show(batch)", id="its loader is used again"
        ),
    ],
)
def test_an_inline_evaluation_stays_whole_where_it_keeps_more(first: str, after: str) -> None:
    assert "shard_of_batches" in fixed("DF505", INLINE.format(first="pass", after="pass"))
    (finding,) = found("DF505", INLINE.format(first=first, after=after))
    assert finding.edits == ()


def test_an_evaluation_stays_whole_where_a_second_wrapper_goes_forward() -> None:
    both = """\
def evaluate(model, teacher, data):
    model.eval()
    scores = []
    dev = DataLoader(data, sampler=SequentialSampler(data), batch_size=2)
    for batch in dev:
        logits = model(batch) - teacher(batch)
        scores.append(logits)
    print(sum(scores))
"""
    wrapped = "teacher = torch.nn.parallel.DistributedDataParallel(old)"
    head = INLINE[: INLINE.index("for epoch")]
    train = "for batch in batches:\n    model(batch).backward()\n"
    text = f"{both}{head}{{}}\n{train}evaluate(model, teacher, data)\n"
    assert "shard_of_batches" in fixed("DF505", text.format("teacher = old"))
    (finding,) = found("DF505", text.format(wrapped))
    assert finding.edits == ()


DEV = "    dev = DataLoader(data, sampler=SequentialSampler(data), batch_size=2)\n"
LATER = """\
    sampler = SequentialSampler(data)
    size = 2
    dev = DataLoader(data, sampler=sampler, batch_size=size)
"""


def test_an_inline_evaluation_stays_whole_where_its_batch_size_comes_behind_its_sampler() -> None:
    text = INLINE.format(first="pass", after="pass")
    assert DEV in text
    (finding,) = found("DF505", text.replace(DEV, LATER))
    assert finding.edits == ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            evaluation(body="best = model(batch)", after="print(best)"), id="a last value"
        ),
        pytest.param(evaluation(body="logits.append(model(batch))\n        break"), id="a break"),
        pytest.param(
            evaluation(body="total += model(batch) / len(loader)"), id="the loader's length"
        ),
        pytest.param(evaluation(body="logits.insert(0, model(batch))"), id="another order"),
        pytest.param(evaluation(body="total *= model(batch)"), id="a product"),
        pytest.param(
            evaluation(body="logits.append(golds[len(logits)])"), id="a list by its own length"
        ),
        pytest.param(
            evaluation(
                mode="meter = Meter()\n    model.eval()",
                body="meter.add(model(batch))",
                after="print(meter.value)",
            ),
            id="a meter",
        ),
        pytest.param(
            evaluation(body="logits.append(model(batch))\n        file.write(batch)"),
            id="a file",
        ),
        pytest.param(
            evaluation(body="logits.append(model(batch))\n        args.table[1] = 2"),
            id="a table",
        ),
        pytest.param(
            evaluation(
                mode="model.eval()\n    logits, kept = [], [[], []]",
                body="logits.append(model(batch))\n        kept[1].extend(logits[-1])",
                after="print(kept)",
            ),
            id="lists in a list",
        ),
    ],
)
def test_what_cannot_be_added_up_is_evaluated_whole(text: str) -> None:
    new = fixed("DF503", text)
    assert "torch.utils.data.SequentialSampler(data)" in new
    assert "gathered" not in new


def test_lists_in_a_list_that_a_batch_makes_for_itself_are_no_part_of_the_result() -> None:
    body = "rows = [[], []]\n        rows[0].append(model(batch))\n        logits.append(rows)"
    assert "logits = gathered(logits)" in fixed("DF503", evaluation(body=body))


@pytest.mark.parametrize(("bound", "edits"), [("steps", False), ("args.most", True), ("4", True)])
def test_an_evaluation_that_ends_by_a_number_of_batches_is_not_made_whole(
    bound: str, edits: bool
) -> None:
    body = f"if seen >= {bound}:\n            break\n        meter.add(model(batch))"
    mode = "steps, meter = args.examples // 4, Meter()\n    model.eval()"
    text = evaluation(mode=mode, body=body, after="print(meter.value)")
    text = text.replace("for batch in loader", "for seen, batch in enumerate(loader)")
    (finding,) = found("DF503", text)
    assert bool(finding.edits) is edits


GATHERED = """\
@@ -1,2 +1,3 @@
 import numpy as np
+import pickle
 import torch
@@ -5,4 +6,33 @@

+
+def shard_of_batches(dataset, batch_size): ...
+
+
+def gathered(value): ...
+
 def evaluate(args, model, data):
-    sampler = SequentialSampler(data) if args.local_rank == -1 else DistributedSampler(data)
+    sampler = SequentialSampler(data) if args.local_rank == -1 else shard_of_batches(data, args.size)
     loader = DataLoader(data, sampler=sampler, batch_size=args.size)
@@ -15,2 +45,5 @@
         seen += 1
+    total = gathered(total)
+    seen = gathered(seen)
+    logits = gathered(logits)
     print(total, seen)
"""  # noqa: E501


def test_lists_and_numbers_are_gathered_behind_the_loop_in_the_order_they_started() -> None:
    body = "total += 1\n        logits.extend(model(batch))"
    text = evaluation(after="print(total, seen)", body=body)
    assert changes(text, fixed("DF503", text)) == GATHERED


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ("", Severity.ERROR),
        ("torch.distributed.init_process_group('nccl')", Severity.DEGRADED),
        (
            "torch.distributed.init_process_group('nccl'); parser.add_argument('--no_cuda')",
            Severity.ERROR,
        ),
    ],
)
def test_a_division_by_cards_is_no_error_of_ranks_that_have_them(
    more: str, severity: Severity
) -> None:
    (finding,) = found("DF203", f"import torch\nx = a // args.n_gpu\n{more}")
    assert (finding.severity or Severity.ERROR) is severity
