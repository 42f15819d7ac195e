"""``patch --exact``: N ranks follow the untouched script alone, also where nothing divides."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from attrs import frozen
from cases import module
from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.errors import InputError
from ddpfix.launchers.backends.command import ScriptCall, build
from ddpfix.launchers.planning.plan import solve
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.verifier import verify
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.editing.edits import RefusedError
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.engine.rounds import apply_round
from ddpfix.patcher.fixes.exact import share_batches, weight_losses
from ddpfix.patcher.fixes.process_group import evaluation_share
from ddpfix.recipes.load import load
from exact_runs import BATCH, REFUSED, family, parameters_apart, shape
from forked import Forge, Run
from sabotage import write
from test_shapes import SHAPES, copies, files, texts

SPLITS = ((1, 1), (2, 1), (3, 1), (3, 2), (2, 4))  # world size, accumulation
# Accumulation in main, a cycle, a list of them, a loop in another function, one without a number,
# a loader from a function that makes those of evaluations too, several files.
NAMES = (
    *("apex_inline", "cycle_loader", "loader_list", "helper_wrap", "steps_counter"),
    *("parse_in_main_guard", "sibling_args"),
)
EXACT = [each for each in SHAPES if each.name in NAMES]


@frozen
class Runs:
    """A shape's runs without dropout: the untouched script alone, and its patched copy."""

    untouched: Run
    alone: Run
    groups: dict[tuple[int, int], Run]


@pytest.fixture(scope="module", params=EXACT, ids=[each.name for each in EXACT])
def runs(
    request: pytest.FixtureRequest, forge: Forge, tmp_path_factory: pytest.TempPathFactory
) -> Runs:
    pair = shape(request.param, tmp_path_factory.mktemp(request.param.name))
    splits = [split for split in SPLITS if pair.accumulates or split[1] == 1]
    jobs = [pair.alone(pair.untouched), pair.alone(pair.patched)]
    found = forge.run([*jobs, *(pair.group(*split) for split in splits)])
    for run in found:
        assert set(run.statuses) == {0}, run.log
    return Runs(found[0], found[1], dict(zip(splits, found[2:], strict=True)))


def test_alone_it_is_the_untouched_script_bit_for_bit(runs: Runs) -> None:
    (a,), (b,) = runs.untouched.ranks, runs.alone.ranks
    assert [s.loss for s in a.steps] == [s.loss for s in b.steps] != []
    assert [s.checksum for s in a.steps] == [s.checksum for s in b.steps]
    assert files(runs.untouched) == files(runs.alone) != {}


def test_every_world_size_and_accumulation_takes_the_untouched_steps(runs: Runs) -> None:
    untouched = compare.steps(runs.untouched.ranks)
    for split, run in runs.groups.items():
        steps = compare.steps(run.ranks)
        for quantity, tolerance in (("loss", 1e-6), ("norm", 1e-5), ("lr", 0)):
            off = compare.deviation(untouched, steps, quantity)
            assert off.largest <= tolerance, (split, quantity)
        assert compare.first_divergent_step(run.ranks) == 0
        assert parameters_apart(runs.untouched, run) < 1e-5


def test_each_step_has_the_untouched_examples(runs: Runs) -> None:
    untouched = compare.global_batches(runs.untouched.ranks)
    for (world, accumulation), run in runs.groups.items():
        drawn = compare.global_batches(run.ranks)
        assert len(drawn) == len(untouched)
        for one, other in zip(untouched, drawn, strict=True):
            assert other.lacks(one) == []
            extra = one.lacks(other)
            assert set(extra) <= set(one.indices)  # a rank without a part repeats one
            if BATCH // accumulation >= world:
                assert len(extra) < world


def test_predictions_and_files_are_the_untouched_ones(runs: Runs) -> None:
    before = texts(runs.untouched)
    for run in runs.groups.values():
        after = texts(run)
        assert after.keys() == before.keys()
        for name in before:
            if name.endswith((".txt", ".log", ".output")):
                assert_alike(before[name].decode(), after[name].decode())
            else:
                assert before[name] == after[name]
        assert files(runs.untouched).keys() == files(run).keys()


def assert_alike(first: str, second: str) -> None:
    """The same text, but for the last digit of decimals: a perplexity shows a loss's rounding."""
    one, other = (re.split(r"(\d+\.\d+)", text) for text in (first, second))
    assert one[::2] == other[::2]
    assert [float(n) for n in other[1::2]] == pytest.approx([float(n) for n in one[1::2]], 1e-6)


def test_a_family_takes_the_untouched_steps(forge: Forge, tmp_path: Path) -> None:
    pair = family("gpt2", tmp_path, epochs=1)
    jobs = [pair.alone(pair.untouched), pair.group(2, 1), pair.group(3, 4)]
    untouched, *groups = forge.run(jobs)
    first = compare.steps(untouched.ranks)
    assert len(first) == 10
    for run in groups:
        assert set(run.statuses) == {0}, run.log
        assert compare.deviation(first, compare.steps(run.ranks), "loss").largest < 1e-6
        assert compare.deviation(first, compare.steps(run.ranks), "lr").largest == 0
        predictions = "predictions.txt"
        assert files(run)[predictions] == files(untouched)[predictions]


@pytest.mark.parametrize("unsafe", [False, True], ids=["safe", "unsafe fixes too"])
@pytest.mark.parametrize(("name", "place"), REFUSED.items(), ids=list(REFUSED))
def test_what_cannot_be_exact_is_refused_with_its_place(
    name: str, place: str, unsafe: bool, tmp_path: Path
) -> None:
    script, _ = copies(name, tmp_path)
    before = script.read_bytes()
    result = patch(script, exact=True, unsafe=unsafe)
    assert place in result.refusal
    with pytest.raises(InputError, match="--exact"):
        result.write()
    assert script.read_bytes() == before


LOADER = "loader = DataLoader(data, sampler=sampler, batch_size=args.batch)"
DEALT = "loader = DataLoader(data, batch_sampler=SharedBatchSampler({}, {}, drop_last={}))"
EITHER = "sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)\n"
LOOP = """
for epoch in range(2):
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        optimizer.step()
"""
SHARED = DEALT.format("sampler", "args.batch", "False")

# What the lines that make the loader become.
LOADERS = {
    "a choice of samplers": (EITHER + LOADER, "sampler = RandomSampler(data)\n" + SHARED),
    "a test around the samplers": (
        "if args.local_rank == -1:\n    sampler = RandomSampler(data)\nelse:\n"
        f"    sampler = DistributedSampler(data)\n{LOADER}",
        f"sampler = RandomSampler(data)\n{SHARED}",
    ),
    "ranks in the first branch": (
        "if args.local_rank != -1:\n    sampler = DistributedSampler(data)\nelse:\n"
        f"    sampler = RandomSampler(data)\n{LOADER}",
        f"sampler = RandomSampler(data)\n{SHARED}",
    ),
    "more in the branches": (
        "if args.local_rank == -1:\n    sampler = RandomSampler(data)\n    log(1)\nelse:\n"
        f"    sampler = DistributedSampler(data)\n{LOADER}",
        "if args.local_rank == -1:\n    sampler = RandomSampler(data)\n    log(1)\nelse:\n"
        f"    sampler = RandomSampler(data)\n{SHARED}",
    ),
    "one sampler": (
        f"sampler = RandomSampler(data)\n{LOADER}",
        f"sampler = RandomSampler(data)\n{SHARED}",
    ),
    "shuffle": (
        "loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2)",
        "from torch.utils.data import RandomSampler\n"
        "loader = DataLoader(data, batch_sampler=SharedBatchSampler(RandomSampler(data), 8, "
        "drop_last=False), num_workers=2)",
    ),
    "the batch size by position": (
        "loader = DataLoader(data, 8, drop_last=True, sampler=RandomSampler(data))",
        DEALT.format("RandomSampler(data)", "8", "True"),
    ),
    "no batch size": (
        "sampler = RandomSampler(data)\nloader = DataLoader(data, num_workers=0, sampler=sampler)",
        "sampler = RandomSampler(data)\nloader = DataLoader(data, num_workers=0, "
        "batch_sampler=SharedBatchSampler(sampler, 1, drop_last=False))",
    ),
    "no sampler where the loader shuffles": (
        "sampler = None if args.local_rank == -1 else DistributedSampler(data)\n"
        "loader = DataLoader(data, shuffle=sampler is None, sampler=sampler)",
        "from torch.utils.data import RandomSampler\n"
        "sampler = None if args.local_rank == -1 else DistributedSampler(data)\n"
        + DEALT.format("RandomSampler(data)", "1", "False"),
    ),
    "an epoch that ranks are told": (
        f"{EITHER}{LOADER}\nif args.local_rank != -1:\n    sampler.set_epoch(3)",
        f"sampler = RandomSampler(data)\n{SHARED}",
    ),
    "what the loader no longer has": (
        f"sampler = RandomSampler(data)\n{LOADER}\nlog(loader.batch_size, len(loader))",
        f"sampler = RandomSampler(data)\n{SHARED}\n"
        "log(loader.batch_sampler.batch_size, len(loader))",
    ),
}


def shared(text: str) -> str:
    """A script after the first edits, less the class that it is given."""
    program = Program(module(text))
    found = apply_round(program, list(share_batches(program)), {}).script.source.text
    lines = found.splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if line.startswith("class Shared")), None)
    if first is not None:
        last = next(i for i in range(first + 1, len(lines)) if lines[i][0] not in " \n")
        lines[first:last] = []
    return "".join(line for line in lines if line.strip() not in ("", "import torch"))


@pytest.mark.parametrize(("before", "after"), LOADERS.values(), ids=list(LOADERS))
def test_loaders_deal_a_lone_processs_batches_out(before: str, after: str) -> None:
    text = before + LOOP
    assert shared(text) == after + LOOP
    program = Program(module(shared(text)))
    assert list(share_batches(program)) == []


EVALUATION = """
def evaluate(model, loader):
    model.eval()
    scores = []
    for batch in loader:
        scores.append(model(batch))
    return sum(scores)

def main(args):
    {train}
    {other}
    evaluate(model, other)
    for epoch in range(2):
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            optimizer.step()
"""
MAKES = """
def make(args, data, {flag}):
    if {first}:
        sampler = SequentialSampler(data)
    elif args.local_rank == -1:
        sampler = RandomSampler(data)  # a lone process
    else:
        sampler = DistributedSampler(data)
    {made}
"""
PLAIN = "loader = DataLoader(data, sampler=sampler, batch_size=args.batch)  # either"

# The function that makes loaders of both kinds, the calls, and the test that is to part them.
FORKS = {
    "a flag of evaluations": (
        MAKES.format(flag="eval=False", first="eval", made=f"{PLAIN}\n    return loader"),
        ("loader = make(args, data)", "other = make(args, data, eval=True)"),
        "eval",
    ),
    "a flag of training": (
        MAKES.format(flag="train", first="not train", made=f"{PLAIN}\n    return data, loader"),
        ("_, loader = make(args, data, True)", "_, other = make(args, data, False)"),
        "not train",
    ),
}


@pytest.mark.parametrize(("makes", "calls", "test"), FORKS.values(), ids=list(FORKS))
def test_a_function_that_makes_evaluations_loaders_too_is_forked(
    makes: str, calls: tuple[str, str], test: str
) -> None:
    found = shared(makes + EVALUATION.format(train=calls[0], other=calls[1]))
    forked = f"""\
    else:
        sampler = RandomSampler(data)  # a lone process
    if {test}:
        {PLAIN}
    else:
        {SHARED}
    return"""
    assert forked in found
    program = Program(module(found))
    assert list(share_batches(program)) == []
    (evaluation,) = program.evaluations
    assert "batch_size" in {word.arg for word in evaluation.loader.call.keywords}
    assert evaluation_share(program, evaluation) is None  # what else is done with what is returned?


LISTED = """
samplers = [RandomSampler(data) for data in every]
loaders = [cycle(DataLoader(data, sampler=sampler, batch_size=8, drop_last=True))
           for data, sampler in zip(every, samplers)]
while True:
    batch = next(random.choice(loaders))
    loss = model(batch)
    loss.backward()
    optimizer.step()
"""


def test_of_a_list_of_cycles_every_batch_weighs_alike() -> None:
    found = shared(LISTED)
    dealt = "SharedBatchSampler(sampler, 8, drop_last=True)"
    assert f"cycle(DataLoader(data, batch_sampler={dealt}))" in found
    assert "whole_batch = SharedBatchSampler(range(8), 8, drop_last=True)\nloaders = " in found
    program = Program(module(found))
    assert list(share_batches(program)) == []
    (finding,) = weight_losses(program)
    weighted = apply_round(program, [finding], {}).script.source.text
    assert "(loss * whole_batch.weight(0)).backward()" in weighted
    assert list(weight_losses(Program(module(weighted)))) == []


def weighted(loop: str) -> str:
    program = Program(module(f"loader = {SHARED.partition(' = ')[2]}\n{loop}"))
    return apply_round(program, list(weight_losses(program)), {}).script.source.text.partition(
        "\n"
    )[2]


WEIGHT = "loader.batch_sampler.weight"
LOSSES = {
    "a name": (LOOP, LOOP.replace("loss.backward", f"(loss * {WEIGHT}(step)).backward")),
    "a sum": (
        LOOP.replace("loss.backward", "(loss + other).backward"),
        LOOP.replace("loss.backward", f"((loss + other) * {WEIGHT}(step)).backward"),
    ),
    "a loss that is scaled": (
        LOOP.replace("loss.backward", "scaler.scale(loss).backward"),
        LOOP.replace("loss.backward", f"scaler.scale(loss * {WEIGHT}(step)).backward"),
    ),
    "a kept graph": (
        LOOP.replace("backward()", "backward(retain_graph=True)"),
        LOOP.replace("loss.backward()", f"(loss * {WEIGHT}(step)).backward(retain_graph=True)"),
    ),
    "steps from 1": (
        LOOP.replace("(loader)", "(loader, 1)"),
        LOOP.replace("(loader)", "(loader, 1)").replace(
            "loss.backward", f"(loss * {WEIGHT}(step - 1)).backward"
        ),
    ),
    "no number": (
        LOOP.replace("step, batch in enumerate(loader)", "x, y in loader"),
        LOOP.replace("step, batch in enumerate", "batch_number, (x, y) in enumerate").replace(
            "loss.backward", f"(loss * {WEIGHT}(batch_number)).backward"
        ),
    ),
    "a number that is changed": (
        LOOP.replace("loss = ", "step += 1; loss = "),
        LOOP.replace("step, batch in enumerate", "batch_number, (step, batch) in enumerate")
        .replace("enumerate(loader)", "enumerate(enumerate(loader))")
        .replace("loss = ", "step += 1; loss = ")
        .replace("loss.backward", f"(loss * {WEIGHT}(batch_number)).backward"),
    ),
}


@pytest.mark.parametrize(("before", "after"), LOSSES.values(), ids=list(LOSSES))
def test_losses_are_weighed_by_the_ranks_part(before: str, after: str) -> None:
    assert weighted(before) == after
    assert weighted(after) == after


UNPROVEN = {
    "a gradient of one's own": (LOOP.replace("backward()", "backward(gradient)"), "line 7"),
    "several batches at once": (
        LOOP.replace("    loss.backward()", "    if step % 4 == 0: loss.backward()"),
        "one backward.. for several batches",
    ),
    "batch statistics": ("norm = torch.nn.BatchNorm1d(4)" + LOOP, "line 3: its statistics"),
    "negatives from the batch": (
        LOOP.replace("model(batch)", "loss_fct(model(batch), torch.arange(8))"),
        "each example with its whole batch",
    ),
    "negatives under a name": (
        LOOP.replace(
            "loss = model(batch)",
            "own = torch.arange(8).to(0)\n        loss = loss_fct(model(batch), own)",
        ),
        "line 7: the loss compares",
    ),
    "negatives in a product": (
        LOOP.replace("model(batch)", "criterion(a @ b.t(), target=torch.arange(8))"),
        "line 6: the loss compares",
    ),
    "negatives that a mask sorts": (
        LOOP
        + "class Model:\n    def forward(self, out, labels):\n"
        + "        return torch.mm(out, out.t()) * (labels[:, None] == labels[None, :])\n",
        "line 11: the loss compares",
    ),
    "smaller batches in a list of cycles": (
        LISTED.replace(", drop_last=True", ""),
        "line 5: nothing tells which batch",
    ),
    "a batch size for each of a list": (
        LISTED.replace("batch_size=8", "batch_size=data.batch"),
        "line 5: nothing tells which batch",
    ),
    "a loader of evaluations, told by no literal": (
        FORKS["a flag of evaluations"][0]
        + EVALUATION.format(
            train="loader = make(args, data, args.eval)", other="other = make(args, data, True)"
        ),
        "makes the loader of an evaluation, too",
    ),
    "a loader that nobody is seen to go through": (
        FORKS["a flag of evaluations"][0]
        + EVALUATION.format(
            train="loader = make(args, data)", other="other = make(args, data, True)"
        )
        + "    report(make(args, data))\n",
        "makes the loader of an evaluation, too",
    ),
    "one of a dictionary's loaders": (
        "loaders = {x: DataLoader(sets[x], batch_size=8) for x in ('train', 'val')}"
        + LOOP.replace("loader", "loaders['train']"),
        "makes the loader of an evaluation, too",
    ),
    "a batch that is divided": (
        "args.batch = args.batch // torch.distributed.get_world_size()" + LOOP,
        "line 3: it divides by the number of ranks",
    ),
    "batches of one's own": (
        LOOP.replace("loader", "other").replace(
            "\n", "\nother = DataLoader(data, batch_sampler=mine)\n", 1
        ),
        "line 4: its arguments",
    ),
    "no loader": (LOOP.replace("loader", "batches"), "line 5: no one DataLoader"),
    "an epoch told to somebody": (
        LOOP.replace("    for step", "    loader_of_more.set_epoch(1)\n    for step"),
        "line 5: whether it tells",
    ),
    "ranks only": (
        LOOP.replace("loader", "other").replace(
            "\n", "\nother = DataLoader(data, sampler=DistributedSampler(data))\n", 1
        ),
        "no branch shows",
    ),
}


@pytest.mark.parametrize(("text", "why"), UNPROVEN.values(), ids=list(UNPROVEN))
def test_what_the_facts_do_not_prove_is_refused(text: str, why: str) -> None:
    start = f"sampler = RandomSampler(data)\n{LOADER}\n"
    program = Program(module(start + text))
    with pytest.raises(RefusedError, match=why):
        list(itertools.chain(share_batches(program), weight_losses(program)))


def test_the_command_writes_what_check_is_silent_about(tmp_path: Path) -> None:
    script, _ = write(tmp_path)
    result = CliRunner().invoke(ddpfix, ["patch", "--exact", str(script)])
    assert result.exit_code == 1, result.output
    text = script.read_text()
    assert "(loss * train_dataloader.batch_sampler.weight(step)).backward()" in text
    assert "set_epoch" not in text
    for words in (["check"], ["patch"], ["patch", "--exact"]):
        again = CliRunner().invoke(ddpfix, [*words, str(script)])
        assert again.exit_code == 0, again.output
    assert script.read_text() == text


def test_verify_holds_ranks_to_the_untouched_script(tmp_path: Path, forge: Forge) -> None:
    script, arguments = write(tmp_path, train=29)  # 8, 8, 8 and 5 examples
    verdict = verify(
        VerifyRequest(script, arguments, exact=True, world_sizes=(3,), accumulations=(1, 4)),
        start=forge.trace,
    )
    assert {row.code for row in verdict.rows if row.status != "holds"} == set()
    assert verdict.row("C3").evidence.startswith("3 runs of 8 steps held to the untouched script")
    assert "with weight 0, in 8 steps" in verdict.row("C3").evidence
    names = [run.name for run in verdict.runs]
    assert names == [
        *("original", "patched", "original without dropout"),
        *("x1", "x3", "x3, accumulation 4"),
    ]


def test_verify_does_not_let_padding_pass(tmp_path: Path, forge: Forge) -> None:
    script, arguments = write(tmp_path, train=29)
    original = tmp_path / "run.py.orig"
    original.write_bytes(script.read_bytes())
    patch(script).write()
    verdict = verify(
        VerifyRequest(
            script, arguments, original=original, exact=True, world_sizes=(2,), accumulations=(1,)
        ),
        start=forge.trace,
    )
    assert verdict.row("C3").status == "broken"


def test_verify_needs_the_untouched_script(tmp_path: Path) -> None:
    script, arguments = write(tmp_path)
    patch(script, exact=True).write()
    with pytest.raises(InputError, match="--exact needs the untouched script: --original or --rev"):
        verify(VerifyRequest(script, arguments, exact=True))


@pytest.mark.parametrize("exact", [False, True])
def test_launch_gives_all_processes_their_batch_together(exact: bool, tmp_path: Path) -> None:
    script, _ = write(tmp_path)
    patch(script, exact=exact).write()
    recipe = load("codegpt-bigclonebench")
    flags = recipe.flags
    (tmp_path / "dataset").mkdir()
    for name in ("train.txt", "valid.txt", "test.txt", "data.jsonl"):
        (tmp_path / "dataset" / name).touch()
    plan = solve(3, 48, 8)  # 8 each, twice
    command = build(ScriptCall(recipe, script, plan, tmp_path / "run"))
    words = list(command.argv)
    assert words[words.index(flags.train_batch) + 1] == ("24" if exact else "8")
    assert words[words.index(str(flags.accumulation)) + 1] == "2"
    if exact:
        mine = [flags.train_batch, "8"]
        with pytest.raises(InputError, match="is the batch of all processes together"):
            build(ScriptCall(recipe, script, plan, tmp_path / "run", extra=mine))
