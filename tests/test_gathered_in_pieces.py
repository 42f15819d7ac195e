"""What patched scripts gather, or take of rank 0, is the whole, in pieces of bounded size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ddpfix.patcher.editing.helpers import helper_code

RANK = """
import io, json, pickle, sys
import numpy, torch
{helper}
folder, rank = sys.argv[1], int(sys.argv[2])
torch.distributed.init_process_group("gloo", f"file://{{folder}}/store", rank=rank, world_size=2)
largest, gather = [], torch.distributed.all_gather_object
def watched(parts, own):
    largest.append(len(pickle.dumps(own)))
    gather(parts, own)
torch.distributed.all_gather_object = watched
many = [numpy.full(1 << 16, number, numpy.float64) for number in range(80)]  # of 0.5 MiB each
large = gathered(many if rank == 0 else [numpy.full(2, 100.0), torch.full((2,), 101.0)])
pieces = len(largest)
few = gathered([] if rank == 0 else ["a", "b"])
firsts = [float(value[0]) for value in large]
told = what_rank_0_has((many, rank) if rank == 0 else "another")
assert [value[0] for value in told[0]] == [*range(80)] and told[1] == 0
print(json.dumps([firsts, pieces, max(largest), few, gathered([]), gathered(rank + 1.5)]))
torch.distributed.destroy_process_group()
"""


def test_large_lists_are_gathered_whole_in_pieces(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    names = ("gathered", "what_rank_0_has", "onto_own_card")
    script.write_text(RANK.format(helper="".join(map(helper_code, names))))
    command = [sys.executable, "-W", "ignore", str(script), str(tmp_path)]
    ranks = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for rank in ranks:
        firsts, collectives, largest, few, none, total = json.loads(rank.communicate()[0])
        assert firsts == [*map(float, range(80)), 100.0, 101.0]
        assert collectives == 1 + 3  # 40 MiB, in pieces of 16
        assert largest < 17 << 20
        assert (few, none, total) == (["a", "b"], [], 4.0)
