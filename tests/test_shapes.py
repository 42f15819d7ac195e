"""Legacy scripts of other shapes are patched whole, and train right on two ranks."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import ddpfix.fixtures
import pytest
from attrs import define, field, frozen
from ddpfix.launchers import compare
from ddpfix.launchers.traced import TracedRun, command, trace
from ddpfix.patcher.engine import patch

FOLDER = Path(ddpfix.fixtures.__file__).parent / "shapes"
DATA = FOLDER / "data"
BATCH = 8


@frozen
class Shape:
    """How a shape's script is run.

    ``steps`` are optimizer steps in the pair of runs that are compared. ``accumulation`` is the
    flag for it, and empty where the script has none. ``data`` are flags that take a file of DATA.
    """

    name: str
    steps: int = 12
    words: str = ""
    output: str = "--output_dir="
    batch: str = "--train_batch_size="
    accumulation: str = "--gradient_accumulation_steps="
    data: dict[str, str] = field(factory=dict)

    def arguments(self, output: Path, batch: int | None, accumulation: int) -> list[str]:
        """The command line; ``batch`` is for one process and one backward pass."""
        found = [f"{self.output}{output}", *self.words.split()]
        found += [f"{flag}={DATA / file}" for flag, file in self.data.items()]
        if batch is not None:
            found.append(f"{self.batch}{batch}")
        if accumulation > 1:
            found.append(f"{self.accumulation}{accumulation}")
        return found


# Where a script accumulates, 48 examples go in steps of 20, 20 and 8: a rest is left in each epoch.
SHAPES = (
    Shape("apex_inline", steps=6),
    Shape("dataparallel_in_train", steps=6),
    Shape("dataparallel_only", accumulation=""),
)


@define(slots=False)
class Runs:
    """A shape's runs, each made when it is first asked for."""

    shape: Shape
    folder: Path
    original: Path
    patched: Path

    @cached_property
    def alone(self) -> tuple[TracedRun, TracedRun]:
        """Original and patched script as they are, without a process group."""
        with ThreadPoolExecutor() as pool:
            before = pool.submit(self.run, "before", self.original, None, None, 1)
            after = pool.submit(self.run, "after", self.patched, None, None, 1)
            return before.result(), after.result()

    @cached_property
    def groups(self) -> tuple[TracedRun, TracedRun]:
        """The patched script in groups of one and of two, at one global batch, without dropout.

        Where it can, the group of two gets there in five micro-batches that leave a rest.
        """
        accumulates = bool(self.shape.accumulation)
        total, micro, accumulation = (20, 2, 5) if accumulates else (BATCH, BATCH // 2, 1)
        with ThreadPoolExecutor() as pool:
            one = pool.submit(self.run, "one", self.patched, 1, total, 1)
            two = pool.submit(self.run, "two", self.patched, 2, micro, accumulation)
            return one.result(), two.result()

    def run(
        self, name: str, script: Path, world: int | None, batch: int | None, accumulation: int
    ) -> TracedRun:
        folder = self.folder / name
        words = self.shape.arguments(folder / "out", batch, accumulation)
        options = ["--threads", "1", *(["--no-dropout"] if world else [])]
        done = trace(command(script, words, folder, world=world, options=options), folder)
        assert done.outcome.status == 0, done.log
        return done


@pytest.fixture(scope="module", params=SHAPES, ids=[shape.name for shape in SHAPES])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A shape as it is, and patched."""
    shape: Shape = request.param
    folder = tmp_path_factory.mktemp(shape.name)
    original, patched = copies(shape.name, folder)
    result = patch(patched)
    assert result.refusal == ""
    assert result.remaining == []
    result.write()
    return Runs(shape, folder, original, patched)


def copies(name: str, folder: Path) -> tuple[Path, Path]:
    """Two copies of a shape, a script or a folder of them; the paths of their run.py."""
    for copy in ("original", "patched"):
        if (FOLDER / name).is_dir():
            shutil.copytree(FOLDER / name, folder / copy)
        else:
            (folder / copy).mkdir()
            shutil.copy(FOLDER / f"{name}.py", folder / copy / "run.py")
    return folder / "original" / "run.py", folder / "patched" / "run.py"


def files(done: TracedRun) -> dict[str, bytes]:
    out = done.folder / "out"
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def texts(done: TracedRun) -> dict[str, bytes]:
    return {name: data for name, data in files(done).items() if not data.startswith(b"PK")}


def test_every_shape_stands_in_the_table() -> None:
    found = {p.stem for p in FOLDER.glob("*.py")} | {p.parent.name for p in FOLDER.glob("*/run.py")}
    assert found >= {shape.name for shape in SHAPES}


def test_a_second_patch_changes_nothing(runs: Runs) -> None:
    again = patch(runs.patched)
    assert again.refusal == ""
    assert again.remaining == []
    assert again.changes == ()


def test_alone_with_dropout_it_is_the_original_bit_for_bit(runs: Runs) -> None:
    before, after = runs.alone
    (a,), (b,) = before.ranks, after.ranks
    assert [s.loss for s in a.steps] == [s.loss for s in b.steps] != []
    assert [s.checksum for s in a.steps] == [s.checksum for s in b.steps]
    assert files(before) == files(after) != {}


def test_two_ranks_train_as_one_does(runs: Runs) -> None:
    one, two = runs.groups
    first, second = compare.steps(one.ranks), compare.steps(two.ranks)
    assert len(first) == runs.shape.steps
    assert compare.deviation(first, second, "loss").largest < 1e-6
    assert compare.deviation(first, second, "norm").largest < 1e-5
    assert compare.deviation(first, second, "lr").largest == 0
    assert second[-1].lr > 0, "the schedule ended before the last step"
    for rank in two.ranks:
        assert len(set(compare.all_reduces_per_step(rank))) == 1
    assert compare.ranks_part(two.ranks) == 0
    assert compare.statuses(two.ranks) == [0, 0]
    assert all(rank.group_destroyed for rank in two.ranks)


def test_two_ranks_score_every_example_once_and_in_order(runs: Runs) -> None:
    one, two = runs.groups
    scored = compare.evaluations(two.ranks)
    assert len(scored) == len(compare.evaluations(one.ranks)) > 0
    assert all(coverage.in_order for coverage in scored), scored


def test_two_ranks_write_what_one_writes_and_each_file_once(runs: Runs) -> None:
    one, two = runs.groups
    writers = compare.writers(two.ranks, two.folder / "out")
    assert {name: ranks for name, ranks in writers.items() if ranks != {0}} == {}
    assert files(one).keys() == files(two).keys() == writers.keys()
    assert texts(one) == texts(two)
