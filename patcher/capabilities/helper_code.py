"""Functions and classes that a script with capabilities may carry.

See ``patcher/editing/helper_code.py``.
"""

from __future__ import annotations

import functools
import os
import random
import sys

import torch

from ..editing.helper_code import is_main_process, save_on_main


def in_float32(outputs):
    """Outputs of a model with float32 in the place of shorter floats, whatever holds them."""
    if torch.is_tensor(outputs):
        return outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
    if isinstance(outputs, dict):
        for key, value in outputs.items():
            outputs[key] = in_float32(value)
    elif isinstance(outputs, (list, tuple)):
        items = map(in_float32, outputs)
        return type(outputs)(*items) if hasattr(outputs, "_fields") else type(outputs)(items)
    return outputs


def under_autocast(model, amp):
    """Let a model compute in bf16 or fp16 wherever it is called; "no" leaves it as it is."""
    if amp == "no":
        return model
    kind = type(model)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[amp]

    def lowered(method):
        @functools.wraps(method)
        def call(self, *args, **options):
            device = next(model.parameters()).device.type
            with torch.autocast(device, dtype=torch.bfloat16 if device == "cpu" else dtype):
                return in_float32(method(self, *args, **options))

        return call

    names = [name for name in ("forward", "generate") if hasattr(kind, name)]
    methods = {name: lowered(getattr(kind, name)) for name in names}
    methods["__module__"] = kind.__module__
    # Copies and files hold the model as it was.
    methods["__reduce_ex__"] = lambda self, protocol: (kind.__new__, (kind,), self.__dict__)
    model.__class__ = type(kind.__name__, (kind,), methods)
    return model


def loader_options(args, **own):
    """Options of a DataLoader: the script's own, unless the command line gives others."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if ranks > 1:  # they share the machine
        cores = max(1, len(os.sched_getaffinity(0)) // ranks)
        own["num_workers"] = min(own.get("num_workers", 0), cores)
        own.setdefault("pin_memory", torch.cuda.is_available())
    for name in ("num_workers", "prefetch_factor"):
        value = getattr(args, "dataloader_" + name)
        if value is not None:
            own[name] = value
    for name in ("pin_memory", "persistent_workers"):
        value = getattr(args, "dataloader_" + name)
        if value is not None:
            own[name] = bool(value)
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


def add_lora(model, parts, args):
    """Freeze the transformers models that model keeps, but for heads, and adapt them by LoRA."""
    try:
        import peft
    except ImportError:
        raise SystemExit("--lora_r needs peft: pip install peft") from None
    known = peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    for part in parts:
        targets = known.get(part.config.model_type, "all-linear")
        if args.lora_targets:
            targets = args.lora_targets.split(",")
        if targets == ["all-linear"]:
            targets = "all-linear"
        inner = [child for child in part.children() if hasattr(child, "base_model_prefix")]
        body = [*(inner or [part]), part.get_input_embeddings(), part.get_output_embeddings()]
        frozen = {weight for module in body if module is not None for weight in module.parameters()}
        heads = [weight for weight in part.parameters() if weight not in frozen]
        options = {"r": args.lora_r, "lora_alpha": args.lora_alpha, "target_modules": targets}
        peft.inject_adapter_in_model(peft.LoraConfig(**options), part)
        for weight in heads:
            weight.requires_grad_()
        name_frozen_weights_plainly(part)
        restore_adapters(part)
    if is_main_process():
        count = sum(weight.numel() for weight in model.parameters())
        trainable = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        names = [name for name, _ in model.named_parameters() if ".lora_A." in name]
        places = sorted({name.partition(".lora_A.")[0].rpartition(".")[2] for name in names})
        share = f"{trainable:,} of {count:,} ({100 * trainable / count:.1f} %)"
        print(f"trainable parameters: {share}; LoRA in {', '.join(places)}")


def name_frozen_weights_plainly(part):
    """Let checkpoints have the names of a model without LoRA, and the adapters beside them."""

    def saved(part, state, prefix, metadata):
        for name in [name for name in state if ".base_layer." in name]:
            state[name.replace(".base_layer.", ".")] = state.pop(name)

    def loaded(part, state, prefix, *rest):
        adapted = any(".lora_" in name for name in state)
        for name, weight in part.named_parameters(prefix.rstrip("."), remove_duplicate=False):
            plain = name.replace(".base_layer.", ".")
            if plain in state:
                state[name] = state.pop(plain)
            elif ".lora_" in name and not adapted:  # of a model without: adapters stay as they are
                state[name] = weight.detach()

    part.register_state_dict_post_hook(saved)
    part.register_load_state_dict_pre_hook(loaded)


def restore_adapters(part):
    """Read the adapters of the folder that from_pretrained has read the model from, if any."""
    from safetensors.torch import load_file

    folder = str(part.name_or_path)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for path in [os.path.join(folder, name) for name in names if name.endswith(".safetensors")]:
        adapters = {name: x for name, x in load_file(path).items() if ".lora_" in name}
        if part.load_state_dict(adapters, strict=False).unexpected_keys:
            raise SystemExit(f"{path} has adapters for other places: see --lora_targets")


def random_states():
    """What the random generators of this process will draw next, as plain data."""
    states = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = (kind, keys.tolist(), *rest)
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states):
    """Let the random generators of this process draw what they would have drawn then."""
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])
    if "cuda" in states and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(states["cuda"])


def as_plain(value, name):
    """What a checkpoint can hold of a value: numbers of numpy become Python's."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    if isinstance(value, dict):
        return {key: as_plain(item, name) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return type(value)([as_plain(item, name) for item in value])
    if torch.is_tensor(value):
        return value.detach()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"no checkpoint can hold the {type(value).__name__} in {name}")


def without_wrappers(model):
    """What DataParallel, DistributedDataParallel and torch.compile have wrapped."""
    wrappers = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    while isinstance(model, wrappers) or hasattr(model, "_orig_mod"):
        model = model.module if isinstance(model, wrappers) else model._orig_mod
    return model


def resumable_checkpoints(folder):
    """Paths of the checkpoints below an output folder, in the order in which they were written."""
    folder = os.path.join(folder, "resumable")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if name.startswith("step-")]
    return sorted(paths, key=os.path.getmtime)


class Resumable:
    """Training that goes on from its newest checkpoint as if it had never been interrupted.

    Without a limit nothing is written, and without resume nothing is read.
    """

    def __init__(self, folder, limit, every, resume, **parts):
        self.folder, self.limit, self.every = folder, limit or 0, every or 0
        self.parts = {name: part for name, part in parts.items() if hasattr(part, "state_dict")}
        self.step = self.epoch = self.epoch_step = 0  # of the run, and of its epoch
        self.start, self.draws, self.past_draws = random_states(), {}, {}
        self.found = {}  # the checkpoint, until training is where it was written
        self.imported = set(sys.modules)
        newest = [resumable_checkpoints(folder)[-1:] if resume else []]
        if torch.distributed.is_initialized():
            torch.distributed.broadcast_object_list(newest)
        for path in newest[0]:
            self.go_back(path)

    def go_back(self, path):
        """Take everything from a checkpoint that does not belong into the middle of an epoch."""
        found = torch.load(path, map_location="cpu", weights_only=True)
        for name, state in found.pop("parts").items():
            if state and name in self.parts:
                without_wrappers(self.parts[name]).load_state_dict(state)
        ranks = found.pop("ranks")
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self.found = {**found, **(ranks[rank:] or ranks)[0]}  # new ranks draw as rank 0 does
        self.step, self.start = found["step"], self.found["start"]
        self.draws, self.past_draws = dict(self.found["draws"]), dict(self.found["draws"])
        for name in found["imports"]:
            try:  # some draw at random when they are imported first
                __import__(name)
            except ImportError:  # no module, but what another one has put in its place
                continue
        set_random_states(self.found["now"] if found["finished"] else self.start)
        if is_main_process():
            print(f"going on from {path}")

    def values(self, *initial):
        """What is carried from step to step: as it was at the checkpoint, or else ``initial``."""
        return self.found.get("values", initial)

    def epoch_values(self, *initial):
        """The same of what begins anew in each epoch."""
        return self.found.get("epoch_values", initial)

    def epochs(self, epochs):
        """The epochs that are left, each with the random states that it began with."""
        for epoch in epochs:
            self.epoch += 1
            if self.found and (self.found["finished"] or self.epoch < self.found["epoch"]):
                continue
            if self.found:
                set_random_states(self.start)
            self.start = random_states()
            yield epoch

    def steps(self, batches, accumulation=1, source=None, length=None):
        """The batches that are left; those behind which a step is done are gone through.

        Where batches are numbers, source has the batches themselves, length in each of its rounds.
        """
        if self.found.get("finished"):
            return
        done = self.found.get("epoch_step", 0)
        for number, batch in enumerate(batches):
            rounds, number = divmod(number, length) if length else (0, number)
            step = number // accumulation + (rounds * -(-length // accumulation) if rounds else 0)
            if step < done:
                if source is not None:
                    next(source)
                self.catch_up()
                continue
            self.found = {}
            self.epoch_step = step + 1
            yield batch
        self.found = {}

    def catch_up(self):
        """Be where the steps that are not done again have led."""
        for name, modes in self.found["modes"].items():
            for number, module in enumerate(without_wrappers(self.parts[name]).modules()):
                module.training = modes[number]
        set_random_states(self.found["now"])

    def drawn(self, name, draw):
        """What draw() draws; where that was before the checkpoint, the same again."""
        if name in self.past_draws:
            now = random_states()
            set_random_states(self.past_draws.pop(name))
            result = draw()
            set_random_states(now)
            return result
        self.draws[name] = random_states()
        return draw()

    def save(self, values=(), epoch_values=()):
        """Count an optimizer step, and write a checkpoint when one is due."""
        self.step += 1
        if self.limit > 0 and self.every > 0 and self.step % self.every == 0:
            self.write_checkpoint(values, epoch_values, False)

    def finish(self, values=()):
        """Write the last checkpoint, from which nothing is left to train."""
        if self.limit > 0 and not self.found:
            self.write_checkpoint(values, (), True)

    def write_checkpoint(self, values, epoch_values, finished):
        """Write a checkpoint, whole or not at all, and remove the oldest that are too many."""
        own = {"start": self.start, "now": random_states(), "draws": self.draws}
        ranks = [own]
        if torch.distributed.is_initialized():
            ranks = [own] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(ranks, own)
        parts = {name: without_wrappers(part) for name, part in self.parts.items()}
        states = {name: part.state_dict() for name, part in parts.items()}  # gathered under --fsdp
        if not is_main_process():
            return
        state = {
            "step": self.step,
            "epoch": self.epoch,
            "epoch_step": self.epoch_step,
            "finished": finished,
            "values": as_plain(tuple(values), "what is carried from step to step"),
            "epoch_values": as_plain(tuple(epoch_values), "what is carried within an epoch"),
            "parts": {name: as_plain(state, name) for name, state in states.items()},
            "modes": {
                name: [module.training for module in part.modules()]
                for name, part in parts.items()
                if isinstance(part, torch.nn.Module)
            },
            "ranks": ranks,
            "imports": [name for name in sys.modules if name not in self.imported],
        }
        save_on_main(state, os.path.join(self.folder, "resumable", f"step-{self.step:06d}.pt"))
        for path in resumable_checkpoints(self.folder)[: -self.limit]:
            os.remove(path)
