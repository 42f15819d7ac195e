"""A script's training in other hands: python step_rivals.py hand|accelerate|trainer PLACE.json OUT.

The same model, data, batches, optimizer and schedule as the script that benchmarks/step_tasks.py
patched: with DistributedDataParallel by hand, as accelerate's manual writes it, and with the
Trainer of transformers. Each evaluates as often, on data made anew, and scores on every rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from step_tasks import Parts, Place, load  # type: ignore[import-not-found]
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ON_CARD = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_CARD else "cpu", int(os.environ["LOCAL_RANK"]) if ON_CARD else 0)


def by_hand(place: Place, output: Path) -> None:
    """DistributedDataParallel, DistributedSampler, no_sync while gradients accumulate."""
    case = place.case
    dist.init_process_group("nccl" if ON_CARD else "gloo")
    parts = loaded(place, output)
    model = torch.nn.parallel.DistributedDataParallel(
        parts.model.to(DEVICE),
        device_ids=[DEVICE] if ON_CARD else None,
        find_unused_parameters=case.unused,
    )
    sampler = DistributedSampler(parts.train_set)
    loader = DataLoader(
        parts.train_set, sampler=sampler, batch_size=case.batch, num_workers=case.workers
    )
    optimizer, scheduler = optimized(model, place, len(loader))
    done, best, total = 0, 0.0, 0.0
    for epoch in range(place.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for step, batch in enumerate(bar := tqdm(loader, disable=not case.bar)):
            last = (step + 1) % place.accumulation == 0 or step + 1 == len(loader)
            with contextlib.nullcontext() if last else model.no_sync():
                loss = loss_of(model, batch) / place.accumulation
                loss.backward()
            total += loss.item()
            bar.set_description(f"epoch {epoch}: loss {total:.5f}")
            if not last:
                continue
            if clips(place):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            done += 1
            if done % eval_every(place, len(loader)) == 0:
                result = evaluate_by_hand(place, parts, model.module)
                best = keep_best(model.module, result, best, output)
                model.train()


def evaluate_by_hand(place: Place, parts: Parts, model: Any) -> float:
    """Each rank its part of the examples, gathered on all."""
    data = parts.eval_set()
    sampler = DistributedSampler(data, shuffle=False)
    loader = eval_loader(place, data, sampler=sampler)
    model.eval()
    outputs, labels = [], []
    with torch.no_grad():
        for batch in loader:
            output, label = scored(model, batch)
            outputs.append(output)
            labels.append(label)
    both = [torch.cat(outputs), torch.cat(labels)]
    whole = []
    for one in both:
        shares = [torch.empty_like(one) for _ in range(WORLD)]
        dist.all_gather(shares, one)
        whole.append(torch.stack(shares, 1).flatten(0, 1)[: len(data)])
    return score(place, *whole)


def with_accelerate(place: Place, output: Path) -> None:
    """As accelerate's manual writes a loop."""
    from accelerate import Accelerator, DistributedDataParallelKwargs

    case = place.case
    accelerator = Accelerator(
        cpu=not ON_CARD,
        gradient_accumulation_steps=place.accumulation,
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=case.unused)],
    )
    parts = loaded(place, output)
    loader = DataLoader(
        parts.train_set, shuffle=True, batch_size=case.batch, num_workers=case.workers
    )
    optimizer, scheduler = optimized(parts.model, place, len(loader) // WORLD, WORLD)
    model, optimizer, loader, scheduler = accelerator.prepare(
        parts.model, optimizer, loader, scheduler
    )
    done, best, total = 0, 0.0, 0.0
    for epoch in range(place.epochs):
        model.train()
        for batch in (bar := tqdm(loader, disable=not case.bar)):
            with accelerator.accumulate(model):
                loss = loss_of(model, batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients and clips(place):
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            total += loss.item()
            bar.set_description(f"epoch {epoch}: loss {total:.5f}")
            if accelerator.sync_gradients:
                done += 1
                if done % eval_every(place, len(loader)) == 0:
                    result = evaluate_with_accelerate(accelerator, place, parts, model)
                    best = keep_best(accelerator.unwrap_model(model), result, best, output)
                    model.train()


def evaluate_with_accelerate(accelerator: Any, place: Place, parts: Parts, model: Any) -> float:
    """Examples dealt by prepare, gathered batch by batch."""
    loader = accelerator.prepare(eval_loader(place, parts.eval_set()))
    model.eval()
    outputs, labels = [], []
    for batch in loader:
        with torch.no_grad():
            output, label = accelerator.gather_for_metrics(scored(model, batch))
        outputs.append(output)
        labels.append(label)
    return score(place, torch.cat(outputs), torch.cat(labels))


def with_trainer(place: Place, output: Path) -> None:
    """The Trainer of transformers, with the script's optimizer and schedule."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    case, best = place.case, [0.0]
    settings = TrainingArguments(
        output_dir=str(output),
        use_cpu=not ON_CARD,
        per_device_train_batch_size=case.batch,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=place.accumulation,
        num_train_epochs=place.epochs,
        max_grad_norm=1.0,
        logging_strategy="epoch",
        eval_strategy="steps",
        eval_steps=eval_every(place, case.micro_steps),
        save_strategy="no",
        report_to=[],
        ddp_find_unused_parameters=case.unused,
        dataloader_num_workers=case.workers,
    )
    parts = loaded(place, output)

    class OwnTrainer(Trainer):
        """Evaluates data that are made anew."""

        def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
            self.args.dataloader_num_workers = case.eval_workers
            found: dict[str, float] = super().evaluate(Named(parts.eval_set(), parts.names))
            self.args.dataloader_num_workers = case.workers
            return found

    class KeepBest(TrainerCallback):
        """Saves the weights of the best score."""

        def on_evaluate(self, *_: Any, metrics: dict[str, float], **__: Any) -> None:
            best[0] = keep_best(parts.model, metrics["eval_f1"], best[0], output)

    def metrics(prediction: Any) -> dict[str, float]:
        found = map(torch.as_tensor, (prediction.predictions, prediction.label_ids))
        return {"f1": score(place, *found)}

    OwnTrainer(
        parts.model,
        settings,
        train_dataset=Named(parts.train_set, parts.names),
        eval_dataset=Named(parts.train_set, parts.names),  # asked for, and never used
        compute_metrics=metrics,
        callbacks=[KeepBest()],
        optimizers=optimized(parts.model, place, case.micro_steps),
    ).train()


class Named(Dataset[dict[str, Any]]):
    """Examples by the names of forward's arguments, as the Trainer wants them."""

    def __init__(self, data: Any, names: tuple[str, ...]) -> None:
        self.data, self.names = data, names

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(zip(self.names, self.data[index], strict=True))


def loaded(place: Place, output: Path) -> Parts:
    """Model and data, rank 0 first, which fills the caches."""
    output.mkdir(parents=True, exist_ok=True)
    if RANK:
        dist.barrier()
    parts = load(place, output)
    parts.eval_set()
    if not RANK:
        dist.barrier()
    return parts


def optimized(model: Any, place: Place, batches: int, times: int = 1) -> tuple[Any, Any]:
    """AdamW and a schedule of the optimizer steps; `times` for what counts a step on each rank."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, eps=1e-5, weight_decay=0.0)
    steps = max(1, place.epochs * -(-batches // place.accumulation) * times)
    schedule = torch.optim.lr_scheduler.LambdaLR
    return optimizer, schedule(optimizer, lambda n: max(0.0, 1 - n / steps))


def loss_of(model: Any, batch: Any) -> torch.Tensor:
    """The loss of a batch; a mean over tokens is weighed so that ranks average to that of all."""
    if not isinstance(batch, list):
        batch = batch.to(DEVICE)
        loss, _, tokens = model(batch, batch)
        total = tokens.float()
        dist.all_reduce(total)
        weighed: torch.Tensor = loss * (tokens * WORLD / total)
        return weighed
    first: torch.Tensor = model(*[x.to(DEVICE) for x in batch])[0]
    return first


def scored(model: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What the model says of a batch, and what is right."""
    if not isinstance(batch, list):
        batch = batch.to(DEVICE)
        return torch.stack(model(batch, batch)[1:])[None], model(batch).argmax(-1)
    batch = [x.to(DEVICE) for x in batch]
    return model(*batch)[1], batch[-1]


def score(place: Place, outputs: torch.Tensor, labels: torch.Tensor) -> float:
    """F1 at the threshold that suits best, as the scripts find it."""
    if outputs.shape[-1] != 2 or labels.dim() > 1:
        return float(outputs.float().mean())
    from sklearn.metrics import f1_score

    probabilities, right = outputs.cpu().numpy()[:, 1], labels.cpu().numpy()
    most = place.case.thresholds + 1
    thresholds = np.arange(1, most) / most
    return max(f1_score(right, probabilities > each, zero_division=0) for each in thresholds)


def eval_loader(place: Place, data: Any, **options: Any) -> DataLoader[Any]:
    """Batches to evaluate, made as the script makes them."""
    pinned = place.case.family == "bigclonebench"
    size = place.case.batch if place.case.family == "token_means" else 8
    workers = place.case.eval_workers
    return DataLoader(data, batch_size=size, num_workers=workers, pin_memory=pinned, **options)


def eval_every(place: Place, micro_steps: int) -> int:
    """Optimizer steps from one evaluation to the next."""
    return max(1, -(-micro_steps // place.accumulation) // place.case.evaluations)


def clips(place: Place) -> bool:
    """Whether the script clips its gradients."""
    return place.case.family != "token_means"


def keep_best(model: Any, found: float, best: float, output: Path) -> float:
    """The best score so far, whose weights rank 0 saves."""
    if found > best and RANK == 0:
        torch.save(model.state_dict(), output / "model.bin")
    return max(found, best)


if __name__ == "__main__":
    loops = {"by hand": by_hand, "accelerate": with_accelerate, "Trainer": with_trainer}
    kind, place_file, out = sys.argv[1:]
    loops[kind](Place.of_plain(json.loads(Path(place_file).read_text())), Path(out))
