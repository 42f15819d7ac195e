"""Build a recipe's network and its loss from sizes alone, without weights or a model hub.

Under fake tensors nothing here is computed; only the tensors and their lifetimes matter, so each
forward pass makes the same tensors as the script of its family.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its name everywhere
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from ...recipes.network import Network
from .configured import DTYPES, make_labels, with_head
from .sharding import LocalParts
from .step import TrainingStep

GPT2 = {
    "hidden": "n_embd",
    "layers": "n_layer",
    "heads": "n_head",
    "intermediate": "n_inner",
    "positions": "n_positions",
}
BERT = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "positions": "max_position_embeddings",
    "token_types": "type_vocab_size",
}
PADDING = 1
NO_DECAY = ("bias", "LayerNorm.weight")  # the parameter groups of the families' scripts


class Pair(nn.Module):
    """A two-class classifier of pairs of texts, whose ids come in one row."""

    def __init__(self, encoder: PreTrainedModel, step: TrainingStep) -> None:
        super().__init__()
        hidden = step.network.hidden
        self.encoder, self.length = encoder, step.length
        self.dense, self.out = nn.Linear(2 * hidden, hidden), nn.Linear(hidden, 2)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: Tensor, *rest: Tensor) -> Tensor:
        ids = ids.view(-1, self.length)
        states = self.encoder(input_ids=ids, attention_mask=ids.ne(PADDING))[0]
        return F.cross_entropy(self.scores(states), rest[-1])

    def scores(self, states: Tensor) -> Tensor:
        pairs = self.dropout(states[:, 0, :].reshape(-1, 2 * states.size(-1)))
        scores: Tensor = self.out(self.dropout(torch.tanh(self.dense(pairs))))
        return scores


class GraphPair(Pair):
    """A pair classifier with data-flow nodes, whose vectors are averages of their tokens'."""

    def forward(self, ids: Tensor, *rest: Tensor) -> Tensor:
        *others, labels = rest
        # Two tensors of each kind, one for each function; both functions go into one batch.
        ids, places, sees = (
            torch.stack(both, 1).flatten(0, 1)
            for both in zip((ids, *others[:2]), others[2:], strict=True)
        )
        nodes, tokens = places.eq(0), places.ge(2)
        vectors = self.encoder.get_input_embeddings()(ids)
        shares = nodes[:, :, None] & tokens[:, None, :] & sees
        weights = shares / (shares.sum(-1) + 1e-10)[:, :, None]
        averages = torch.einsum("bij,bjk->bik", weights, vectors)
        vectors = vectors * (~nodes)[:, :, None] + averages * nodes[:, :, None]
        states = self.encoder(
            inputs_embeds=vectors,
            attention_mask=sees[:, None],
            position_ids=places,
            token_type_ids=places.eq(-1).long(),
        )[0]
        return F.cross_entropy(self.scores(states), labels)


class Anchor(nn.Module):
    """A contrastive loss: each text against its equivalent and all others of the batch."""

    def __init__(self, encoder: PreTrainedModel, step: TrainingStep) -> None:
        super().__init__()
        self.encoder = encoder
        self.project = nn.Linear(step.network.hidden, step.projection)

    def forward(self, anchors: Tensor, others: Tensor) -> Tensor:
        one, other = self.embed(anchors), self.embed(others)
        scores = one @ other.T / 0.07
        labels = torch.arange(len(scores), device=scores.device)
        return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2

    def embed(self, ids: Tensor) -> Tensor:
        mask = ids.ne(PADDING)
        states = self.encoder(input_ids=ids, attention_mask=mask)[0]
        weights = mask[:, :, None].float()
        pooled = (states * weights).sum(1) / weights.sum(1)
        return F.normalize(self.project(pooled.to(self.project.weight.dtype)), dim=-1)


class Detector(nn.Module):
    """A classifier of texts with a supervised contrastive loss on their projections."""

    def __init__(self, encoder: PreTrainedModel, step: TrainingStep) -> None:
        super().__init__()
        hidden = step.network.hidden
        self.encoder = encoder
        self.classify = nn.Sequential(nn.Dropout(0.1), nn.Linear(hidden, 2))
        self.project = nn.Sequential(
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, step.projection)
        )

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        first = self.encoder(input_ids=ids, attention_mask=ids.ne(PADDING))[0][:, 0]
        loss = F.cross_entropy(self.classify(first), labels)
        vectors = F.normalize(self.project(first), dim=-1)
        scores = vectors @ vectors.T / 0.07
        same = labels[:, None].eq(labels[None]).float()
        likely = F.log_softmax(scores, dim=-1)
        return loss - 0.1 * (likely * same).sum(1).div(same.sum(1)).mean()


HEADS = {"pair": Pair, "graph-pair": GraphPair, "anchor": Anchor, "detector": Detector}


def build(step: TrainingStep) -> nn.Module:
    """Build the network of a step on torch's meta device.

    Raises:
        ImportError: the step uses LoRA and peft is not installed.
        ValueError: transformers rejects the sizes.

    """
    with torch.device("meta"):
        return _network(step).train(step.training)


def _network(step: TrainingStep) -> nn.Module:
    network = step.network
    if network.config:
        return with_head(step, _prepared)
    # GraphCodeBERT is loaded as a classifier, which has no pooling layer.
    options = {"add_pooling_layer": False} if network.head == "graph-pair" else {}
    encoder = AutoModel.from_config(_config(network), attn_implementation=step.attention, **options)
    return HEADS[network.head](_prepared(encoder.to(DTYPES[network.weights]), step), step)


def _prepared(encoder: PreTrainedModel, step: TrainingStep) -> PreTrainedModel:
    """An encoder with the checkpointing and the adapters of a step."""
    if step.checkpointing:
        encoder.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False}
        )
    if step.lora_rank:
        _adapt(encoder, step)
    return encoder


def materialize(model: nn.Module, device: str = "cpu") -> nn.Module:
    """Move a network from the meta device to another one, with uninitialized weights."""
    materials: dict[Tensor, Tensor] = {}
    for module in model.modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None:
                continue
            if tensor not in materials:
                empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                weight = nn.Parameter(empty, tensor.requires_grad)
                materials[tensor] = weight if isinstance(tensor, nn.Parameter) else empty
            store = module._parameters if name in module._parameters else module._buffers
            store[name] = materials[tensor]  # type: ignore[assignment]
    return model


def make_batch(step: TrainingStep, batch: int) -> tuple[Tensor, ...]:
    """A batch from the loader on the card: the arguments of `forward`."""
    length, labels = step.length, torch.zeros(batch, dtype=torch.long)
    one = torch.zeros(batch, length, dtype=torch.long)
    match step.network.head:
        case "pair":
            return torch.zeros(batch, 2 * length, dtype=torch.long), labels
        case "graph-pair":
            sees = torch.zeros(batch, length, length, dtype=torch.bool)
            function = (one, one.clone(), sees)
            return *function, *(tensor.clone() for tensor in function), labels
        case "anchor":
            return one, one.clone()
        case "read":
            return (torch.zeros(batch),)
        case _ if step.network.config:
            ids = torch.zeros(batch, length * step.network.sequences, dtype=torch.long)
            return ids, *make_labels(step, batch)
        case _:
            return one, labels


def make_optimizer(
    model: nn.Module | LocalParts, *, foreach: bool, kind: str = "adamw"
) -> torch.optim.Optimizer:
    """The optimizer of a kind over the trainable parameters, in two groups as in the scripts."""
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    plain = [weight for name, weight in named if name.endswith(NO_DECAY)]
    decayed = [weight for name, weight in named if not name.endswith(NO_DECAY)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    if kind == "adamw":
        return torch.optim.AdamW(groups, foreach=foreach)
    momentum = 0.9 if kind == "momentum" else 0.0
    return torch.optim.SGD(groups, lr=0.1, momentum=momentum, foreach=foreach)


def _config(network: Network) -> Any:
    names = GPT2 if network.architecture == "gpt2" else BERT
    sizes = {name: getattr(network, field) for field, name in names.items()}
    return AutoConfig.for_model(network.architecture, vocab_size=network.vocabulary, **sizes)


def _adapt(encoder: PreTrainedModel, step: TrainingStep) -> None:
    """Freeze the encoder and add LoRA adapters, as ``patch --with lora`` or the script does."""
    import peft

    known = peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    own = step.network.lora_targets.split()
    targets: Any = own or known.get(encoder.config.model_type, "all-linear")
    lora = peft.LoraConfig(
        r=step.lora_rank, target_modules=targets, lora_dropout=step.network.lora_dropout
    )
    peft.inject_adapter_in_model(lora, encoder)
