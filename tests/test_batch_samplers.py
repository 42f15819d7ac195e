"""DF401: batches of a batch_sampler, which another sampler may deal by rank."""

from __future__ import annotations

import textwrap

import pytest
from cases import found
from ddpfix.patcher.findings import Severity

SCRIPT = """
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler
torch.distributed.init_process_group("nccl")
{made}
loader = DataLoader(data, batch_sampler=batches)
for x in loader:
    model(x).backward()
    optimizer.step()
"""
BRANCHES = """
if torch.distributed.is_initialized():
    sampler = DistributedSampler(data)
else:
    sampler = RandomSampler(data)
"""
FUNCTIONS = """
def samplers(data, shared):
    if shared:
        return DistributedSampler(data)
    return RandomSampler(data)
def in_batches(sampler, size):
    batches = BatchSampler(sampler, size, drop_last=True)
    return Endless(batches)
class Endless(BatchSampler):
    def __init__(self, batches):
        self.batches = batches
batches = in_batches(samplers(data, args.shared), 8)
"""
NAMED = """
def samplers(data, shared):
    sampler = None
    if shared:
        sampler = DistributedSampler(data)
    else:
        sampler = RandomSampler(data)
    return sampler
def in_batches(sampler, size):
    plain = BatchSampler(sampler, size, drop_last=True)
    endless = Endless(plain)
    return endless
class Endless(BatchSampler):
    def __init__(self, batches):
        self.batches = batches
first = samplers(data, args.shared)
sampler = first
made = in_batches(sampler, 8)
batches = made
"""
OWN = """
class OfClasses:
    def __init__(self, data):
        {first}
        self.data = data
batches = OfClasses(data)
"""


def severities(made: str) -> list[Severity]:
    text = SCRIPT.format(made=textwrap.dedent(made))
    return [finding.severity for finding in found("DF401", text)]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(BRANCHES + "batches = BatchSampler(sampler, 8, False)", id="two branches"),
        pytest.param(FUNCTIONS, id="by functions, in a class around it"),
        pytest.param(NAMED, id="by many names"),
        pytest.param(OWN.format(first="self.rank = get_rank()"), id="by a class that knows ranks"),
    ],
)
def test_a_sampler_behind_the_batches_deals_them(made: str) -> None:
    assert severities(made) == []


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("batches = BatchSampler(RandomSampler(data), 8, False)", id="at random"),
        pytest.param(OWN.format(first="pass"), id="by a class of the program"),
    ],
)
def test_batches_that_no_rank_tells_apart_are_an_error(made: str) -> None:
    assert severities(made) == [Severity.ERROR]


def test_a_sampler_that_is_not_read_is_a_warning() -> None:
    assert severities("from library import batches_of\nbatches = batches_of(data)") == [
        Severity.DEGRADED
    ]


def test_in_a_script_that_knew_no_ranks_it_is_an_error() -> None:
    text = SCRIPT.format(made="from library import batches_of\nbatches = batches_of(data)")
    ours = "if 'LOCAL_RANK' in os.environ:\n    torch.distributed.init_process_group()"
    (finding,) = found("DF401", text.replace('torch.distributed.init_process_group("nccl")', ours))
    assert finding.severity is Severity.ERROR
