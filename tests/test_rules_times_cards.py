"""DF205: a batch that is multiplied by the cards of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Severity

SCRIPT = """\
import argparse
import torch
from torch.utils.data import DataLoader

def main():
    args = argparse.ArgumentParser().parse_args()
    torch.distributed.init_process_group("gloo")
    {cards}
    model = torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids={ids})
    loader = DataLoader(torch.randn(8, 2), batch_size={size})
    for epoch in range(2):
        for batch in loader:
            model(batch).mean().backward()

main()
"""
LISTED = "gpus = [int(one) for one in args.gpus.split(',')]"


def script(cards: str = LISTED, ids: str = "gpus", size: str = "args.batch * len(gpus)") -> str:
    return SCRIPT.format(cards=cards, ids=ids, size=size)


@pytest.mark.parametrize("cards", [LISTED, "gpus = [0, 1]", "gpus = list(args.cards)"])
def test_the_list_is_cut_to_a_ranks_card_where_it_is_made(cards: str) -> None:
    cut = "    if torch.distributed.is_initialized():\n        gpus = gpus[:1]  # of this rank\n"
    new = fixed("DF205", script(cards))
    assert new == script(cards).replace(f"    {cards}\n", f"    {cards}\n{cut}")
    assert found("DF205", new) == []


def test_all_cards_are_counted_as_one_on_a_rank() -> None:
    text = script("pass", "None", "args.batch * torch.cuda.device_count()")
    count = "torch.cuda.device_count()"
    new = fixed("DF205", text)
    assert new == text.replace(count, f"(1 if torch.distributed.is_initialized() else {count})")
    assert found("DF205", new) == []


@pytest.mark.parametrize("ids", ["None", "config.GPUS"])
def test_cards_that_a_configuration_lists_are_one_on_a_rank(ids: str) -> None:
    text = script("pass", ids, "config.PER_GPU*len(config.GPUS)")
    new = fixed("DF205", text)
    one = "(1 if torch.distributed.is_initialized() else len(config.GPUS))"
    assert new == text.replace("len(config.GPUS)", one)
    assert found("DF205", new) == []


@pytest.mark.parametrize(
    ("counted", "is_sure"), [("torch.cuda.device_count()", True), ("len(config.GPUS)", False)]
)
def test_the_list_of_a_script_of_ranks_may_be_of_one_card(counted: str, is_sure: bool) -> None:
    (finding,) = found("DF205", script("pass", "None", f"config.PER_GPU * {counted}"))
    assert (finding.severity is Severity.DEGRADED) is not is_sure


@pytest.mark.parametrize(
    "text",
    [
        script("gpus = args.gpus"),
        script("gpus = [0]\n    gpus += [1]"),
        script(LISTED + "\n    print(len(gpus))"),
        script(LISTED)
        .replace('    torch.distributed.init_process_group("gloo")\n', "")
        .replace("    model =", '    torch.distributed.init_process_group("gloo")\n    model ='),
    ],
    ids=["no list", "made in two steps", "asked for its length", "made before the group"],
)
def test_what_may_mean_something_else_is_reported_and_not_touched(text: str) -> None:
    (finding,) = found("DF205", text)
    assert finding.edits == ()
    assert "a rank has one card of gpus" in finding.because


@pytest.mark.parametrize(
    "text",
    [
        script(size="args.batch"),
        script(size="args.batch // torch.cuda.device_count()"),
        script().replace('    torch.distributed.init_process_group("gloo")\n', ""),
        script(ids="None").replace("gpus", "files"),
    ],
    ids=["not multiplied", "divided by all cards", "no group", "another list"],
)
def test_what_counts_no_cards_of_one_process_is_left_alone(text: str) -> None:
    assert found("DF205", text) == []


def test_the_global_batch_of_n_ranks_is_that_of_n_cards(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script().replace('    torch.distributed.init_process_group("gloo")\n', ""))
    result = patch(path)
    assert result.refusal == ""
    assert "DF205" not in {each.code for each in result.findings_after}
    assert "+        gpus = gpus[:1]  # of this rank\n" in result.diff()


COUNTED = """\
import argparse
import torch
from torch.utils.data import DataLoader

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device_ids", default="0,1")
    parser.add_argument("--batch", type=int, default=2)
    args = parser.parse_args()
    args.device_ids = [int(one) for one in args.device_ids.split(",")]
    args.n_gpu = len({counted})
    model = torch.nn.Linear(2, 2)
    if args.n_gpu > 1:
        model = torch.nn.DataParallel(model, device_ids=args.device_ids)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(torch.randn(8, 2), batch_size=args.batch * max(1, args.n_gpu), shuffle=True)
    for epoch in range(2):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("counted", "is_one"), [("args.device_ids", True), ("args.device_ids[:1]", False)]
)
def test_a_rank_counts_one_card_of_the_list(tmp_path: Path, counted: str, is_one: bool) -> None:
    path = tmp_path / "run.py"
    path.write_text(COUNTED.format(counted=counted))
    result = patch(path)
    assert result.refusal == ""
    one = "    if torch.distributed.is_initialized():\n        args.n_gpu = 1\n"
    assert (one in result.changes[0].text) is is_one


LISTED_BY_TEXT = """\
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", default="0,1")
parser.add_argument("--batch", type=int, default=2)
args = parser.parse_args()
{counted}

def main():
    model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(torch.randn(8, 2), batch_size={size}, shuffle=True)
    for epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()

main()
"""
COUNT = "len(args.gpu.split(','))"
ONE = "(1 if torch.distributed.is_initialized() else {})"


@pytest.mark.parametrize(
    ("counted", "size", "patched"),
    [
        (f"size = args.batch * {COUNT}", "size", f"size = args.batch * {ONE.format(COUNT)}\n"),
        (
            f"size = args.batch * {COUNT}\nlabelled = 2 * {COUNT}",
            "size",
            f"labelled = 2 * {ONE.format(COUNT)}\n",
        ),
        (
            "gpus = args.gpu.split(',')\ncards = len(gpus)",
            "args.batch * cards",
            f"cards = {ONE.format('len(gpus)')}\n",
        ),
    ],
)
def test_cards_that_an_option_lists_as_text_are_one_on_a_rank(
    counted: str, size: str, patched: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.py"
    path.write_text(LISTED_BY_TEXT.format(counted=counted, size=size))
    (change,) = patch(path).changes
    assert patched in change.text


@pytest.mark.parametrize("name", ["ngpu", "num_gpus", "gpu_num"])
def test_an_option_that_counts_cards_is_one_on_a_rank(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    text = LISTED_BY_TEXT.format(counted="pass", size=f"args.batch * args.{name}")
    option = f'parser.add_argument("--{name}", type=int, default=1)\nargs = '
    path.write_text(text.replace("args = ", option, 1))
    (change,) = patch(path).changes
    assert f"batch_size=args.batch * {ONE.format(f'args.{name}')}," in change.text


def test_a_list_that_the_module_makes_is_cut_there(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    text = LISTED_BY_TEXT.format(counted="gpus = [0, 1]", size="args.batch * len(gpus)")
    path.write_text(text.replace("Linear(2, 2))", "Linear(2, 2), device_ids=gpus)"))
    (change,) = patch(path).changes
    cut = "if torch.distributed.is_initialized():\n    gpus = gpus[:1]  # of this rank\n"
    assert f"gpus = [0, 1]\n{cut}" in change.text


@pytest.mark.parametrize(
    ("numbers", "repaired"),
    [
        ("torch.ones(torch.cuda.device_count())",
            "torch.ones(1 if torch.distributed.is_initialized() else torch.cuda.device_count())"),
        ("torch.ones(2)", "torch.ones(2)"),
    ],
)  # fmt: skip
def test_a_loss_goes_back_by_one_number_on_each_rank(numbers: str, repaired: str) -> None:
    text = f"import torch\ntorch.distributed.init_process_group('gloo')\nloss.backward({numbers})\n"
    new = fixed("DF205", text)
    assert f"loss.backward({repaired})" in new
    assert found("DF205", new) == []
