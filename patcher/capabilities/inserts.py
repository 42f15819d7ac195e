"""Functions and classes that a script with capabilities may carry; see ``patcher/inserts.py``."""

from __future__ import annotations

import functools
import os

import torch

from ..inserts import is_main_process


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
