"""Legacy scripts of other shapes are patched whole, and train right on two ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

import ddpfix.fixtures
import pytest
from attrs import field, frozen
from ddpfix.errors import InputError
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run

FOLDER = Path(ddpfix.fixtures.__file__).parent / "shapes"
DATA = FOLDER / "data"
BATCH = 8


@frozen
class Shape:
    """How a shape's script is run.

    ``steps`` are optimizer steps in the pair of runs that are compared. ``accumulation`` is the
    flag for it, and empty where the script has none. ``data`` are flags that take a file of DATA.
    ``unsafe``: two ranks do what one does only with the unsafe fixes.
    """

    name: str
    steps: int = 12
    words: str = ""
    output: str = "--output_dir="
    batch: str = "--train_batch_size="
    accumulation: str = "--gradient_accumulation_steps="
    data: dict[str, str] = field(factory=dict)
    unsafe: bool = False

    def arguments(self, output: Path, batch: int | None, accumulation: int) -> list[str]:
        """The command line; ``batch`` is for one process and one backward pass."""
        found = [f"{self.output}{output}", *self.words.split()]
        found += [f"{flag}={DATA / file}" for flag, file in self.data.items()]
        if batch is not None:
            found.append(f"{self.batch}{batch}")
        if accumulation > 1:
            found.append(f"{self.accumulation}{accumulation}")
        return found


SEQUENCES = {
    "--train_filename": "train.txt",
    "--dev_filename": "dev.txt",
    "--test_filename": "test.txt",
}
# Where a script accumulates, 48 examples go in steps of 20, 20 and 8: a rest is left in each epoch.
SHAPES = (
    Shape("apex_amp_flag", steps=6),
    Shape("apex_inline", steps=6),
    Shape("argparse_in_function", steps=6, words="--do_train --do_test --evaluate_during_training"),
    Shape(
        "cfg_local_rank",
        steps=6,
        output="output_dir=",
        batch="train_batch_size=",
        accumulation="grad_accum=",
    ),
    Shape(
        "cycle_loader",
        words="--do_train --do_eval",
        accumulation="",
        data=dict(list(SEQUENCES.items())[:2]),
    ),
    Shape("dataparallel_in_train", steps=6),
    Shape("dataparallel_module_level", accumulation=""),
    Shape("dataparallel_only", accumulation=""),
    Shape("dataparallel_trainer", accumulation=""),
    Shape("dead_set_dist", steps=6),
    Shape("early_stop", steps=54, accumulation=""),  # of the 72 that it may take
    Shape("generation_loop", steps=6, words="--do_train --do_eval --do_test", data=SEQUENCES),
    Shape("helper_wrap", accumulation=""),
    Shape("hf_args", steps=6),
    Shape("loader_list", accumulation=""),
    Shape("mp_spawn", accumulation=""),
    Shape("module_level", steps=6, batch="--batch_size=", accumulation="--accumulate="),
    Shape("parse_in_main_guard", steps=6),
    Shape(
        "sharded_by_hand",
        words=f"--data_dir={DATA}",
        batch="--per_gpu_train_batch_size=",
        accumulation="",
    ),
    Shape("sibling_args", steps=6, words="--do_train --do_eval"),
    Shape("steps_counter", steps=6, words="--do_train"),
    Shape("token_means", accumulation=""),  # each accumulation is for itself
    Shape("trainer_class", steps=6),
    Shape("wrapped_in_class", accumulation=""),
    Shape("wrapped_where_made", accumulation=""),
    Shape("two_encoders", accumulation="", unsafe=True),  # all ranks' negatives
)
REFUSED = {"results_by_queue": "DF105"}


@frozen
class Runs:
    """A shape's runs. Alone: original and patched script as they are, outside any process group.

    In groups of ``one`` and ``two``: the patched script at one global batch, without dropout. Where
    it can, the group of two gets there in five micro-batches.
    """

    shape: Shape
    patched: Path
    before: Run
    after: Run
    one: Run
    two: Run


@pytest.fixture(scope="module", params=SHAPES, ids=[shape.name for shape in SHAPES])
def runs(
    request: pytest.FixtureRequest, forge: Forge, tmp_path_factory: pytest.TempPathFactory
) -> Runs:
    shape: Shape = request.param
    folder = tmp_path_factory.mktemp(shape.name)
    original, patched = copies(shape.name, folder)
    result = patch(patched, unsafe=shape.unsafe)
    assert result.refusal == ""
    assert result.remaining == []
    result.write()

    def job(name: str, script: Path, world: int | None, batch: int | None, splits: int) -> Job:
        here = folder / name
        options = ["--no-dropout"] if world else []
        return Job(here, script, shape.arguments(here / "out", batch, splits), world, options)

    total, micro, splits = (20, 2, 5) if shape.accumulation else (BATCH, BATCH // 2, 1)
    jobs = [
        job("before", original, None, None, 1),
        job("after", patched, None, None, 1),
        job("one", patched, 1, total, 1),
        job("two", patched, 2, micro, splits),
    ]
    found = forge.run(jobs)
    for run in found:
        assert set(run.statuses) == {0}, run.log
    return Runs(shape, patched, *found)


def copies(name: str, folder: Path) -> tuple[Path, Path]:
    """Two copies of a shape, a script or a folder of them; the paths of their run.py."""
    for copy in ("original", "patched"):
        if (FOLDER / name).is_dir():
            shutil.copytree(FOLDER / name, folder / copy)
        else:
            (folder / copy).mkdir()
            shutil.copy(FOLDER / f"{name}.py", folder / copy / "run.py")
    return folder / "original" / "run.py", folder / "patched" / "run.py"


def files(done: Run) -> dict[str, bytes]:
    return files_below(done.folder / "out")


def files_below(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def texts(done: Run) -> dict[str, bytes]:
    return {name: data for name, data in files(done).items() if not data.startswith(b"PK")}


def test_no_shape_is_forgotten() -> None:
    found = {p.stem for p in FOLDER.glob("*.py")} | {p.parent.name for p in FOLDER.glob("*/run.py")}
    assert found == {shape.name for shape in SHAPES} | set(REFUSED)


@pytest.mark.parametrize(("name", "code"), REFUSED.items(), ids=list(REFUSED))
def test_what_cannot_be_repaired_is_left_alone_for_a_reason(
    name: str, code: str, tmp_path: Path
) -> None:
    script, _ = copies(name, tmp_path)
    result = patch(script)
    assert code in result.refusal
    assert result.changes == ()
    with pytest.raises(InputError, match=code):
        result.write()
    assert files_below(script.parent) == files_below(tmp_path / "patched")


def test_a_second_patch_changes_nothing(runs: Runs) -> None:
    again = patch(runs.patched, unsafe=runs.shape.unsafe)
    assert again.refusal == ""
    assert again.remaining == []
    assert again.changes == ()


def test_alone_with_dropout_it_is_the_original_bit_for_bit(runs: Runs) -> None:
    (a,), (b,) = runs.before.ranks, runs.after.ranks
    assert [s.loss for s in a.steps] == [s.loss for s in b.steps] != []
    assert [s.checksum for s in a.steps] == [s.checksum for s in b.steps]
    before, after = files(runs.before), files(runs.after)
    assert before.keys() == after.keys()
    differ = {name for name in before if before[name] != after[name]}
    assert before
    assert all(name.endswith("training_args.bin") for name in differ)  # they tell its own folder


def test_two_ranks_train_as_one_does(runs: Runs) -> None:
    one, two = runs.one, runs.two
    first, second = compare.steps(one.ranks), compare.steps(two.ranks)
    assert len(first) == runs.shape.steps
    assert compare.deviation(first, second, "loss").largest < 1e-6
    assert compare.deviation(first, second, "norm").largest < 1e-5
    assert compare.deviation(first, second, "lr").largest == 0
    assert second[-1].lr > 0, "the schedule ended before the last step"
    for rank in two.ranks:
        assert len(set(compare.all_reduces_per_step(rank))) == 1
    assert compare.first_divergent_step(two.ranks) == 0
    assert all(rank.group_destroyed for rank in two.ranks)


def test_two_ranks_score_every_example_once_and_in_order(runs: Runs) -> None:
    one, two = runs.one, runs.two
    scored = compare.evaluations(two.ranks)
    assert len(scored) == len(compare.evaluations(one.ranks)) > 0
    assert all(coverage.in_order for coverage in scored), scored


def test_two_ranks_write_what_one_writes_and_each_file_once(runs: Runs) -> None:
    one, two = runs.one, runs.two
    writers = compare.writers(two.ranks, two.folder / "out")
    assert {name: ranks for name, ranks in writers.items() if ranks != {0}} == {}
    assert files(one).keys() == files(two).keys() == writers.keys()
    assert texts(one) == texts(two)
