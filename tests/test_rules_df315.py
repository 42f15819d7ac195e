"""DF315: A checkpoint has the wrapper's keys, and a bare model loads it."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import torch


def main(args):
    if args.local_rank != -1:
        torch.distributed.init_process_group("gloo")
    model = Net()
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    path = "best.pt"
    if args.local_rank in (-1, 0):
        torch.save({saved}, {to})
    best = {made}
    {load}
"""
PARTS = {
    "saved": "model.state_dict()",
    "to": '"best.pt"',
    "made": "Net()",
    "load": 'best.load_state_dict(torch.load("best.pt"))',
}


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


BARE = "getattr(model, 'module', model).state_dict()"
FIX: dict[str, tuple[dict[str, str], str]] = {
    "a state": ({}, BARE),
    "a path with a name": ({"to": "path"}, BARE),
    "a state in a name": (
        {"load": 'state = torch.load("best.pt")\n    best.load_state_dict(state)'},
        BARE,
    ),
    "a state among others": (
        {
            "saved": '{"net": model.state_dict(), "epoch": 3}',
            "load": 'best.load_state_dict(torch.load(path)["net"])',
        },
        f'{{"net": {BARE}, "epoch": 3}}',
    ),
}


@pytest.mark.parametrize(("parts", "saved"), FIX.values(), ids=FIX)
def test_the_state_of_the_model_itself_is_saved(parts: dict[str, str], saved: str) -> None:
    after = script(**{**parts, "saved": saved})
    assert fixed("DF315", script(**parts)) == after
    assert not found("DF315", after)


def test_a_lone_process_with_dataparallel_saves_what_it_saved() -> None:
    text = fixed("DF315", script(load="other = torch.nn.DataParallel(Net())\n    " + PARTS["load"]))
    group = "torch.distributed.is_initialized()"
    assert f"(getattr(model, 'module', model) if {group} else model).state_dict()" in text


NOOP = {
    "loaded by nobody": script(load="pass"),
    "another file": script(load='best.load_state_dict(torch.load("last.pt"))'),
    "a file of each rank": script(to='f"{args.local_rank}.pt"'),
    "another key": script(
        saved='{"net": model.state_dict()}', load='best.load_state_dict(torch.load(path)["old"])'
    ),
    "into a wrapper": script(made="torch.nn.parallel.DistributedDataParallel(Net())"),
    "into DataParallel": script(made="torch.nn.DataParallel(Net())"),
    "into a bare model and a wrapper": script(
        load=PARTS["load"] + '\n    model.load_state_dict(torch.load("best.pt"))'
    ),
    "keys that are mended": script(
        load='state = {k.replace("module.", ""): v for k, v in torch.load(path).items()}\n'
        "    best.load_state_dict(state)"
    ),
    "the state of the module": script(saved="model.module.state_dict()"),
}


@pytest.mark.parametrize("text", NOOP.values(), ids=NOOP)
def test_nothing_is_found(text: str) -> None:
    assert not found("DF315", text)


@pytest.mark.parametrize("gate", ["args.local_rank in (-1, 0)", "is_main_process()"])
def test_a_gate_of_rank_0_is_no_test_of_the_wrapper(gate: str) -> None:
    text = script(load='model.load_state_dict(torch.load("best.pt"))') + (
        "    for batch in args.data:\n        model(batch).backward()\n"
    )
    text = text.replace("args.local_rank in (-1, 0)", gate)
    assert not found("DF305", text)  # the keys fit: both are the wrapper's


BY_OPTION = """\
import torch
def save(net, path, opt):
    if {asked}:
        torch.save({first}, path)
    else:
        torch.save(net.state_dict(), path)
def main(opt):
    if torch.distributed.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(Net())
    elif opt.several == True:
        model = torch.nn.DataParallel(Net())
    else:
        model = Net()
    save(model, "last.pt", opt)
torch.distributed.init_process_group("gloo")
main(parse())
"""
PLAIN = {"asked": "opt.several == True", "first": "net.module.state_dict()"}


@pytest.mark.parametrize(
    ("parts", "is_told"),
    [
        ({}, True),
        ({"asked": "opt.other"}, False),
        ({"asked": "hasattr(net, 'module')"}, False),
        ({"first": "net.state_dict()"}, False),
    ],
)
def test_what_an_option_of_a_lone_wrapper_saves_bare_is_bare_on_ranks(
    parts: dict[str, str], is_told: bool
) -> None:
    text = BY_OPTION.format(**{**PLAIN, **parts})
    assert bool(found("DF315", text)) is is_told
    bare = "(getattr(net, 'module', net) if torch.distributed.is_initialized() else net)"
    assert (f"torch.save({bare}.state_dict(), path)" in fixed("DF315", text)) is is_told
    assert not found("DF315", fixed("DF315", text))
