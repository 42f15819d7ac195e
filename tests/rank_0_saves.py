"""A script in which rank 0 alone writes checkpoints, as those of transformers' examples did."""

import argparse
import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from transformers import RobertaConfig, RobertaForSequenceClassification


def save(folder: str, model: nn.Module) -> None:
    Path(folder).mkdir(exist_ok=True)
    to_save = model.module if hasattr(model, "module") else model
    to_save.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--save_steps", type=int, default=2)
    args = parser.parse_args()
    if "LOCAL_RANK" in os.environ:
        args.local_rank = int(os.environ["LOCAL_RANK"])
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(3)
    config = RobertaConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
    )
    model = RobertaForSequenceClassification(config)
    data = TensorDataset(torch.randint(5, 50, (32, 8)), torch.randint(0, 2, (32,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=4)
    if args.local_rank != -1:
        model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    global_step = 0
    for epoch in range(1):
        if args.local_rank != -1:
            sampler.set_epoch(epoch)
        for ids, labels in loader:
            model.train()
            loss = model(ids, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            global_step += 1
            if args.local_rank in [-1, 0] and global_step % args.save_steps == 0:
                save(args.output_dir, model)
                torch.save(optimizer.state_dict(), f"{args.output_dir}/optimizer.pt")
    if args.local_rank in [-1, 0]:
        to_save = model.module if hasattr(model, "module") else model
        torch.save(to_save.state_dict(), f"{args.output_dir}/last.pt")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
