"""``patch --with compile``: the wrapped model runs compiled, and is kept and reduced as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from capable import added, assert_alike, made, outputs, plain_and_capable, reasons
from ddpfix.fixtures.tiny import build_clone_data, build_model, clone_arguments
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.capabilities import select_capabilities
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run

PRELUDE = Path(__file__).parent / "preludes" / "compiled.py"
(CAPABILITY,) = select_capabilities(["compile"])


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return plain_and_capable(tmp_path_factory.mktemp("scripts"), ["compile"])


@pytest.fixture(scope="module")
def runs(
    forge: Forge, scripts: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """RoBERTa has a pooler that nothing uses, and so parameters without a gradient."""
    plain, capable = scripts
    folder = tmp_path_factory.mktemp("compile")
    model = build_model(folder / "model", "roberta", layers=1)
    data = build_clone_data(folder / "data", train=22, valid=5, test=5)

    def job(name: str, script: Path, world: int | None, words: str = "") -> Job:
        here = folder / name
        training = clone_arguments(model, data, here / "out", "roberta", batch=4, epochs=2)
        options = ["--no-dropout"] if world else []
        return Job(here, script, [*training, *words.split()], world, options, PRELUDE)

    twice = "--gradient_accumulation_steps=2"
    jobs = [
        job("alone", plain, None),
        job("alone, off", capable, None),
        job("ranks", plain, 2, twice),
        job("compiled", capable, 2, f"{twice} --compile"),
    ]
    return made(forge, jobs)


def test_without_its_flag_nothing_is_computed_otherwise(runs: dict[str, Run]) -> None:
    assert_alike(runs["alone"], runs["alone, off"])
    assert runs["alone, off"].seen == runs["alone"].seen
    assert runs["alone"].seen[0]["modes"] == []


def test_each_rank_runs_compiled_graphs(runs: dict[str, Run]) -> None:
    for seen in runs["compiled"].seen:
        assert seen["modes"] == ["default"]
        assert seen["graphs"][0] > 0


def test_only_a_batch_of_another_length_is_compiled_again_and_once(runs: dict[str, Run]) -> None:
    for seen in runs["compiled"].seen:
        # 11 pairs in micro-batches of 4, 4 and 3, in two steps an epoch.
        first, second, *later = seen["graphs"]
        assert second == 2 * first
        assert set(later) == {second} != set()


def test_ranks_take_the_same_steps(runs: dict[str, Run]) -> None:
    before, after = (compare.steps(runs[name].ranks) for name in ("ranks", "compiled"))
    assert len(before) == 4
    assert compare.deviation(before, after, "loss").largest < 1e-5
    assert compare.deviation(before, after, "norm").largest < 1e-5
    assert compare.first_divergent_step(runs["compiled"].ranks) == 0


def test_gradients_are_reduced_once_a_step(runs: dict[str, Run]) -> None:
    for plain, capable in zip(runs["ranks"].ranks, runs["compiled"].ranks, strict=True):
        counts = compare.all_reduces_per_step(capable)
        assert counts == compare.all_reduces_per_step(plain)
        assert set(counts) == {1}


def test_what_is_kept_has_the_same_names(runs: dict[str, Run]) -> None:
    import torch

    before, after = runs["ranks"], runs["compiled"]
    assert outputs(before).keys() == outputs(after).keys()
    (one,), (other,) = (list((run.folder / "out").rglob("*.bin")) for run in (before, after))
    first, second = torch.load(one), torch.load(other)
    assert list(first) == list(second)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-4, atol=1e-5)


def test_a_second_patch_changes_nothing(scripts: tuple[Path, Path]) -> None:
    again = patch(scripts[1], capabilities=[CAPABILITY])
    assert (again.refusal, again.changes, again.capability_failures) == ("", (), ())


SCRIPT = """\
import argparse
import torch
from torch.nn import DataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
parser.add_argument("--compile")
args = parser.parse_args()
{}for batch in batches:
    model(batch).backward()
"""
WRAP = "model = DistributedDataParallel(model)\n"
COMPILE = "if args.compile:\n    model.compile(mode=args.compile)\n"
PLACES = {
    "a wrapping": (WRAP, f"{WRAP}{COMPILE}"),
    "a wrapping of ranks only": (
        f"if args.local_rank != -1:\n    {WRAP}",
        f"if args.local_rank != -1:\n    {WRAP}{COMPILE}",
    ),
    "one of two wrappers": (
        "if args.n_gpu > 1:\n    model = DataParallel(model)\n"
        f"elif args.local_rank != -1:\n    {WRAP}",
        "if args.n_gpu > 1:\n    model = DataParallel(model)\n"
        f"elif args.local_rank != -1:\n    {WRAP}{COMPILE}",
    ),
    "a model that a test makes": (
        f"if args.train:\n    model = Net()\nif args.train and args.local_rank != -1:\n    {WRAP}",
        f"if args.train:\n    model = Net()\nif args.train and args.local_rank != -1:\n    {WRAP}"
        "if args.train and args.compile:\n    model.compile(mode=args.compile)\n",
    ),
    "inside of another test": (
        f"if args.do_train:\n    if args.local_rank != -1:\n        {WRAP}",
        f"if args.do_train:\n    if args.local_rank != -1:\n        {WRAP}"
        "    if args.compile:\n        model.compile(mode=args.compile)\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), PLACES.values(), ids=list(PLACES))
def test_a_model_is_compiled_behind_its_wrapping_on_every_way(before: str, after: str) -> None:
    assert added(CAPABILITY, SCRIPT.format(before)) == SCRIPT.format(after)


REASONS = {
    "no wrapping": ("model = make()\n", "no assignment wraps the trained model"),
    "a wrapping for an evaluation": (
        "def evaluate(model):\n    model = DistributedDataParallel(model)\n    model.eval()\n"
        "    loss = 0\n    for batch in DataLoader(others):\n        with torch.no_grad():\n"
        "            loss += model(batch).item()\n    return loss\n\n",
        "no assignment wraps the trained model",
    ),
    "a script that compiles by itself": (
        f"{WRAP}model = torch.compile(model)\n",
        "the script calls torch.compile itself",
    ),
    "a function without the arguments": (
        f"def wrapped(model, args):\n    {WRAP}    return model\n\nmodel = wrapped(model, None)\n",
        "no command line whose arguments reach the wrapping",
    ),
}


@pytest.mark.parametrize(("text", "why"), REASONS.values(), ids=list(REASONS))
def test_where_it_cannot_be_added_it_says_why(text: str, why: str) -> None:
    assert reasons(CAPABILITY, SCRIPT.format(text)) == [why]
