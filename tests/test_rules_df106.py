"""DF106: The process group is made with an address or with numbers that no launcher gave."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import argparse
import os
import torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--world_size", type=int, default=1)
parser.add_argument("--url", default="tcp://10.0.0.1:9")
args = parser.parse_args()
{read}
{above}
dist.init_process_group("gloo", {how})
model = torch.nn.parallel.DistributedDataParallel(net)
for x in loader:
    model(x).mean().backward()
    optimizer.step()
"""


def script(how: str = "init_method='env://'", above: str = "pass", read: str = "") -> str:
    return SCRIPT.format(how=how, above=above, read=read).replace("\n\n", "\n")


def parsed_apart(text: str) -> str:
    function = "def read():\n    a = parser.parse_args()\n    return a\nargs = read()"
    return text.replace("args = parser.parse_args()", function)


SLURM = "if 'SLURM_PROCID' in os.environ:\n    os.environ['MASTER_PORT'] = '9'"
SPAWN = """\
import torch
import torch.distributed as dist
def work(rank, n):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for x in loader:
        model(x).backward()
        optimizer.step()
torch.multiprocessing.spawn(work, nprocs=2)
"""

# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    (
        "a lone process, where a launcher's variables are missing",
        script().replace(
            "dist.init_process_group(\"gloo\", init_method='env://')",
            "try:\n    rank = int(os.environ['RANK'])\n    dist.init_process_group('gloo')\n"
            "except KeyError:\n    dist.init_process_group('gloo', 'tcp://127.0.0.1:9', rank=0,"
            " world_size=1)",
        ),
    ),
    (
        "a set-up that asks Slurm for all numbers",
        script(
            above="rank = int(os.environ['SLURM_PROCID'])\n"
            "if args.port:\n    os.environ['MASTER_PORT'] = str(args.port)"
        ),
    ),
    (
        "numbers that a function returns together, over those of a lone process",
        script("rank=rank, world_size=size", "rank, size = ask_launcher()", "rank = 0\nsize = 1"),
    ),
    ("all from the environment", script()),
    ("the launcher's numbers",
        script("rank=int(os.environ['RANK']), world_size=int(os.environ['WORLD_SIZE'])")),
    ("options that are read from it", script("rank=args.rank, world_size=args.world_size",
        "args.rank, args.world_size = map(int, (os.environ['RANK'], os.environ['WORLD_SIZE']))")),
    ("an address put together of what is from outside",
        script("init_method=url", "url = 'tcp://' + os.environ['HOST'] + ':9'")),
    ("a file for ranks that are numbered",
        script("'file:///tmp/store', rank=rank, world_size=size", "rank, size = ask()")),
    ("an address from outside", script(above="os.environ['MASTER_ADDR'] = os.getenv('HOST')")),
    ("an address that is asked for", script(above=SLURM)),
    ("another variable", script(above="os.environ['OMP_NUM_THREADS'] = '1'")),
    ("a number that is not known", script("rank=mpi.rank, world_size=mpi.size")),
    ("size and rank of options, which DF102 sees to",
        script("init_method=args.url, rank=args.rank, world_size=args.world_size")),
    ("a script that starts its ranks", SPAWN),
    ("no group", "import os\nos.environ['MASTER_PORT'] = '9'\n"),
]  # fmt: skip

READ = """\
if 'LOCAL_RANK' in os.environ and '{name}' in os.environ:  # torchrun, accelerate launch
    args.{option} = int(os.environ['{name}'])"""

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    ("a port of its own", script(above="os.environ['MASTER_PORT'] = '12355'"),
        script(above="os.environ.setdefault('MASTER_PORT', '12355')")),
    ("an option's port, of arguments that a function parses",
        parsed_apart(script(above="os.environ['MASTER_PORT'] = args.url")),
        parsed_apart(script(above="os.environ.setdefault('MASTER_PORT', args.url)"))),
    ("the only rank", script("rank=0, world_size=1"),
        script("rank=int(os.environ.get('RANK', 0)), "
            "world_size=int(os.environ.get('WORLD_SIZE', 1))")),
    ("a number on one machine, in a group of a fixed size",
        script("rank=args.local_rank, world_size=2"),
        script("rank=int(os.environ.get('RANK', args.local_rank)), "
            "world_size=int(os.environ.get('WORLD_SIZE', 2))")),
    ("as many ranks as cards", script("world_size=torch.cuda.device_count()"),
        script("world_size=int(os.environ.get('WORLD_SIZE', torch.cuda.device_count()))")),
    ("numbers of options, which other lines read too",
        script("rank=args.rank, world_size=int(os.environ['WORLD_SIZE'])"),
        script("rank=args.rank, world_size=int(os.environ['WORLD_SIZE'])",
            read=READ.format(name="RANK", option="rank"))),
    ("an address of its own", script("'tcp://localhost:9'"),
        script("'env://' if 'MASTER_PORT' in os.environ else 'tcp://localhost:9'")),
    ("an address of settings that are not read, and numbers of options",
        script("init_method=hparams.url, rank=args.rank, world_size=args.world_size"),
        script("init_method='env://' if 'MASTER_PORT' in os.environ else hparams.url, "
            "rank=args.rank, world_size=args.world_size")),
    ("as many ranks as cards, by the name of an option",
        script("rank=args.local_rank, world_size=args.n", "args.n = torch.cuda.device_count()"),
        script("rank=int(os.environ.get('RANK', args.local_rank)), world_size=args.n",
            "args.n = int(os.environ.get('WORLD_SIZE', torch.cuda.device_count()))")),
    ("an address put together", script("init_method=url", "url = 'tcp://' + args.url + ':9'"),
        script("init_method='env://' if 'MASTER_PORT' in os.environ else url",
            "url = 'tcp://' + args.url + ':9'")),
    ("a file, and no rank", script("'file:///tmp/store', world_size=4"),
        script("'env://' if 'MASTER_PORT' in os.environ else 'file:///tmp/store', "
            "world_size=int(os.environ.get('WORLD_SIZE', 4))")),
    ("an address of an option", script("init_method=args.url"),
        script("init_method='env://' if 'MASTER_PORT' in os.environ else args.url")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF106", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_repaired(before: str, after: str) -> None:
    assert fixed("DF106", before) == after
    assert found("DF106", after) == []


def test_a_number_that_a_name_holds_is_told() -> None:
    (finding,) = found("DF106", script("rank=rank", "rank = args.rank"))
    assert not finding.edits
    assert "let rank be int(os.environ['RANK'])" in finding.because
