"""A recipe's network with its loss, built from numbers: no weights, no hub.

Under fake tensors nothing here is computed; what counts is which tensors there are and how long
they live, so each forward pass makes the tensors that the family's script makes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its name everywhere
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from ...recipes.network import Network
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
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PADDING = 1
NO_DECAY = ("bias", "LayerNorm.weight")  # as the families' scripts group their parameters


class Pair(nn.Module):
    """Two texts in a row of ids, one encoder, two classes."""

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
    """The same where some places are data-flow nodes, whose vectors are averages of tokens'."""

    def forward(self, ids: Tensor, *rest: Tensor) -> Tensor:
        *others, labels = rest
        # Two tensors of each kind, one for each function; both functions go in one batch.
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
    """Two texts that mean the same, each pooled and projected, against all others of the batch."""

    def __init__(self, encoder: PreTrainedModel, step: TrainingStep) -> None:
        super().__init__()
        self.encoder = encoder
        self.project = nn.Linear(step.network.hidden, step.projection)

    def forward(self, anchors: Tensor, others: Tensor) -> Tensor:
        one, other = self.embed(anchors), self.embed(others)
        scores = one @ other.T / 0.07
        labels = torch.arange(len(scores))
        return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2

    def embed(self, ids: Tensor) -> Tensor:
        mask = ids.ne(PADDING)
        states = self.encoder(input_ids=ids, attention_mask=mask)[0]
        kept = mask[:, :, None].to(states.dtype)
        pooled = (states * kept).sum(1) / kept.sum(1)
        return F.normalize(self.project(pooled.to(self.project.weight.dtype)), dim=-1)


class Detector(nn.Module):
    """A text's first vector gets a class, and its projection is drawn to those of its class."""

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
        found = F.cross_entropy(self.classify(first), labels)
        vectors = F.normalize(self.project(first), dim=-1)
        scores = vectors @ vectors.T / 0.07
        same = labels[:, None].eq(labels[None]).float()
        likely = F.log_softmax(scores, dim=-1)
        return found - 0.1 * (likely * same).sum(1).div(same.sum(1)).mean()


HEADS = {"pair": Pair, "graph-pair": GraphPair, "anchor": Anchor, "detector": Detector}


def build(step: TrainingStep) -> nn.Module:
    """The network of a step on torch's meta device, in training mode where it trains.

    Raises:
        ImportError: LoRA is asked for and peft is not installed.
        ValueError: transformers does not take the numbers.

    """
    with torch.device("meta"):
        return _made(step).train(step.training)


def _made(step: TrainingStep) -> nn.Module:
    network = step.network
    # A GraphCodeBERT is read as a classifier, whose pooler is left out.
    more = {"add_pooling_layer": False} if network.head == "graph-pair" else {}
    encoder = AutoModel.from_config(_config(network), attn_implementation=step.attention, **more)
    encoder = encoder.to(DTYPES[network.weights])
    if step.checkpointing:
        encoder.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False}
        )
    if step.lora_rank:
        _adapt(encoder, step)
    return HEADS[network.head](encoder, step)


def materialized(model: nn.Module, device: str = "cpu") -> nn.Module:
    """The same network on a device, its weights as they come; also under fake tensors."""
    made: dict[Tensor, Tensor] = {}
    for module in model.modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None:
                continue
            if tensor not in made:
                empty = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                weight = nn.Parameter(empty, tensor.requires_grad)
                made[tensor] = weight if isinstance(tensor, nn.Parameter) else empty
            store = module._parameters if name in module._parameters else module._buffers
            store[name] = made[tensor]  # type: ignore[assignment]
    return model


def batch_of(step: TrainingStep, batch: int) -> tuple[Tensor, ...]:
    """What the loader hands over, moved to the card: all that `forward` takes."""
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
        case _:
            return one, labels


def optimizer_of(model: nn.Module, *, foreach: bool) -> torch.optim.Optimizer:
    """AdamW over the parameters that get gradients, in two groups as the scripts have it."""
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    plain = [weight for name, weight in named if name.endswith(NO_DECAY)]
    decayed = [weight for name, weight in named if not name.endswith(NO_DECAY)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], foreach=foreach)


def _config(network: Network) -> Any:
    names = GPT2 if network.architecture == "gpt2" else BERT
    sizes = {name: getattr(network, field) for field, name in names.items()}
    return AutoConfig.for_model(network.architecture, vocab_size=network.vocabulary, **sizes)


def _adapt(encoder: PreTrainedModel, step: TrainingStep) -> None:
    """Freeze the encoder and give it adapters, as ``ddpfix patch --with lora`` does."""
    import peft

    known = peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    targets: Any = known.get(encoder.config.model_type, "all-linear")
    peft.inject_adapter_in_model(peft.LoraConfig(r=step.lora_rank, target_modules=targets), encoder)
