"""Programs that keep every obligation, and violations to plant into them, one edit each.

``GOOD`` are texts, FIXTURES are scripts of the package that are patched first. A row of ``PLANTED``
is an obligation, the program, and one or more pairs of what is replaced and by what.
"""

from __future__ import annotations

# ruff: noqa: E501

GOOD = {}
GOOD["ddp"] = """\
import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torch.utils.tensorboard import SummaryWriter
from transformers import get_linear_schedule_with_warmup


def is_main_process():
    return dist.get_rank() == 0


def gathered(items):
    shares = [None] * dist.get_world_size()
    dist.all_gather_object(shares, items)
    return [item for share in shares for item in share]


def write_scores(scores, path):
    if is_main_process():
        with open(path, "w") as file:
            json.dump(scores, file)
    dist.barrier()


def read_scores(path):
    with open(path) as file:
        return json.load(file)


def evaluate(args, model, data):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(data[rank::world_size], batch_size=args.batch_size)
    model.eval()
    scores = []
    with torch.no_grad():
        for x, y in loader:
            scores.extend((model(x) - y).abs().tolist())
    model.train()
    scores = gathered(scores)
    path = os.path.join(args.output_dir, "scores.json")
    write_scores(scores, path)
    return sum(read_scores(path))


def train(args, model, data, held_out):
    net = DDP(model)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=args.batch_size)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr)
    total = len(loader) // args.accumulation * args.epochs
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, total)
    scaler = torch.amp.GradScaler()
    writer = SummaryWriter(args.output_dir) if is_main_process() else None
    global_step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            loss = ((net(x) - y) ** 2).mean()
            loss = loss / args.accumulation
            scaler.scale(loss).backward()
            if (step + 1) % args.accumulation == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                optimizer.zero_grad()
                global_step += 1
                if global_step % args.logging_steps == 0:
                    if is_main_process():
                        writer.add_scalar("loss", loss.item(), global_step)
                if global_step % args.eval_steps == 0:
                    evaluate(args, model, held_out)
        if is_main_process():
            torch.save(net.module.state_dict(), os.path.join(args.output_dir, "model.pt"))
        dist.barrier()
        model.load_state_dict(torch.load(os.path.join(args.output_dir, "model.pt")))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--logging_steps", type=int, default=10)
    parser.add_argument("--eval_steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--output_dir", required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    os.makedirs(args.output_dir, exist_ok=True)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    held_out = list(TensorDataset(torch.randn(13, 4), torch.randn(13, 1)))
    model = torch.nn.Linear(4, 1)
    train(args, model, data, held_out)
    evaluate(args, model, held_out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

FIXTURES = ("bigclonebench/run.py", "shapes/trainer_class.py", "shapes/dataparallel_only.py")

PLANTED: list[tuple[str, str, tuple[tuple[str, str], ...]]] = [
    # O1
    (
        "O1",
        "ddp",
        (
            (
                "    args = parser.parse_args()\n",
                "    print(os.name)\n    import os\n    args = parser.parse_args()\n",
            ),
        ),
    ),
    (
        "O1",
        "ddp",
        (("    optimizer = torch.optim.SGD(net", "    optimiser = torch.optim.SGD(net"),),
    ),
    ("O1", "ddp", (("import json\n", ""),)),
    (
        "O1",
        "ddp",
        (("import json\n", "import json\nfrom extras import *\nis_main_process()\n"),),
    ),
    ("O1", "ddp", (("def is_main_process():\n    return dist.get_rank() == 0\n", ""),)),
    (
        "O1",
        "ddp",
        (
            (
                "batch_size=args.batch_size)\n    optimizer",
                "batch_size=args.batch_size, sampler=sampler)\n    optimizer",
            ),
        ),
    ),
    (
        "O1",
        "ddp",
        (("    global_step = 0\n", "    if is_main_process():\n        global_step = 0\n"),),
    ),
    (
        "O1",
        "ddp",
        (
            (
                '    path = os.path.join(args.output_dir, "scores.json")\n',
                '    if is_main_process():\n        path = os.path.join(args.output_dir, "scores.json")\n',
            ),
        ),
    ),
    ("O1", "ddp", (("    held_out = list", "    del data\n    held = list"),)),
    ("O1", "ddp", (("    return sum(", "    break\n    return sum("),)),
    ("O1", "ddp", (("    torch.manual_seed(0)\n", "    torch.manual_seed(seed)\n    seed = 0\n"),)),
    (
        "O1",
        "ddp",
        (
            ("    scaler = torch.amp.GradScaler()\n", ""),
            (
                "    global_step = 0\n",
                "    global_step = 0\n    if args.lr:\n        scaler = torch.amp.GradScaler()\n    else:\n        scaler.update()\n",
            ),
        ),
    ),
    ("O1", "bigclonebench/run.py", (("def is_main_process():", "def is_the_main_process():"),)),
    # O2
    ("O2", "ddp", (("    net = DDP(model)\n", "    net = model\n"),)),
    (
        "O2",
        "ddp",
        (("    net = DDP(model)\n", "    net = model\n    net == DDP(model)\n"),),
    ),
    (
        "O2",
        "ddp",
        (("    net = DDP(model)\n", "    net = DDP(model) if is_main_process() else model\n"),),
    ),
    (
        "O2",
        "ddp",
        (
            (
                "    net = DDP(model)\n",
                "    net = model\n    if not is_main_process():\n        net = DDP(model)\n",
            ),
        ),
    ),
    ("O2", "ddp", (("((net(x) - y)", "((model(x) - y)"),)),
    ("O2", "ddp", (("((net(x) - y)", "((net.module(x) - y)"),)),
    ("O2", "ddp", (("    net = DDP(model)\n", "    net = DDP(DDP(model))\n"),)),
    ("O2", "ddp", (("    net = DDP(model)\n", "    net = DDP(model)\n    net = DDP(net)\n"),)),
    (
        "O2",
        "ddp",
        (
            (
                "            scaler.scale(loss).backward()\n",
                "            with net.no_sync():\n                scaler.scale(loss).backward()\n",
            ),
        ),
    ),
    ("O2", "ddp", (("    net = DDP(model)\n", "    net = torch.nn.DataParallel(model)\n"),)),
    (
        "O2",
        "ddp",
        (
            ("    net = DDP(model)\n", "    net = model\n"),
            (
                "    dist.destroy_process_group()\n",
                "    model = DDP(model)\n    dist.destroy_process_group()\n",
            ),
            (
                "    train(args, model, data, held_out)\n",
                "    pretrain(model)\n    train(args, model, data, held_out)\n",
            ),
            (
                "def main():\n",
                "def pretrain(model):\n    wrapped = DDP(model)\n    wrapped(torch.zeros(1, 4))\n\n\ndef main():\n",
            ),
            ("    model = DDP(model)\n    dist.d", "    dist.d"),
        ),
    ),
    (
        "O2",
        "bigclonebench/run.py",
        (
            (
                "    if args.local_rank != -1:\n        model = torch.nn.parallel.DistributedDataParallel(",
                "    if args.local_rank == -1:\n        model = torch.nn.parallel.DistributedDataParallel(",
            ),
        ),
    ),
    # O4
    ("O4", "ddp", (("        sampler.set_epoch(epoch)\n", ""),)),
    ("O4", "ddp", (("sampler.set_epoch(epoch)", "sampler.set_epoch(0)"),)),
    ("O4", "ddp", (("= DistributedSampler(data)", "= DistributedSampler(data, num_replicas=4)"),)),
    (
        "O4",
        "ddp",
        (
            (
                "        sampler.set_epoch(epoch)\n",
                "        if is_main_process():\n            sampler.set_epoch(epoch)\n",
            ),
        ),
    ),
    (
        "O4",
        "ddp",
        (
            ("    sampler = DistributedSampler(data)\n", "    sampler = RandomSampler(data)\n"),
            ("        sampler.set_epoch(epoch)\n", ""),
        ),
    ),
    (
        "O4",
        "ddp",
        (
            ("DataLoader(data, sampler=sampler, batch", "DataLoader(data, shuffle=True, batch"),
            ("        sampler.set_epoch(epoch)\n", ""),
        ),
    ),
    ("O4", "ddp", (("DataLoader(data, sampler=sampler, batch", "DataLoader(data, batch"),)),
    (
        "O4",
        "ddp",
        (
            (
                "DataLoader(data, sampler=sampler, batch",
                "DataLoader(data, sampler=sampler, shuffle=True, batch",
            ),
        ),
    ),
    (
        "O4",
        "ddp",
        (
            (
                "    sampler = DistributedSampler(data)\n",
                "    data = data[dist.get_rank() :: dist.get_world_size()]\n    sampler = DistributedSampler(data)\n",
            ),
        ),
    ),
    (
        "O4",
        "ddp",
        (
            (
                "    sampler = DistributedSampler(data)\n",
                "    if is_main_process():\n        sampler = RandomSampler(data)\n    else:\n        sampler = RandomSampler(data)\n",
            ),
            ("        sampler.set_epoch(epoch)\n", ""),
        ),
    ),
    (
        "O4",
        "ddp",
        (
            (
                "def gathered",
                "class Lines(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        yield from range(9)\n\n\ndef gathered",
            ),
            (
                "    sampler = DistributedSampler(data)\n",
                "    data = Lines()\n    sampler = DistributedSampler(data)\n",
            ),
        ),
    ),
    (
        "O4",
        "bigclonebench/run.py",
        (("else DistributedSampler(train_dataset)", "else RandomSampler(train_dataset)"),),
    ),
    # O9
    ("O9", "ddp", (("scores.extend((model(x) - y).abs().tolist())", "scores.append(lambda: 0)"),)),
    (
        "O9",
        "ddp",
        (
            ("    scores = []\n", "    scores = []\n    class Score:\n        pass\n"),
            ("scores.extend((model(x) - y).abs().tolist())", "scores.append(Score())"),
        ),
    ),
    (
        "O9",
        "ddp",
        (
            (
                "    scores = []\n",
                "    scores = []\n    Score = collections.namedtuple('Score', 'value')\n",
            ),
            ("scores.extend((model(x) - y).abs().tolist())", "scores.append(Score(1))"),
            ("import json\n", "import collections\nimport json\n"),
        ),
    ),
    (
        "O9",
        "ddp",
        (
            ("import json\n", "import collections\nimport json\n"),
            ("def is_main", "Score = collections.namedtuple('Scored', 'value')\n\n\ndef is_main"),
            ("scores.extend((model(x) - y).abs().tolist())", "scores.append(Score(1))"),
        ),
    ),
    (
        "O9",
        "ddp",
        (
            (
                "    scores = gathered(scores)\n",
                "    scores = gathered((item for item in scores))\n",
            ),
        ),
    ),
    (
        "O9",
        "ddp",
        (("    scores = gathered(scores)\n", "    scores = gathered([open(args.output_dir)])\n"),),
    ),
    (
        "O9",
        "ddp",
        (
            (
                "    scores = gathered(scores)\n",
                "    scores = gathered([lambda: score for score in scores])\n",
            ),
        ),
    ),
    (
        "O9",
        "ddp",
        (
            (
                "    dist.all_gather_object(shares, items)\n",
                "    dist.all_gather_object(shares, lambda: items)\n",
            ),
        ),
    ),
    (
        "O9",
        "ddp",
        (
            (
                "    dist.all_gather_object(shares, items)\n",
                "    dist.all_gather_object(shares, (item for item in items))\n",
            ),
        ),
    ),
    (
        "O9",
        "ddp",
        (
            (
                "    scores = gathered(scores)\n",
                "    from typing import NamedTuple\n    Row = NamedTuple('Row', [('score', float)])\n    scores = gathered([Row(score) for score in scores])\n",
            ),
        ),
    ),
    # O10
    (
        "O10",
        "ddp",
        (
            (
                "    train(args, model, data, held_out)\n",
                "    dist.init_process_group('gloo')\n    train(args, model, data, held_out)\n",
            ),
        ),
    ),
    (
        "O10",
        "ddp",
        (
            (
                "    net = DDP(model)\n",
                "    dist.init_process_group('gloo')\n    net = DDP(model)\n",
            ),
        ),
    ),
    (
        "O10",
        "ddp",
        (
            (
                '    dist.init_process_group("gloo")\n',
                "    if int(os.environ['RANK']) == 0:\n        dist.init_process_group(\"gloo\")\n",
            ),
        ),
    ),
    (
        "O10",
        "ddp",
        (
            (
                '    dist.init_process_group("gloo")\n',
                "    if int(os.environ['RANK']) > 0:\n        dist.init_process_group(\"gloo\")\n",
            ),
        ),
    ),
    (
        "O10",
        "ddp",
        (
            (
                '    dist.init_process_group("gloo")\n',
                '    dist.barrier()\n    dist.init_process_group("gloo")\n',
            ),
        ),
    ),
    (
        "O10",
        "ddp",
        (
            ("    dist.destroy_process_group()\n", ""),
            (
                "    train(args, model, data, held_out)\n",
                "    dist.destroy_process_group()\n    train(args, model, data, held_out)\n",
            ),
        ),
    ),
    (
        "O10",
        "ddp",
        (
            (
                "    dist.destroy_process_group()\n",
                "    dist.destroy_process_group()\n    dist.barrier()\n",
            ),
        ),
    ),
    (
        "O10",
        "ddp",
        (
            (
                "    evaluate(args, model, held_out)\n    dist.destroy_process_group()\n",
                "    dist.destroy_process_group()\n    evaluate(args, model, held_out)\n",
            ),
        ),
    ),
    (
        "O10",
        "ddp",
        (
            ('    dist.init_process_group("gloo")\n', ""),
            (
                "    evaluate(args, model, held_out)\n    dist.d",
                '    evaluate(args, model, held_out)\n    dist.init_process_group("gloo")\n    dist.d',
            ),
        ),
    ),
    (
        "O10",
        "ddp",
        (
            ("    torch.manual_seed(0)\n", "    set_up()\n"),
            (
                "def main():\n",
                "def set_up():\n    dist.init_process_group('gloo')\n    torch.manual_seed(0)\n\n\ndef main():\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "    scores = gathered(scores)\n",
                "    if is_main_process():\n        dist.barrier()\n    scores = gathered(scores)\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "    scores = gathered(scores)\n",
                "    if dist.get_rank() > 0:\n        dist.barrier()\n    scores = gathered(scores)\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            ("    dist.barrier()\n\n\ndef read", "\n\ndef read"),
            (
                "            json.dump(scores, file)\n",
                "            json.dump(scores, file)\n        dist.barrier()\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "                    evaluate(args, model, held_out)\n",
                "                    if is_main_process():\n                        evaluate(args, model, held_out)\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "    evaluate(args, model, held_out)\n    dist.d",
                "    if int(os.environ['RANK']) == 0:\n        evaluate(args, model, held_out)\n    dist.d",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "    train(args, model, data, held_out)\n",
                "    if is_main_process():\n        train(args, model, data, held_out)\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "                global_step += 1\n",
                "                global_step += 1\n                if is_main_process() and global_step > 9:\n                    break\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "                global_step += 1\n",
                "                global_step += 1\n                if dist.get_rank() == 1:\n                    return\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "            loss = loss / args.accumulation\n",
                "            if loss.item() > 9:\n                break\n            loss = loss / args.accumulation\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "                global_step += 1\n",
                "                global_step += 1\n                if is_main_process() and global_step > 9:\n                    exit()\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "                global_step += 1\n",
                "                global_step += 1\n                import time\n                if time.time() > args.end:\n                    return\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "    model.train()\n    scores",
                "    model.train()\n    if not is_main_process():\n        return 0\n    scores",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "    scores = gathered(scores)\n",
                "    if not os.path.exists('cache'):\n        os.makedirs('cache', exist_ok=True)\n        dist.barrier()\n    scores = gathered(scores)\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "    dist.all_gather_object(shares, items)\n",
                "    if is_main_process():\n        dist.all_gather_object(shares, items)\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "            loss = loss / args.accumulation\n",
                "            loss = loss / args.accumulation\n            if loss.item() > 9:\n                gathered([loss.item()])\n",
            ),
        ),
    ),
    (
        "O6",
        "ddp",
        (
            (
                "        dist.barrier()\n        model.load",
                "        if is_main_process():\n            dist.barrier()\n        model.load",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            (
                "        if is_main_process():\n            torch.save(",
                "        if True:\n            torch.save(",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            (
                '    if is_main_process():\n        with open(path, "w")',
                '    if True:\n        with open(path, "w")',
            ),
        ),
    ),
    ("O7", "ddp", (("        dist.barrier()\n        model.load", "        model.load"),)),
    ("O7", "ddp", (("    dist.barrier()\n\n\ndef read", "\n\ndef read"),)),
    ("O7", "ddp", ((", exist_ok=True)", ")"),)),
    (
        "O7",
        "ddp",
        (
            (
                "    os.makedirs(args.output_dir, exist_ok=True)\n",
                "    os.makedirs(args.output_dir, exist_ok=True)\n    os.mkdir(os.path.join(args.output_dir, 'logs'))\n",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            (
                "    os.makedirs(args.output_dir, exist_ok=True)\n",
                "    os.makedirs(args.output_dir, exist_ok=True)\n    os.remove(os.path.join(args.output_dir, 'log'))\n",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            ("import json\n", "import json\nimport pandas\n"),
            (
                "    scores = gathered(scores)\n",
                "    scores = gathered(scores)\n    frame = pandas.DataFrame(scores)\n    frame.to_csv('scores.csv')\n",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            ("import json\n", "import json\nimport pandas\n"),
            (
                "    scores = gathered(scores)\n",
                "    scores = gathered(scores)\n    frame = pandas.DataFrame(scores)\n    frame.to_pickle('scores.pkl')\n",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            ("import json\n", "import json\nimport matplotlib.pyplot as plt\n"),
            (
                "    scores = gathered(scores)\n",
                "    scores = gathered(scores)\n    plt.savefig('loss.png')\n",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            ("import json\n", "import json\nimport numpy as np\n"),
            (
                "    scores = gathered(scores)\n",
                "    scores = gathered(scores)\n    np.save('scores.npy', scores)\n",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            ("import json\n", "import json\nfrom pathlib import Path\n"),
            (
                "    scores = gathered(scores)\n",
                "    scores = gathered(scores)\n    Path('logs').mkdir()\n",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            ("import json\n", "import json\nimport logging\n"),
            (
                "    scores = gathered(scores)\n",
                "    scores = gathered(scores)\n    logging.FileHandler('train.log')\n",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            ("import json\n", "import json\nfrom pathlib import Path\n"),
            (
                "    scores = gathered(scores)\n",
                "    scores = gathered(scores)\n    Path('done').write_text('1')\n",
            ),
        ),
    ),
    (
        "O7",
        "ddp",
        (
            (
                "    model.train()\n    scores",
                "    dump(scores, args)\n    model.train()\n    scores",
            ),
            (
                "def write_scores",
                "def dump(scores, args):\n    with open(os.path.join(args.output_dir, 'raw'), 'w') as file:\n        json.dump(scores, file)\n\n\ndef write_scores",
            ),
        ),
    ),
    (
        "O3",
        "ddp",
        (
            (
                "            scaler.scale(loss).backward()\n",
                "            scaler.scale(loss).backward()\n            net(x).mean().backward()\n",
            ),
        ),
    ),
    (
        "O3",
        "ddp",
        (
            (
                "            scaler.scale(loss).backward()\n",
                "            (loss * 0.1).backward(retain_graph=True)\n            scaler.scale(loss).backward()\n",
            ),
        ),
    ),
    ("O3", "ddp", (("                scaler.unscale_(optimizer)\n", ""),)),
    ("O3", "ddp", (("                scaler.update()\n", ""),)),
    (
        "O3",
        "ddp",
        (
            (
                "                scaler.step(optimizer)\n                scaler.update()\n",
                "                optimizer.step()\n",
            ),
        ),
    ),
    (
        "O3",
        "ddp",
        (
            (
                "            loss = loss / args.accumulation\n",
                "            loss = loss / args.accumulation\n            loss = loss / args.accumulation\n",
            ),
        ),
    ),
    (
        "O3",
        "ddp",
        (
            (
                "            scaler.scale(loss).backward()\n",
                "            scaler.scale(loss / args.accumulation).backward()\n",
            ),
        ),
    ),
    (
        "O3",
        "ddp",
        (
            (
                "            loss = ((net(x) - y) ** 2).mean()\n",
                "            loss = squares(net(x), y, args)\n",
            ),
            (
                "def train(",
                "def squares(out, y, args):\n    return ((out - y) ** 2).mean() / args.accumulation\n\n\ndef train(",
            ),
        ),
    ),
    (
        "O3",
        "ddp",
        (
            (
                "            loss = loss / args.accumulation\n",
                "            loss = loss / args.accumulation\n            loss /= args.accumulation\n",
            ),
        ),
    ),
    (
        "O3",
        "ddp",
        (
            (
                "            loss = loss / args.accumulation\n",
                "            parts = args.accumulation\n            loss = loss / args.accumulation\n            loss = loss / parts\n",
            ),
        ),
    ),
    (
        "O3",
        "ddp",
        (
            (
                "                scaler.unscale_(optimizer)\n                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n",
                "                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n                scaler.unscale_(optimizer)\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "    total = len(loader) // args.accumulation * args.epochs\n",
                "    total = len(loader) * args.epochs\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "    total = len(loader) // args.accumulation * args.epochs\n",
                "    total = len(loader) // args.accumulation // args.accumulation * args.epochs\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "    total = len(loader) // args.accumulation * args.epochs\n",
                "    total = len(loader) // dist.get_world_size() // args.accumulation * args.epochs\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "    total = len(loader) // args.accumulation * args.epochs\n",
                "    total = len(loader) * dist.get_world_size() // args.accumulation * args.epochs\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "    total = len(loader) // args.accumulation * args.epochs\n",
                "    total = len(data) // args.batch_size // args.accumulation * args.epochs\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "    total = len(loader) // args.accumulation * args.epochs\n",
                "    parts = args.accumulation\n    total = len(loader) // parts // args.accumulation * args.epochs\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "    total = len(loader) // args.accumulation * args.epochs\n",
                "    batches = len(loader)\n    total = batches * args.epochs\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "    total = len(loader) // args.accumulation * args.epochs\n",
                "    per_epoch = len(data) // (args.batch_size * args.accumulation)\n    total = per_epoch * args.epochs\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "get_linear_schedule_with_warmup(optimizer, 0, total)",
                "get_linear_schedule_with_warmup(\n        optimizer, num_warmup_steps=0, num_training_steps=args.epochs * len(loader)\n    )",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            ("                scheduler.step()\n", ""),
            (
                "            scaler.scale(loss).backward()\n",
                "            scaler.scale(loss).backward()\n            scheduler.step()\n",
            ),
        ),
    ),
    (
        "O5",
        "ddp",
        (
            (
                "get_linear_schedule_with_warmup(optimizer, 0, total)",
                "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 - n / total)",
            ),
            (
                "    total = len(loader) // args.accumulation * args.epochs\n",
                "    total = len(loader) * args.epochs\n",
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                '                if global_step % args.logging_steps == 0:\n                    if is_main_process():\n                        writer.add_scalar("loss", loss.item(), global_step)\n',
                '            if global_step % args.logging_steps == 0:\n                if is_main_process():\n                    writer.add_scalar("loss", loss.item(), global_step)\n',
            ),
            (
                "                if global_step % args.eval_steps == 0:\n                    evaluate(args, model, held_out)\n",
                "",
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                "                if global_step % args.eval_steps == 0:\n                    evaluate(args, model, held_out)\n",
                "            if global_step % args.eval_steps == 0:\n                evaluate(args, model, held_out)\n",
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                "                if global_step % args.eval_steps == 0:\n                    evaluate(args, model, held_out)\n",
                "            if args.eval_steps and not global_step % args.eval_steps:\n                evaluate(args, model, held_out)\n",
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                "                if global_step % args.eval_steps == 0:\n                    evaluate(args, model, held_out)\n",
                "            if global_step > 0 and global_step % args.eval_steps == 0:\n                evaluate(args, model, held_out)\n",
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                '                if global_step % args.logging_steps == 0:\n                    if is_main_process():\n                        writer.add_scalar("loss", loss.item(), global_step)\n',
                '                if global_step % args.logging_steps == 0:\n                    writer.add_scalar("loss", loss.item(), global_step)\n',
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                "    writer = SummaryWriter(args.output_dir) if is_main_process() else None\n",
                "    writer = None\n    if is_main_process():\n        writer = SummaryWriter(args.output_dir)\n",
            ),
            (
                '                if global_step % args.logging_steps == 0:\n                    if is_main_process():\n                        writer.add_scalar("loss", loss.item(), global_step)\n',
                '                if global_step % args.logging_steps == 0:\n                    writer.add_scalar("loss", loss.item(), global_step)\n',
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                "        dist.barrier()\n        model.load",
                "        dist.barrier()\n        writer.flush()\n        model.load",
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                "                if global_step % args.eval_steps == 0:\n                    evaluate(args, model, held_out)\n",
                "                if global_step % args.eval_steps == 0:\n                    evaluate(args, model, held_out)\n            if global_step % 100 == 0:\n                print(loss.item())\n",
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                "                if global_step % args.eval_steps == 0:\n                    evaluate(args, model, held_out)\n",
                "                if global_step % args.eval_steps == 0:\n                    evaluate(args, model, held_out)\n            if global_step % args.eval_steps == 0:\n                scores = evaluate(args, model, held_out)\n                print(scores)\n",
            ),
        ),
    ),
    (
        "O8",
        "ddp",
        (
            (
                "        dist.barrier()\n        model.load",
                "        dist.barrier()\n        if epoch > 0:\n            writer.close()\n        model.load",
            ),
        ),
    ),
    ("O12", "ddp", (("net.module.state_dict()", "net.state_dict()"),)),
    ("O12", "ddp", (("net.module.state_dict()", '{"net": net}'),)),
    (
        "O12",
        "ddp",
        (
            (
                '            torch.save(net.module.state_dict(), os.path.join(args.output_dir, "model.pt"))\n',
                "            keep(net, args)\n",
            ),
            (
                "def train(",
                'def keep(model, args):\n    torch.save(model.state_dict(), os.path.join(args.output_dir, "model.pt"))\n\n\ndef train(',
            ),
        ),
    ),
    (
        "O12",
        "ddp",
        (
            ("    net = DDP(model)\n", "    net = DDP(model).cuda()\n"),
            ("net.module.state_dict()", "net.state_dict()"),
        ),
    ),
    (
        "O12",
        "ddp",
        (
            (
                '            torch.save(net.module.state_dict(), os.path.join(args.output_dir, "model.pt"))\n',
                '            torch.save(net.state_dict(), f=os.path.join(args.output_dir, "model.pt"))\n',
            ),
        ),
    ),
    (
        "O12",
        "ddp",
        (
            (
                '            torch.save(net.module.state_dict(), os.path.join(args.output_dir, "model.pt"))\n',
                '            save(net.state_dict(), os.path.join(args.output_dir, "model.pt"))\n',
            ),
            ("import torch\n", "import torch\nfrom torch import save\n"),
        ),
    ),
]
