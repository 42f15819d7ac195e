"""DF516: Something is made of the first batch, and each rank has a batch of its own."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def main(args):
    torch.distributed.init_process_group("gloo")
    loader = DataLoader(data, 8, sampler=DistributedSampler(data))
    test_loader = DataLoader(others, 8)
    net = torch.nn.parallel.DistributedDataParallel(Net())
    {ahead}
    for epoch in range(9):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            net({put}).mean().backward()
            optimizer.step()

main(parse())
"""
NEXT = "x, _ = next(iter(loader))"


def script(*ahead: str, put: str = "x") -> str:
    return SCRIPT.format(ahead="\n    ".join(ahead), put=put)


NOOP = [
    ("a shape", script(NEXT, "net = Net(x.size(1), x.shape[0], len(x))")),
    ("a forward pass that makes lazy layers", script(NEXT, "net(x.to(device))")),
    ("a picture of the inputs", script(NEXT, "writer.add_images('inputs', x / x.max())")),
    ("a statistic that is printed", script(NEXT, "mean = x.mean()", "print('mean', mean)")),
    ("a batch of other data", script("x, _ = next(iter(test_loader))", "mean = x.mean(0)")),
    (
        "a statistic that ranks have agreed on",
        script(NEXT, "mean = x.mean(0)", "torch.distributed.all_reduce(mean)", put="x - mean"),
    ),
    ("a loop that is left later", script("for x, y in loader:", "    if done(x): break")),
]


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_what_is_left_alone(text: str) -> None:
    assert [each.because for each in found("DF516", text)] == []


FIX = {
    "x, _ = what_rank_0_has(next(iter(loader)))": (NEXT, "mean = x.mean(0)"),
    "mean = what_rank_0_has(next(iter(loader)))[0].mean(0)": (
        "mean = next(iter(loader))[0].mean(0)",
    ),
    "x, _ = what_rank_0_has(next(iter(loader)))  # two": (
        f"{NEXT}  # two",
        "scale.mean, scale.std = x.mean(0), x.std(0); mean = 0",
    ),
    "x, y = what_rank_0_has((x, y))": (
        "for x, y in loader:",
        "    scaler.fit(x.numpy()); mean = scaler.mean_",
        "    break",
    ),
    "x, _ = what_rank_0_has(next(iter(loader)))  # flow": (
        f"{NEXT}  # flow",
        "net.module.data_dependent_init(x.cuda()); mean = 0",
    ),
}


@pytest.mark.parametrize(("line", "ahead"), FIX.items())
def test_all_ranks_take_the_first_batch_of_rank_0(line: str, ahead: tuple[str, ...]) -> None:
    text = script(*ahead, put="x - mean")
    after = fixed("DF516", text)
    assert f"    {line}\n" in after
    assert found("DF516", after) == []


def test_where_a_rank_may_not_come_to_it_nothing_is_changed() -> None:
    ahead = ("if not exists(path):", f"    {NEXT}", "    net.module.initialize(x)")
    (told,) = found("DF516", script(*ahead))
    assert not told.edits
    assert "net.module.initialize(x) is of this rank's first batch" in told.because


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "x, _ = next(iter(batches))\n    return x.mean(0), x.std(0)",
            "x, _ = what_rank_0_has(next(iter(batches)))",
        ),
        (
            "return next(iter(batches))[0].mean(0)",
            "return what_rank_0_has(next(iter(batches)))[0].mean(0)",
        ),
        ("return next(iter(batches))[0].shape", ""),
    ],
)
def test_so_does_a_function_that_gives_a_statistic_back(body: str, line: str) -> None:
    text = script("mean = statistics(loader)", put="x - mean")
    text = text.replace("\ndef main", f"\ndef statistics(batches):\n    {body}\n\ndef main")
    assert len(found("DF516", text)) == bool(line)
    assert line in fixed("DF516", text)
