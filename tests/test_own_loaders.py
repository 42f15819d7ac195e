"""A class of the program called DataLoader is torch's if its constructor leaves torch's options."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import torch
{own}
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
loader = DataLoader(path, tokenizer, args, batch_size=4)
for epoch in range(3):
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""
OWN = {
    "plain": "class DataLoader:\n    def __init__(self, path, tokenizer, args, batch_size): pass",
    "derived": "class DataLoader(torch.utils.data.DataLoader):\n"
    "    def __init__(self, path, tokenizer, args, batch_size): pass",
    "options kept": "class DataLoader(torch.utils.data.DataLoader):\n"
    "    def __init__(self, dataset, batch_size, **options): super().__init__(dataset, batch_size)",
    "another order": "class DataLoader(torch.utils.data.DataLoader):\n"
    "    def __init__(self, path, dataset, **rest): super().__init__(dataset, **rest)",
    "of a graph": "from dgl.dataloading import DataLoader",
    "function": "def DataLoader(path, tokenizer, args, batch_size): pass",
}
TORCHS = {
    "import": "from torch.utils.data import DataLoader",
    "star": "from torch.utils.data import *",
    "no constructor": "class DataLoader(torch.utils.data.DataLoader):\n"
    "    def describe(self): pass",
    "options handed on": "class DataLoader(torch.utils.data.DataLoader):\n"
    "    def __init__(self, dataset, batch_size=1, shuffle=False, size=2, **rest):\n"
    "        super().__init__(dataset, batch_size, shuffle, collate_fn=Collate(size), **rest)",
}


@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_its_arguments_are_left_alone(own: str) -> None:
    text = SCRIPT.format(own=own)
    assert "DataLoader(path, tokenizer, args, batch_size=4)\n" in fixed("DF401", text)
    assert found("DF401", text)


@pytest.mark.parametrize("own", TORCHS.values(), ids=TORCHS)
def test_that_of_torch_is_dealt(own: str) -> None:
    text = SCRIPT.format(own=own).replace("tokenizer, args, batch_size=4", "batch_size=4")
    assert "sampler=None if not torch.distributed.is_initialized() else Dist" in fixed(
        "DF401", text
    )


OTHER_NAME = """
class Masking(torch.utils.data.DataLoader):
    def __init__(self, dataset, batch_size=1, shuffle=True, **rest):
        super().__init__(dataset, batch_size, shuffle, collate_fn=mask, **rest)
"""


def test_one_by_another_name_is_dealt_where_its_order_is_told() -> None:
    text = SCRIPT.format(own=OTHER_NAME).replace(
        "DataLoader(path, tokenizer, args,", "Masking(path,"
    )
    told = text.replace("batch_size=4", "batch_size=4, shuffle=True")
    assert "shuffle=not torch.distributed.is_initialized(), sampler=None if" in fixed("DF401", told)
    assert "loader = Masking(path, batch_size=4)\n" in fixed("DF401", text)


GRAPH = """\
import torch, dgl
from dgl.dataloading import DataLoader, NeighborSampler
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
nodes = {nodes}
loader = DataLoader(graph, nodes, NeighborSampler([5, 5]), shuffle=True, drop_last=False{told})
for epoch in range(3):
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ("range(9)", ", use_ddp=True"),
        ("dgl.distributed.node_split(mask)", ""),
        ("dgl.graphbolt.DistributedItemSampler(graph)", ""),
    ],
)
def test_a_loader_of_a_graph_deals_where_it_is_told(nodes: str, told: str) -> None:
    assert found("DF401", GRAPH.format(nodes=nodes, told=told)) == []


@pytest.mark.parametrize("told", ["", ", use_ddp=False"])
def test_a_loader_of_a_graph_that_is_not_told_is_named_and_left(told: str) -> None:
    (finding,) = found("DF401", GRAPH.format(nodes="range(9)", told=told))
    assert not finding.edits
