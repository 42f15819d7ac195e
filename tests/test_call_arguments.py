"""Arguments passed by keyword are found as those passed by position are."""

from __future__ import annotations

import ast
import re

import pytest
from cases import fixed, found
from ddpfix.patcher.source.tree import argument, argument_values, only_argument

GROUP = "import torch\ntorch.distributed.init_process_group('gloo')\n"

# Code of a rule, a script, and the same one with arguments by keyword.
SAME = [
    ("DF602", GROUP + "with open('log.txt', 'w') as f:\n    f.write('x')\n",
        GROUP + "with open(file='log.txt', mode='w') as f:\n    f.write('x')\n"),
    ("DF602", GROUP + "import json\nresult = json.dump({}, open('a', 'w'))\n",
        GROUP + "import json\nresult = json.dump({}, fp=open(mode='w', file='a'))\n"),
    ("DF602", GROUP + "import logging\nhandler = logging.FileHandler('a.log')\n",
        GROUP + "import logging\nhandler = logging.FileHandler(filename='a.log')\n"),
    ("DF604", GROUP + "state = torch.load(path)\n", GROUP + "state = torch.load(f=path)\n"),
    ("DF604", GROUP + "state = torch.load(path, 'cpu')\n",
        GROUP + "state = torch.load(f=path, map_location='cpu')\n"),
    ("DF601", GROUP + "torch.save(model.state_dict(), path)\n",
        GROUP + "torch.save(obj=model.state_dict(), f=path)\n"),
    ("DF202", "import torch\ntorch.distributed.init_process_group('nccl')\n",
        "import torch\ntorch.distributed.init_process_group(backend='nccl')\n"),
    ("DF202", "import torch\ntorch.distributed.init_process_group('nccl', timeout=t)\n"
        "model = torch.nn.parallel.DistributedDataParallel(net, [rank], rank)\n",
        "import torch\ntorch.distributed.init_process_group('nccl', timeout=t)\n"
        "model = torch.nn.parallel.DistributedDataParallel("
        "net, device_ids=[rank], output_device=rank)\n"),
    ("DF606", "import os\nweights = os.path.join(folder, 'pytorch_model.bin')\n"
        "model = Model.from_pretrained(weights)\n",
        "import os\nweights = os.path.join(folder, 'pytorch_model.bin')\n"
        "model = Model.from_pretrained(pretrained_model_name_or_path=weights)\n"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "by_position", "by_keyword"), SAME)
def test_finds_the_same(code: str, by_position: str, by_keyword: str) -> None:
    lines = [[f.line for f in found(code, text)] for text in (by_position, by_keyword)]
    assert lines[0] == lines[1]
    edited = [bool(f.edits) for f in found(code, by_position)]
    assert edited == [bool(f.edits) for f in found(code, by_keyword)]
    ast.parse(fixed(code, by_keyword))


def test_a_save_by_keyword_is_made_whole() -> None:
    text = fixed("DF601", GROUP + "torch.save(f=path, obj=state)\n")
    assert re.search(r"^save_on_main\(path=path, obj=state\)$", text, re.MULTILINE)


def test_a_file_opened_by_keyword_is_left_to_rank_0() -> None:
    text = fixed("DF602", GROUP + "log = open(file='log.txt', mode='w')\n")
    assert "open(file='log.txt' if is_main_process() else os.devnull, mode='w')" in text


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        ("net, [rank], rank", "net, [rank]{}"),
        ("net, [rank], rank, 0", "net, [rank]{}, None, 0"),
        ("net, [rank], output_device=rank, dim=0", "net, [rank]{}, dim=0"),
        ("net, output_device=rank, device_ids=[rank]", "net, device_ids=[rank]{}"),
    ],
)
def test_the_card_of_ddp_depends_on_the_machine(arguments: str, after: str) -> None:
    head = GROUP.replace("'gloo'", "'gloo', timeout=t")
    text = fixed("DF202", f"{head}net = torch.nn.parallel.DistributedDataParallel({arguments})\n")
    line = next(each for each in text.split("\n") if "DistributedDataParallel" in each)
    after = after.format(" if torch.cuda.is_available() else None")
    assert line == f"net = torch.nn.parallel.DistributedDataParallel({after})"


def test_a_dump_by_keyword_is_left_to_rank_0() -> None:
    text = fixed(
        "DF406",
        GROUP + "import os, pickle\nif os.path.exists(path):\n"
        "    data = pickle.load(open(path, 'rb'))\nelse:\n"
        "    pickle.dump(obj=data, file=open(path, 'wb'), protocol=4)\n",
    )
    call = "pickle.dump(obj=data, file=file, protocol=4)"
    assert f"    write_on_main(path, 'wb', lambda file: {call})\n" in text


def call(text: str) -> ast.Call:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    return node


ARGUMENTS = [
    ("f(a, b)", 1, ("second",), "b"),
    ("f(second=b)", 1, ("second",), "b"),
    ("f(other=b)", 0, ("one", "other"), "b"),
    ("f(a)", 1, ("second",), None),
    ("f(*a, b)", 1, ("second",), None),
    ("f(a, *b)", 0, ("first",), "a"),
    ("f(**a)", 0, ("first",), None),
]


@pytest.mark.parametrize(("text", "index", "names", "value"), ARGUMENTS)
def test_argument(text: str, index: int, names: tuple[str, ...], value: str | None) -> None:
    node = argument(call(text), index, *names)
    assert (node and ast.unparse(node)) == value


def test_all_arguments_of_a_call() -> None:
    assert [ast.unparse(value) for value in argument_values(call("f(a, b=c)"))] == ["a", "c"]
    assert only_argument(call("f(a, b=c)"), "b") is None
    assert ast.unparse(only_argument(call("f(b=c)"), "b") or ast.Pass()) == "c"
