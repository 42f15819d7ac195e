"""The forms in which scripts ask "am I rank 0?", in one file and across files."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from ddpfix.patcher.analysis.ranks.rank_reach import UNKNOWN, roles_reaching, values_by_role
from ddpfix.patcher.analysis.ranks.roles import Role
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.engine.check import check
from ddpfix.patcher.rules import all_rules

# Correct on several ranks: rank 0 writes beside the file and renames.
PROGRAM = """import datetime
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
{top}

def main():
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    world = int(os.environ["WORLD_SIZE"])
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo", timeout=datetime.timedelta(hours=2))
    model = torch.nn.Linear(2, 2)
    model = torch.nn.parallel.DistributedDataParallel(
        model, device_ids=[local_rank] if cuda else None
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = [torch.zeros(2)] * 100
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=4)
{setup}
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if {test}:
            torch.save(model.module.state_dict(), "out.tmp")
            os.replace("out.tmp", "out")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
HELPERS = """import os
import torch.distributed as dist


def get_rank():
    if not dist.is_available() or not dist.is_initialized():
        return 0
    return dist.get_rank()


def is_main_process():
    return get_rank() == 0


def get_dist():
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


class Ranks:
    def __init__(self):
        self.number = get_rank()

    @property
    def is_first(self):
        return self.number == 0

    def leads(self):
        if self.is_first:
            return True
        return False


RANK = int(os.environ.get("RANK", 0))
FIRST = RANK == 0
"""
IS_MAIN = "def is_main():\n    return dist.get_rank() == 0\n"
# What is tested, lines in main before the loop, lines at the top.
FORMS: dict[str, tuple[str, str, str]] = {
    "plain": ("rank == 0", "", ""),
    "not rank": ("not rank", "", ""),
    "get_rank": ("dist.get_rank() == 0", "", ""),
    "a name": ("master", "master = rank == 0", ""),
    "a name bound in both branches": ("master",
        "if world > 1:\n    master = rank == 0\nelse:\n    master = True", ""),
    "the environment": ("int(os.environ['RANK']) == 0", "", ""),
    "its text": ("os.environ['RANK'] == '0'", "", ""),
    "its text among others": ("os.environ['RANK'] in ('-1', '0')", "", ""),
    "get": ("int(os.environ.get('RANK', 0)) == 0", "", ""),
    "getenv": ("int(os.getenv('RANK', '0')) == 0", "", ""),
    "a function": ("is_main()", "", IS_MAIN),
    "a function that asks for a group": ("is_main()", "",
        "def is_main():\n    if not dist.is_initialized():\n        return True\n"
        "    return dist.get_rank() == 0\n"),
    "one with an else": ("is_main()", "",
        "def is_main():\n    if dist.is_initialized():\n        first = dist.get_rank() == 0\n"
        "    else:\n        first = True\n    return first\n"),
    "a lambda": ("is_main()", "is_main = lambda: dist.get_rank() == 0", ""),
    "below 1": ("rank < 1", "", ""),
    "a chain": ("0 <= rank < 1", "", ""),
    "in a tuple": ("rank in (0,)", "", ""),
    "bool": ("m", "m = bool(rank == 0)", ""),
    "a tuple": ("r == 0", "r, w = dist.get_rank(), dist.get_world_size()", ""),
    "walrus": ("(r := dist.get_rank()) == 0", "", ""),
    "annotated": ("master", "master: bool = rank == 0", ""),
    "an attribute": ("a.is_main", "class A: pass\na = A()\na.is_main = dist.get_rank() == 0", ""),
    "another attribute": ("a.first", "class A: pass\na = A()\na.first = dist.get_rank() == 0", ""),
    "alone by an attribute": ("not a.ranks or a.rank == 0",
        "class A: pass\na = A()\na.ranks = 'RANK' in os.environ\na.rank = 0\n"
        "if a.ranks:\n    a.rank = int(os.environ['RANK'])", ""),
    "the rank as attribute": ("a.rank == 0",
        "class A: pass\na = A()\na.rank = dist.get_rank()", ""),
    "a conditional": ("r == 0", "r = dist.get_rank() if dist.is_initialized() else 0", ""),
    "and": ("epoch % 2 == 0 and rank == 0", "", ""),
    "alone or first": ("world == 1 or rank == 0", "", ""),
    "no group or first": ("not dist.is_initialized() or dist.get_rank() == 0", "", ""),
    "cards that are ranks": ("n_gpu == 1 or rank == 0",
        "n_gpu = 1\nif 'WORLD_SIZE' in os.environ:\n    n_gpu = int(os.environ['WORLD_SIZE'])", ""),
    "match": ("ok", "ok = False\nmatch rank:\n    case 0:\n        ok = True", ""),
    "modulo": ("rank % world == 0", "", ""),
    "node and card": ("dist.get_rank() == 0 and local_rank == 0", "", ""),
    "a constant": ("rank == MAIN", "", "MAIN = 0"),
    "a global": ("FIRST", "", "FIRST = int(os.environ['RANK']) == 0"),
    "accelerate": ("accelerator.is_main_process", "from accelerate import Accelerator\n"
        "accelerator = Accelerator()", ""),
    "its number": ("accelerator.process_index == 0", "from accelerate import Accelerator\n"
        "accelerator = Accelerator()", ""),
    "its state": ("PartialState().is_main_process", "from accelerate import PartialState", ""),
    "Lightning": ("fabric.is_global_zero", "import lightning\nfabric = lightning.Fabric()", ""),
    "Horovod": ("hvd.rank() == 0", "import horovod.torch as hvd", ""),
    "imported": ("is_main_process()", "", "from helpers import is_main_process"),
    "imported module": ("helpers.is_main_process()", "", "import helpers"),
    "imported package": ("misc.is_main_process()", "", "from util import misc"),
    "imported pair": ("r == 0", "from helpers import get_dist\nr, w = get_dist()", ""),
    "imported value": ("FIRST", "", "from helpers import FIRST"),
    "imported module's value": ("helpers.RANK == 0", "", "import helpers"),
    "a property": ("ranks.is_first", "from helpers import Ranks\nranks = Ranks()", ""),
    "a method": ("ranks.leads()", "from helpers import Ranks\nranks = Ranks()", ""),
    "of srun or of torchrun": ("r == 0",
        "if 'SLURM_JOB_ID' in os.environ:\n    r = int(os.environ['SLURM_PROCID'])\n"
        "else:\n    r = int(os.environ['RANK'])", ""),
    "not found": ("is_main_process()", "", "from .gone import is_main_process"),
}  # fmt: skip


def written(folder: Path, form: str) -> Path:
    test, setup, top = FORMS[form]
    (folder / "util").mkdir()
    (folder / "util" / "__init__.py").write_text("")
    for name in ("helpers.py", "util/misc.py"):
        (folder / name).write_text(HELPERS)
    body = "\n".join("    " + line for line in setup.splitlines())
    run = folder / "run.py"
    run.write_text(PROGRAM.format(test=test, setup=body, top=top))
    return run


@pytest.mark.parametrize("form", FORMS)
def test_a_correct_script_stays_silent(tmp_path: Path, form: str) -> None:
    program = read_program(str(written(tmp_path, form)))
    assert [(f.code, f.line, f.because) for f in check(program, all_rules())] == []
    save = program.script.calls_to("save")[0]
    assert Role.OTHER not in roles_reaching(program, program.script, save)
    assert Role.MAIN in roles_reaching(program, program.script, save)


UNTOLD = [
    "rank % 2 == 0",  # rank 1 stands for all others
    "flag",
    "late",
    "options.verbose",
    "some(rank)",
    "cycle",
]


@pytest.mark.parametrize("test", UNTOLD)
def test_what_cannot_be_told_is_unknown(tmp_path: Path, test: str) -> None:
    text = f"""
import torch
from gone import some
flag = True
def change(options, late):
    global flag
    flag = torch.distributed.get_rank() == 0
    options.verbose = True
def main(options, late):
    rank = torch.distributed.get_rank()
    cycle = other if options else rank == 0
    other = cycle
    x = {test}
if __name__ == "__main__":
    main()
"""
    (tmp_path / "run.py").write_text(text)
    script = read_program(str(tmp_path / "run.py")).script
    value = script.stores[script.functions["main"], "x"][0]
    stmt = script.statement(value)
    assert isinstance(stmt, ast.Assign)
    assert values_by_role(script, stmt.value)[2] is UNKNOWN


def test_a_parameter_is_what_all_calls_pass(tmp_path: Path) -> None:
    text = """
import torch
def save(is_first, path):
    if is_first:
        torch.save(1, path)
def main():
    rank = torch.distributed.get_rank()
    save(rank == 0, path="a")
    save({second}, path="b")
if __name__ == "__main__":
    main()
"""
    for second, writes in (("not rank", False), ("True", True)):
        (tmp_path / "run.py").write_text(text.format(second=second))
        program = read_program(str(tmp_path / "run.py"))
        script = program.script
        (write,) = [c for c in script.calls_to("save") if script.dotted(c.func) == "torch.save"]
        assert (Role.OTHER in roles_reaching(program, script, write)) is writes
