"""DF208: No rank takes a card of its own."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

SCRIPT = """
import os
import torch
import torch.distributed as dist
{above}
if args.world_size > 1:
    dist.init_process_group(backend="nccl")
{inside}
model = torch.nn.parallel.DistributedDataParallel({model})
for x in loader:
    model(x).mean().backward()
    optimizer.step()
"""
CARD = """\
    if 'LOCAL_RANK' in os.environ and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"""


def script(above: str = "pass", inside: str = "", model: str = "net.cuda()") -> str:
    return SCRIPT.format(above=above, inside=inside, model=model).replace("\n\n", "\n")


OPTION = "parser.add_argument('--gpu', type=int"
CHOICE = "net.cuda() if args.gpu is None else net.cuda(args.gpu)"


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("a card is set", script(inside="    torch.cuda.set_device(dist.get_rank())")),
    ("a card is visible", script("os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']")),
    ("a card by its number", script(model="net.cuda(args.gpu)")),
    ("a device with a number", script("card = torch.device('cuda', rank)", model="net.to(card)")),
    ("a text with a number", script("card = f'cuda:{rank}'", model="net.to(card)")),
    ("no card at all", script(model="net")),
    ("the kind of device of an autocast", script("scaler = torch.amp.GradScaler('cuda')",
        "    scaler = torch.amp.GradScaler(device='cpu')", model="net")),
    ("a test for the kind of device", script("kind = 'cuda'", "    at = device.type == 'cuda'",
        model="net")),
    ("a device with a number, beside one without",
        script("device = torch.device('cuda'); card = torch.device('cuda', rank)",
            model="net.to(card)")),
    ("a card's number, which is set", script("torch.cuda.set_device(args.local_rank)",
        model="net.cuda(args.local_rank), device_ids=[args.local_rank]")),
    ("a card's number that is another than the rank's",
        script(model="net.cuda(args.gpu), device_ids=[args.gpu]")),
    ("an option that is a card's number", script(f"{OPTION}, default=0)", model=CHOICE)),
    ("an option that is set for each rank",
        script(f"{OPTION})\nargs.gpu = rank % 8", model=CHOICE)),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    ("the card of the process", script(), script(inside=CARD)),
    (
        "a device of no number",
        script("device = torch.device('cuda')", model="net.to(device)"),
        script("device = torch.device('cuda')", inside=CARD, model="net.to(device)"),
    ),
    (
        "one of two devices",
        script("device = 'cuda' if has else 'cpu'", model="net.to(device)"),
        script("device = 'cuda' if has else 'cpu'", inside=CARD, model="net.to(device)"),
    ),
    (
        "a move to a text",
        script(model="net.to('cuda')"),
        script(inside=CARD, model="net.to('cuda')"),
    ),
    (
        "an option that is no card unless it is given",
        script(f"{OPTION}, default=None)", model=CHOICE),
        script(f"{OPTION}, default=None)", inside=CARD, model=CHOICE),
    ),
    (
        "a card's number, and objects still go to card 0",
        script(model="net.cuda(args.local_rank), device_ids=[args.local_rank]"),
        script(inside=CARD, model="net.cuda(args.local_rank), device_ids=[args.local_rank]"),
    ),
]


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF208 leaves alone"
    assert FIX, "write down a script that DF208 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF208", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF208", before)
    assert fixed("DF208", before) == textwrap.dedent(after).lstrip("\n")
    assert found("DF208", after) == []


def test_what_was_moved_before_is_reported() -> None:
    (finding,) = found("DF208", script("net = net.cuda()"))
    assert not finding.edits


def test_what_was_moved_to_a_device_before_is_reported() -> None:
    above = "device = torch.device('cuda'); net = net.to(device)"
    (finding,) = found("DF208", script(above, model="net"))
    assert not finding.edits
    assert "'cuda' is on card 0 of all ranks of a machine" in finding.because
