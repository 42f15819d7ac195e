"""DF612: Each rank works in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, written
from ddpfix.patcher.editing.helpers import helper_code
from ddpfix.patcher.findings import Severity
from forked import Forge

OURS = """\
if __name__ == "__main__":
    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
        torch.distributed.init_process_group(backend='gloo', timeout=datetime.timedelta(hours=1))
    main()
"""
THEIRS = """\
if __name__ == "__main__":
    main()
torch.distributed.init_process_group("gloo")
"""
SCRIPT = """\
import hydra
import torch

@{decorator}
def main(cfg):
    {first}train(cfg)
    model.load_state_dict({load}("best.pt"))

{end}"""
MAIN = 'hydra.main(config_path="conf")'
HERE = "meet_in_folder_of_rank_0()\n    "


def script(
    decorator: str = MAIN, first: str = "", load: str = "torch.load", end: str = OURS
) -> str:
    return SCRIPT.format(decorator=decorator, first=first, load=load, end=end)


NOOP = {
    "a version that changes no folder": script('hydra.main("conf", version_base=None)'),
    "the next version": script('hydra.main("conf", version_base="1.3")'),
    "a script that loads nothing": script(load="make"),
    "another library": script("other.main()"),
    "what a patch has written": script(first=HERE),
    "a script for one process": script(end="main()\n"),
}


@pytest.mark.parametrize("text", NOOP.values(), ids=NOOP)
def test_what_is_left_alone(text: str) -> None:
    assert [each.because for each in found("DF612", text)] == []


@pytest.mark.parametrize("decorator", [MAIN, 'hydra.main("conf", "c", version_base="1.1")'])
@pytest.mark.parametrize("docstring", ["", '"""Train."""\n    '])
def test_ranks_begin_in_the_folder_of_rank_0(decorator: str, docstring: str) -> None:
    new = fixed("DF612", script(decorator, docstring))
    assert script(decorator, docstring + HERE).partition("@")[2] in new


def test_a_group_of_the_scripts_own_is_only_noted() -> None:
    (one,) = found("DF612", script(end=THEIRS))
    assert (one.severity, one.edits) == (Severity.NOTE, ())


APART = """
import json, os, sys
import torch
{helper}
own = f"{{sys.argv[1]}}_of_{{os.environ['RANK']}}"
os.makedirs(own)
os.chdir(own)
torch.distributed.init_process_group("gloo")
meet_in_folder_of_rank_0()
with open(f"{{sys.argv[1]}}.{{os.environ['RANK']}}", "w") as file:
    json.dump(os.getcwd(), file)
torch.distributed.destroy_process_group()
"""


def test_ranks_meet_in_the_folder_of_rank_0(forge: Forge, tmp_path: Path) -> None:
    text = APART.format(helper=helper_code("meet_in_folder_of_rank_0"))
    folders = written(forge, tmp_path, "apart", text, 2)
    assert folders == [str(tmp_path / "apart_of_0")] * 2
