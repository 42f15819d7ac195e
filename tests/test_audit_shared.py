"""O11: modules that other scripts import, before and after a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.audit import audit

RUN = """
from config import {names}

if __name__ == "__main__":
    set_up(None)
"""
BEFORE = """
def set_up(args):
    args.device = "cuda"


def read(path):
    return open(path).read()
"""
TRAINS = """
from config import set_up

if __name__ == "__main__":
    set_up(None)
    for batch in loader:
        model(batch).backward()
"""
RANK = BEFORE.replace("    args.dev", "    args.rank = os.environ['LOCAL_RANK']\n    args.dev")
GROUP = BEFORE.replace("    args.dev", "    dist.init_process_group('gloo')\n    args.dev")
SIZE = BEFORE.replace("    args.dev", "    args.n = os.environ['WORLD_SIZE']\n    args.dev")
SAMPLED = BEFORE.replace(
    "    args.dev", "    args.s = True and DistributedSampler(read)\n    args.dev"
)
LONGER = BEFORE.replace('"cuda"', '"cuda:0"')
ADDED = BEFORE + "\n\ndef rank():\n    return os.environ['LOCAL_RANK']\n"
WRAPS = TRAINS + "    DistributedDataParallel(model)\n"

# The module after the change, the other script, and what is said: an answer and part of its reason.
CASES = [
    pytest.param(RANK, TRAINS, "violated", "asks for the rank", id="the rank"),
    pytest.param(GROUP, TRAINS, "violated", "other.py uses set_up", id="a process group"),
    pytest.param(SIZE, TRAINS, "violated", "trains without", id="the number of processes"),
    pytest.param(
        RANK,
        TRAINS.replace("from config import set_up", "from config import *"),
        "violated",
        "asks",
        id="a star import",
    ),
    pytest.param(
        RANK,
        TRAINS.replace("from config import", "import config\nfrom config import"),
        "violated",
        "asks",
        id="imported twice",
    ),
    pytest.param(
        GROUP,
        TRAINS.replace("from config import set_up", "import config").replace(
            "set_up", "config.set_up"
        ),
        "violated",
        "asks",
        id="an attribute of the module",
    ),
    pytest.param(LONGER, TRAINS, "unknown", "which changes", id="another change"),
    pytest.param(RANK, WRAPS, "unknown", "which changes", id="the other script wraps"),
    pytest.param(
        RANK,
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        + TRAINS
        + "    model = DDP(model)\n",
        "unknown",
        "which changes",
        id="the other script wraps under another name",
    ),
    pytest.param(SAMPLED, TRAINS, "violated", "asks", id="a sampler of ranks"),
    pytest.param(
        SAMPLED.replace("True", "dist.is_initialized()"),
        TRAINS,
        "unknown",
        "which changes",
        id="a sampler of ranks where there is a group",
    ),
    pytest.param(ADDED, TRAINS, "", "", id="only a new function"),
    pytest.param(RANK, TRAINS.replace("set_up", "read"), "", "", id="another function is used"),
    pytest.param(RANK, TRAINS.replace("config", "settings"), "", "", id="another module"),
    pytest.param(RANK, "def broken(:\n# import config\n", "", "", id="a file that cannot be read"),
]


@pytest.mark.parametrize(("after", "other", "answer", "said"), CASES)
def test_what_a_change_of_a_shared_module_means_for_the_others(
    tmp_path: Path, after: str, other: str, answer: str, said: str
) -> None:
    (tmp_path / "run.py").write_text(RUN.format(names="set_up, read"))
    (tmp_path / "other.py").write_text(other)
    config = tmp_path / "config.py"
    config.write_text(BEFORE)
    original = read_program(str(tmp_path / "run.py"))
    config.write_text("import os\nimport torch.distributed as dist\n" + after)
    result = read_program(str(tmp_path / "run.py"))
    found = [each for each in audit(result, original) if each.code == "O11"]
    assert [each.answer.value for each in found] == ([answer] if answer else [])
    assert all(said in each.because for each in found)
    assert all(each.module.source.path == config for each in found)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (1, "other0.py uses set_up, which changes: patch or check it too"),
        (3, "other0.py, other1.py, other2.py use set_up, which changes: patch or check them too"),
        (6, "other0.py, other1.py, other2.py, other3.py and 2 more use set_up, which changes"),
    ],
)
def test_one_line_tells_of_all_scripts_that_use_what_changes(
    tmp_path: Path, others: int, said: str
) -> None:
    (tmp_path / "run.py").write_text(RUN.format(names="set_up, read"))
    for number in range(others):
        (tmp_path / f"other{number}.py").write_text(TRAINS)
    config = tmp_path / "config.py"
    config.write_text(BEFORE)
    original = read_program(str(tmp_path / "run.py"))
    config.write_text("import os\nimport torch.distributed as dist\n" + LONGER)
    result = read_program(str(tmp_path / "run.py"))
    (found,) = [each for each in audit(result, original) if each.code == "O11"]
    assert found.because.startswith(said)
