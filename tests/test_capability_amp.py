"""``patch --with amp``: the model computes in low precision, everything else stays float32."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ddpfix.fixtures
import pytest
import torch
from capable import added, assert_alike, made, outputs, plain_and_capable, reasons
from ddpfix.fixtures.tiny import build_clone_data, build_model, clone_arguments
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.capabilities import select_capabilities
from ddpfix.patcher.editing.helpers import helper_code
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run

FOLDER = Path(__file__).parent
SHAPES = Path(ddpfix.fixtures.__file__).parent / "shapes"
DATA = SHAPES / "data"
(CAPABILITY,) = select_capabilities(["amp"])
LOW, FULL = ["torch.bfloat16"], ["torch.float32"]
# bfloat16 has 8 bits: a sum of gradients over other micro-batches is rounded to them elsewhere.
ROUNDING = 2**-7
SEQUENCES = [
    f"--{name}={DATA / file}"
    for name, file in (
        ("train_filename", "train.txt"),
        ("dev_filename", "dev.txt"),
        ("test_filename", "test.txt"),
    )
]
WORDS = {  # shapes without apex: a class, no function at all, and one that generates
    "trainer_class": ["--train_batch_size=4", "--gradient_accumulation_steps=2"],
    "module_level": ["--batch_size=4", "--accumulate=2"],
    "generation_loop": ["--do_train", "--do_eval", "--do_test", *SEQUENCES],
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return plain_and_capable(tmp_path_factory.mktemp("scripts"), ["amp"])


@pytest.fixture(scope="module")
def runs(
    forge: Forge, scripts: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Run]:
    """Family A, which has a --fp16 through apex."""
    plain, capable = scripts
    folder = tmp_path_factory.mktemp("amp")
    data = build_clone_data(folder / "data", train=24, valid=5, test=5)
    model = build_model(folder / "model", "gpt2")

    def job(name: str, world: int | None, words: str = "", prelude: str = "precision") -> Job:
        here = folder / name
        script = plain if name.startswith("plain") else capable
        batch = 8 if world == 1 else 4
        training = clone_arguments(
            model, data, here / "out", "gpt2", batch=batch, eval_batch=2, epochs=1
        )
        look = FOLDER / "preludes" / f"{prelude}.py"
        options = ["--no-dropout"] if world else []
        return Job(here, script, [*training, *words.split()], world, options, look)

    jobs = [
        job("plain alone", None),
        job("off alone", None),
        job("plain", 2),
        job("off", 2),
        job("bf16 of one", 1, "--amp=bf16"),
        job("launched", 2, prelude="launched"),
        job("launched with fp16", 2, "--fp16", prelude="launched"),
        job("level O0", 2, "--fp16 --fp16_opt_level=O0"),
        job("overflow", 2, "--amp=fp16", prelude="overflow"),
    ]
    return made(forge, jobs)


@pytest.fixture(scope="module", params=WORDS)
def shape(
    request: pytest.FixtureRequest, forge: Forge, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Run]:
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    paths = {}
    for kind, capabilities in (("plain", ()), ("capable", (CAPABILITY,))):
        paths[kind] = folder / f"{kind}.py"
        shutil.copy(SHAPES / f"{name}.py", paths[kind])
        result = patch(paths[kind], capabilities=capabilities)
        assert (result.refusal, result.capability_failures) == ("", ())
        result.write()

    def job(run: str, kind: str, world: int | None, *words: str) -> Job:
        here, look = folder / run, FOLDER / "preludes" / "precision.py"
        options = [f"--output_dir={here / 'out'}", *WORDS[name], *words]
        return Job(here, paths[kind], options, world, prelude=look)

    jobs = [
        job("plain", "plain", None),
        job("off", "capable", None),
        job("fp16", "capable", 2, "--amp=fp16"),
    ]
    return made(forge, jobs)


def assert_low(run: Run) -> None:
    """On every rank layers computed in low precision, and nothing else stood in it."""
    for seen in run.seen:
        assert [seen["training"], seen["evaluation"]] == [LOW, LOW]
        assert [seen["loss"], seen["weights"], seen["gradients"]] == [FULL, FULL, FULL]


def losses(run: Run) -> list[float]:
    return [step.loss for step in compare.steps(run.ranks)]


@pytest.mark.parametrize("name", ["alone", ""])
def test_without_its_flag_nothing_is_computed_otherwise(name: str, runs: Mapping[str, Run]) -> None:
    before, after = (runs[f"{kind} {name}".strip()] for kind in ("plain", "off"))
    assert_alike(before, after)
    assert before.seen == after.seen
    assert before.seen[0]["training"] == FULL


@pytest.mark.parametrize("name", ["launched", "launched with fp16", "overflow"])
def test_layers_compute_in_low_precision_in_training_and_evaluation(
    name: str, runs: Mapping[str, Run]
) -> None:
    assert_low(runs[name])
    assert compare.first_divergent_step(runs[name].ranks) == 0
    assert outputs(runs[name]).keys() == outputs(runs["off"]).keys()
    assert losses(runs[name])[0] != losses(runs["off"])[0]
    assert losses(runs[name])[0] == pytest.approx(losses(runs["off"])[0], rel=ROUNDING)


def test_two_ranks_that_accelerate_told_train_as_one_with_the_flag(
    runs: Mapping[str, Run],
) -> None:
    assert_low(runs["bf16 of one"])
    one, two = (compare.steps(runs[name].ranks) for name in ("bf16 of one", "launched"))
    assert len(one) == len(two) == 3
    assert compare.deviation(one, two, "loss").largest < ROUNDING
    assert compare.deviation(one, two, "norm").largest < ROUNDING
    assert compare.deviation(one, two, "lr").largest == 0


def test_float16_scales_its_losses_and_its_gradients_back(runs: Mapping[str, Run]) -> None:
    """A scale is a power of 2; on a CPU bfloat16 stands in for float16."""
    low, scaled = runs["launched"], runs["launched with fp16"]
    assert all(seen["scales"] == [] for seen in low.seen)
    assert all(seen["scales"] == [2.0**16] * 3 for seen in scaled.seen)
    assert compare.steps(scaled.ranks) == compare.steps(low.ranks)


def test_apex_s_level_without_low_precision_stays_one(runs: Mapping[str, Run]) -> None:
    assert runs["level O0"].seen == runs["off"].seen
    assert losses(runs["level O0"]) == losses(runs["off"])


def test_a_step_with_an_overflow_is_skipped_on_all_ranks_and_by_the_schedule(
    runs: Mapping[str, Run],
) -> None:
    plain, spoilt = runs["launched with fp16"], runs["overflow"]
    for whole, less in zip(plain.ranks, spoilt.ranks, strict=True):
        assert [step.lrs for step in less.steps] == [step.lrs for step in whole.steps[:2]]
        assert [s.checksum for s in less.steps] == [s.checksum for s in whole.steps[:2]]
    assert len(plain.ranks[0].steps) == 3


def test_a_second_patch_changes_nothing(scripts: tuple[Path, Path]) -> None:
    again = patch(scripts[1], capabilities=[CAPABILITY])
    assert (again.refusal, again.changes, again.capability_failures) == ("", (), ())


def test_other_shapes_are_as_they_were_without_the_flag(shape: Mapping[str, Run]) -> None:
    assert_alike(shape["plain"], shape["off"])
    for run in (shape["plain"], shape["off"]):
        assert [run.seen[0][part] for part in ("training", "evaluation")] == [FULL, FULL]
    assert set(shape["off"].seen[0]["scales"]) == {1.0}


def test_other_shapes_compute_in_low_precision_with_it(shape: Mapping[str, Run]) -> None:
    assert_low(shape["fp16"])
    assert compare.first_divergent_step(shape["fp16"].ranks) == 0
    assert outputs(shape["fp16"]).keys() == outputs(shape["off"]).keys()
    assert {scale for seen in shape["fp16"].seen for scale in seen["scales"]} == {2.0**16}


# ---- what is inserted

HEAD = """\
import argparse
import os
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Encoder(nn.Module):
    pass

{owner}
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
model = Model()
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, print)
"""
MODEL = """\
class Model(nn.Module):
    def forward(self, batch):
        return self.layer(batch)
"""
LOOP = """\
for batch in batches:
    loss = model(batch)
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
"""
HANDLED = LOOP.replace("    optimizer.step()", "    {}\n    optimizer.step()")
REASONS = {
    "a flag of this name": (
        LOOP.replace("for", 'parser.add_argument("--amp", action="store_true")\nfor', 1),
        "--amp is a flag of the script's own",
    ),
    "the name is taken": (f"scaler = StandardScaler()\n{LOOP}", "scaler is another thing here"),
    "steps with a closure": (
        LOOP.replace("step()", "step(closure)", 1),
        "a scaler takes no step with a closure",
    ),
    "steps elsewhere": (LOOP.replace("optimizer.step()", "update()"), "steps elsewhere"),
    "steps twice": (
        LOOP.replace("    optimizer.step()", "    optimizer.step()\n    optimizer.step()"),
        "the optimizer steps in several places",
    ),
    "a list of optimizers": (
        LOOP.replace("    optimizer.step()", "    for opt in optimizers:\n        opt.step()"),
        "optimizers step in a loop of their own",
    ),
    "an engine's backward": (
        LOOP.replace("loss.backward()", "model.backward(loss)"),
        "this backward pass takes no scaled loss",
    ),
    "gradients are read": (
        HANDLED.format("print(model.layer.weight.grad)"),
        "model.layer.weight.grad would be read scaled",
    ),
    "clipped in every micro-batch": (
        LOOP.replace(
            "    optimizer.step()\n    scheduler.step()\n",
            "    nn.utils.clip_grad_norm_(model.parameters(), 1)\n"
            "    if last:\n        optimizer.step()\n",
        ),
        "gradients are clipped between steps",
    ),
    "two optimizers and a clipping": (
        HANDLED.format("nn.utils.clip_grad_norm_(model.parameters(), 1)\n    optimizer_2.step()"),
        "gradients of several optimizers are clipped",
    ),
    "mixed precision that is always on": (
        LOOP.replace("    loss =", "    with torch.autocast('cuda'):\n        loss ="),
        "mixed precision of its own, by no flag",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "why"), REASONS.values(), ids=list(REASONS))
def test_where_it_cannot_be_added_it_says_why(text: str, why: str) -> None:
    (because,) = reasons(CAPABILITY, HEAD.format(owner=MODEL) + text)
    assert why in because


def test_without_a_command_line_it_cannot_be_added() -> None:
    text = HEAD.format(owner=MODEL).replace("parser", "settings") + LOOP
    assert reasons(CAPABILITY, text.replace("parse_args()", "read()")) == [
        "no command line that could take --amp"
    ]


PROBABLE = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {part}

    def forward(self, batch, labels):
        chance = torch.sigmoid(self.encoder(batch))
        return {loss}
"""
BY_HAND = "-(torch.log(chance) * labels).mean()"


def test_a_model_that_takes_logarithms_keeps_them_in_float32() -> None:
    part = "self.encoder = RobertaModel(config)"
    imports = "from transformers import RobertaModel\n"
    for loss in (BY_HAND, "nn.BCELoss()(chance, labels)"):
        owner = imports + PROBABLE.format(part=part, loss=loss)
        text = added(CAPABILITY, HEAD.format(owner=owner) + LOOP)
        assert "\nmodel.encoder = under_autocast(model.encoder, args.amp)\n" in text
        assert "\nmodel = under_autocast(" not in text
        owner = PROBABLE.format(part="self.encoder = Encoder()", loss=loss)
        (because,) = reasons(CAPABILITY, HEAD.format(owner=owner) + LOOP)
        assert because == "Model takes the logarithm of a probability, 0 in low precision"


def test_several_optimizers_share_a_scaler() -> None:
    two = LOOP.replace("    optimizer.step()", "    optimizer.step()\n    optimizer_2.step()")
    text = added(CAPABILITY, HEAD.format(owner=MODEL) + two)
    steps = "scaler.step(optimizer)\n    loss_scale = scaler.get_scale()"
    assert steps in text
    assert text.count("scaler.update()") == 1
    assert text.index("scaler.step(optimizer_2)") < text.index("scaler.update()")


def test_a_scaler_of_the_script_s_own_obeys_the_flag() -> None:
    own = LOOP.replace("loss.backward()", "scaler.scale(loss).backward()")
    own = own.replace("optimizer.step()", "scaler.step(optimizer)\n    scaler.update()")
    own = own.replace(
        "loss = model(batch)",
        "with torch.amp.autocast('cuda', enabled=args.half):\n        loss = model(batch)",
    )
    own = f"scaler = torch.amp.GradScaler('cuda', enabled=args.half)\n{own}"
    head = HEAD.format(owner=MODEL).replace(
        "args =", 'parser.add_argument("--half", action="store_true")\nargs ='
    )
    text = added(CAPABILITY, head + own)
    flags = "if args.half:\n    args.amp = 'fp16'\nargs.half = args.amp == 'fp16'\n"
    assert f"args = parser.parse_args()\n{flags}" in text
    assert "with torch.amp.autocast(" not in text
    assert text.count("GradScaler") == 1
    assert "if scaler.get_scale() >= loss_scale:\n        scheduler.step()\n" in text


# ---- its state

RESUMED = """\
import argparse
import os
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Model(nn.Linear):
    pass

def train(args, steps):
    args.device = torch.device("cpu")
    model = Model(3, 1)
    if args.local_rank != -1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer_last = os.path.join(args.output_dir, "optimizer.pt")
    if os.path.exists(optimizer_last):
        optimizer.load_state_dict(torch.load(optimizer_last))
    for step in range(steps):
        loss = model(torch.ones(2, 3)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.save(optimizer.state_dict(), os.path.join(args.output_dir, "optimizer.pt"))
    return locals()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int)
    args = parser.parse_args()
    train(args, 3)

if __name__ == "__main__":
    main()
"""


def test_the_scaler_s_state_is_kept_beside_the_optimizer_s(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "script"}
    exec(added(CAPABILITY, RESUMED), names)

    def train(amp: str, folder: Path, steps: int) -> Any:
        folder.mkdir(exist_ok=True)
        args = SimpleNamespace(amp=amp, output_dir=str(folder), local_rank=-1)
        return names["train"](args, steps)["scaler"]

    train("no", tmp_path / "off", 2)
    assert [path.name for path in (tmp_path / "off").iterdir()] == ["optimizer.pt"]
    first = train("fp16", tmp_path / "on", 2)
    again = train("fp16", tmp_path / "on", 1)
    assert first.state_dict()["_growth_tracker"] == 2
    assert again.state_dict()["_growth_tracker"] == 3


# ---- the helper


class Model(torch.nn.Linear):
    """What a script may have."""

    def forward(self, x: Any, scale: int = 1) -> Any:
        return {"logits": super().forward(x) * scale, "kept": [(x, 1)]}


@pytest.fixture
def under_autocast() -> Any:
    names: dict[str, Any] = {"torch": torch, "functools": functools}
    exec(helper_code("in_float32") + helper_code("under_autocast"), names)
    return names["under_autocast"]


def test_the_model_is_still_what_it_was(under_autocast: Any) -> None:
    model = Model(2, 2)
    before = list(model.state_dict()), inspect.signature(model.forward)
    assert under_autocast(model, "no") is model
    assert type(model) is Model
    assert under_autocast(model, "bf16") is model
    assert (list(model.state_dict()), inspect.signature(model.forward)) == before
    assert (type(model).__name__, isinstance(model, Model)) == ("Model", True)
    assert not hasattr(model, "generate")
    with pytest.raises(KeyError):
        under_autocast(Model(2, 2), "fp8")


def test_what_a_model_under_autocast_returns_is_rounded_and_float32(under_autocast: Any) -> None:
    model, x = under_autocast(Model(2, 2), "bf16"), torch.randn(1, 2)
    logits = model(x, scale=2)["logits"]
    assert logits.dtype == torch.float32
    assert torch.equal(logits, logits.bfloat16().float())
    short = model(x.bfloat16())["kept"]
    assert [(kept.dtype, number) for kept, number in short] == [(torch.float32, 1)]
    assert model(x)["kept"][0][0] is x


def test_copies_and_files_hold_the_model_as_it_was(under_autocast: Any) -> None:
    model, file = under_autocast(Model(2, 2), "bf16"), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for copied in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert type(copied) is Model
        assert torch.equal(copied.weight, model.weight)
