"""``patch --with checkpointing``: activations are computed again, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from capable import added, assert_alike, made, outputs, plain_and_capable, reasons
from ddpfix.fixtures.tiny import Kind, build_clone_data, build_model, clone_arguments
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.capabilities import select_capabilities
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run

PRELUDE = Path(__file__).parent / "preludes" / "saved.py"
KINDS: tuple[Kind, ...] = ("gpt2", "roberta")
(CAPABILITY,) = select_capabilities(["checkpointing"])


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return plain_and_capable(tmp_path_factory.mktemp("scripts"), ["checkpointing"])


@pytest.fixture(scope="module")
def runs(
    forge: Forge, scripts: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    plain, capable = scripts
    folder = tmp_path_factory.mktemp("checkpointing")
    data = build_clone_data(folder / "data", train=25, valid=5, test=5)
    models = {kind: build_model(folder / "models" / kind, kind) for kind in KINDS}

    def job(name: str, script: Path, world: int | None, words: str = "") -> Job:
        kind: Kind = "gpt2" if name.startswith("gpt2") else "roberta"
        here = folder / name
        training = clone_arguments(
            models[kind], data, here / "out", kind, batch=3, accumulation=2, epochs=1
        )
        return Job(here, script, [*training, *words.split()], world, prelude=PRELUDE)

    jobs = [job("gpt2 alone", plain, None), job("gpt2 alone, off", capable, None)]
    for kind in KINDS:
        jobs.append(job(f"{kind}", plain, 2))
        jobs.append(job(f"{kind}, on", capable, 2, "--gradient_checkpointing"))
    return made(forge, jobs)


def test_without_its_flag_nothing_is_computed_otherwise(runs: dict[str, Run]) -> None:
    before, after = runs["gpt2 alone"], runs["gpt2 alone, off"]
    assert_alike(before, after)
    assert before.seen == after.seen


@pytest.mark.parametrize("kind", KINDS)
def test_layers_keep_no_activations(kind: Kind, runs: dict[str, Run]) -> None:
    before, after = runs[kind].seen, runs[f"{kind}, on"].seen
    for kept, left in zip(before, after, strict=True):
        assert 0 < left < kept / 2


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_take_the_same_steps(kind: Kind, runs: dict[str, Run]) -> None:
    before, after = (compare.steps(runs[name].ranks) for name in (kind, f"{kind}, on"))
    assert len(before) == 3  # of two, two and one micro-batches
    assert compare.deviation(before, after, "loss").largest < 1e-6
    assert compare.deviation(before, after, "norm").largest < 1e-5
    assert compare.first_divergent_step(runs[f"{kind}, on"].ranks) == 0
    for plain, capable in zip(runs[kind].ranks, runs[f"{kind}, on"].ranks, strict=True):
        counts = compare.all_reduces_per_step(capable)
        assert counts == compare.all_reduces_per_step(plain)
    assert outputs(runs[kind]).keys() == outputs(runs[f"{kind}, on"]).keys()


def test_a_second_patch_changes_nothing(scripts: tuple[Path, Path]) -> None:
    again = patch(scripts[1], capabilities=[CAPABILITY])
    assert (again.refusal, again.changes, again.capability_failures) == ("", (), ())


HEAD = """\
import argparse
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import RobertaModel

class Model(nn.Module):
    def __init__(self, encoder, decoder=None):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.head = nn.Linear(4, 2)

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
{flag}args = parser.parse_args()
"""
FLAG = (
    'parser.add_argument("--gradient_checkpointing", action="store_true",\n'
    '                    help="Compute activations again in the backward pass: less memory, '
    'slower steps.")\n'
)
WRAP = """\
model = DistributedDataParallel(model)
for batch in batches:
    model(batch).backward()
"""
TEST = "if args.gradient_checkpointing:\n"
ENABLE = "gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})\n"
PLACES = {
    "the model is a transformers model": (
        f"model = RobertaModel.from_pretrained('x')\n{WRAP}",
        f"model = RobertaModel.from_pretrained('x')\n{TEST}    model.{ENABLE}{WRAP}",
    ),
    "a module keeps one": (
        f"model = Model(RobertaModel.from_pretrained('x'))\n{WRAP}",
        f"model = Model(RobertaModel.from_pretrained('x'))\n{TEST}    model.encoder.{ENABLE}{WRAP}",
    ),
    "a module keeps two": (
        "encoder = RobertaModel.from_pretrained('x')\ndecoder = RobertaModel.from_pretrained('y')\n"
        f"model = Model(encoder, decoder)\n{WRAP}",
        "encoder = RobertaModel.from_pretrained('x')\ndecoder = RobertaModel.from_pretrained('y')\n"
        "model = Model(encoder, decoder)\n"
        f"{TEST}    model.encoder.{ENABLE}    model.decoder.{ENABLE}{WRAP}",
    ),
    "a module keeps one twice, and it is called a model too": (
        f"model = RobertaModel.from_pretrained('x')\nmodel = Model(model, model)\n{WRAP}",
        "model = RobertaModel.from_pretrained('x')\nmodel = Model(model, model)\n"
        f"{TEST}    model.encoder.{ENABLE}{WRAP}",
    ),
    "it is read or made anew": (
        "if args.path:\n    model = kind.from_pretrained(args.path)\n"
        f"else:\n    model = kind(config)\n{WRAP}",
        "if args.path:\n    model = kind.from_pretrained(args.path)\n"
        f"    {TEST}        model.{ENABLE}"
        f"else:\n    model = kind(config)\n    {TEST}        model.{ENABLE}{WRAP}",
    ),
    "a function makes it": (
        "def build(options):\n    model = RobertaModel.from_pretrained(options.path)\n"
        f"    return model\n\nmodel = build(args)\n{WRAP}",
        "def build(options):\n    model = RobertaModel.from_pretrained(options.path)\n"
        f"    if options.gradient_checkpointing:\n        model.{ENABLE}"
        f"    return model\n\nmodel = build(args)\n{WRAP}",
    ),
}


@pytest.mark.parametrize(("before", "after"), PLACES.values(), ids=list(PLACES))
def test_checkpointing_is_enabled_behind_what_makes_the_model(before: str, after: str) -> None:
    assert added(CAPABILITY, HEAD.format(flag="") + before) == HEAD.format(flag=FLAG) + after


REASONS = {
    "nothing is trained": ("model = RobertaModel.from_pretrained('x')\n", "does not train"),
    "nothing is wrapped": (
        WRAP.partition("\n")[2],
        "nothing shows where the trained model is made",
    ),
    "somebody else makes it": (f"model = other.make()\n{WRAP}", "nothing shows where"),
    "layers of torch": (
        f"model = Model(nn.Linear(4, 4))\n{WRAP}",
        "Model() keeps no transformers model that it is given",
    ),
    "a tokenizer is no model": (
        f"tokenizer = RobertaTokenizer.from_pretrained('x')\nmodel = Model(tokenizer)\n{WRAP}",
        "keeps no transformers model",
    ),
    "a function that is not given the arguments": (
        "def build(args):\n    model = RobertaModel.from_pretrained(args)\n    return model\n\n"
        f"model = build(args.path)\n{WRAP}",
        "no command line whose arguments reach the model",
    ),
}


@pytest.mark.parametrize(("text", "why"), REASONS.values(), ids=list(REASONS))
def test_where_it_cannot_be_added_it_says_why(text: str, why: str) -> None:
    (because,) = reasons(CAPABILITY, HEAD.format(flag="") + text)
    assert why in because
