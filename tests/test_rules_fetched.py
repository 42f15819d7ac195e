"""DF608: files that every rank fetches where it does not find them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import changes, fixed, found
from ddpfix.patcher.engine.patch import patch

GROUP = """\
import os
import h5py
import lmdb
import tarfile
import urllib.request
import torch
torch.distributed.init_process_group('gloo')
"""
FETCH = """\
if not os.path.exists('data'):
    urllib.request.urlretrieve(url, 'data.tgz')
    tarfile.open('data.tgz').extractall()
"""
FILL = """\
if not os.path.exists('rows.h5'):
    with h5py.File('rows.h5', 'w') as rows:
        fill(rows)
"""
FILL_LMDB = """\
if not os.path.exists('rows'):
    with lmdb.open('rows', map_size=9) as rows:
        fill(rows)
"""
CUT = """\
if not os.path.isdir('parts'):
    os.makedirs('parts', exist_ok=True)
    for number, part in enumerate(parts):
        torch.save(part, f'parts/{number}.pt')
"""
FUNCTION = "def fetch(path):\n" + textwrap.indent(FETCH, "    ") + "    return path\n"
EARLY = """\
def fetch(path):
    if os.path.isfile(path):
        return path
    os.system(f"wget -O {path} {url}")
    return path
"""


def first(stmt: str) -> str:
    """The lines that a patch adds around a statement."""
    return f"""\
+if torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
+    torch.distributed.barrier()  # rank 0 comes first
 {stmt}
"""


GO_ON = """\
+if torch.distributed.is_initialized() and torch.distributed.get_rank() == 0:
+    torch.distributed.barrier()
"""


@pytest.mark.parametrize(
    ("text", "stmt", "margin"),
    [
        (FETCH, "if not os.path.exists('data'):", ""),
        (FILL, "if not os.path.exists('rows.h5'):", ""),
        (FILL_LMDB, "if not os.path.exists('rows'):", ""),
        (CUT, "if not os.path.isdir('parts'):", ""),
        (f"{FUNCTION}data = fetch('data')\n", "if not os.path.exists('data'):", "    "),
        (f"{EARLY}data = fetch('data')\n", "data = fetch('data')", ""),
        (f"{EARLY}def load():\n    return fetch('data')\nload()\n", "return fetch('data')", ""),
    ],
    ids=["inline", "filled", "lmdb", "cut", "in a function", "early return", "returned"],
)
def test_rank_0_looks_for_it_first(text: str, stmt: str, margin: str) -> None:
    new = fixed("DF608", GROUP + text)
    if stmt.startswith("return"):
        stmt = "load()"  # a return would leave the function before rank 0 lets the others go
    diff = changes(GROUP + text, new).replace("\n+" + margin, "\n+").replace("\n " + margin, "\n ")
    assert first(stmt) in diff
    assert GO_ON in diff
    assert found("DF608", new) == []


@pytest.mark.parametrize(
    "text",
    [
        GROUP.replace("torch.distributed.init_process_group('gloo')\n", "")
        + FETCH
        + "torch.distributed.init_process_group('gloo')\n",
        GROUP + "try:\n" + textwrap.indent(FETCH, "    ") + "except OSError:\n    pass\n",
        GROUP + "for name in os.listdir('.'):\n" + textwrap.indent(FETCH, "    "),
        GROUP + FUNCTION + "if missing():\n    fetch('data')\n",
        GROUP + FUNCTION + "paths = [fetch(each) for each in os.listdir('.')]\n",
        GROUP + FETCH + "    torch.distributed.barrier()\n",
        GROUP + FUNCTION + "def load():\n    if os.path.exists('rows'):\n        return 0\n"
        "    return fetch('data')\ntry:\n    load()\nfinally:\n    pass\n",
    ],
    ids=[
        "before the group",
        "in try",
        "in a loop",
        "asked otherwise",
        "listed",
        "a barrier in it",
        "left before",
    ],
)
def test_where_ranks_may_not_meet_it_is_reported_only(text: str) -> None:
    findings = found("DF608", text)
    assert {finding.edits for finding in findings} == {()}
    assert "is called on every rank that does not find the file" in findings[0].because


@pytest.mark.parametrize(
    "text",
    [
        GROUP.replace("torch.distributed.init_process_group('gloo')\n", "") + FETCH,
        GROUP + "if torch.distributed.get_rank() == 0:\n" + textwrap.indent(FETCH, "    "),
        GROUP + FUNCTION,
        GROUP + FILL.replace("'w'", "'r'"),
        GROUP + "if not os.path.exists('data'):\n    os.makedirs('data', exist_ok=True)\n",
        GROUP
        + "import tempfile\n"
        + CUT.replace("os.makedirs('parts', exist_ok=True)", "made = tempfile.mkdtemp()").replace(
            "f'parts/", "made + f'/"
        )
        + "    os.replace(made, 'parts')\n",
    ],
    ids=[
        "no group",
        "rank 0 alone",
        "never called",
        "another file is read",
        "a folder",
        "a folder that appears at once",
    ],
)
def test_what_one_rank_fetches_is_left_alone(text: str) -> None:
    assert found("DF608", text) == []


SCRIPT = """\
import os
import tarfile
import urllib.request

import torch


def fetch(folder):
    if not os.path.exists(folder):
        data = urllib.request.urlopen("http://localhost/data.tgz")
        with open("data.tgz", "wb") as file:
            file.write(data.read())
        tarfile.open("data.tgz").extractall(folder)
        os.remove("data.tgz")
    return folder


rows = torch.load(os.path.join(fetch("data"), "rows.pt"))
model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in torch.utils.data.DataLoader(rows, batch_size=2):
    model(batch).mean().backward()
    optimizer.step()
"""


def test_a_script_that_fetches_its_data_is_patched(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    assert "            file.write(data.read())\n" in change.text
    assert "        os.remove(" in change.text  # rank 0 alone comes to it
    assert "# rank 0 comes first\n    if not os.path.exists(folder):" in change.text


KEPT = """\
import json, os, torch

def is_main_process():
    return torch.distributed.get_rank() == 0

class Words:
    def __init__(self, folder, anew):
        self.folder = folder
        if anew:
            self.create()
        elif not os.path.exists(os.path.join(self.folder, "words.json")):
            self.create()
        else:
            self.read()

    def create(self):
        if is_main_process():
            with open(os.path.join(self.folder, "words.json"), "w") as file:
                file.write(json.dumps(count(self.folder)))
        {then}

    def read(self):
        with open(os.path.join(self.folder, "words.json")) as file:
            self.words = json.load(file)

torch.distributed.init_process_group("gloo")
words = Words("data", False)
"""


@pytest.mark.parametrize(("then", "waits"), [("self.read()", True), ("self.words = {}", False)])
def test_what_a_method_reads_back_is_written_by_rank_0_first(then: str, waits: bool) -> None:
    text = KEPT.format(then=then)
    assert bool(found("DF604", text)) is waits
    after = fixed("DF608", text)
    assert after.count("torch.distributed.barrier()") == 2 * waits
    if waits:
        assert (
            after.index("!= 0:") < after.index("if anew:") < after.index("get_rank() == 0:\n ", 300)
        )
    assert [*found("DF604", after), *found("DF608", after)] == []
