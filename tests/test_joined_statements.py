"""Edits of statements that share a line with others, and of nodes in another module."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.editing.apply import apply_edits
from ddpfix.patcher.editing.edits import Edit, Guard, Import, Insert, Replace, Unwrap
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.engine.rounds import apply_round
from ddpfix.patcher.findings import Finding
from ddpfix.patcher.source.files import Source
from ddpfix.patcher.source.module import Module

JOINED = [
    ("a(); b(); c()  # why\n", lambda s: Insert(s[1], "x()"), "a()\nx()\nb()\nc()  # why\n"),
    ("# above\na(); b()\n", lambda s: Insert(s[0], "x()", "after"), "# above\na()\nx()\nb()\n"),
    ("a(); b()\n", lambda s: Guard(s[1], "rank == 0"), "a()\nif rank == 0:\n    b()\n"),
    ("a(); b(); c()\n", lambda s: Replace(s[1], ""), "a()\nc()\n"),
    ("if t: a(); b()\n", lambda s: Insert(s[0].body[1], "x()"),
        "if t:\n    a()\n    x()\n    b()\n"),
    ("if t: a()\n", lambda s: Insert(s[0], "x()", "first"), "if t:\n    x()\n    a()\n"),
    ("if t: a()\n", lambda s: Replace(s[0].body[0], ""), "if t:\n    pass\n"),
    ("'x'; a()\n'y'\nb()\n'z'\n", lambda s: Replace(s[2], ""), "'x'; a()\n'y'\n'z'\n"),
    ("if t:\n    'x'\n    a()\n", lambda s: Replace(s[0].body[0], ""), "if t:\n    'x'\n"),
    ("if t:\n    'x'\n    'y'\n", lambda s: Insert(s[0].body[0], "a()", "after"),
        "if t:\n    'x'\n    a()\n    'y'\n"),
    ("if t: a(); b()\n", lambda s: Unwrap(s[0]), "a()\nb()\n"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "edit", "after"), JOINED)
def test_a_statement_gets_a_line_of_its_own(text: str, edit: object, after: str) -> None:
    parsed = module(text)
    assert callable(edit)
    assert apply_edits(parsed, [edit(parsed.tree.body)]) == after


def test_an_edit_goes_to_the_module_of_its_node(tmp_path: Path) -> None:
    def read(name: str, text: str) -> Module:
        return Module(Source(str(tmp_path / name), text, "utf-8", False))

    script = read("run.py", "import helpers\nargs = 1\nhelpers.work()\n")
    helpers = read("helpers.py", "def work():\n    pass\n    return 2\n")
    edits: tuple[Edit, ...] = (Insert(script.tree.body[1], "x = 1", "after"), Import("os"))
    texts: dict[str, str] = {}
    apply_round(
        Program(script, (helpers,)), [Finding(helpers, helpers.tree.body[0], "it", edits)], texts
    )
    assert list(texts) == [script.source.name]
    assert texts[script.source.name] == (
        "import helpers\nimport os\nargs = 1\nx = 1\nhelpers.work()\n"
    )


LOOP = """
import torch
from torch.utils.data import DataLoader
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
for epoch in range(3):
    for batch in DataLoader(data):
        loss, _ = model(batch){then}losses.append(loss.item())
        loss = loss.mean()
        loss.backward()
"""


def test_a_value_read_on_the_line_that_binds_it_is_seen() -> None:
    apart = found("DF706", LOOP.format(then="\n        "))
    joined = found("DF706", LOOP.format(then="; "))
    assert len(apart) == 1
    assert [finding.edits != () for finding in joined] == [True]


HEAD = """
import argparse, os, torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
"""
TRAIN = """
for epoch in range(3):
    for batch in DataLoader(data):
        loss = model(batch)
        loss.backward()
        optimizer.step()
"""
GROUP = f"""{HEAD}
args.device = torch.device("cuda"){{then}}args.n_gpu = torch.cuda.device_count()
model = torch.nn.DataParallel(net)
{TRAIN}"""
CARD = f"""{HEAD}
device = torch.device("cuda", args.local_rank){{then}}torch.cuda.set_device(device)
dist.init_process_group(backend="nccl")
{TRAIN}"""
TEST = f"""{HEAD}
dist.init_process_group("gloo"){{then}}is_first = args.local_rank == 0
{TRAIN}
if is_first:
    torch.save(model.state_dict(), "last.bin")
"""
WRITE = f"""{HEAD}
os.remove("old.bin"){{then}}dist.init_process_group("gloo")
{TRAIN}"""


@pytest.mark.parametrize(
    ("code", "text"), [("DF201", GROUP), ("DF202", CARD), ("DF104", TEST), ("DF607", WRITE)]
)
def test_what_comes_later_on_a_line_comes_later(code: str, text: str) -> None:
    apart, joined = text.format(then="\n"), text.format(then="; ")
    assert len(found(code, joined)) == len(found(code, apart))
    assert found(code, apart) or code == "DF607"
    assert fixed(code, joined).replace("; ", "\n") == fixed(code, apart)


TABS = """\
import torch
from torch.utils.data import DataLoader

loader = DataLoader(torch.randn(24, 2), batch_size=4, shuffle=True)
model = torch.nn.Linear(2, 1)
if torch.cuda.is_available():
    model = torch.nn.DataParallel(model)
    if torch.cuda.device_count() > 1:
\t    print("cards")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
"""


def test_tabs_among_spaces_are_named_where_they_cannot_be_edited(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TABS)
    assert compile(TABS, "train.py", "exec")
    assert patch(script).refusal.startswith(
        "not patched: line 9: it is indented by a tab, other lines by spaces, and libcst"
    )
    script.write_text(TABS.expandtabs())
    assert patch(script).refusal == ""
