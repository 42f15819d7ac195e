"""DF604: from_pretrained(folder) waits for the model's files that rank 0 writes there."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import argparse, os, torch
from transformers import BertModel
from transformers.file_utils import WEIGHTS_NAME
args = argparse.ArgumentParser().parse_args()
torch.distributed.init_process_group("gloo")
for batch in loader:
    model(batch).backward()
if torch.distributed.get_rank() == 0:
    {write}
{read}
"""
BARRIER = "    torch.distributed.barrier()  # rank 0 may still be writing\n"


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (
            "torch.save(model.state_dict(), os.path.join(args.out, WEIGHTS_NAME))",
            "model = BertModel.from_pretrained(args.out)\n"
            "config = BertConfig.from_pretrained(args.out)",
        ),
        (
            'torch.save(model.state_dict(), f"{args.out}/pytorch_model.bin")',
            "model = BertModel.from_pretrained(args.out)",
        ),
        (
            "model.save_pretrained(args.out)",
            'state = open(os.path.join(args.out, "config.json")).read()',
        ),
    ],
)
def test_the_others_wait(write: str, read: str) -> None:
    text = fixed("DF604", SCRIPT.format(write=write, read=read))
    assert f"{BARRIER}{read}\n" in text
    assert found("DF604", text) == []


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (
            'torch.save(args, os.path.join(args.out, "args.bin"))',
            "model = BertModel.from_pretrained(args.out)",
        ),
        (
            "torch.save(model.state_dict(), os.path.join(args.out, WEIGHTS_NAME))",
            "model = BertModel.from_pretrained(args.start)",
        ),
        ('torch.save(model.state_dict(), "pytorch_model.bin")', "m = BertModel.from_pretrained()"),
    ],
)
def test_what_reads_another_file_does_not(write: str, read: str) -> None:
    assert found("DF604", SCRIPT.format(write=write, read=read)) == []
