"""Legacy scripts of other shapes are patched whole, and train right on two ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

import ddpfix.fixtures
import pytest
from ddpfix.launchers import compare
from ddpfix.launchers.traced import TracedRun, command, trace
from ddpfix.patcher.engine import patch

FOLDER = Path(ddpfix.fixtures.__file__).parent / "shapes"
SHAPES = sorted(path.stem for path in FOLDER.glob("*.py"))
BATCH = 8


@pytest.fixture(scope="module", params=SHAPES)
def scripts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A shape as it is, and patched."""
    folder = tmp_path_factory.mktemp(request.param)
    for name in ("original", "patched"):
        (folder / name).mkdir()
        shutil.copy(FOLDER / f"{request.param}.py", folder / name / "run.py")
    patched = folder / "patched" / "run.py"
    result = patch(patched)
    assert result.refusal == ""
    assert result.remaining == []
    result.write()
    return folder / "original" / "run.py", patched


def run(
    script: Path, name: str, world: int | None, *arguments: str, options: str = ""
) -> TracedRun:
    folder = script.parent / name
    words = [f"--output_dir={folder / 'out'}", *arguments]
    what = command(script, words, folder, world=world, options=["--threads", "1", *options.split()])
    done = trace(what, folder)
    assert done.outcome.status == 0, done.log
    return done


def files(done: TracedRun) -> dict[str, bytes]:
    out = done.folder / "out"
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def test_a_second_patch_changes_nothing(scripts: tuple[Path, Path]) -> None:
    assert patch(scripts[1]).remaining == []
    assert patch(scripts[1]).changes == ()


def test_alone_with_dropout_it_is_the_original_bit_for_bit(scripts: tuple[Path, Path]) -> None:
    original, patched = scripts
    before = run(original, "run", None, options="--shim-legacy")
    after = run(patched, "run", None)
    (a,), (b,) = before.ranks, after.ranks
    assert [s.loss for s in a.steps] == [s.loss for s in b.steps] != []
    assert [s.checksum for s in a.steps] == [s.checksum for s in b.steps]
    assert files(before) == files(after) != {}


def test_two_ranks_train_and_evaluate_as_one_does(scripts: tuple[Path, Path]) -> None:
    script = scripts[1]
    one = run(script, "one", 1, f"--train_batch_size={BATCH}", options="--no-dropout")
    two = run(script, "two", 2, f"--train_batch_size={BATCH // 2}", options="--no-dropout")
    first, second = compare.steps(one.ranks), compare.steps(two.ranks)
    assert len(first) == 12
    assert compare.deviation(first, second, "loss").largest < 1e-6
    assert compare.deviation(first, second, "norm").largest < 1e-5
    assert compare.deviation(first, second, "lr").largest == 0
    scored = compare.evaluations(two.ranks)
    assert scored != []
    assert all(coverage.in_order for coverage in scored), scored
    writers = compare.writers(two.ranks, two.folder / "out")
    assert {name: ranks for name, ranks in writers.items() if ranks != {0}} == {}
    texts = [name for name in files(one) if not name.endswith(".bin")]
    assert {name: files(one)[name] for name in texts} == {name: files(two)[name] for name in texts}
    assert all(rank.group_destroyed for rank in two.ranks)


def test_accumulation_that_leaves_a_rest_is_the_same_training(
    scripts: tuple[Path, Path],
) -> None:
    script = scripts[1]
    flag = "--gradient_accumulation_steps"
    if flag not in script.read_text():
        assert "accumulation_steps" not in script.read_text()
        return
    # 48 examples, 20 an optimizer step: 20, 20 and 8
    one = run(script, "big", 1, "--train_batch_size=20", options="--no-dropout")
    two = run(script, "small", 2, "--train_batch_size=2", f"{flag}=5", options="--no-dropout")
    first, second = compare.steps(one.ranks), compare.steps(two.ranks)
    assert len(first) == 6
    assert compare.deviation(first, second, "loss").largest < 1e-6
    assert compare.deviation(first, second, "norm").largest < 1e-5
    assert compare.deviation(first, second, "lr").largest == 0
    assert second[-1].lr > 0, "the schedule ended before the last step"
    for rank in two.ranks:
        assert len(set(compare.all_reduces_per_step(rank))) == 1
