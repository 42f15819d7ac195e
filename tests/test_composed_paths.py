"""DF604: files of functions that put their path together from what they are passed."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import os, pickle, torch

def is_main_process():
    return torch.distributed.get_rank() == 0

def restore(name):
    path = os.path.join("data", name)
    with open(path, "rb") as file:
        return pickle.load(file)

def store(name, words):
    with open("data/" + name, "wb") as file:
        pickle.dump(words, file)

def main(args, words):
    torch.distributed.init_process_group("gloo")
    if is_main_process():
        store({written}, words)
    return restore({read})

main(args, words)
"""


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"words.pkl"', '"words.pkl"'),
        ('f"{args.name}.pkl"', 'args.name + ".pkl"'),
        ('"%s.pkl" % args.name', '"%s.pkl" % args.name'),
    ],
)
def test_what_rank_0_stores_is_waited_for(written: str, read: str) -> None:
    text = SCRIPT.format(written=written, read=read)
    (finding,) = found("DF604", text)
    assert "rank 0 may still be writing" in finding.because
    after = fixed("DF604", text)
    assert after.index("barrier()") < after.index("return restore(")
    assert found("DF604", after) == []


@pytest.mark.parametrize("read", ['"other.pkl"', "args.name", '"words.pkl".upper()'])
def test_another_file_is_not(read: str) -> None:
    assert found("DF604", SCRIPT.format(written='"words.pkl"', read=read)) == []
