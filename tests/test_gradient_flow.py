"""Whether the source shows that every parameter gets a gradient in each step."""

from __future__ import annotations

from typing import Any

import pytest
from cases import module
from ddpfix.patcher.analysis.models.layer_tables import (
    FIRST_OF_SEVERAL,
    FIRST_OUTPUT,
    HEADS,
    LAYERS,
    SECOND_OUTPUT,
)
from ddpfix.patcher.analysis.models.unused_parameters import all_get_gradients
from ddpfix.patcher.analysis.training.program import Program

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn

{classes}

def train(model, batches, criterion):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        optimizer.zero_grad()
{step}
        optimizer.step()

def main():
    torch.manual_seed(0)
    model = {made}
    model = nn.DataParallel(module=model) if torch.cuda.device_count() > 1 else model
    train(model, [(torch.ones(2, 4), torch.tensor([0, 1]))] * 2, nn.CrossEntropyLoss())
    return model

model = main()
"""
STEP = "loss = criterion(model(x), y)\nloss.backward()"
CLASS = """\
class Model(nn.Module):
    def __init__(self, width=4, args=None):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.second = nn.Linear(width, 4)
        {more}

    def forward(self, x, y=None, weight=None):
        {body}
"""
LAYERED = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        {body}
"""
BLOCKS = """\
class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.layer = nn.Linear(inside, outside)
        self.short = nn.Sequential()
        if stride != 1:
            self.short = nn.Sequential(nn.Linear(inside, outside), nn.ReLU())

    def forward(self, x):
        out = F.relu(self.layer(x))
        out = out + self.short(x)
        return out

class Model(nn.Module):
    def __init__(self, block, sizes):
        super(Model, self).__init__()
        self.body = self._make(block, sizes[0])
        self.head = nn.Linear(4, 4)

    def _make(self, block, number):
        layers = []
        for stride in [2] + [1] * number:
            layers.append(block(4, 4, stride))
        return nn.Sequential(*layers)

    def forward(self, x):
        return self.head(self.body(x))

def make():
    return Model(Block, [2])
"""


def script(classes: str, step: str = STEP, made: str = "Model()") -> str:
    indented = step.replace("\n", "\n        ")
    return SCRIPT.format(classes=classes, step=f"        {indented}", made=made)


def plain(body: str, more: str = "pass", **parts: str) -> str:
    return script(CLASS.format(body=body.replace("\n", "\n        "), more=more), **parts)


def layered(body: str) -> str:
    return script(LAYERED.format(body=body.replace("\n", "\n        ")))


CHAIN = "x = self.first(x)\nreturn self.second(x)"
LOSS = "x = self.second(self.first(x))\nif y is None:\n    return x.argmax(-1)\n"
LOSS += "return F.cross_entropy(x, y), x"

ALL = [
    ("a chain of layers", plain(CHAIN)),
    ("activations and views", plain("return self.second(F.relu(self.first(x)).view(-1, 4))")),
    ("a layer of a parameter", plain("return self.second(self.first(x)) * self.scale",
        more="self.scale = nn.Parameter(torch.ones(4))")),
    ("a dropout that is kept", plain("return self.second(self.drop(self.first(x)))",
        more="self.drop = nn.Dropout(0.1)")),
    ("a recurrent layer", plain(
        "out, _ = self.rnn(self.first(x)[None])\nreturn self.second(out[0])",
        more="self.rnn = nn.GRU(4, 4)")),
    ("a loss in the model, and a way without one", plain(LOSS,
        step="loss, logits = model(x, y)\nloss.backward()")),
    ("the loss by its number", plain(LOSS, step="loss = model(x, y=y)[0]\nloss.backward()")),
    ("a way that no step takes", plain(
        "if weight is not None:\n    return self.first(x)\n" + CHAIN)),
    ("a way that no step takes, by a name", plain("has_weight = weight is not None\n"
        "if not has_weight:\n    return self.second(self.first(x))\nreturn self.first(x)")),
    ("both ways use all", plain("x = self.first(x)\nif len(x) > 1:\n    x = self.second(x)\n"
        "else:\n    x = self.second(-x)\nreturn x")),
    ("a loss that is averaged and divided", plain(CHAIN, step="loss = criterion(model(x), y)\n"
        "if torch.cuda.device_count() > 1:\n    loss = loss.mean()\n"
        "loss = loss / 2\nloss.backward()")),
    ("a method of the model", plain("return self.second(self.inner(x))") .replace("def train",
        "    def inner(self, x):\n        return self.first(x)\n\ndef train", 1)),
    ("layers in a list, one after the other", layered(
        "for layer in self.layers:\n    x = layer(x)\nreturn x")),
    ("layers in a list, side by side", layered("outs = []\n"
        "for i, layer in enumerate(self.layers):\n    outs.append(layer(x))\nreturn sum(outs)")),
    ("blocks made in a loop", script(BLOCKS, made="make()")),
    ("decay by hand", plain("return self.first(x)",
        step="loss = criterion(model(x), y)\n"
        "loss = loss + 0.1 * sum(p.pow(2).sum() for p in model.parameters())\nloss.backward()")),
    ("decay by hand in a loop", plain("return self.first(x)",
        step="loss = criterion(model(x), y)\nfor name, p in model.named_parameters():\n"
        "    loss += 0.1 * p.abs().sum()\nloss.backward()")),
    ("decay where it goes back", plain("return self.first(x)",
        step="(criterion(model(x), y) + sum(p.norm() for p in model.parameters())).backward()")),
    ("nn.Sequential", script("", made="nn.Sequential(nn.Linear(4, 4), nn.ReLU())")),
    ("a head that is exchanged", script(CLASS.format(body=CHAIN.replace("\n", "\n        "),
        more="pass") + "\ndef make():\n    made = Model()\n"
        "    made.second = nn.Linear(made.second.in_features, 3)\n    return made\n",
        made="make()")),
]  # fmt: skip

NOT_ALL = [
    ("a layer that nothing calls", plain("return self.first(x)")),
    ("a layer under a test of the data", plain("x = self.first(x)\nif len(x) > 2:\n"
        "    x = self.second(x)\nreturn x")),
    ("a result without a gradient", plain("return self.first(x) + self.second(x).detach()")),
    ("a layer that only ranks", plain(
        "best = self.second(x).argmax(-1)\nreturn self.first(x)[best]")),
    ("a layer in no_grad", plain("with torch.no_grad():\n    more = self.second(x)\n"
        "return self.first(x) + more")),
    ("the last layer of a list alone", layered("for layer in self.layers:\n    out = layer(x)\n"
        "return out")),
    ("a loop that may have no turn", plain("x = self.first(x)\nfor _ in range(len(x) - 2):\n"
        "    x = self.second(x)\nreturn x")),
    ("the second of two results", plain("return self.first(x), self.second(x)",
        step="a, b = model(x)\ncriterion(a, y).backward()")),
    ("a part that is called past the model", plain(CHAIN,
        step="criterion(model.first(x), y).backward()")),
    ("decay of some", plain("return self.first(x)", step="loss = criterion(model(x), y)\n"
        "loss += sum(p.norm() for n, p in model.named_parameters() if 'first' in n)\n"
        "loss.backward()")),
    ("decay of some in a loop", plain("return self.first(x)", step="loss = criterion(model(x), y)\n"
        "for n, p in model.named_parameters():\n    if 'first' in n:\n"
        "        loss = loss + p.norm()\nloss.backward()")),
    ("decay by a choice", plain("return self.first(x)", step="loss = criterion(model(x), y)\n"
        "for n, p in model.named_parameters():\n"
        "    loss = loss + (p.norm() if 'first' in n else 0)\nloss.backward()")),
    ("a norm that is printed", plain("return self.first(x)", step="loss = criterion(model(x), y)\n"
        "loss.backward()\ntotal = sum(p.norm() for p in model.parameters())\nprint(total)")),
    ("decay without a gradient", plain("return self.first(x)",
        step="loss = criterion(model(x), y) + sum(p.data.norm() for p in model.parameters())\n"
        "loss.backward()")),
    ("decay now and then", plain("return self.first(x)", step="loss = criterion(model(x), y)\n"
        "if len(x) > 2:\n    loss += sum(p.norm() for p in model.parameters())\n"
        "loss.backward()")),
    ("one of two backward passes", plain("if weight is None:\n    return self.first(x)\n" + CHAIN,
        step="criterion(model(x), y).backward()\ncriterion(model(x, weight=y), y).backward()")),
]  # fmt: skip

UNKNOWN = [
    ("layers by their number", plain("return [self.first, self.second][x.shape[0]](x)")),
    ("a layer added by its name", plain("return self.second(self.first(x))",
        more="self.add_module('third', nn.Linear(4, 4))")),
    ("a model of two classes", plain(CHAIN,
        made="Model() if torch.rand(1) < 2 else nn.Linear(4, 4)")),
    ("a loss that is not known", plain(CHAIN, step="loss = penalty(model(x), y)\nloss.backward()")
        .replace("def main", "def penalty(x, y):\n    raise NotImplementedError\n\ndef main")),
]  # fmt: skip


def told(text: str) -> bool:
    return all_get_gradients(Program(module(text)), "model")


def without_gradient(text: str) -> list[str]:
    """The parameters that get none, when the script is run."""
    names: dict[str, Any] = {"__name__": "script"}
    exec(text, names)
    return [name for name, each in names["model"].named_parameters() if each.grad is None]


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in ALL])
def test_models_are_seen_to_use_all_of_their_parameters(text: str) -> None:
    assert without_gradient(text) == []
    assert told(text)


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOT_ALL])
def test_models_that_leave_parameters_out_are_never_taken_for_others(text: str) -> None:
    assert not told(text)


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in UNKNOWN])
def test_what_cannot_be_told_is_not_claimed(text: str) -> None:
    assert not told(text)


TRAINER = """\
import torch
from torch import nn

{classes}

class Trainer:
    def __init__(self, model):
        self.model = {made}
        if torch.cuda.device_count() > 1:
            self.model = nn.DataParallel(self.model)
        self.model.train()
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self, batches):
        for x, y in batches:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()

    def begin_anew(self):
        {anew}

trainer = Trainer(Model())
trainer.fit([(torch.ones(2, 4), torch.tensor([0, 1]))] * 2)
model = trainer.model
"""


@pytest.mark.parametrize(
    ("body", "made", "anew", "is_told"),
    [
        pytest.param(CHAIN, "Model()", "pass", True, id="made by the trainer"),
        pytest.param(CHAIN, "model.float()", "pass", True, id="handed over"),
        pytest.param(CHAIN, "Model()", "self.model = self.model.cpu()", True, id="moved"),
        pytest.param(CHAIN, "Model()", "self.model = Model(8)", True, id="made again"),
        pytest.param("return self.first(x)", "model", "pass", False, id="a layer is left out"),
        pytest.param(CHAIN, "model", "self.model = nn.Linear(4, 4)", False, id="another model"),
        pytest.param(CHAIN, "model", "self.model, more = make()", False, id="of a tuple"),
    ],
)
def test_the_model_that_a_trainer_holds_is_what_all_assignments_agree_on(
    body: str, made: str, anew: str, is_told: bool
) -> None:
    classes = CLASS.format(body=body.replace("\n", "\n        "), more="pass")
    text = TRAINER.format(classes=classes, made=made, anew=anew)
    assert told(text) is is_told
    assert not is_told or without_gradient(text) == []


FROZEN = "for parameter in model.{part}parameters():\n        parameter.requires_grad = False"


@pytest.mark.parametrize(
    ("place", "part", "is_told"),
    [
        ("    train(", "first.", False),
        (
            "    model = nn.DataParallel",
            "first.",
            True,
        ),  # which is then no parameter of the wrapper's
    ],
)
def test_what_is_frozen_behind_the_wrapper_gets_none(place: str, part: str, is_told: bool) -> None:
    text = plain(CHAIN).replace(place, f"    {FROZEN.format(part=part)}\n{place}")
    assert told(text) is is_told
    without = without_gradient(text)
    assert without
    assert all("first." in name for name in without)


def pretrained(class_name: str, body: str, words: str = "") -> str:
    table = f"{{'kind': (None, {class_name}, None)}}"
    return script(
        f"import argparse\nfrom transformers import {class_name}\nCLASSES = {table}\n"
        "args = argparse.ArgumentParser().parse_args([])\n"
        + CLASS.format(body=body, more="pass")
        .replace("width=4, args=None", "encoder")
        .replace("self.first = nn.Linear(4, width)", "self.encoder = encoder")
        .replace("width", "4")
        + f"\ndef make():\n    _, kind, _ = CLASSES[args.kind]\n"
        f"    model = kind.from_pretrained(args.name{words})\n"
        "    model = Model(model)\n    return model\n",
        made="make()",
    )


@pytest.mark.parametrize(
    ("class_name", "index", "words", "is_told"),
    [
        ("GPT2Model", 0, "", True),
        ("RobertaModel", 0, "", False),  # its pooler
        ("RobertaModel", 0, ", add_pooling_layer=False", True),
        ("BertModel", 1, "", True),
        ("BertForSequenceClassification", 0, "", True),
        ("BertForPreTraining", 0, "", False),
    ],
)
def test_models_of_transformers_are_known_by_their_outputs(
    class_name: str, index: int, words: str, is_told: bool
) -> None:
    text = pretrained(class_name, f"return self.second(self.encoder(x)[{index}])", words)
    assert told(text) is is_told


def test_the_encoder_of_a_model_with_a_head_is_not_all_of_it() -> None:
    text = pretrained(
        "BertForSequenceClassification", "return self.second(self.encoder.bert(x)[1])"
    )
    assert not told(text)


WIDTHS = [
    *("hidden_size", "intermediate_size", "dim", "hidden_dim", "embedding_size", "n_embd"),
    *("n_inner", "d_model", "d_kv", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"),
]
TWO = [
    *("num_hidden_layers", "num_attention_heads", "n_layers", "n_heads", "n_layer", "n_head"),
    *("num_layers", "num_heads", "encoder_layers", "decoder_layers", "num_labels"),
    *("encoder_attention_heads", "decoder_attention_heads", "eos_token_id"),
]
SIZES: dict[str, int] = {
    **dict.fromkeys(WIDTHS, 16),
    **dict.fromkeys(TWO, 2),
    **dict.fromkeys(("pad_token_id", "decoder_start_token_id"), 0),
    "vocab_size": 32,
    "max_position_embeddings": 40,
}


def test_outputs_of_known_models_are_made_of_all_their_parameters() -> None:
    import torch
    import transformers

    for name in sorted(HEADS | FIRST_OUTPUT | SECOND_OUTPUT):
        owner = getattr(transformers, name)
        known = owner.config_class()
        sizes = {key: value for key, value in SIZES.items() if hasattr(known, key)}
        model = owner(owner.config_class(**sizes)).train()
        ids = torch.randint(3, 30, (2, 8))
        labels = {"labels": torch.tensor([0, 1]) if "Sequence" in name else ids % 2}
        if "Question" in name:
            labels = {"start_positions": ids[:, 0] % 8, "end_positions": ids[:, 1] % 8}
        passes: list[tuple[int, dict[str, Any]]] = [(int(name in SECOND_OUTPUT), {})]
        if name in HEADS:
            passes.append((0, labels))
        for place, more in passes:
            model.zero_grad()
            decoder = {"decoder_input_ids": ids} if "Conditional" in name else {}
            model(ids, return_dict=False, **decoder, **more)[place].sum().backward()
            trained = [(key, each) for key, each in model.named_parameters() if each.requires_grad]
            assert [key for key, each in trained if each.grad is None] == [], (name, more.keys())


def test_outputs_of_known_layers_are_made_of_all_their_parameters() -> None:
    import torch
    from torch import nn

    sizes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("Linear", "RNN", "LSTM", "GRU", "Embedding", "EmbeddingBag"), (4, 4)),
        **dict.fromkeys(("TransformerEncoderLayer", "TransformerDecoderLayer"), (4, 2)),
        **dict.fromkeys(("GroupNorm",), (2, 4)),
        "Bilinear": (4, 4, 4),
        "MultiheadAttention": (4, 2),
        "PReLU": (),
    }
    for name in sorted(LAYERS | FIRST_OF_SEVERAL):
        if name in ("TransformerEncoder", "TransformerDecoder"):
            inner = getattr(nn, f"{name}Layer")(4, 2)
            layer = getattr(nn, name)(inner, 2)
        elif name == "Transformer":
            layer = nn.Transformer(4, 2, 1, 1, 8)
        else:
            size = (4, 4, 1) if name.startswith("Conv") else (4,)
            affine = {"affine": True} if name.startswith("InstanceNorm") else {}
            layer = getattr(nn, name)(*sizes.get(name, size), **affine)
        x = torch.rand(2, 4, *[3] * int(name[-2])) if name.endswith("d") else torch.rand(2, 3, 4)
        if name.startswith("Embedding"):
            x = torch.ones(2, 3, dtype=torch.long)
        if name == "GroupNorm":
            x = torch.rand(2, 4, 3)
        times = {"Bilinear": 2, "MultiheadAttention": 3, "Transformer": 2}
        several = times.get(name, 2 if "Decoder" in name else 1)
        result = layer(*[x] * several)
        (result[0] if name in FIRST_OF_SEVERAL else result).sum().backward()
        assert all(each.grad is not None for each in layer.parameters()), name
