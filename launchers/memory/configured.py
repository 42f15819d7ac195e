"""Build the network of a config.json: a class of transformers, with a plain head where it has none.

Nothing is loaded: transformers makes the class from the numbers in the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its name everywhere
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel

from .read_network import read_network
from .step import TrainingStep

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PADDING = 1
CLASSES = 2  # of a head of the script's own, whose number is not known
SPANS = ("QuestionAnswering",)
WHOLE = ("SequenceClassification",)
EACH_TOKEN = (
    "TokenClassification",
    "MaskedLM",
    "CausalLM",
    "LMHeadModel",
    "ConditionalGeneration",
    "Seq2SeqLM",
)
"""Parts of the names of classes, by the labels that their loss takes."""

Prepare = Callable[[PreTrainedModel, TrainingStep], PreTrainedModel]


class Headed(nn.Module):
    """A model of transformers with the head of a script's own class."""

    def __init__(self, model: PreTrainedModel, step: TrainingStep) -> None:
        super().__init__()
        head, sequences = step.network.head, step.network.sequences
        self.model, self.head, self.sequences = model, head, sequences
        self.length = step.length
        self.padding = getattr(model.config, "pad_token_id", None) or PADDING
        width = _width(model.config)
        self.dropout = nn.Dropout(0.1)
        if head == "language":
            self.out = nn.Linear(width, model.config.vocab_size, bias=False)
        elif sequences > 1:
            self.dense = nn.Linear(sequences * width, width)
            self.out = nn.Linear(width, getattr(model.config, "num_labels", 0) or CLASSES)
        elif head in ("classification", "tokens"):
            self.out = nn.Linear(width, getattr(model.config, "num_labels", 0) or CLASSES)

    def forward(self, ids: Tensor, *labels: Tensor) -> Tensor:
        ids = ids.view(-1, self.length)
        mask = ids.ne(self.padding)
        if self.head == "own":
            names = label_names(type(self.model).__name__)
            named = dict(zip(names, labels, strict=True))
            own: Tensor = self.model(input_ids=ids, attention_mask=mask.long(), **named)[0]
            return own
        states = self.model(input_ids=ids, attention_mask=mask.long())[0]
        if self.head == "none":
            mean: Tensor = states[:, 0].float().pow(2).mean()
            return mean
        if self.head == "classification":
            states = states[:, 0]
            if self.sequences > 1:
                groups = states.reshape(-1, self.sequences * states.size(-1))
                states = torch.tanh(self.dense(self.dropout(groups)))
        scores = self.out(self.dropout(states).to(self.out.weight.dtype))
        return F.cross_entropy(scores.flatten(0, -2), labels[0].flatten())


def with_head(step: TrainingStep, prepare: Prepare) -> nn.Module:
    """The network of a step with a config, on the device that is set.

    Raises ValueError where transformers has no such model or class, the class no such head, or its
    source is not followed.
    """
    network = step.network

    def build(class_name: str, layers: int, named: dict[str, Any]) -> PreTrainedModel:
        return prepare(_make_model(step, class_name, layers, named), step)

    if network.head == "read":
        return read_network(step, build, config_of(network.config, network.model_class))
    model = build(network.model_class, 0, {})
    if network.head == "own":
        label_names(type(model).__name__)
    return Headed(model, step)


def _make_model(
    step: TrainingStep, class_name: str, layers: int, named: dict[str, Any]
) -> PreTrainedModel:
    """A model of transformers, with keywords as from_pretrained takes them."""
    network = step.network
    config = config_of(network.config, class_name)
    if layers or network.layers:
        config.num_hidden_layers = layers or network.layers
    kind = getattr(transformers, class_name, None)
    if kind is None:
        raise ValueError(f"transformers has no {class_name}")
    if getattr(config, "is_encoder_decoder", False) and not network.targets:
        raise ValueError(f"a {config.model_type} reads two sequences, and only one length is known")
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = PADDING  # as scripts set it, without which no batch is classified
    for name in [name for name in named if hasattr(config, name)]:
        setattr(config, name, named.pop(name))
    make = kind._from_config if issubclass(kind, PreTrainedModel) else kind.from_config
    try:
        model = make(config, attn_implementation=step.attention, **named)
    except ValueError:  # some have no attention but their own, which transformers then takes
        model = make(config, attn_implementation="eager", **named)
    weights: PreTrainedModel = model.to(DTYPES[network.weights])
    return weights


def config_of(text: str, model_class: str) -> Any:
    """The configuration of a config.json; without a model type it is that of the class."""
    sizes = json.loads(text)
    model_type = sizes.pop("model_type", "")
    if not model_type:
        kind = getattr(getattr(transformers, model_class, None), "config_class", None)
        if kind is None:
            raise ValueError("its config.json has no model_type")
        return kind(**sizes)
    return AutoConfig.for_model(model_type, **sizes)


def label_names(class_name: str) -> tuple[str, ...]:
    """The arguments of a class's loss. Raises ValueError for a class whose loss is not known."""
    if any(part in class_name for part in SPANS):
        return ("start_positions", "end_positions")
    if any(part in class_name for part in (*WHOLE, *EACH_TOKEN)):
        return ("labels",)
    raise ValueError(f"the labels of {class_name} are not known")


def make_labels(step: TrainingStep, batch: int) -> tuple[Tensor, ...]:
    """The labels of a batch, which is a class or a place of each sequence, or of each token."""
    network = step.network
    one = torch.zeros(batch, dtype=torch.long)
    if network.head in ("none", "read"):
        return ()
    if network.head == "own":
        names = label_names(network.model_class)
        if len(names) > 1:
            return one, one.clone()
        each_token = any(part in network.model_class for part in EACH_TOKEN)
        if not each_token and config_of(network.config, network.model_class).num_labels == 1:
            return (one.float(),)
    else:
        each_token = network.head != "classification"
    length = network.targets or step.length
    return (torch.zeros(batch, length, dtype=torch.long) if each_token else one,)


def _width(config: Any) -> int:
    """The width of a state, which some configurations call otherwise."""
    return int(getattr(config, "hidden_size", 0) or config.d_model)
