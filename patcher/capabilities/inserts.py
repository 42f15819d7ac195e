"""Functions and classes that a script with capabilities may carry; see ``patcher/inserts.py``."""

from __future__ import annotations

import os

import torch


def loader_options(args, **own):
    """Options of a DataLoader: the script's own, unless the command line gives others."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if ranks > 1:  # they share the machine
        cores = max(1, len(os.sched_getaffinity(0)) // ranks)
        own["num_workers"] = min(own.get("num_workers", 0), cores)
        own.setdefault("pin_memory", torch.cuda.is_available())
    for name in ("num_workers", "prefetch_factor"):
        given = getattr(args, "dataloader_" + name)
        if given is not None:
            own[name] = given
    for name in ("pin_memory", "persistent_workers"):
        given = getattr(args, "dataloader_" + name)
        if given is not None:
            own[name] = bool(given)
    if not own.get("num_workers"):  # torch takes these for workers only
        own.pop("prefetch_factor", None)
        own.pop("persistent_workers", None)
    return own


def choose_attention(model, name):
    """Let a transformers model compute attention by name, or say why it cannot."""
    try:
        model.set_attn_implementation(name)
    except (AttributeError, ImportError, ValueError) as error:
        print(f"--attn_implementation {name} is not used: {error}")
