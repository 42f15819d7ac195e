"""``patch --with resume``: a run that is killed anywhere goes on exactly."""

from __future__ import annotations

import json
import random
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from attrs import frozen
from cases import module
from ddpfix.fixtures.tiny import build_clone_data, build_model, clone_arguments
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.capabilities import select_capabilities
from ddpfix.patcher.capabilities.helper_code import Resumable
from ddpfix.patcher.editing.edits import Insert, Rewrite
from ddpfix.patcher.editing.helper_code import save_on_main
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.engine.rounds import apply_round
from ddpfix.patcher.findings import Finding
from forked import Forge, Job, Run
from lone_copies import lone_copy
from test_shapes import SHAPES, copies, files, files_below

PRELUDE = Path(__file__).parent / "preludes" / "killing.py"
SHAPE = {shape.name: shape for shape in SHAPES}
(RESUME,) = select_capabilities(["resume"])
LIMIT = 2
OFTEN, SAVING = (f"--save_steps={every} --save_total_limit={LIMIT}" for every in (1, 2))
WHOLE = re.compile(r"step-\d{6}\.pt")


@frozen
class Subject:
    """A script with the capability, and the words that let it train for an output folder."""

    folder: Path
    script: Path
    words: Callable[[Path], list[str]]

    def job(
        self, name: str, out: str, more: str, world: int | None = 2, kill: int = 0, *options: str
    ) -> Job:
        """A run that writes into ``out``, and is killed at event number ``kill``."""
        folder = self.folder / name
        folder.with_suffix(".json").write_text(json.dumps(kill))
        words = [*self.words(self.folder / out), *more.split()]
        return Job(folder, self.script, words, world, options, PRELUDE)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("family")
    script = lone_copy(folder / "script")
    result = patch(script, capabilities=[RESUME])
    assert (result.refusal, result.capability_failures) == ("", ())
    result.write()
    model = build_model(folder / "model", "gpt2")
    data = build_clone_data(folder / "data", train=20, valid=7, test=5)

    def words(out: Path) -> list[str]:
        training = clone_arguments(model, data, out, "gpt2", batch=2, epochs=2)
        return [word for word in training if word not in ("--do_eval", "--do_test")]

    return Subject(folder, script, words)


def shaped(
    name: str, folder: Path, batch: int = 4, accumulation: int = 1, exact: bool = False
) -> Subject:
    shape = SHAPE[name]
    _, script = copies(name, folder)
    result = patch(script, exact=exact, capabilities=[RESUME])
    assert (result.refusal, result.capability_failures) == ("", ())
    result.write()
    return Subject(folder, script, lambda out: shape.arguments(out, batch, accumulation))


def done(run: Run) -> Run:
    assert set(run.statuses) == {0}, run.log
    return run


def start(run: Run) -> int:
    """The optimizer step behind which a run went on."""
    found = re.search(r"going on from .+/step-(\d+)\.pt", run.log)
    return int(found[1]) if found else 0


def whole_and_loading(folder: Path) -> list[str]:
    """Names of a folder's checkpoints, all of which load; beside them is only what is none yet."""
    paths = sorted(folder.glob("*")) if folder.exists() else []
    whole = [path for path in paths if WHOLE.fullmatch(path.name)]
    assert {path.name for path in paths if path not in whole} <= {".partial"}
    for path in whole:
        torch.load(path, weights_only=True)
    return [path.name for path in whole]


def final(folder: Path) -> dict[str, Any]:
    """The last checkpoint of a run that came to its end."""
    state: dict[str, Any] = torch.load(max(folder.glob("step-*")), weights_only=True)
    assert state["finished"]
    return state


def assert_same(one: Any, other: Any) -> None:
    """The same to the last bit, however deeply nested."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif torch.is_tensor(one):
        assert torch.equal(one, other)
    else:
        assert one == other


def go_on_until_done(forge: Forge, subject: Subject, words: str, kills: list[int]) -> list[Run]:
    """Kill a run at these events, and each time what goes on from it; the last one ends."""
    print("killed at events", kills)
    runs: list[Run] = []
    most = 0
    for number, kill in enumerate([*kills, 0]):
        job = subject.job(f"killed {number}", "killed out", f"{words} --resume", kill=kill)
        runs += forge.run([job])
        names = whole_and_loading(subject.folder / "killed out" / "resumable")
        print(runs[-1].seen[0]["events"], names)
        # One that is killed before it removes an old one leaves the next one more to remove.
        most = max(LIMIT, most) + 1 if kill else LIMIT
        assert len(names) <= most
        most = len(names)
        assert set(runs[-1].statuses) == ({-9} if kill else {0}), runs[-1].log
    return runs


def assert_goes_on(whole: Run, runs: list[Run]) -> None:
    """Every run repeats the steps of the uninterrupted one from its checkpoint on, to the bit."""
    for run in runs:
        for rank, other in zip(whole.ranks, run.ranks, strict=True):
            steps = rank.steps[start(run) :][: len(other.steps)]
            assert [s.loss for s in other.steps] == [s.loss for s in steps]
            assert [s.checksum for s in other.steps] == [s.checksum for s in steps]
    assert start(runs[-1]) + len(runs[-1].ranks[0].steps) == len(whole.ranks[0].steps)


def assert_same_end(one: Path, other: Path) -> None:
    """The same parameters, states and counters at the end, and the same files beside them."""
    first, second = final(one / "resumable"), final(other / "resumable")
    assert {*first.pop("imports")} <= {*second.pop("imports")}
    assert_same(first, second)
    before, after = files_below(one), files_below(other)
    assert before.keys() == after.keys()
    assert {p for p in before if before[p] != after[p] and not p.startswith("resumable")} == set()


def test_a_family_killed_five_times_ends_as_if_it_never_was(forge: Forge, family: Subject) -> None:
    (whole,) = forge.run([family.job("whole", "whole out", OFTEN)])
    done(whole)
    names = whole_and_loading(family.folder / "whole out" / "resumable")
    assert names == ["step-000009.pt", "step-000010.pt"]  # of 2 epochs of 5 steps
    assert all(name == ".partial" or WHOLE.fullmatch(name) for name in whole.seen[0]["names"])
    # A step and its checkpoint are three or four events: some runs get further, none to the end.
    runs = go_on_until_done(forge, family, OFTEN, random.sample(range(1, 8), 5))
    assert_goes_on(whole, runs)
    assert any(start(run) for run in runs)
    assert_same_end(family.folder / "whole out", family.folder / "killed out")


# A patience and a list; steps of a cycle, on the batches of a lone process; a class that trains.
KILLED = {"early_stop": (4, 1, False), "cycle_loader": (4, 1, True), "trainer_class": (2, 2, False)}


@pytest.mark.parametrize("name", KILLED)
def test_shapes_killed_twice_end_as_if_they_never_were(
    name: str, forge: Forge, tmp_path: Path
) -> None:
    subject = shaped(name, tmp_path, *KILLED[name])
    (whole,) = forge.run([subject.job("whole", "whole out", SAVING)])
    runs = go_on_until_done(forge, subject, SAVING, random.sample(range(5, 14), 2))
    assert_goes_on(done(whole), runs)
    assert_same_end(tmp_path / "whole out", tmp_path / "killed out")


def test_another_world_size_goes_on_as_it_would_have(forge: Forge, tmp_path: Path) -> None:
    script = shaped("steps_counter", tmp_path).script
    shape = SHAPE["steps_counter"]

    def job(name: str, out: str, world: int, kill: int, words: str = SAVING) -> Job:
        batch, accumulation = (20, 1) if world == 1 else (5, 2)  # a global batch of 20
        subject = Subject(
            tmp_path, script, lambda folder: shape.arguments(folder, batch, accumulation)
        )
        return subject.job(name, out, words, world, kill, "--no-dropout")

    one, *killed = forge.run(
        [
            job("one", "one out", 1, 0),
            job("one killed", "from one", 1, 9),
            job("two killed", "from two", 2, 9),
        ]
    )
    assert [set(run.statuses) for run in killed] == [{-9}, {-9}]
    expected = compare.steps(done(one).ranks)
    jobs = [
        job("then two", "from one", 2, 0, f"{SAVING} --resume"),
        job("then one", "from two", 1, 0, f"{SAVING} --resume"),
    ]
    parameters = final(tmp_path / "one out" / "resumable")["parts"]["model"]
    for run, out in zip(forge.run(jobs), ("from one", "from two"), strict=True):
        assert 0 < start(done(run)) < len(expected)
        rest, steps = expected[start(run) :], compare.steps(run.ranks)
        assert [step.loss for step in steps] == pytest.approx([s.loss for s in rest], abs=1e-6)
        assert [step.lr for step in steps] == [step.lr for step in rest]
        last = final(tmp_path / out / "resumable")["parts"]["model"]
        torch.testing.assert_close(last, parameters, rtol=1e-5, atol=1e-6)


def test_a_run_that_came_to_its_end_trains_no_more(forge: Forge, tmp_path: Path) -> None:
    subject = shaped("early_stop", tmp_path)
    (first,) = forge.run([subject.job("first", "out", SAVING)])
    done(first)
    before = files_below(tmp_path / "out")
    (second,) = forge.run([subject.job("second", "out", f"{SAVING} --resume")])
    done(second)
    assert first.ranks[0].steps != []
    assert second.ranks[0].steps == []
    assert files_below(tmp_path / "out") == before


@pytest.fixture(scope="module")
def unchanged(
    forge: Forge, family: Subject, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """Family A patched without the capability, and with it but without its flags."""
    plain = lone_copy(tmp_path_factory.mktemp("plain"))
    patch(plain).write()
    without = Subject(family.folder, plain, family.words)
    jobs = [
        without.job("alone", "alone/out", "", None),
        family.job("alone, off", "alone, off/out", "", None),
        without.job("ranks", "ranks/out", "", 2),
        family.job("ranks, off", "ranks, off/out", "", 2),
    ]
    return {job.folder.name: done(run) for job, run in zip(jobs, forge.run(jobs), strict=True)}


@pytest.mark.parametrize("name", ["alone", "ranks"])
def test_without_its_flags_nothing_is_computed_or_written_otherwise(
    name: str, unchanged: dict[str, Run]
) -> None:
    before, after = unchanged[name], unchanged[f"{name}, off"]
    for a, b in zip(before.ranks, after.ranks, strict=True):
        assert [step.loss for step in a.steps] == [step.loss for step in b.steps] != []
        assert [step.checksum for step in a.steps] == [step.checksum for step in b.steps]
    assert files(before) == files(after) != {}


def test_a_second_patch_changes_nothing(family: Subject) -> None:
    again = patch(family.script, capabilities=[RESUME])
    assert (again.refusal, again.changes, again.capability_failures, again.remaining) == (
        "",
        (),
        (),
        [],
    )


# ---- what a loop carries, and what stands in the way

SCRIPT = """
import argparse, copy, itertools, os, random, torch
from torch.utils.data import DataLoader

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir")
    args = parser.parse_args()
    loader = DataLoader(data, batch_size=4)
    model = torch.nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
    for epoch in range(3):
{head}
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            optimizer.step()
{inside}
{tail}
{after}
"""


def written(
    before: str = "", head: str = "", inside: str = "", tail: str = "", after: str = ""
) -> str:
    return SCRIPT.format(
        before=textwrap.indent(before, " " * 4),
        head=textwrap.indent(head, " " * 8),
        inside=textwrap.indent(inside, " " * 12),
        tail=textwrap.indent(tail, " " * 8),
        after=textwrap.indent(after, " " * 4),
    )


def found(text: str) -> list[Finding]:
    return list(RESUME.findings(Program(module(text))))


@pytest.mark.parametrize(
    ("text", "call"),
    [
        pytest.param(written(), "resumable.save()", id="nothing"),
        pytest.param(
            written("n = 0", inside="n += 1"), "resumable.save([n])", id="a counter of all steps"
        ),
        pytest.param(
            written(head="n = 0", inside="n += 1"),
            "resumable.save([], [n])",
            id="a counter of an epoch's steps",
        ),
        pytest.param(
            written(head="n = 0", inside="n = 1"), "resumable.save()", id="a name nobody reads"
        ),
        pytest.param(
            written("n = 0", head="n += 1", inside="print(n)"),
            "resumable.save([n], [n])",
            id="a counter of epochs is not counted up again",
        ),
        pytest.param(
            written("best = 0", tail="if score(model) > best:\n    best = score(model)"),
            "resumable.save([best])",
            id="the best score so far",
        ),
        pytest.param(
            written("losses = []", inside="losses.append(loss.item())", after="print(losses)"),
            "resumable.save([losses])",
            id="a list that is filled and read behind the loop",
        ),
        pytest.param(
            written("n = 0", tail="n = score(model)\nprint(n)"),
            "resumable.save()",
            id="a name that is bound before it is read",
        ),
        pytest.param(
            written("m = max(loader)", inside="x = [m for m in batch]"),
            "resumable.save()",
            id="a name of a comprehension",
        ),
        pytest.param(
            written(
                "cache = {}",
                tail="if 'a' in cache:\n    x = cache['a']\n"
                "else:\n    x = load()\n    cache['a'] = x",
            ),
            "resumable.save()",
            id="a cache that is filled again",
        ),
        pytest.param(
            written(
                "best = None", tail="best = copy.deepcopy(model.state_dict())", after="f(best)"
            ),
            "resumable.save([best])",
            id="the best weights so far",
        ),
    ],
)
def test_what_the_loop_carries_is_saved(text: str, call: str) -> None:
    (edits,) = [finding.edits for finding in found(text) if "go on" in finding.because]
    saved = [edit.code for edit in edits if isinstance(edit, Insert) and "save(" in edit.code]
    assert [re.sub(r",\s+", ", ", code) for code in saved] == [call]


def test_a_sample_that_is_kept_is_drawn_as_before() -> None:
    fill = "if 'a' in cache:\n    x = cache['a']\nelse:\n    x = random.sample(y, 3)\n"
    text = written("cache = {}", tail=f"{fill}    cache['a'] = x")
    (edits,) = [finding.edits for finding in found(text) if "go on" in finding.because]
    codes = [edit.code for edit in edits if isinstance(edit, Rewrite)]
    assert "resumable.drawn('a', lambda: random.sample(y, 3))" in codes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("x = 1\n", "the script does not train", id="no loop"),
        pytest.param(
            written(after="for batch in loader:\n    model(batch).backward()"),
            "it trains in 2 loops",
            id="two loops",
        ),
        pytest.param(
            written().replace("for step, batch in enumerate(loader)", "while True"),
            "its steps are a while loop, which may take batches from anywhere",
            id="a while loop of steps",
        ),
        pytest.param(
            written().replace("for epoch in range(3)", "while True"),
            "its epochs are counted in a while loop",
            id="a while loop of epochs",
        ),
        pytest.param(
            written().replace("DataLoader(data, batch_size=4)", "batches()"),
            "no one DataLoader that the steps go through is known",
            id="batches from elsewhere",
        ),
        pytest.param(
            written().replace("batch_size=4", "batch_size=4, generator=g"),
            "the loader shuffles by a generator of its own",
            id="a generator",
        ),
        pytest.param(
            written().replace('"--output_dir"', '"--lr"'),
            "no arguments with an output folder reach the loop",
            id="no output folder",
        ),
        pytest.param(
            written().replace("            optimizer.step()", "            update(model)"),
            "nothing shows which model and optimizer the loop trains",
            id="an optimizer that is hidden",
        ),
        pytest.param(
            written().replace(
                "            optimizer.step()",
                "            if loss < 9:\n                optimizer.step()",
            ),
            "not every batch is followed by an optimizer step",
            id="steps that are left out",
        ),
        pytest.param(
            written("stop = EarlyStopping()", tail="if stop.update(loss):\n    break"),
            "the loop carries stop, which no checkpoint can hold",
            id="an object that decides",
        ),
        pytest.param(
            written() + "\nfor fold in range(5):\n    main()\n",
            "main(), which trains, is called in a loop",
            id="a function that trains again and again",
        ),
        pytest.param(
            written().replace(
                '"--output_dir")', '"--output_dir")\n    parser.add_argument("--resume")'
            ),
            "--resume means something else here",
            id="a flag of the script's own",
        ),
    ],
)
def test_why_training_cannot_be_resumed(text: str, reason: str) -> None:
    (finding,) = found(text)
    assert (finding.because, finding.edits) == (reason, ())


OWN_RESUME = """
import argparse, os, torch
from torch.utils.data import DataLoader

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir")
    parser.add_argument("--save_steps", type=int, default=50)
    args = parser.parse_args()
    if os.path.exists(args.output_dir) and os.listdir(args.output_dir):
        raise ValueError("not empty")
    args.start_epoch = 0
    if os.path.exists(os.path.join(args.output_dir, "last")):
        args.start_epoch = 7
    loader = DataLoader(data, batch_size=4)
    args.save_steps = len(loader)
    model = torch.nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.start_epoch, 3):
        for step, batch in enumerate(loader):
            model(batch).backward()
            optimizer.step()
"""


def test_a_resume_of_the_scripts_own_makes_way() -> None:
    program = Program(module(OWN_RESUME))
    while findings := list(RESUME.findings(program)):
        program = apply_round(program, findings, {})
    text = program.script.source.text
    assert "os.listdir(args.output_dir) and not args.resume:\n        raise" in text
    assert (
        "    if not (args.resume and resumable_checkpoints(args.output_dir)) and "
        'os.path.exists(os.path.join(args.output_dir, "last")):\n' in text
    )
    assert "    args.resumable_steps = args.save_steps" in text.split("not empty")[0]
    assert "Resumable(args.output_dir, args.save_total_limit, args.resumable_steps," in text
    compile(text, "script.py", "exec")


# ---- the object that a script carries


class Weights(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 1)


def resumable(folder: Path, resume: bool = False, limit: int = 2) -> Any:
    found: Any = Resumable
    return found(str(folder), limit, 1, resume, model=Weights(), schedule=None)


def test_the_newest_checkpoint_is_the_one_written_last(tmp_path: Path) -> None:
    old = resumable(tmp_path)
    for _ in range(5):
        old.save()
    new = resumable(tmp_path)
    new.save([7])
    assert whole_and_loading(tmp_path / "resumable") == ["step-000001.pt", "step-000005.pt"]
    assert resumable(tmp_path, resume=True).values(0) == (7,)


def test_without_a_limit_nothing_is_written_and_without_resume_nothing_read(tmp_path: Path) -> None:
    off = resumable(tmp_path, limit=0)
    off.save([1])
    off.finish([1])
    assert list(tmp_path.iterdir()) == []
    resumable(tmp_path).save([1])
    assert resumable(tmp_path).values(2) == (2,)
    assert list(resumable(tmp_path).epochs(range(3))) == [0, 1, 2]


def test_values_come_back_as_plain_numbers_lists_and_tensors(tmp_path: Path) -> None:
    kept = [numpy.float64(0.1), [1, None], {"a": "b"}, torch.ones(2, requires_grad=True) * 3]
    resumable(tmp_path).save(kept)
    number, items, names, tensor = resumable(tmp_path, resume=True).values(0, 0, 0, 0)
    assert (number, items, names) == (0.1, [1, None], {"a": "b"})
    assert torch.equal(tensor, torch.full((2,), 3.0))


def test_what_no_checkpoint_can_hold_is_told_when_it_is_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no checkpoint can hold the PosixPath in what is carried"):
        resumable(tmp_path).save([tmp_path])
    assert list(tmp_path.iterdir()) == []


def test_a_draw_before_the_checkpoint_is_the_same_behind_it(tmp_path: Path) -> None:
    def draw() -> list[int]:
        return random.sample(range(10**6), 3)

    first = resumable(tmp_path)
    for _ in first.steps([0]):
        sample = first.drawn("dev", draw)
        random.random()
        first.save()
    state = random.getstate()
    again = resumable(tmp_path, resume=True)
    assert list(again.steps([0, 1])) == [1]
    assert random.getstate() == state
    assert again.drawn("dev", draw) == sample
    assert random.getstate() == state
    assert again.drawn("dev", draw) != sample


def test_modules_that_were_evaluated_are_so_again(tmp_path: Path) -> None:
    first = resumable(tmp_path)
    for _ in first.steps([0]):
        first.parts["model"].eval()
        first.save()
    again = resumable(tmp_path, resume=True)
    assert again.parts["model"].training
    assert list(again.steps([0, 1])) == [1]
    assert not again.parts["model"].training


def test_what_a_killed_run_has_left_does_not_stop_a_save(tmp_path: Path) -> None:
    (tmp_path / ".partial").mkdir()
    (tmp_path / ".partial" / "other.pt").write_text("half a f")
    save: Any = save_on_main
    save(1, str(tmp_path / "one.pt"))
    assert [path.name for path in tmp_path.iterdir()] == ["one.pt"]
