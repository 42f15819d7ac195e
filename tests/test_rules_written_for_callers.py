"""DF602: files of functions that callers go on from, which rank 0 may be the only one to call."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed
from ddpfix.patcher.api import patch

LIBRARY = """\
import os

class Tokenizer:
    def save_pretrained(self, folder):
        return self.save_vocabulary(folder)

    def save_vocabulary(self, folder):
        path = os.path.join(folder, "vocabulary.txt")
        with open(path, "w") as file:
            file.write("words")
        return path
"""
SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from library import Tokenizer

def main(args, data):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in DataLoader(data, sampler=sampler):
            model(batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        Tokenizer().save_pretrained(args.folder)

if __name__ == "__main__":
    main(parse(), load())
"""


def test_what_save_pretrained_writes_is_waited_for_by_nobody(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "run.py").write_text(SCRIPT)
    result = patch(tmp_path / "run.py")
    assert not result.refusal
    texts = {change.source.path.name: change.text for change in result.changes}
    assert "    if is_main_process():\n            Tokenizer().save_pretrained" in texts["run.py"]
    assert "barrier()" not in texts["library.py"]


@pytest.mark.parametrize("leaves", ["yield file.write", "return file.write('x')"])
def test_a_block_that_leaves_its_function_is_run_by_all_ranks(leaves: str) -> None:
    text = f"import torch\ndef f(path):\n    with open(path, 'a') as file:\n        {leaves}\n"
    opened = "with open(path if is_main_process() else os.devnull, 'a') as file:"
    assert f"    {opened}\n        {leaves}\n" in fixed("DF602", text)


@pytest.mark.parametrize("leaves", ["yield file", "return file", "size = file.tell()"])
def test_a_file_that_is_handed_on_is_not_taken_away(leaves: str) -> None:
    """The caller may move it to its place, and os.devnull with it."""
    text = f"import os\ndef f(path):\n    with open(path, 'a') as file:\n        {leaves}\n"
    text += "    return size\n"
    assert fixed("DF602", text) == text
