"""Where a program counts the cards of its machine, a rank counts one."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import RULES
from ddpfix.patcher.api import patch, read_program

SCRIPT = """\
import torch
from options import parse
from trainer import train

def main():
    args = parse()
    train(args, make_model(), make_data())

if __name__ == "__main__":
    main()
"""
OPTIONS = """\
import argparse
import torch

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--per_gpu_batch", type=int, default=8)
    args = parser.parse_args()
    {count}
    return args
"""
TRAINER = """\
import torch
from torch.utils.data import DataLoader

def train(args, model, data):
    {count}
    loader = DataLoader(data, batch_size=args.per_gpu_batch * {cards}, shuffle=True)
    model = torch.nn.DataParallel(model.cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
"""
COUNT = "{} = torch.cuda.device_count()"


def patched(folder: Path, options: str, trainer: str, script: str = SCRIPT) -> dict[str, str]:
    (folder / "run.py").write_text(script)
    (folder / "options.py").write_text(options)
    (folder / "trainer.py").write_text(trainer)
    result = patch(folder / "run.py")
    assert (result.refusal, result.remaining) == ("", [])
    return {change.source.path.name: change.text for change in result.changes}


def test_the_module_that_trains_counts_one_card_in_a_group(tmp_path: Path) -> None:
    trainer = TRAINER.format(count=COUNT.format("cards"), cards="cards")
    texts = patched(tmp_path, OPTIONS.format(count="args.seed = 3"), trainer)
    assert (
        "    cards = torch.cuda.device_count()\n"
        "    if torch.distributed.is_initialized():\n"
        "        cards = 1\n"
    ) in texts["trainer.py"]
    assert "init_process_group" in texts["run.py"]


@pytest.mark.parametrize(
    ("cards", "counts"), [("cards", True), ("1", False)], ids=["of the batch too", "of cards alone"]
)
def test_what_the_list_of_cards_counts_up_to_is_one(
    tmp_path: Path, cards: str, counts: bool
) -> None:
    trainer = TRAINER.format(count="cards = choose_cards(args)", cards=cards)
    trainer = trainer.replace("model.cuda())", "model.cuda(), list(range(cards)))")
    text = patched(tmp_path, OPTIONS.format(count="args.seed = 3"), trainer)["trainer.py"]
    assert ("        cards = 1\n" in text) is counts


def test_what_is_counted_before_there_is_a_group_asks_the_launcher(tmp_path: Path) -> None:
    options = OPTIONS.replace("def parse", "def make_parser")
    options = options.replace("return args", "return parser")
    options = options.replace("args = parser.parse_args()", "cards = torch.cuda.device_count()")
    options = options.format(count='parser.add_argument("--batch", type=int, default=8 * cards)')
    script = SCRIPT.replace("args = parse()", "args = make_parser().parse_args()")
    script = script.replace("import parse", "import make_parser")
    trainer = TRAINER.format(count="model.train()", cards="args.batch // 8")
    texts = patched(tmp_path, options, trainer, script)
    assert texts["run.py"].index(".parse_args()") < texts["run.py"].index("init_process_group")
    assert (
        "    cards = torch.cuda.device_count()\n"
        "    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:\n"
        "        cards = 1\n"
    ) in texts["options.py"]
    assert "import os\n" in texts["options.py"]


@pytest.mark.parametrize("place", ["trainer.py", "options.py"])
def test_so_does_a_count_at_the_top_of_a_module(tmp_path: Path, place: str) -> None:
    options, trainer = (
        OPTIONS.format(count="args.seed = 3"),
        TRAINER.format(count="model.train()", cards="CARDS"),
    )
    line = f"\n{COUNT.format('CARDS')}\n"
    if place == "trainer.py":
        trainer = trainer.replace("\n\ndef", f"\n{line}\ndef", 1)
    else:
        options = options.replace("\n\ndef", f"\n{line}\ndef", 1)
        trainer = trainer.replace("import torch\n", "import torch\nfrom options import CARDS\n", 1)
    texts = patched(tmp_path, options, trainer)
    assert (
        "CARDS = torch.cuda.device_count()\n"
        "if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:\n"
        "    CARDS = 1\n"
    ) in texts[place]


def test_an_engine_may_count_the_cards_of_all_machines(tmp_path: Path) -> None:
    engine = "    import deepspeed\n    model, *_ = deepspeed.initialize(model=model)\n"
    trainer = TRAINER.format(count=COUNT.format("cards"), cards="cards")
    trainer = trainer.replace("    model = torch.nn.DataParallel(model.cuda())\n", engine)
    (tmp_path / "run.py").write_text(SCRIPT)
    (tmp_path / "options.py").write_text(OPTIONS.format(count="args.seed = 3"))
    (tmp_path / "trainer.py").write_text(trainer)
    program = read_program(tmp_path / "run.py")
    assert [each.because for each in RULES["DF201"].findings(program)] == []


def test_no_card_is_counted_where_nothing_is_wrapped(tmp_path: Path) -> None:
    trainer = TRAINER.format(count=COUNT.format("cards"), cards="cards")
    trainer = trainer.replace("    model = torch.nn.DataParallel(model.cuda())\n", "")
    (tmp_path / "run.py").write_text(SCRIPT)
    (tmp_path / "options.py").write_text(OPTIONS.format(count="args.seed = 3"))
    (tmp_path / "trainer.py").write_text(trainer)
    program = read_program(tmp_path / "run.py")
    assert list(RULES["DF201"].findings(program)) == []  # DF204 makes the group, or none does
