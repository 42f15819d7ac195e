"""Files that processes write one after the other, because each holds a lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import found
from ddpfix.patcher.api import read_program
from ddpfix.patcher.audit import audit
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import os
import pickle
import shutil
import torch
from fasteners import InterProcessLock
from filelock import FileLock
from torch.utils.data import DataLoader

LOCK = FileLock("features.lock")


def build(path):
    made = [1.0]
    {write}
    return made


def features(path):
    {lock}:
        if os.path.exists(path):
            return pickle.load(open(path, "rb"))
        return build(path)


def main(model, optimizer):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in DataLoader(features("features.pkl")):
        model(batch).backward()
        optimizer.step()


main(*made())
"""
OPEN = 'with open(path, "wb") as file:\n        pickle.dump(made, file)'
SAVE = "torch.save(made, path)"
COPY = 'shutil.copyfile("raw", path)'
LOCKS = [
    'with FileLock(path + ".lock")',
    "with LOCK",
    "with LOCK.acquire(timeout=9)",
    'with InterProcessLock("features.lock")',
]
NO_LOCK = "with torch.no_grad()"
RULES_OF_WRITES = [("DF602", OPEN), ("DF601", SAVE), ("DF607", COPY)]


@pytest.mark.parametrize(("code", "write"), RULES_OF_WRITES)
@pytest.mark.parametrize("lock", LOCKS)
def test_whoever_comes_first_may_write(code: str, write: str, lock: str) -> None:
    assert found(code, SCRIPT.format(write=write, lock=lock)) == []


@pytest.mark.parametrize(("code", "write"), RULES_OF_WRITES)
def test_without_a_lock_all_write_at_once(code: str, write: str) -> None:
    assert found(code, SCRIPT.format(write=write, lock=NO_LOCK))


def test_a_call_without_the_lock_is_one_too_many() -> None:
    text = SCRIPT.format(write=SAVE, lock=LOCKS[0])
    assert found("DF601", text.replace("    model = torch", '    build("x")\n    model = torch'))


def test_ranks_that_append_one_after_the_other_still_repeat_each_line() -> None:
    append = 'with open(path, "a") as file:\n        file.write("done")'
    assert found("DF602", SCRIPT.format(write=append, lock=LOCKS[0]))


CACHE = """\
import os, pickle, torch
from filelock import FileLock
def features(path):
    with FileLock(path + ".lock"):
        if os.path.exists(path):
            return pickle.load(open(path, "rb"))
        made = make(path)
        with open(path, "wb") as file:
            pickle.dump(made, file)
    return made
"""


def test_a_cache_that_is_looked_for_under_the_lock_is_whole() -> None:
    assert found("DF406", CACHE) == []
    open_to_all = CACHE.replace('    with FileLock(path + ".lock"):\n', "    if True:\n")
    assert len(found("DF406", open_to_all)) == 1
    before = (
        "    if os.path.exists(path):\n        return pickle.load(open(path, 'rb'))\n    with F"
    )
    assert len(found("DF406", CACHE.replace("    with F", before))) == 1


@pytest.mark.parametrize("write", [OPEN, SAVE, COPY])
def test_the_audit_agrees(write: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    for lock, wrong in [(LOCKS[0], False), (NO_LOCK, True)]:
        script.write_text(SCRIPT.format(write=write, lock=lock))
        codes = [each.code for each in audit(read_program(script)) if each.is_violated]
        assert ("O7" in codes) is wrong
    script.write_text(SCRIPT.format(write=write, lock=LOCKS[0]))
    assert not any("is_main_process" in change.text for change in patch(script).changes)
