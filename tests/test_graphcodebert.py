"""Fixture family B: its data flow and masks are right, and two ranks train as its recipe says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from attrs import frozen
from capable import assert_alike, made
from ddpfix.fixtures import tiny
from ddpfix.fixtures.families import VARIANTS, Variant
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run

FAMILY = Path(tiny.__file__).parent / "graphcodebert"
SCRIPTS = [variant for variant in VARIANTS.values() if variant.family == "graphcodebert"]
TRAIN, VALID, TEST = 24, 13, 11
BATCH = 4
OPTIONS = ["--no-dropout"]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The family's features.py, imported as a script of its own would."""
    monkeypatch.syspath_prepend(str(FAMILY))
    yield importlib.import_module("features")
    for name in ("features", "model", "parser", "parser.flow", "parser.source"):
        sys.modules.pop(name, None)


# ---- data flow: Java, and each variable at a token with the tokens that its value comes from

FLOWS = {
    "a value is used": ("int y = x + 1;", ["y1 from x3", "x3"]),
    "an assignment takes from the right alone": (
        "x = y; z = x;",
        ["x0 from y2", "y2", "z4 from x6", "x6 from x0"],
    ),
    "a compound one from its target too": ("x = y; x += z;", ["x4 from x0 z6"]),
    "an increment goes on from the last value": ("int x = 1; x++;", ["x1", "x5 from x1"]),
    "both branches reach what follows": (
        "int x = 0; if (b) { x = 1; } else { x = 2; } y = x;",
        ["y22 from x24", "x24 from x10 x17"],
    ),
    "without else the value before stays": (
        "int x = 0; if (b) x = 1; y = x;",
        ["x15 from x1 x9"],
    ),
    "a loop reads what its end has left": (
        "int x = 0; while (x < 9) { x = x + y; }",
        ["x7 from x1 x12", "x14 from x1 x12"],
    ),
    "each element comes from the array": (
        "int s = 0; for (int i : a) s += i;",
        ["i8 from a10", "s12 from s1 s12 i14"],
    ),
    "methods and fields are no variables": ("x = y.x.z(y);", ["x0 from y2 y8"]),
    "names in comments and text are none": ('x = y; /* x = z; */ s = "y"; // y', ["x0 from y2"]),
}


@pytest.mark.parametrize(("code", "expected"), FLOWS.values(), ids=FLOWS)
def test_data_flows_between_the_variables_of_a_function(
    code: str, expected: list[str], own: ModuleType
) -> None:
    words, edges = own.extract_dataflow(code)
    found = [
        f"{name}{token}"
        + (" from " + " ".join(f"{words[s]}{s}" for s in sources) if sources else "")
        for name, token, sources in edges
    ]
    assert all(words[token] == name for name, token, _ in edges)
    assert set(expected) <= set(found)


# ---- features and the model


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build_model(tmp_path_factory.mktemp("model"), "roberta", block=40)


def features(own: ModuleType, model: Path, code: str) -> tuple[Any, Any]:
    """One function of at most 40 tokens and nodes, and who may look at whom in it."""
    import transformers

    tokenizer = transformers.RobertaTokenizer.from_pretrained(model)
    args = SimpleNamespace(code_length=30, data_flow_length=10)
    function = own.convert_function((code, tokenizer, args))
    return function, own.TextDataset.attention(SimpleNamespace(args=args), function)


def test_a_node_sees_its_tokens_and_sources_and_padding_is_seen_by_nobody(
    own: ModuleType, small_model: Path
) -> None:
    function, mask = features(own, small_model, "int x = y; z = x;")
    tokens = function.position_idx.index(0)
    assert function.position_idx[:tokens] == list(range(2, tokens + 2))
    assert function.tokens[tokens:] == ["x", "y", "z", "x"]
    assert function.dfg_to_dfg == [[1], [], [3], [0]]
    for node, (begin, end) in enumerate(function.dfg_to_code):
        assert "".join(function.tokens[begin:end]).strip("\u0120") == function.tokens[tokens + node]
        seen = {int(place) for place in mask[tokens + node].nonzero()[0]}
        sources = {tokens + source for source in function.dfg_to_dfg[node]}
        assert seen == set(range(begin, end)) | sources
    length = tokens + 4
    assert mask[:tokens, :tokens].all()
    assert mask[0, :length].all()
    assert not mask[:, length:].any()
    assert len(function.ids) == 40


def test_a_node_is_read_as_the_mean_of_its_variables_tokens(
    own: ModuleType, small_model: Path
) -> None:
    import torch
    import transformers

    encoder = transformers.RobertaForSequenceClassification.from_pretrained(small_model)
    model = importlib.import_module("model").Model(encoder, encoder.config, None, None)
    function, mask = features(own, small_model, "int veryLongName = other;")
    read: dict[str, Any] = {}

    def encode(**given: Any) -> tuple[Any]:
        read.update(given)
        return (given["inputs_embeds"],)

    encoder.roberta.forward = encode
    one = [torch.tensor(each)[None] for each in (function.ids, function.position_idx, mask)]
    assert model(*one, *one).shape == (1, 2)
    words = encoder.roberta.embeddings.word_embeddings(one[0])[0]
    tokens = function.position_idx.index(0)
    for node, (begin, end) in enumerate(function.dfg_to_code):
        mean = words[begin:end].mean(dim=0)
        torch.testing.assert_close(read["inputs_embeds"][0, tokens + node], mean)
    assert function.dfg_to_code[0][1] - function.dfg_to_code[0][0] > 1
    torch.testing.assert_close(read["inputs_embeds"][0, :tokens], words[:tokens])


# ---- patched, in one process and in two


@frozen
class Runs:
    """A patched script without dropout: in a group of one, and of two with two micro-batches."""

    patched: Path
    data: Path
    one: Run
    two: Run


@pytest.fixture(scope="module", params=SCRIPTS, ids=[variant.title for variant in SCRIPTS])
def runs(
    request: pytest.FixtureRequest, forge: Forge, tmp_path_factory: pytest.TempPathFactory
) -> Runs:
    variant: Variant = request.param
    folder = tmp_path_factory.mktemp("family")
    script, words = variant.build(folder, train=TRAIN, valid=VALID, test=TEST)
    result = patch(script)
    assert (result.refusal, result.remaining) == ("", [])
    result.write()
    jobs = [
        Job(folder / str(world), script, words(folder / str(world) / "out", *split), world, OPTIONS)
        for world, split in ((1, (BATCH, 1)), (2, (1, 2)))
    ]
    one, two = made(forge, jobs).values()
    return Runs(script, folder / "data", one, two)


def files(done: Run) -> dict[str, bytes]:
    folder = done.folder / "out"
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_alone_with_dropout_it_is_the_original_bit_for_bit(forge: Forge, tmp_path: Path) -> None:
    variant = SCRIPTS[0]
    script, words = variant.build(tmp_path, train=8, valid=VALID, test=3, epochs=1)
    patched = tiny.copy_family(variant.family, tmp_path / "patched")
    patch(patched).write()
    # The untouched script runs on the libraries of its day, by shims.
    both = {"before": (script, ["--shim-legacy"]), "after": (patched, [])}
    jobs = [
        Job(tmp_path / name, which, words(tmp_path / name / "out", 2, 1), None, options)
        for name, (which, options) in both.items()
    ]
    before, after = made(forge, jobs).values()
    assert_alike(before, after)
    assert len(after.ranks[0].steps) == 4
    assert files(before) == files(after)


def test_a_second_patch_changes_nothing(runs: Runs) -> None:
    again = patch(runs.patched)
    assert (again.refusal, again.remaining, again.changes) == ("", [], ())


def test_two_ranks_with_two_micro_batches_train_as_one_does(runs: Runs) -> None:
    first, second = compare.steps(runs.one.ranks), compare.steps(runs.two.ranks)
    assert len(first) == 2 * TRAIN // BATCH
    assert compare.deviation(first, second, "loss").largest < 1e-6
    assert compare.deviation(first, second, "norm").largest < 1e-5
    assert compare.deviation(first, second, "lr").largest == 0
    assert compare.first_divergent_step(runs.two.ranks) == 0
    for rank in runs.two.ranks:
        assert set(compare.all_reduces_per_step(rank)) == {1}
        assert rank.group_destroyed


def test_two_ranks_score_every_pair_once_and_predict_both_classes(runs: Runs) -> None:
    scored = compare.evaluations(runs.two.ranks)
    assert [each.length for each in scored[-2:]] == [VALID, TEST]
    assert len(scored) == len(compare.evaluations(runs.one.ranks))
    assert all(coverage.in_order for coverage in scored), scored
    lines = (runs.two.folder / "out" / "predictions.txt").read_text().splitlines()
    asked = (runs.data / "test.txt").read_text().splitlines()
    assert [line.split("\t")[:2] for line in lines] == [line.split("\t")[:2] for line in asked]
    assert {line.split("\t")[2] for line in lines} == {"0", "1"}


def test_two_ranks_write_what_one_writes_and_each_file_once(runs: Runs) -> None:
    writers = compare.writers(runs.two.ranks, runs.two.folder / "out")
    assert writers == {name: {0} for name in files(runs.one)}
    assert {"checkpoint-best-f1/model.bin", "features_train.pkl", "predictions.txt"} <= set(writers)
    one, two = files(runs.one), files(runs.two)
    assert one.keys() == two.keys()
    assert one["predictions.txt"] == two["predictions.txt"]


#: What an untouched script of either kind does wrong, so that nobody tidies it away.
WRONGS = {
    "run.py": {"DF201", "DF303", "DF406", "DF504", "DF601", "DF602", "DF604", "DF702", "DF703"}
    | {"DF901", "DF902"},
    "run_local_rank.py": {"DF101", "DF303", "DF402", "DF405", "DF406", "DF501", "DF602", "DF702"}
    | {"DF703", "DF902"},  # rank 0 alone writes its checkpoint and reads it again
}


@pytest.mark.parametrize("script", WRONGS)
def test_the_script_keeps_its_legacy_habits(script: str) -> None:
    found = patch(FAMILY / script).findings_before
    assert {each.code for each in found if each.severity and each.severity.value != "N"} == WRONGS[
        script
    ]
