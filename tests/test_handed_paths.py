"""DF406: a function writes a cache where its caller says, who has looked for one (DF602)."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import os
import pickle
import torch

torch.distributed.init_process_group("gloo")


def save(path, rows):
    {write}


def store(path, rows):
    save(path, rows)


def load(path):
    with open(path, "rb") as file:
        return pickle.load(file)


def read(name):
    path = os.path.join("cache", name)
    {looks}


print(read("train"), read("valid"))
{more}
"""
DUMP = 'with open(path, "wb") as out:\n        pickle.dump(rows, out)'
PIECES = 'with open(path, "wb") as file:\n        for row in rows:\n            file.write(row)'
OTHERWISE = """\
if os.path.exists(path):
        rows = load(path)
    else:
        rows = make(name)
        save(path, rows)
    return rows"""
MISSING = """\
if not os.path.isfile(path):
        rows = make(name)
        store(path, rows)
    else:
        rows = load(path)
    return rows"""
RETURNS = """\
if os.path.exists(path):
        return load(path)
    rows = make(name)
    save(path, rows)
    return rows"""
BEHIND = """\
if not os.path.exists(path):
        save(path, make(name))
    return load(path)"""
ALWAYS = "rows = make(name)\n    save(path, rows)\n    return rows"
ATOMIC = 'write_on_main(path, "wb", lambda file: pickle.dump(rows, file))'


def script(looks: str, write: str = DUMP, more: str = "") -> str:
    return SCRIPT.format(looks=looks, write=write, more=more)


def told(code: str, text: str) -> list[bool]:
    """Whether each finding of a rule about the file has edits."""
    return [bool(each.edits) for each in found(code, text) if each.at.lineno < 13]


@pytest.mark.parametrize("looks", [OTHERWISE, MISSING, RETURNS], ids=["else", "missing", "returns"])
@pytest.mark.parametrize("more", ["", 'save("losses.pkl", losses)'], ids=["", "a result, too"])
def test_rank_0_writes_a_cache_whole_that_others_look_for(looks: str, more: str) -> None:
    after = fixed("DF406", script(looks, more=more))
    assert f"def save(path, rows):\n    {ATOMIC}\n" in after
    assert found("DF406", after) == []
    assert told("DF602", after) == []


@pytest.mark.parametrize(
    ("looks", "write", "more"),
    [
        pytest.param(OTHERWISE, PIECES, "", id="in pieces"),
        pytest.param(RETURNS, PIECES, "", id="in pieces, behind a return"),
        pytest.param(BEHIND, DUMP, "", id="read behind by all"),
    ],
)
def test_a_cache_that_cannot_be_written_whole_is_only_told(
    looks: str, write: str, more: str
) -> None:
    text = script(looks, write, more)
    assert told("DF406", text) == []
    assert told("DF602", text) == [False]


def test_rank_0_comes_first_to_a_cache_that_another_function_writes_in_pieces() -> None:
    text = script(MISSING, PIECES)
    assert told("DF406", text) == told("DF602", text) == []
    (finding,) = found("DF608", text)
    assert finding.because == "store() is called on every rank that does not find the file"
    assert finding.edits


def test_a_file_that_is_read_behind_elsewhere_is_only_told() -> None:
    more = 'save("labels.pkl", labels)\nprint(load("labels.pkl"))'
    assert told("DF406", script(OTHERWISE, more=more)) == [False]


def test_a_result_is_no_cache() -> None:
    text = script(ALWAYS)
    assert told("DF406", text) == []
    assert told("DF602", text) == [True]


OBJECT = """\
import os
import pickle
import torch

torch.distributed.init_process_group("gloo")


class Rows:
    def __init__(self, name):
        self.path = name + ".pkl"
        if {test}:
            with open(self.path, "rb") as file:
                self.rows = pickle.load(file)
        else:
            self.rows = self.make()
{more}
    def make(self):
        rows = [1]
        with open(self.path, "wb") as out:
            pickle.dump(rows, out)
        return rows


rows = Rows("train")
"""


@pytest.mark.parametrize(
    ("test", "more", "is_told"),
    [
        ("os.path.exists(self.path)", "", True),
        ("is_there_or_exists(self.path)", "", True),
        ("name", "", False),
        ("os.path.exists(self.path)", "        print(open(self.path))\n", False),
    ],
)
def test_a_cache_that_a_method_writes_where_another_looks_for_it(
    test: str, more: str, is_told: bool
) -> None:
    text = OBJECT.format(test=test, more=more)
    assert bool(found("DF406", text)) is is_told
    after = fixed("DF406", text)
    assert ('write_on_main(self.path, "wb", lambda file: pickle.dump(rows, file))' in after) is (
        is_told
    )


COMPOSED = """\
import os
import pickle
import torch

torch.distributed.init_process_group("gloo")


def convert(rows, kind):
    with open({written}, "wb") as out:
        pickle.dump(rows, out)
    return rows


def main(rows):
    cache = "data/features_cache.train.pkl"
    if {looks}:
        rows = pickle.load(open(cache, "rb"))
    else:
        rows = convert(rows, "train")


main([1])
"""


@pytest.mark.parametrize(
    ("written", "looks", "is_told"),
    [
        ('f"data/features_cache.{kind}.pkl"', "os.path.exists(cache)", True),
        ('"data/features_cache.train.pkl"', "os.path.isfile(cache)", True),
        ('"data/features_cache.%s.pkl" % kind', "os.path.exists(cache)", True),
        ('f"data/scores.{kind}.pkl"', "os.path.exists(cache)", False),
        ('f"{kind}.pkl"', "os.path.exists(cache)", False),  # whatever that is
        ('f"data/features_cache.{kind}.pkl"', "rows is None", False),
    ],
)
def test_a_cache_whose_name_its_writer_puts_together(
    written: str, looks: str, is_told: bool
) -> None:
    text = COMPOSED.format(written=written, looks=looks)
    assert bool(found("DF406", text)) is is_told
    assert (f"write_on_main({written}, " in fixed("DF406", text)) is is_told


RESUMED = """\
import os
import pickle
import torch

torch.distributed.init_process_group("gloo")


def keep(state, epoch):
    with open(f"out/recipe_state.{epoch}.pkl", "wb") as out:
        pickle.dump(state, out)


def main(state):
    if os.path.exists("out/recipe_state.3.pkl"):
        state = pickle.load(open("out/recipe_state.3.pkl", "rb"))
    for epoch in range(9):
        keep(state, epoch)


main([1])
"""


def test_a_checkpoint_that_a_run_looks_for_at_its_start_is_no_cache() -> None:
    """What is written at the end of an epoch is not what the test found missing."""
    assert found("DF406", RESUMED) == []


MADE = """
import os
import pickle
import torch

torch.distributed.init_process_group("gloo")


class Rows:
    def __init__(self, folder, path):
        self.folder, self.size = folder, 4
        self.path = path

    def make(self):
        rows = list(range(self.size))
        with open(self.path, "wb") as out:
            pickle.dump(rows, out)
        return rows


def read(args):
    if not os.path.isfile(args.cache):
        made = Rows(args.folder, {path})
        rows = made.make()
    else:
        with open(args.cache, "rb") as file:
            rows = pickle.load(file)
    return rows


read(args)
"""


@pytest.mark.parametrize(("path", "is_told"), [("args.cache", True), ("args.other", False)])
def test_a_cache_of_an_object_that_is_made_with_its_path(path: str, is_told: bool) -> None:
    text = MADE.format(path=path)
    assert len(found("DF406", text)) == is_told
    assert ("write_on_main(self.path" in fixed("DF406", text)) is is_told
