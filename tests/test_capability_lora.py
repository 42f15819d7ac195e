"""``patch --with lora``: adapters are trained, kept and read back; the encoder stays as it was."""

from __future__ import annotations

import re
import shutil
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from capable import added, assert_alike, made, outputs, plain_and_capable, reasons
from ddpfix.fixtures.tiny import Kind, build_clone_data, build_model, clone_arguments
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.capabilities import helper_code as inserts
from ddpfix.patcher.capabilities import select_capabilities
from ddpfix.patcher.capabilities.with_lora import FLAGS
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run

PRELUDE = Path(__file__).parent / "preludes" / "trained.py"
add_lora: Any = inserts.add_lora
NAMES = ["lora", "checkpointing"]
LORA = next(one for one in select_capabilities(NAMES) if one.name == "lora")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return plain_and_capable(tmp_path_factory.mktemp("scripts"), NAMES)


@pytest.fixture(scope="module")
def runs(
    forge: Forge, scripts: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """Off; in groups of one and two; and what the latter kept, read by a process on its own."""
    plain, capable = scripts
    folder = tmp_path_factory.mktemp("lora")
    data = build_clone_data(folder / "data", train=24, valid=9, test=9)
    models: dict[Kind, Path] = {
        "gpt2": build_model(folder / "models" / "gpt2", "gpt2"),
        # Wide, so that adapters are as small a part of it as of a real one.
        "roberta": build_model(folder / "models" / "roberta", "roberta", hidden=128),
    }

    def job(name: str, kind: Kind, script: Path, world: int | None, batch: int, words: str) -> Job:
        here = folder / name
        training = clone_arguments(models[kind], data, here / "out", kind, batch=batch, epochs=1)
        options = ["--no-dropout"] if world else []
        return Job(here, script, [*training, *words.split()], world, options, PRELUDE)

    both = "--lora_r=4 --lora_targets=c_attn,c_proj --gradient_checkpointing"
    jobs = [
        job("plain", "gpt2", plain, None, 8, ""),
        job("off", "gpt2", capable, None, 8, ""),
        job("one", "roberta", capable, 1, 8, "--lora_r=4"),
        job("two", "roberta", capable, 2, 4, "--lora_r=4"),
        job("checkpointed", "gpt2", capable, 2, 2, f"{both} --gradient_accumulation_steps=2"),
    ]
    read = job("read", "roberta", capable, None, 8, "--lora_r=4")
    found = made(forge, jobs)
    shutil.copytree(folder / "two" / "out", folder / "kept")
    words = [word for word in read.arguments if word != "--do_train"]
    words.append(f"--output_dir={folder / 'kept'}")  # the last one counts
    (folder / "kept" / "predictions.txt").unlink()
    again = Job(read.folder, read.script, words, None, (), PRELUDE)
    found |= made(forge, [again])
    return found


def test_without_its_flag_nothing_is_computed_otherwise(runs: dict[str, Run]) -> None:
    assert_alike(runs["plain"], runs["off"])
    assert runs["plain"].seen == runs["off"].seen


def test_the_encoder_trains_adapters_of_about_a_hundredth_and_the_head_all(
    runs: dict[str, Run],
) -> None:
    for seen in runs["two"].seen:
        trainable, frozen = seen["trainable"], seen["frozen"]
        adapters = {name: n for name, n in trainable.items() if name.startswith("encoder.")}
        assert all(".lora_" in name for name in adapters)
        share = sum(adapters.values()) / (sum(adapters.values()) + sum(frozen.values()))
        assert 0.005 < share < 0.015
        assert all(name.startswith("encoder.") for name in frozen)
        assert any(name.startswith("head.") for name in trainable)


@pytest.mark.parametrize("name", ["one", "two", "checkpointed"])
def test_frozen_weights_keep_every_bit_and_all_others_change(
    name: str, runs: dict[str, Run]
) -> None:
    for seen in runs[name].seen:
        changed, trainable = set(seen["changed"]), set(seen["trainable"])
        assert changed == trainable
        assert changed & set(seen["frozen"]) == set()


def test_rank_0_prints_once_how_many_parameters_are_trained(runs: dict[str, Run]) -> None:
    run = runs["two"]
    trainable, frozen = (sum(run.seen[0][kind].values()) for kind in ("trainable", "frozen"))
    share = 100 * trainable / (trainable + frozen)
    line = (
        f"trainable parameters: {trainable:,} of {trainable + frozen:,} ({share:.1f} %); "
        "LoRA in query, value"
    )
    assert [found for found in run.log.splitlines() if "trainable parameters" in found] == [line]


def test_layers_are_those_that_are_asked_for(runs: dict[str, Run]) -> None:
    assert "LoRA in c_attn, c_proj" in runs["checkpointed"].log


def test_two_ranks_train_as_one_does(runs: dict[str, Run]) -> None:
    one, two = compare.steps(runs["one"].ranks), compare.steps(runs["two"].ranks)
    assert len(one) == 3
    assert compare.deviation(one, two, "loss").largest < 1e-6
    assert compare.deviation(one, two, "norm").largest < 1e-5
    assert compare.first_divergent_step(runs["two"].ranks) == 0
    assert compare.first_divergent_step(runs["checkpointed"].ranks) == 0


def test_what_is_kept_holds_adapters_and_is_read_back(runs: dict[str, Run]) -> None:
    import torch

    kept = runs["read"].folder.parent / "kept"
    (path,) = kept.rglob("*.bin")
    state = torch.load(path)
    assert sum(".lora_" in name for name in state) == 8  # of two in two layers
    assert not any("base_layer" in name for name in state)
    assert (kept / "predictions.txt").read_bytes() == outputs(runs["two"])["predictions.txt"]
    alone = runs["read"].seen[0]["answers"][-2:]  # to 8 test pairs, and one
    ranks = [seen["answers"][-1] for seen in runs["two"].seen]
    one, two = (torch.cat([torch.tensor(batch) for batch in batches]) for batches in (alone, ranks))
    torch.testing.assert_close(one, two)


def test_a_second_patch_changes_nothing(scripts: tuple[Path, Path]) -> None:
    again = patch(scripts[1], capabilities=select_capabilities(NAMES))
    assert (again.refusal, again.changes, again.capability_failures) == ("", (), ())


# ---- what the script's own ways of saving and reading make of it

TINY = {
    "vocab_size": 20,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
SMALL: dict[str, dict[str, int]] = {
    "Roberta": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
    "GPT2": {"n_embd": 8, "n_layer": 1, "n_head": 2},
    "T5": {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2},
}
KINDS = ("RobertaForSequenceClassification", "GPT2LMHeadModel", "T5ForConditionalGeneration")


def arguments(**given: object) -> Namespace:
    values = {flag.name: eval(flag.default) for flag in FLAGS}
    return Namespace(**values | {"lora_r": 2} | given)


def small(kind: str) -> Any:
    import torch
    import transformers

    family = re.match(r"Roberta|GPT2|T5", kind)
    assert family
    config = getattr(transformers, f"{family[0]}Config")
    torch.manual_seed(0)
    return getattr(transformers, kind)(config(**TINY, **SMALL[family[0]]))


def answer(model: Any) -> Any:
    """What a model makes of a few tokens."""
    import torch

    tokens = torch.tensor([[3, 4, 5, 6]])
    more = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model.eval()(tokens, **more).logits


def spoiled(model: Any) -> Any:
    """A model whose adapters have an effect, which they do not have at first."""
    import torch

    for name, weight in model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(weight)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_save_pretrained_keeps_adapters_for_from_pretrained(kind: str, tmp_path: Path) -> None:
    import torch

    plain, model = small(kind), small(kind)
    add_lora(model, [model], arguments())
    assert torch.equal(answer(model), answer(plain))
    before = answer(spoiled(model))
    assert not torch.equal(before, answer(plain))
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    for name, weight in plain.state_dict().items():  # found by their plain names
        assert torch.equal(again.state_dict()[name], weight)
    add_lora(again, [again], arguments())
    torch.testing.assert_close(answer(again), before)


@pytest.mark.parametrize("kind", KINDS)
def test_state_dicts_of_models_with_and_without_are_read(kind: str) -> None:
    import torch

    plain, model, other = small(kind), small(kind), small(kind)
    for one in (model, other):
        add_lora(one, [one], arguments())
    before = answer(spoiled(model))
    other.load_state_dict(model.state_dict())
    assert torch.equal(answer(other), before)
    other.load_state_dict(plain.state_dict())
    assert torch.equal(answer(other), before)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        plain.load_state_dict(model.state_dict())


def test_a_head_that_the_model_has_itself_is_trained() -> None:
    for kind, heads in (("RobertaForSequenceClassification", True), ("GPT2LMHeadModel", False)):
        model = small(kind)
        add_lora(model, [model], arguments())
        trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
        assert any(".lora_" in name for name in trained)
        assert any(".lora_" not in name for name in trained) is heads


def test_adapters_of_other_layers_are_not_dropped_in_silence(tmp_path: Path) -> None:
    model = small("GPT2LMHeadModel")
    add_lora(model, [model], arguments(lora_targets="all-linear"))
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    with pytest.raises(SystemExit, match=r"model.safetensors has adapters for other places"):
        add_lora(again, [again], arguments())


def test_without_peft_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SystemExit, match=r"^--lora_r needs peft: pip install peft$"):
        add_lora(None, [], arguments())


SCRIPT = """\
import argparse
import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import RobertaModel
parser = argparse.ArgumentParser()
parser.add_argument("--lora_r", type=int, default=0)
parser.add_argument("--lora_alpha", type=int, default=16)
parser.add_argument("--lora_targets", type=str)
args = parser.parse_args()
{}model = DistributedDataParallel(model)
for batch in batches:
    model(batch).backward()
"""


def test_adapters_come_where_the_model_is_made() -> None:
    model = "model = RobertaModel.from_pretrained(args.path)\n"
    after = added(LORA, SCRIPT.format(model))
    assert f"{model}if args.lora_r:\n    add_lora(model, [model], args)\nmodel = Dist" in after
    assert "def restore_adapters(part)" in after


def test_where_there_is_no_model_for_them_it_says_so() -> None:
    (because,) = reasons(LORA, SCRIPT.format("model = torch.nn.Linear(2, 2)\n"))
    assert because == "torch.nn.Linear() keeps no transformers model that it is given"
