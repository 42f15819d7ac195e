"""A script with DataParallel, patched and run on two ranks, trains as one process does."""

from __future__ import annotations

import shutil
from pathlib import Path

import ddpfix.fixtures
import pytest
import torch
from capable import made
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run

SHAPES = Path(ddpfix.fixtures.__file__).parent / "shapes"
BATCH = ("--train_batch_size", "16")
SAVE = "save_on_main(model.state_dict(), os.path.join(args.output_dir, 'net.pt'))\n"
SAVE_ALL = "torch.save(model.state_dict(), f'{args.output_dir}/{torch.distributed.get_rank()}.pt')"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, forge: Forge) -> dict[str, Run]:
    """The script alone, and the patched one on two ranks, at one global batch."""
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
    return made(
        forge,
        [
            Job(folder / name, path, [*BATCH, "--output_dir", str(folder / name / "out")], world)
            for name, path, world in (("alone", original, None), ("two", script, 2))
        ],
    )


def parameters(run: Run, name: str) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(run.folder / "out" / name)
    return found


def test_both_ranks_end_with_the_same_parameters(runs: dict[str, Run]) -> None:
    first, second = parameters(runs["two"], "0.pt"), parameters(runs["two"], "1.pt")
    assert first.keys() == second.keys() != set()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_their_parameters_are_those_of_one_process_under_the_same_names(
    runs: dict[str, Run],
) -> None:
    alone, ranks = parameters(runs["alone"], "net.pt"), parameters(runs["two"], "net.pt")
    assert alone.keys() == ranks.keys()
    for name, value in alone.items():
        torch.testing.assert_close(ranks[name], value, rtol=1e-5, atol=1e-6)


def test_every_rank_evaluates_to_what_one_process_does(runs: dict[str, Run]) -> None:
    lines = runs["alone"].log.splitlines()
    alone = [line for line in lines if line.startswith("loss")]
    assert len(alone) == 2
    assert runs["two"].log.count(alone[-1]) == 2
