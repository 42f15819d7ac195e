"""The model of a script without a recipe: which option names it, its class, its surroundings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ddpfix.patcher.api import PretrainedModel, UnknownModel, pretrained_model, read_program

START = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModel, BertConfig, BertForTokenClassification, BertModel
from transformers import BertPreTrainedModel, BertTokenizer, RobertaForSequenceClassification
from transformers import RobertaModel

"""
TRAIN = """
def train(args, model, data):
    loader = DataLoader(data, batch_size=args.batch_size)
    optimizer = OPTIMIZER
    model.train()
    for epoch in range(3):
        for ids, labels in loader:
            STEP
            optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="bert")
    parser.add_argument("--start_from")
    parser.add_argument("--second")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--out_dir", default="out")
    args = parser.parse_args()
    tokenizer = BertTokenizer.from_pretrained(args.start_from)
    MAKE
    train(args, model, list(range(64)))
    model.save_pretrained(args.out_dir)


if __name__ == "__main__":
    main()
"""
STEP = "model(ids, labels=labels)[0].backward()"
ADAMW = "torch.optim.AdamW(model.parameters(), lr=1e-3)"
TABLE = """
KINDS = {
    "bert": (BertConfig, BertForTokenClassification, BertTokenizer),
    "roberta": (None, RobertaForSequenceClassification, None),
}
"""
AROUND = """
class Around(nn.Module):
    def __init__(self, encoder, args):
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(0.1)
        LAYERS

    def forward(self, ids, labels=None, others=None):
        FORWARD
"""
ENCODE = "states = self.encoder(ids, attention_mask=ids.ne(1))[0]"
OWN = """
class Tagger(BertPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.out = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, ids, labels=None):
        scores = self.out(self.bert(ids)[0])
        return (nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()),)
"""
WRAPPED = "model = Around(AutoModel.from_pretrained(args.start_from), args)"
PASSED = """encoder = AutoModel.from_pretrained(args.start_from)
    model = Around(encoder, args)"""


def around(forward: str, layers: str = "self.out = nn.Linear(args.width, 2)") -> str:
    lines = forward.replace("\n", "\n        ")
    return AROUND.replace("LAYERS", layers).replace("FORWARD", lines)


def found(
    folder: Path, classes: str, make: str, step: str = STEP, optimizer: str = ADAMW, **values: str
) -> PretrainedModel | UnknownModel:
    text = START + classes + TRAIN
    for name, value in (("MAKE", make), ("STEP", step), ("OPTIMIZER", optimizer)):
        text = text.replace(name, value)
    path = folder / "run.py"
    path.write_text(text)
    return pretrained_model(read_program(str(path)), {"start_from": "folder", **values})


# Classes of the script, how it makes its model, and the class and head that it then has.
KNOWN = {
    "a class of transformers": (
        "",
        "model = BertForTokenClassification.from_pretrained(args.start_from)",
        ("BertForTokenClassification", "own"),
    ),
    "a row of a table": (
        TABLE,
        "_, cls, _ = KINDS[args.kind]\n    model = cls.from_pretrained(args.start_from)",
        ("BertForTokenClassification", "own"),
    ),
    "an encoder alone": (
        "",
        "model = RobertaModel.from_pretrained(args.start_from)",
        ("RobertaModel", "none"),
    ),
    "one vector is classified": (
        around(f"{ENCODE}\nreturn self.out(states[:, 0, :])"),
        PASSED,
        ("AutoModel", "classification"),
    ),
    "each token is classified": (
        around(f"{ENCODE}\nreturn self.out(self.dropout(states))"),
        PASSED,
        ("AutoModel", "tokens"),
    ),
    "each token is one of the vocabulary": (
        around(f"{ENCODE}\nreturn self.out(states)", "self.out = nn.Linear(9, args.vocab_size)"),
        PASSED,
        ("AutoModel", "language"),
    ),
    "nothing behind it": (
        around(f"{ENCODE}\nreturn states.mean()", "pass"),
        PASSED,
        ("AutoModel", "none"),
    ),
    "a class of its own": (
        OWN,
        "model = Tagger.from_pretrained(args.start_from)",
        ("BertModel", "tokens"),
    ),
    "read again from its own output": (
        "",
        "model = BertModel.from_pretrained(args.start_from)\n"
        "    best = RobertaModel.from_pretrained(args.out_dir)",
        ("BertModel", "none"),
    ),
}


@pytest.mark.parametrize(("classes", "make", "expected"), KNOWN.values(), ids=KNOWN)
def test_the_model_is_what_an_option_leads_to(
    classes: str, make: str, expected: tuple[str, str], tmp_path: Path
) -> None:
    model = found(tmp_path, classes, make)
    assert isinstance(model, PretrainedModel), model
    assert (model.model_class, model.head) == expected
    assert (model.value, model.flag, model.config) == ("folder", "--start_from", "folder")
    assert model.optimizer == "adamw"


@pytest.mark.parametrize(
    ("grouped", "layers", "expected"),
    [
        ("x = states[:, 0]\nreturn self.out(x[0::2] - x[1::2])", "", ("classification", 2)),
        ("return self.out(states[:, 0].reshape(-1, 27))", "args.n * 3, 2", ("classification", 3)),
        ("return states[:, 0].reshape(-1, 4, 9).prod(1).sum()", "none", ("none", 4)),
    ],
)
def test_the_sequences_of_an_example_are_told_by_how_they_meet_again(
    grouped: str, layers: str, expected: tuple[str, int], tmp_path: Path
) -> None:
    layer = "pass" if layers == "none" else f"self.out = nn.Linear({layers or '9, 2'})"
    forward = f"ids = ids.view(-1, args.length)\n{ENCODE}\n{grouped}"
    model = found(tmp_path, around(forward, layer), PASSED)
    assert isinstance(model, PretrainedModel), model
    assert (model.head, model.sequences) == expected


def test_an_option_chooses_the_row_of_a_table(tmp_path: Path) -> None:
    model = found(tmp_path, *KNOWN["a row of a table"][:2], kind="roberta")
    assert isinstance(model, PretrainedModel)
    assert model.model_class == "RobertaForSequenceClassification"


BERT = "model = BertModel.from_pretrained(args.start_from)"
# Classes, how the model is made, the step, the optimizer, and why the model cannot be told.
UNKNOWN = {
    "no name": (
        "",
        "model = nn.Linear(2, 2)",
        STEP,
        ADAMW,
        "the script makes no model by from_pretrained",
    ),
    "two encoders": (
        "",
        BERT + "\n    other = BertModel.from_pretrained(args.start_from)",
        STEP,
        ADAMW,
        "make a model each",
    ),
    "one of two classes": (
        "",
        BERT + "\n    model = RobertaModel.from_pretrained(args.start_from)",
        STEP,
        ADAMW,
        "make different models",
    ),
    "several sequences an example": (
        around(f"ids = ids.view(-1, 64)\n{ENCODE}\nreturn self.out(states[:, 0])"),
        PASSED,
        STEP,
        ADAMW,
        "Around reads several sequences of an example, it is not known how many",
    ),
    "groups of several sizes": (
        around(
            f"ids = ids.view(-1, 64)\n{ENCODE}\nx = states[:, 0]\n"
            "return self.out(x[0::2] - x[1::3])"
        ),
        PASSED,
        STEP,
        ADAMW,
        "Around reads several sequences of an example, it is not known how many",
    ),
    "a recurrent layer": (
        around(f"{ENCODE}\nreturn self.out(states)", "self.out = nn.LSTM(9, 9)"),
        PASSED,
        STEP,
        ADAMW,
        "Around has a LSTM, whose size is not known",
    ),
    "two passes a step": (
        "",
        BERT,
        "(model(ids)[0] - model(labels)[0]).sum().backward()",
        ADAMW,
        "calls its model repeatedly",
    ),
    "a pass that is not its forward": (
        around(f"{ENCODE}\nreturn self.out(states[:, 0])")
        + "\n    def encode(self, ids):\n        return self.encoder(ids)[0]\n",
        PASSED,
        "model.module.encode(ids).sum().backward()",
        ADAMW,
        "calls its model.encode",
    ),
    "weights that are not trained": (
        "",
        BERT + "\n    for w in model.embeddings.parameters():\n        w.requires_grad = False",
        STEP,
        ADAMW,
        "keeps weights from training",
    ),
    "another optimizer": (
        "",
        BERT,
        STEP,
        "torch.optim.Adagrad(model.parameters())",
        "what its optimizer Adagrad keeps is not known",
    ),
    "half precision": (
        "",
        BERT,
        "if args.half:\n                model.half()\n            " + STEP,
        ADAMW,
        "computes in half precision",
    ),
}


# What stands in the forward of a class whose source has to be read.
READ = {
    "sequences of several inputs": (
        f"ids = torch.cat([ids, others])\n{ENCODE}\nreturn self.out(states[:, 0])"
    ),
    "two passes": f"{ENCODE}\nmore = self.encoder(others)[0]\nreturn self.out(states + more)",
    "an input of its own making": (
        "states = self.encoder(torch.cat([ids, others]))[0]\nreturn self.out(states)"
    ),
}


@pytest.mark.parametrize("forward", READ.values(), ids=READ)
def test_a_class_that_does_more_than_encode_is_read(forward: str, tmp_path: Path) -> None:
    model = found(tmp_path, around(forward), PASSED, width="9")
    assert isinstance(model, PretrainedModel), model
    assert (model.head, model.model_class) == ("read", "AutoModel")
    told = json.loads(model.source)
    assert (told["call"], told["encoder"]) == ("Around(encoder, args)", ["encoder"])
    assert "torch.nn.Linear(args.width, 2)" in told["text"]


@pytest.mark.parametrize(
    ("make", "options", "weights", "precision"),
    [
        ("args.start_from", {}, "fp32", ""),
        ("args.start_from, torch_dtype=torch.bfloat16", {"half": "True"}, "bf16", "fp16"),
        ("args.start_from, dtype=torch.float16 if args.half else torch.float32", {}, "fp32", ""),
    ],
)
def test_the_precision_is_that_of_the_options(
    make: str, options: dict[str, str], weights: str, precision: str, tmp_path: Path
) -> None:
    step = "with torch.autocast('cuda', enabled=args.half):\n                " + STEP
    model = found(tmp_path, "", f"model = BertModel.from_pretrained({make})", step, **options)
    assert isinstance(model, PretrainedModel), model
    assert (model.settings.weights, model.settings.precision) == (weights, precision)


LORA = """
from peft import LoraConfig, get_peft_model
    if args.batch_size > 4:
        model.gradient_checkpointing_enable()
        adapted = LoraConfig(r=args.batch_size * 1, lora_dropout=0.1, target_modules=["query"])
        model = get_peft_model(model, adapted)"""


@pytest.mark.parametrize(
    ("rank", "size", "expected"),
    [
        ("args.batch_size", "16", ("always", 16, ("query",), 0.1)),
        ("args.batch_size", "2", ("never", None, (), 0.0)),
        ("args.batch_size * 2", "16", "adapts cannot be told"),
    ],
)
def test_adapters_and_checkpointing_are_those_of_the_options(
    rank: str, size: str, expected: object, tmp_path: Path
) -> None:
    lora = LORA.partition("\n    if")[2].replace("args.batch_size * 1", rank)
    model = found(tmp_path, LORA.partition("\n    if")[0], f"{BERT}\n    if{lora}", batch_size=size)
    if isinstance(expected, str):
        assert isinstance(model, UnknownModel)
        assert expected in model.because
    else:
        assert isinstance(model, PretrainedModel), model
        told = model.settings
        assert expected == (
            *(told.checkpointing, told.lora_rank, told.lora_targets, told.lora_dropout),
        )


@pytest.mark.parametrize(
    ("made", "precision"),
    [
        ("torch.cuda.amp.autocast(args.half)", "fp16"),
        ("torch.cuda.amp.autocast(not args.half)", ""),
        ("torch.amp.autocast('cuda', torch.bfloat16)", "bf16"),
        ("accelerator.autocast()", None),
        ("torch.autocast('cuda', dtype=read(args))", None),
    ],
)
def test_whose_autocast_it_is_decides_what_is_known(
    made: str, precision: str | None, tmp_path: Path
) -> None:
    step = f"with {made}:\n                {STEP}"
    model = found(tmp_path, "", BERT, step, half="True")
    if precision is None:
        assert isinstance(model, UnknownModel), model
        assert "computes in half precision" in model.because
    else:
        assert isinstance(model, PretrainedModel), model
        assert model.settings.precision == precision


@pytest.mark.parametrize(("last", "is_known"), [("True", True), ("args.half", False)])
def test_weights_that_are_trained_later_are_all_trained(
    last: str, is_known: bool, tmp_path: Path
) -> None:
    classes = (
        "def freeze(model, on):\n    for w in model.parameters():\n        w.requires_grad = on\n"
    )
    step = f"freeze(model, {last})\n            {STEP}"
    model = found(tmp_path, classes, f"{BERT}\n    freeze(model, False)", step)
    assert isinstance(model, PretrainedModel) is is_known


@pytest.mark.parametrize(
    ("classes", "make", "step", "optimizer", "words"), UNKNOWN.values(), ids=UNKNOWN
)
def test_what_cannot_be_told_is_not_guessed(
    classes: str, make: str, step: str, optimizer: str, words: str, tmp_path: Path
) -> None:
    model = found(tmp_path, classes, make, step, optimizer, half="True")
    assert isinstance(model, UnknownModel), model
    assert words in model.because


def test_a_switch_for_half_precision_that_is_off_changes_nothing(tmp_path: Path) -> None:
    _, make, step, optimizer, _ = UNKNOWN["half precision"]
    assert isinstance(found(tmp_path, "", make, step, optimizer), PretrainedModel)


def test_other_options_are_no_switch_for_half_precision(tmp_path: Path) -> None:
    classes = (
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--half_level', default='O1')\n"
        "parser.add_argument('--samples', type=int, default=9)\n"
    )
    _, make, _, optimizer, _ = UNKNOWN["half precision"]
    step = f"if args.half:\n                model.half()\n            {STEP}"
    assert isinstance(found(tmp_path, classes, make, step, optimizer), PretrainedModel)
    model = found(tmp_path, classes, make, step, optimizer, half="True")
    assert isinstance(model, UnknownModel)
    step = (
        f"if args.batch_size:\n                if args.half:\n"
        f"                    model.half()\n            {STEP}"
    )
    assert isinstance(found(tmp_path, classes, make, step, optimizer), PretrainedModel)
    step = f"if not args.half:\n                model.half()\n            {STEP}"
    assert isinstance(found(tmp_path, classes, make, step, optimizer), UnknownModel)
    step = f"model.half()\n            {STEP}"
    assert isinstance(found(tmp_path, classes, make, step, optimizer), UnknownModel)


def test_two_passes_with_a_backward_each_are_one_at_a_time(tmp_path: Path) -> None:
    step = f"{STEP}\n            {STEP}"
    assert isinstance(found(tmp_path, "", BERT, step), PretrainedModel)


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [
        ("torch.optim.SGD(model.parameters(), lr=0.1)", "sgd"),
        ("torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)", "momentum"),
        ("torch.optim.Adam(model.parameters())", "adamw"),
    ],
)
def test_the_optimizer_is_told(optimizer: str, kind: str, tmp_path: Path) -> None:
    model = found(tmp_path, "", BERT, STEP, optimizer)
    assert isinstance(model, PretrainedModel)
    assert model.optimizer == kind


def test_a_configuration_of_its_own_is_named_too(tmp_path: Path) -> None:
    make = (
        "config = BertConfig.from_pretrained(args.config_of or args.start_from)\n    "
        "model = BertModel.from_pretrained(args.start_from, config=config)"
    )
    classes = "parser = argparse.ArgumentParser()\nparser.add_argument('--config_of')\n"
    model = found(tmp_path, classes, make, config_of="elsewhere")
    assert isinstance(model, PretrainedModel)
    assert (model.value, model.config) == ("folder", "elsewhere")


def test_without_a_value_the_option_to_pass_is_told(tmp_path: Path) -> None:
    model = found(tmp_path, "", BERT, start_from="")
    assert isinstance(model, UnknownModel)
    assert model.because.endswith("makes the model of a name not known: pass --start_from")
