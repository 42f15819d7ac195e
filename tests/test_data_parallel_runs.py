"""A script with DataParallel, patched and started by torchrun, trains as one process does."""

from __future__ import annotations

import shutil
from pathlib import Path

import ddpfix.fixtures
import pytest
import torch
from ddpfix.patcher.engine.patch import patch
from started_ranks import TORCHRUN, run

SHAPES = Path(ddpfix.fixtures.__file__).parent / "shapes"
SAVE = "save_on_main(model.state_dict(), os.path.join(args.output_dir, 'net.pt'))\n"
SAVE_ALL = "torch.save(model.state_dict(), f'{args.output_dir}/{torch.distributed.get_rank()}.pt')"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the script alone, and of the patched one on two ranks, at one global batch."""
    folder = tmp_path_factory.mktemp("runs")
    script, original = folder / "run.py", folder / "original.py"
    shutil.copy(SHAPES / "wrapped_where_made.py", original)
    original.write_text(original.read_text().replace("Dropout(0.1)", "Dropout(0.0)"))
    shutil.copy(original, script)
    result = patch(script, exact=True)
    assert (result.refusal, result.remaining) == ("", [])
    result.write()
    text = script.read_text()
    assert text.count(SAVE) == 1
    script.write_text(text.replace(SAVE, f"{SAVE}    {SAVE_ALL}\n"))
    arguments = ("--train_batch_size", "16", "--output_dir")
    (folder / "alone.txt").write_text(run(str(original), *arguments, str(folder / "alone")))
    (folder / "ranks.txt").write_text(run(*TORCHRUN, str(script), *arguments, str(folder / "two")))
    return folder


def parameters(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(path)
    return found


def test_both_ranks_end_with_the_same_parameters(folder: Path) -> None:
    first, second = parameters(folder / "two" / "0.pt"), parameters(folder / "two" / "1.pt")
    assert first.keys() == second.keys() != set()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_their_parameters_are_those_of_one_process_under_the_same_names(folder: Path) -> None:
    alone, ranks = parameters(folder / "alone" / "net.pt"), parameters(folder / "two" / "net.pt")
    assert alone.keys() == ranks.keys()
    for name, value in alone.items():
        torch.testing.assert_close(ranks[name], value, rtol=1e-5, atol=1e-6)


def test_every_rank_evaluates_to_what_one_process_does(folder: Path) -> None:
    lines = (folder / "alone.txt").read_text().splitlines()
    alone = [line for line in lines if line.startswith("loss")]
    assert len(alone) == 2
    # Two ranks that print at once may share a line.
    assert (folder / "ranks.txt").read_text().count(alone[-1]) == 2
