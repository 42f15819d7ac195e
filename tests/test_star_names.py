"""Aliases that imports bring from a module of the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
from net import *
{own}
model = Net()
model = nn.parallel.DistributedDataParallel(model)
for batch in batches:
    model(batch).mean().backward()
    t.save(batch, "batch.pt")
"""
NET = """\
{first}
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return x
"""
CASES = {
    "an alias": ("import torch as t", "", "torch.save"),
    "an alias of another module's": ("from deep import *", "", "torch.save"),
    "one that it lists": ("import torch as t\n__all__ = ['t', 'nn', 'Net']", "", "torch.save"),
    "one that it does not list": ("import torch as t\n__all__ = ['nn', 'Net']", "", "t.save"),
    "one that it binds again": ("import torch as t\nt = Net", "", "t.save"),
    "one in a function": ("def f():\n    import torch as t", "", "t.save"),
    "one that the script binds": ("import torch as t", "t = Store()", "t.save"),
    "one that the script imports": ("import torch as t", "import tar as t", "tar.save"),
}


@pytest.mark.parametrize(("first", "own", "name"), CASES.values(), ids=CASES)
def test_what_a_name_stands_for(first: str, own: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("import torch as t\n_private = t\n")
    (tmp_path / "net.py").write_text(NET.format(first=first))
    (tmp_path / "run.py").write_text(SCRIPT.format(own=own))
    script = read_program(str(tmp_path / "run.py")).script
    (call,) = (each for each in script.calls_to("save"))
    assert script.dotted(call.func) == name
    assert script.calls_to("DistributedDataParallel")


def test_rank_0_alone_saves_under_an_alias_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET.format(first="import torch as t"))
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(own="t.distributed.init_process_group('gloo')"))
    assert '+    save_on_main(batch, "batch.pt")' in patch(script, select=["DF601"]).diff()


PASSED_ON = {
    "a module": ("import torch.distributed as dist", "", "torch.distributed.barrier"),
    "through another": ("from deeper import dist", "", "torch.distributed.barrier"),
    "one that it makes": ("class dist: ...", "", "helpers.dist.barrier"),
    "one that it binds again": (
        "import torch.distributed as dist\ndist = 1", "", "helpers.dist.barrier"
    ),
    "one that the script binds": (
        "import torch.distributed as dist", "dist = 1", "helpers.dist.barrier"
    ),
    "of no known library": ("import nowhere as dist", "", "helpers.dist.barrier"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "own", "name"), PASSED_ON.values(), ids=PASSED_ON)
def test_what_a_name_of_a_library_that_another_module_imports_stands_for(
    first: str, own: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "deeper.py").write_text("import torch.distributed as dist\n")
    (tmp_path / "helpers.py").write_text(f"{first}\n")
    (tmp_path / "run.py").write_text(f"from helpers import dist\n{own}\ndist.barrier()\n")
    script = read_program(str(tmp_path / "run.py")).script
    (call,) = script.calls_to("barrier")
    assert script.dotted(call.func) == name


def test_ranks_meet_at_a_barrier_of_another_files_name(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("import torch.distributed as dist\n")
    script = tmp_path / "run.py"
    script.write_text(
        "import torch\nfrom helpers import dist\ndist.init_process_group('gloo')\n"
        "if dist.get_rank() == 0:\n    torch.save({}, 'first.pt')\n"
        "dist.barrier()\ntorch.load('first.pt', map_location='cpu')\n"
    )
    assert "first.pt" not in patch(script, select=["DF604"]).diff()
