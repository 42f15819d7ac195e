"""A small legacy script that needs no library but torch, and ways to spoil what patching made of it.

Every sabotage edits the *patched* script as a well-meaning person might, and has a row of the
contract that must break for it.
"""
# ruff: noqa: E501 (legacy lines are long)

from __future__ import annotations

import json
import random
from pathlib import Path

from attrs import frozen
from ddpfix.patcher.engine.patch import patch

LEGACY = """
import argparse
import json
import logging
import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

logger = logging.getLogger(__name__)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Dropout(0.2), nn.Tanh(),
                                    nn.Linear(16, 2))
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x, labels):
        logits = self.layers(x * self.scale)
        return nn.functional.cross_entropy(logits, labels), logits


class Rows(Dataset):
    def __init__(self, args, name):
        with open(os.path.join(args.data_dir, name)) as f:
            rows = [json.loads(line) for line in f]
        # a part of the rows is enough
        self.rows = random.sample(rows, len(rows) // 2) if name == "train.jsonl" else rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.tensor(self.rows[i]["x"]), torch.tensor(self.rows[i]["y"])


def set_seed(seed=42):
    random.seed(seed)
    torch.manual_seed(seed)


def get_linear_schedule(optimizer, num_training_steps):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: max(0.0, 1 - n / num_training_steps))


def train(args, train_dataset, model):
    args.train_batch_size = args.per_gpu_train_batch_size * max(1, args.n_gpu)
    train_sampler = RandomSampler(train_dataset) if args.local_rank == -1 else DistributedSampler(train_dataset)
    train_dataloader = DataLoader(train_dataset, sampler=train_sampler, batch_size=args.train_batch_size)
    args.max_steps = args.epoch * len(train_dataloader)
    args.save_steps = len(train_dataloader)
    model.to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, eps=1e-5, weight_decay=0.0)
    scheduler = get_linear_schedule(optimizer, num_training_steps=args.max_steps)
    if args.n_gpu > 1:
        model = torch.nn.DataParallel(model)
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank],
                                                          output_device=args.local_rank,
                                                          find_unused_parameters=True)
    global_step = 0
    best_acc = -1.0
    model.zero_grad()
    set_seed(args.seed)
    for epoch in range(args.epoch):
        for step, batch in enumerate(train_dataloader):
            model.train()
            x, labels = batch[0].to(args.device), batch[1].to(args.device)
            loss, _ = model(x, labels)
            if args.n_gpu > 1:
                loss = loss.mean()
            if args.gradient_accumulation_steps > 1:
                loss = loss / args.gradient_accumulation_steps
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            if (step + 1) % args.gradient_accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
                global_step += 1
                if args.local_rank in [-1, 0] and args.save_steps > 0 and global_step % args.save_steps == 0:
                    if args.local_rank == -1 and args.evaluate_during_training:
                        results = evaluate(args, model)
                    if results["eval_acc"] > best_acc:
                        best_acc = results["eval_acc"]
                        output_dir = os.path.join(args.output_dir, "checkpoint-best")
                        if not os.path.exists(output_dir):
                            os.makedirs(output_dir)
                        model_to_save = model.module if hasattr(model, "module") else model
                        output_dir = os.path.join(output_dir, "model.bin")
                        torch.save(model_to_save.state_dict(), output_dir)
    return global_step


def evaluate(args, model):
    eval_dataset = Rows(args, "valid.jsonl")
    args.eval_batch_size = args.per_gpu_eval_batch_size * max(1, args.n_gpu)
    eval_sampler = SequentialSampler(eval_dataset) if args.local_rank == -1 else DistributedSampler(eval_dataset)
    eval_dataloader = DataLoader(eval_dataset, sampler=eval_sampler, batch_size=args.eval_batch_size)
    model.eval()
    logits = []
    labels = []
    for batch in eval_dataloader:
        x, y = batch[0].to(args.device), batch[1].to(args.device)
        with torch.no_grad():
            _, logit = model(x, y)
            logits.append(logit.cpu())
            labels.append(y.cpu())
    logits = torch.cat(logits, 0)
    labels = torch.cat(labels, 0)
    result = {"eval_acc": (logits.argmax(1) == labels).float().mean().item()}
    for name, score in sorted(result.items()):
        logger.info("  %s = %.4f", name, score)
    return result


def test(args, model):
    eval_dataset = Rows(args, "test.jsonl")
    args.eval_batch_size = args.per_gpu_eval_batch_size * max(1, args.n_gpu)
    eval_sampler = SequentialSampler(eval_dataset) if args.local_rank == -1 else DistributedSampler(eval_dataset)
    eval_dataloader = DataLoader(eval_dataset, sampler=eval_sampler, batch_size=args.eval_batch_size)
    model.eval()
    logits = []
    for batch in eval_dataloader:
        x, y = batch[0].to(args.device), batch[1].to(args.device)
        with torch.no_grad():
            _, logit = model(x, y)
            logits.append(logit.cpu())
    preds = torch.cat(logits, 0).argmax(1)
    with open(os.path.join(args.output_dir, "predictions.txt"), "w") as f:
        for row, pred in zip(eval_dataset.rows, preds.tolist()):
            f.write("%s\\t%d\\n" % (row["id"], pred))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--train_batch_size", type=int, default=8)
    parser.add_argument("--eval_batch_size", type=int, default=4)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=1e-2)
    parser.add_argument("--max_grad_norm", type=float, default=0.5)
    parser.add_argument("--epoch", type=int, default=2)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--evaluate_during_training", action="store_true")
    parser.add_argument("--no_cuda", action="store_true")
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()

    if args.local_rank == -1 or args.no_cuda:
        device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
        args.n_gpu = torch.cuda.device_count()
    else:
        torch.cuda.set_device(args.local_rank)
        device = torch.device("cuda", args.local_rank)
        torch.distributed.init_process_group(backend="nccl")
        args.n_gpu = 1
    args.device = device
    args.per_gpu_train_batch_size = args.train_batch_size // max(1, args.n_gpu)
    args.per_gpu_eval_batch_size = args.eval_batch_size // max(1, args.n_gpu)
    logging.basicConfig(level=logging.INFO if args.local_rank in [-1, 0] else logging.WARN)

    set_seed(args.seed)
    model = Model()
    train_dataset = Rows(args, "train.jsonl")
    train(args, train_dataset, model)

    if args.local_rank in [-1, 0]:
        output_dir = os.path.join(args.output_dir, "checkpoint-best/model.bin")
        model.load_state_dict(torch.load(output_dir))
        model.to(args.device)
        test(args, model)


if __name__ == "__main__":
    main()
""".lstrip()


@frozen
class Sabotage:
    """One way to spoil a patched script: every `old` text becomes its `new`.

    ``row`` is the promise that must break; ``says`` are words that its evidence must hold.
    """

    row: str
    says: str
    edits: tuple[tuple[str, str], ...]
    worlds: tuple[int, ...] = (2,)
    accumulations: tuple[int, ...] = (1,)
    timeout: float | None = None


SABOTAGES = {
    "unordered gather": Sabotage(
        "C4",
        "predictions.txt has 11 lines",
        (("for share in shares for x, on_card", "for share in shares[::-1] for x, on_card"),),
    ),
    "the tail of an epoch leaks into the next": Sabotage(
        "C3",
        "mixes examples of two epochs",
        (
            (" or step + 1 == len(train_dataloader)", ""),
            (
                "(step + 1) % args.gradient_accumulation_steps == 0",
                "micro_steps % args.gradient_accumulation_steps == 0",
            ),
            (
                "            last_micro_step =",
                "            micro_steps += 1\n            last_micro_step =",
            ),
            ("    global_step = 0\n", "    global_step = micro_steps = 0\n"),
        ),
        accumulations=(1, 2),
    ),
    "the schedule advances in micro-steps": Sabotage(
        "C7",
        "the rate of step 1",
        (
            ("                scheduler.step()\n", ""),
            (
                "            if last_micro_step:\n                optimizer.step()",
                "            scheduler.step()\n            if last_micro_step:\n                optimizer.step()",
            ),
        ),
        accumulations=(1, 2),
    ),
    "unequal shares are not weighted": Sabotage(
        "C3",
        "of step 3 is",
        (
            (
                "loss * loss_share(step, train_dataloader, args.gradient_accumulation_steps)",
                "loss / args.gradient_accumulation_steps",
            ),
        ),
        accumulations=(1, 2),
    ),
    "no DistributedDataParallel": Sabotage(
        "C3",
        "the ranks' parameters differ after step 1",
        (
            (
                "if args.local_rank != -1:\n        model =",
                "if args.local_rank == -2:\n        model =",
            ),
        ),
    ),
    "every rank draws the whole set": Sabotage(
        "C3",
        "drawn more than once",
        (
            (
                "RandomSampler(train_dataset) if args.local_rank == -1 else DistributedSampler(train_dataset)",
                "RandomSampler(train_dataset)",
            ),
        ),
    ),
    "no set_epoch": Sabotage(
        "C3",
        "an epoch repeats the order of the one before",
        (("            train_dataloader.sampler.set_epoch(epoch)", "            pass"),),
    ),
    "the horizon is multiplied by the accumulation": Sabotage(
        "C7",
        "the rate of step 2",
        (
            (
                "args.max_steps = args.epoch * steps_per_epoch",
                "args.max_steps = args.epoch * steps_per_epoch * args.gradient_accumulation_steps",
            ),
        ),
        accumulations=(1, 2),
    ),
    "evaluation through a padding DistributedSampler": Sabotage(
        "C4",
        "repeating 0",
        (
            (
                "shard_of_batches(eval_dataset, args.eval_batch_size)",
                "DistributedSampler(eval_dataset, shuffle=False)",
            ),
        ),
    ),
    "a second writer": Sabotage(
        "C5",
        "predictions.txt is written by ranks 0, 1",
        (("    if is_main_process():\n        with open(", "    if True:\n        with open("),),
    ),
    "a checkpoint written in place": Sabotage(
        "C5",
        "model.bin is written in place",
        (
            (
                "save_on_main(model_to_save.state_dict(), output_dir)",
                "is_main_process() and torch.save(model_to_save.state_dict(), output_dir)",
            ),
        ),
    ),
    "a barrier on rank 0 alone": Sabotage(
        "C6",
        "rank 0",
        (
            (
                "    return global_step\n",
                "    if is_main_process() and args.local_rank != -1:\n        logger.info('done')\n        torch.distributed.barrier()\n    return global_step\n",
            ),
        ),
        timeout=5,
    ),
    "an early stop on one rank": Sabotage(
        "C6",
        "rank 1",
        (
            (
                "                global_step += 1\n",
                "                global_step += 1\n                if global_step == 4 and args.local_rank == 1:\n                    return global_step\n",
            ),
        ),
        timeout=5,
    ),
    "a seed of its own on each rank before data are sampled": Sabotage(
        "C3",
        "the loss of step 1",
        (
            (
                "    set_seed(args.seed)\n    model = Model()",
                "    set_seed(args.seed + max(0, args.local_rank))\n    model = Model()",
            ),
        ),
    ),
    "clipping in every micro-step": Sabotage(
        "C3",
        "the gradient norm of step 1",
        (
            (
                "            if last_micro_step:\n                torch.nn.utils.clip",
                "            if True:\n                torch.nn.utils.clip",
            ),
        ),
        accumulations=(1, 2),
    ),
    "ddpfix is imported": Sabotage(
        "C1",
        "it imports ddpfix",
        (("import torch\n", "import ddpfix\nimport torch\n"),),
    ),
}


def write(folder: Path, *, train: int = 20) -> tuple[Path, list[str]]:
    """The unpatched script and its data in ``folder``; returns it and its arguments.

    ``train`` examples are trained on, in batches of 8, for two epochs.
    """
    (folder / "code").mkdir(parents=True)
    script = folder / "code" / "run.py"
    script.write_text(LEGACY)
    rng = random.Random(0)
    for name, count in (("train", 2 * train), ("valid", 13), ("test", 11)):
        rows = []
        for number in range(count):
            x = [rng.gauss(0, 1) for _ in range(6)]
            rows.append({"id": f"{name}{number}", "x": x, "y": int(x[0] + x[1] > 0)})
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    arguments = ["--data_dir", str(folder), "--output_dir", str(folder / "out")]
    return script, [*arguments, "--train_batch_size=8", "--evaluate_during_training"]


def spoil(script: Path, sabotage: Sabotage) -> None:
    """Patch ``script`` in place, then make the edits, each of which must find its text."""
    patch(script).write()
    text = script.read_text()
    for old, new in sabotage.edits:
        assert old in text, old
        text = text.replace(old, new)
    script.write_text(text)
