"""Memory of a script's own class, followed by its source, against the same class as it runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from checkout import ROOT
from ddpfix.launchers.cli.model_from_arguments import model_from_arguments
from ddpfix.launchers.memory import trace as tracing
from ddpfix.launchers.memory.configured import config_of
from ddpfix.launchers.memory.curves import TRACED, curve_from_traces
from ddpfix.launchers.memory.networks import build
from ddpfix.launchers.memory.peak import Curve, Peak
from ddpfix.launchers.memory.read_network import ReadModel
from ddpfix.launchers.memory.step import TrainingStep
from ddpfix.launchers.memory.step import step_of as plain_step
from ddpfix.launchers.script.arguments import parse_flags
from ddpfix.patcher.api import (
    PretrainedModel,
    UnknownModel,
    flag_roles,
    pretrained_model,
    read_program,
)
from ddpfix.recipes.load import load
from ddpfix.recipes.network import Network
from ddpfix.record import replace
from torch import Tensor, nn
from transformers import AutoModel

LENGTH = 24
SIZES = {
    "model_type": "bert",
    "vocab_size": 300,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": 64,
}
HEAD = """
import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModel

SCALE = 0.5
"""
TRAIN = """

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--start_from")
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--sharp", action="store_true")
    parser.add_argument("--half", action="store_true")
    args = parser.parse_args()
    encoder = AutoModel.from_pretrained(args.start_from)
    model = Around(encoder, args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in DataLoader(list(range(64)), batch_size=8):
        with torch.autocast("cuda", enabled=args.half):
            loss = model(*batch)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""
TWO_PASSES = """
class Around(nn.Module):
    def __init__(self, encoder, args):
        super(Around, self).__init__()
        self.encoder = encoder
        width = getattr(encoder.config, "hidden_size", None)
        if getattr(encoder.config, "gone_from_configs", False):
            width = magic(width)
        self.project = nn.Linear(width, args.width)

    def embed(self, ids, mask):
        states = self.encoder(ids, attention_mask=mask)[0]
        weights = mask.unsqueeze(-1).float()
        return F.normalize(self.project((states * weights).sum(1) / weights.sum(1)), dim=-1)

    def forward(self, ids_1, mask_1, ids_2, mask_2):
        \"\"\"The similarity of all pairs.\"\"\"
        scores = self.embed(ids_1, mask_1) @ self.embed(ids_2, mask_2).t() / SCALE
        return F.cross_entropy(scores, torch.arange(scores.size(0), device=scores.device))
"""
OF_PARTS = """
class Compare(nn.Module):
    def __init__(self, width, sharp=False):
        super().__init__()
        layers = [nn.Linear(width, width) for _ in range(3)]
        self.layers = nn.ModuleList(layers)
        self.out = nn.Sequential(nn.Dropout(0.1), nn.Linear(width, 2))
        self.sharp = sharp

    def forward(self, first, second):
        gap = torch.abs(first - second)
        for layer in self.layers:
            gap = torch.tanh(layer(gap)) if not self.sharp else layer(gap)
        return self.out(gap)


def pool(states, mask):
    kept = states.masked_fill(mask.eq(0)[:, :, None], 0.0)
    total, count = kept.sum(dim=1), mask.sum(dim=1, keepdim=True)
    return total / count.clamp(min=1)


class Around(nn.Module):
    def __init__(self, encoder, args):
        super().__init__()
        self.encoder = encoder
        self.compare = Compare(encoder.config.hidden_size, sharp=args.sharp)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, ids, mask, others, other_mask, labels=None):
        rows = torch.cat((ids, others), dim=0)
        masks = torch.cat([mask, other_mask], dim=0)
        states = self.encoder(input_ids=rows, attention_mask=masks).last_hidden_state
        half = states.shape[0] // 2
        pooled = pool(states, masks)
        scores = self.compare(pooled[:half], pooled[half:])
        if labels is None:
            return scores
        loss = self.loss(scores, labels)
        loss += 0.0 if self.training else 1.0
        return loss, scores
"""
OF_TOKENS_BY_TOKENS = """
class Around(nn.Module):
    def __init__(self, encoder, args):
        super().__init__()
        self.encoder, self.out = encoder, nn.Linear(encoder.config.hidden_size, 2)

    def forward(self, ids, places, sees, labels, **others):
        count, length = ids.size()
        sees = sees.view(count, length, length)
        nodes = places.eq(0)
        vectors = self.encoder.embeddings.word_embeddings(ids)
        share = (nodes[:, :, None] & sees).float()
        means = torch.einsum("abc,acd->abd", share / (share.sum(-1) + 1e-10)[:, :, None], vectors)
        vectors = vectors * (~nodes)[:, :, None] + means * nodes[:, :, None]
        states = self.encoder(inputs_embeds=vectors, attention_mask=sees[:, None])[0]
        return F.cross_entropy(self.out(states[:, 0, :]), labels)
"""
CLASSES = {
    "two passes": (TWO_PASSES, ("row",) * 4),
    "parts": (OF_PARTS, ("row",) * 4 + ("number",)),
    "tokens by tokens": (OF_TOKENS_BY_TOKENS, ("row", "row", "square", "number")),
}


def found(folder: Path, classes: str, **values: str) -> PretrainedModel | UnknownModel:
    path = folder / "train.py"
    path.write_text(HEAD + classes + TRAIN)
    return pretrained_model(read_program(str(path)), {"start_from": "folder", **values})


def step_of(model: PretrainedModel) -> TrainingStep:
    network = Network(
        *("bert", model.head, 0, 0, 0, 0, 0, 0),
        length=(LENGTH,),
        config=json.dumps(SIZES),
        model_class=model.model_class,
        source=model.source,
    )
    return TrainingStep(network, LENGTH, capability=None)


class Arguments:
    width = 48
    sharp = False


def real(classes: str, step: TrainingStep, kinds: tuple[str, ...]) -> nn.Module:
    """The class as Python makes it, with the batch and the loss of the read one."""

    class Real(ReadModel):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            names: dict[str, Any] = {}
            exec(compile(HEAD + classes, "train.py", "exec"), names)
            config = config_of(step.network.config, "AutoModel")
            encoder = AutoModel.from_config(config, attn_implementation="sdpa")
            self.model = names["Around"](encoder, Arguments())
            self.length, self.kinds, self.contrast = LENGTH, kinds, False

        def forward(self, numbers: Tensor) -> Tensor:
            result = self.model(*self.inputs(len(numbers)))
            return result[0] if isinstance(result, tuple) else result

    with torch.device("meta"):
        return Real().train()


@pytest.mark.parametrize(("classes", "kinds"), CLASSES.values(), ids=CLASSES)
def test_a_class_that_is_read_takes_what_it_takes_when_it_runs(
    classes: str, kinds: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = found(tmp_path, classes)
    assert isinstance(model, PretrainedModel), model
    assert model.head == "read"
    step = step_of(model)
    made = build(step)
    assert isinstance(made, ReadModel)
    assert made.kinds == kinds

    def curve(network: nn.Module) -> Curve:
        monkeypatch.setattr(tracing, "build", lambda _: network)
        told = curve_from_traces(
            step, [tracing.trace(step, size) for size in TRACED[:2]], (1, 8, 64)
        )
        assert isinstance(told, Curve), told
        return told

    read, ran = curve(made), curve(real(classes, step, kinds))
    assert (read.trainable, read.flops) == (ran.trainable, ran.flops)
    for one, other in zip(read.peaks, ran.peaks, strict=True):
        assert one.parameters == other.parameters
        assert one.total == pytest.approx(other.total, rel=0.005)


# What stands in a forward, and the line that says why nothing is predicted.
UNREAD = {
    "rows of several sequences": (
        "more = self.encoder(ids)[0]\nrows = others.view(-1, 24)\n"
        "return (more + self.encoder(rows)[0]).mean()",
        "Around.forward: how many sequences an example has is not known",
    ),
    "values of tensors": (
        "a, b = self.encoder(ids)[0], self.encoder(others)[0]\n"
        "if a.sum() > 0:\n    return a.mean()\nreturn b.mean()",
        "Around.forward: `a.sum() > 0` asks a tensor for its value",
    ),
    "another library": (
        "a, b = self.encoder(ids)[0], self.encoder(others)[0]\nreturn magic(a, b)",
        "Around.forward: `magic(a, b)` is not followed",
    ),
    "a loss of every token elsewhere": (
        "return self.encoder(ids)[0] + self.encoder(others)[0]",
        "its loss is taken elsewhere, of more than a vector for each example",
    ),
    "an option that is not known": (
        "return (self.encoder(ids)[0] * args.unknown + self.encoder(others)[0]).mean()",
        "Around.forward: `args.unknown` is not known",
    ),
}


@pytest.mark.parametrize(("forward", "because"), UNREAD.values(), ids=UNREAD)
def test_what_is_not_followed_is_not_predicted(forward: str, because: str, tmp_path: Path) -> None:
    start, _, _ = TWO_PASSES.partition("    def embed")
    body = "\n        ".join(["    def forward(self, ids, others):", *forward.split("\n")])
    model = found(tmp_path, start + body)
    assert isinstance(model, PretrainedModel), model
    with pytest.raises(ValueError, match=re.escape(because)):
        build(step_of(model))


def test_precision_and_options_are_those_of_the_command(tmp_path: Path) -> None:
    model = found(tmp_path, OF_PARTS)
    assert isinstance(model, PretrainedModel), model
    assert (model.settings.precision, model.settings.weights) == ("", "fp32")
    model = found(tmp_path, OF_PARTS, half="True", sharp="True", width="96")
    assert isinstance(model, PretrainedModel), model
    assert model.settings.precision == "fp16"
    assert json.loads(model.source)["options"] == {"sharp": True}
    wide = found(tmp_path, TWO_PASSES, width="96")
    assert isinstance(wide, PretrainedModel), wide
    weights = dict(build(replace(step_of(wide), length=LENGTH)).named_parameters())
    assert weights["model.project.weight"].shape == (96, 64)


ONE_OR_TWO = """
class Around(nn.Module):
    def __init__(self, encoder, args):
        super().__init__()
        self.encoder = encoder

    def forward(self, ids, mask, others=None, *, other_mask=None):
        first = self.encoder(ids, mask)[0][:, 0]
        if others is None:
            return (first + self.encoder(ids * 1, mask)[0][:, 0]).mean()
        return (first - self.encoder(others, other_mask)[0][:, 0]).pow(2).mean()
"""


def test_what_the_steps_leave_out_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    step = "model(batch[0], mask=batch[1])"
    path.write_text(HEAD + ONE_OR_TWO + TRAIN.replace("model(*batch)", step))
    model = pretrained_model(read_program(str(path)), {"start_from": "folder"})
    assert isinstance(model, PretrainedModel), model
    made = build(step_of(model))
    assert isinstance(made, ReadModel)
    assert made.kinds == ("row", "row")


SMALL = {"hidden": 64, "layers": 1, "heads": 2, "intermediate": 256, "vocabulary": 300}


def told_by(name: str, folder: Path, words: tuple[str, ...]) -> Network:
    """The network of a recipe's script with these arguments and a small config.json."""
    recipe = load(name)
    assert recipe.model is not None
    sizes = {**SIZES, "model_type": recipe.model.architecture, "max_position_embeddings": 514}
    (folder / "config.json").write_text(json.dumps({**sizes, "num_hidden_layers": 1}))
    program = read_program(str(ROOT / "fixtures" / recipe.family / recipe.script))
    told = model_from_arguments(program, flag_roles(program), words)
    assert told.network is not None, told.words
    return told.network


def test_a_sequence_may_be_as_long_as_two_options(tmp_path: Path) -> None:
    words = ("--model_name_or_path", str(tmp_path), "--code_length", "20")
    name = "graphcodebert-clonedetection"
    network = told_by(name, tmp_path, (*words, "--data_flow_length", "12"))
    assert (network.length, network.head) == ((32,), "read")
    assert told_by(name, tmp_path, words).length == (84,)


def test_the_fields_of_a_class_are_options_of_the_model(tmp_path: Path) -> None:
    words = (f"--model_name={tmp_path}", "--max_length=48")
    network = told_by("code-detector", tmp_path, words)
    assert (network.head, network.length, network.precision) == ("classification", (48,), "fp16")
    network = told_by("code-detector", tmp_path, (*words, "--fp16=False"))
    assert network.precision == ""


def test_a_script_without_its_recipe_is_predicted_as_with_it(tmp_path: Path) -> None:
    words = "--max-length 32 --projection-dim 48 --lora-rank 4 --bf16 --gradient-checkpointing"
    arguments = ("--model-name", str(tmp_path), *words.split())
    recipe = load("anchor-xlmr-xl")
    assert recipe.model is not None
    network = told_by("anchor-xlmr-xl", tmp_path, arguments)
    assert (network.weights, network.lora, network.lora_targets) == ("bf16", 4, "query value")

    def at(network: Network) -> Peak:
        step = plain_step(replace(recipe, model=network), parse_flags(arguments))
        assert step is not None
        traces = [tracing.trace(step, size) for size in TRACED[:2]]
        curve = curve_from_traces(step, traces, (1, 64))
        assert isinstance(curve, Curve), curve
        return curve.at(64)

    one, other = at(replace(recipe.model, **SMALL)), at(network)
    for part in ("allocated", "parameters", "optimizer", "activations"):
        assert getattr(other, part) == pytest.approx(getattr(one, part), rel=0.05)
