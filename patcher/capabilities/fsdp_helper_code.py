"""Functions and classes that a script patched with the capability fsdp carries.

See ``patcher/editing/helper_code.py``.
"""

from __future__ import annotations

import contextlib

import torch

from ..editing.helper_code import is_main_process


def whole_tensor(tensor):
    """All of a tensor that is dealt among the ranks, for rank 0; the others get no memory for it.

    A collective. Theirs is full of NaN, so that nobody takes it for the values.
    """
    if not hasattr(tensor, "full_tensor"):
        return tensor
    tensor = tensor.detach().full_tensor()
    if is_main_process():
        return tensor.cpu()
    return torch.full((), float("nan"), dtype=tensor.dtype).expand(tensor.shape)


def summed_norm(norm):
    """A norm that clipping has returned, of which each rank may hold its share. A collective."""
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def sharded_like(tensor, value):
    """Rank 0's value, dealt among the ranks as a tensor is. A collective."""
    if not hasattr(tensor, "full_tensor") or hasattr(value, "full_tensor"):
        return value
    from torch.distributed.tensor import distribute_tensor

    value = value.detach().to(tensor.device, tensor.dtype).contiguous()
    return distribute_tensor(value, tensor.device_mesh, tensor.placements)


def sharding_blocks(model):
    """The parts of a model that are gathered one at a time: the members of its lists of alike.

    What is tied to something outside of its layer stays with the rest of the model, whose weights
    have to be of one type: parts with others are for themselves.
    """
    total = sum(weight.numel() for weight in model.parameters())
    blocks, inside = [], set()
    for part in model.modules():
        members = list(dict.fromkeys(part.children()))
        if (
            part not in inside
            and isinstance(part, (torch.nn.ModuleList, torch.nn.Sequential))
            and len(members) > 1
            and len({type(member) for member in members}) == 1
            and 10 * sum(weight.numel() for weight in part.parameters()) >= total
        ):
            blocks += members
            inside.update(part.modules())
    users, inside = {}, set()
    for part in model.modules():
        for weight in part._parameters.values():
            users.setdefault(weight, set()).add(part)
    for block in blocks:
        own = set(block.modules())
        if all(users[weight] <= own for weight in block.parameters()):
            inside.update(own)
            yield block
    types = [weight.dtype for weight in model.parameters() if weight.requires_grad]
    for part in model.modules():
        held = [weight for weight in part.parameters(recurse=False) if weight.requires_grad]
        is_other = any(weight.dtype != types[0] for weight in held) and part is not model
        if is_other and part not in inside and all(users[weight] == {part} for weight in held):
            yield part


class ShardedModel:
    """What makes a model of fully_shard do what one in DistributedDataParallel does.

    In eval mode every rank holds all weights, so that ranks may call it as often as they like.
    """

    module = property(lambda self: self)
    require_backward_grad_sync = property(
        lambda self: True, lambda self, last: self.set_requires_gradient_sync(last)
    )

    @contextlib.contextmanager
    def no_sync(self):
        self.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.set_requires_gradient_sync(True)

    @torch.inference_mode(False)
    def gather_or_deal(self):
        """Hold all weights in eval mode, and this rank's part of them in training."""
        for part in self.modules():
            part._is_fsdp_managed_module = self.training  # or generate() waits for other ranks
            if hasattr(part, "set_reshard_after_forward"):
                # All but the last to be used are needed again much later.
                part.set_reshard_after_forward(self.training and part is not self, recurse=False)
                part.reshard() if self.training else part.unshard()

    def train(self, mode=True):
        evaluated = not self.training
        super().train(mode)
        if evaluated or not mode:
            self.gather_or_deal()
        return self

    @torch.inference_mode(False)
    def _apply(self, *args, **options):
        super()._apply(*args, **options)
        self.gather_or_deal()
        return self

    @torch.inference_mode(False)
    def state_dict(self, *args, **options):
        """The names and values of a model that is not dealt among ranks. A collective.

        Unless gather_weights() has been called since the last step.
        """
        if "gathered" in self.__dict__ and not (args or options):
            return self.gathered.copy()
        state = super().state_dict(*args, **{**options, "keep_vars": True})
        found = {}  # what is tied stays so
        for name, value in state.items():
            if torch.is_tensor(value):
                if value not in found:
                    found[value] = whole_tensor(value.detach())
                state[name] = found[value]
        if not self.training:
            self.gather_or_deal()
        return state

    @torch.inference_mode(False)
    def load_state_dict(self, state_dict, strict=True):
        """Take rank 0's values. A collective."""
        self.__dict__.pop("gathered", None)
        for part in self.modules():
            if hasattr(part, "reshard"):
                part.reshard()
        result = super().load_state_dict(state_dict, strict)
        self.gather_or_deal()
        return result

    def compile(self, *args, **options):
        raise SystemExit("--fsdp and --compile do not go together: leave one of them out")


def shard_over_ranks(model, optimizer=None):
    """Deal a model's weights, gradients and optimizer states among the ranks by FSDP2.

    Each layer is whole only while it computes. An optimizer that was made before goes on with it.
    """
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise SystemExit("--fsdp needs torch 2.6 or newer") from None
    check_sharding(model)
    for value in dict.fromkeys([*model.parameters(), *model.buffers()]):
        take_from_rank_0(value.detach())
    before, kind = dict(model.named_parameters()), type(model)
    device = next(iter(before.values())).device.type
    mesh = torch.distributed.init_device_mesh(device, (torch.distributed.get_world_size(),))
    for block in [*sharding_blocks(model), model]:
        fully_shard(block, mesh=mesh)
    names = {"__module__": kind.__module__}
    model.__class__ = type(kind.__name__, (ShardedModel, type(model)), names)
    for part in model.modules():
        part.register_state_dict_post_hook(gather_saved_weights)
        part.register_load_state_dict_pre_hook(deal_loaded_weights)
    after = dict(model.named_parameters())
    dealt = {weight: after[name] for name, weight in before.items()}
    if optimizer is not None:
        state = optimizer.state_dict()
        for group in optimizer.param_groups:
            group["params"] = [dealt.get(weight, weight) for weight in group["params"]]
        optimizer.state.clear()
        deal_optimizer_state(optimizer)
        optimizer.load_state_dict(state)
    watch_gradients(model, dealt)
    shard_over_ranks.model = model
    return model


def gather_weights(optimizer=None):
    """Gather for rank 0 what it alone is about to save. A collective, or nothing without --fsdp."""
    model = getattr(shard_over_ranks, "model", None)
    if model is not None:
        model.__dict__.pop("gathered", None)
        model.__dict__["gathered"] = model.state_dict()
        if optimizer is not None:
            optimizer.__dict__.pop("gathered", None)
            optimizer.__dict__["gathered"] = optimizer.state_dict()


def take_from_rank_0(value):
    """Take rank 0's value of a weight or buffer, as DistributedDataParallel does at its start."""
    sent = value.to(torch.uint8 if value.dtype == torch.bool else value.dtype).contiguous()
    torch.distributed.broadcast(sent, 0)
    sent = sent.to(value.dtype)
    if not torch.equal(sent, value):
        value.copy_(sent)


def check_sharding(model):
    """End the run where FSDP would not train as DistributedDataParallel does."""
    because = ""
    for part in model.modules():
        counts = getattr(part, "running_mean", None) is not None
        if counts and not isinstance(part, torch.nn.SyncBatchNorm):
            because = "batch norm would come to differ between ranks"
        if getattr(part, "layerdrop", 0):
            because = "each rank would leave out other layers (layerdrop)"
    if hasattr(model, "module") or hasattr(model, "_orig_mod"):
        because = "the model is wrapped already, or has a part that is called module"
    if because:
        raise SystemExit(f"--fsdp: {because}; train without it")


def gather_saved_weights(part, state, prefix, metadata):
    """Gather what the state_dict of a part of a model holds; that of the whole does it at once."""
    for name, weight in part.named_parameters(recurse=False):
        if prefix + name in state and state[prefix + name] is not weight:
            state[prefix + name] = whole_tensor(state[prefix + name])


def deal_loaded_weights(part, state, prefix, *rest):
    """Deal among the ranks what load_state_dict gives a part of a model."""
    for name, weight in part.named_parameters(recurse=False):
        if prefix + name in state:
            state[prefix + name] = sharded_like(weight, state[prefix + name])


def deal_optimizer_state(optimizer):
    """Let an optimizer's state_dict and load_state_dict mean what they do without FSDP."""
    kind = type(optimizer).__name__
    known = "Adam AdamW BertAdamW SGD Adamax NAdam RAdam RMSprop Adagrad"
    if kind not in known.split():
        raise SystemExit(f"--fsdp: {kind} may need more than a part of each weight")

    def saved(optimizer, state):
        if "gathered" in optimizer.__dict__:
            return optimizer.gathered
        values = {
            key: {name: whole_tensor(value) for name, value in own.items()}
            for key, own in state["state"].items()
        }
        return {**state, "state": values}

    def loaded(optimizer, state):
        optimizer.__dict__.pop("gathered", None)
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        dealt = {key: dict(own) for key, own in state["state"].items()}
        for key, own in dealt.items():
            for name, value in own.items():
                if torch.is_tensor(value) and value.shape == weights[key].shape:
                    own[name] = sharded_like(weights[key], value)
        return {**state, "state": dealt}

    optimizer.register_state_dict_post_hook(saved)
    optimizer.register_load_state_dict_pre_hook(loaded)


def watch_gradients(model, dealt):
    """End the run before a step whose gradients are not those that all ranks share.

    dealt has the weights that FSDP has replaced by parts. Ranks that use different weights would
    average gradients of different ones.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    ours, expected = set(dealt.values()), []

    def before_step(optimizer, args, options):
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        if any(weight in dealt for weight in weights):
            raise SystemExit("--fsdp: an optimizer holds weights from before they were dealt out")
        if ours.isdisjoint(weights):
            return
        for part in (model, optimizer):
            part.__dict__.pop("gathered", None)
        with_gradient = [number for number, x in enumerate(weights) if x.grad is not None]
        if not expected:
            shares = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(shares, with_gradient)
            expected.extend(shares)
        if any(share != with_gradient for share in expected):
            raise SystemExit(
                "--fsdp: which weights have gradients differs between ranks or steps;"
                " train without it"
            )

    register_optimizer_step_pre_hook(before_step)
