"""DF202: a device that the arguments hold as a text has no type to ask for."""

from __future__ import annotations

import pytest
from cases import fixed

ASKED = "torch.cuda.is_available()"
SCRIPT = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
{device}
torch.distributed.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[args.local_rank])
"""


@pytest.mark.parametrize(
    ("device", "test"),
    [
        ("args.device = 'cuda' if torch.cuda.is_available() else 'cpu'", ASKED),
        ("if torch.cuda.is_available():\n    args.device = 'cuda'\nelse:\n    args.device = 'cpu'",
         ASKED),
        ("name = f'cuda:{args.local_rank}'\nargs.device = name", ASKED),
        ("args.device = 'cuda:{}'.format(args.local_rank)", ASKED),
        ("args.device = 'cuda:' + str(args.local_rank)", ASKED),
        ("args.device = device_of(args)", ASKED),
        ("args.device = torch.device('cuda')", "args.device.type == 'cuda'"),
    ],
)  # fmt: skip
def test_the_machine_is_asked_where_the_device_is_a_text(device: str, test: str) -> None:
    text = fixed("DF202", SCRIPT.format(device=device))
    assert f"device_ids=[args.local_rank] if {test} else None" in text
