"""Files beside a Trainer of transformers are told, and nothing of such a script is changed."""

from __future__ import annotations

import pytest
from cases import module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.engine.check import check
from ddpfix.patcher.findings import Finding, Severity
from ddpfix.patcher.rules import all_rules

SCRIPT = """
import json, os
import torch
from transformers import {imported}, TrainingArguments
{own}
def main():
    args = TrainingArguments("out")
    trainer = {made}(model=model, args=args, train_dataset=data)
    trainer.train()
{rest}
if __name__ == "__main__":
    main()
"""
SAVED = "torch.save(model.state_dict(), 'model.bin')"
WRITTEN = "with open(os.path.join(args.output_dir, 'scores'), 'w') as file:\n    file.write('1')"
CACHED = """
if not os.path.exists("words.json"):
    with open("words.json", "w") as file:
        json.dump(words, file)
words = json.load(open("words.json"))
"""


def told(
    rest: str, imported: str = "Trainer", own: str = "", made: str = "Trainer"
) -> list[Finding]:
    """The findings of all rules in a script that trains by a Trainer."""
    rest = "".join(f"    {line}\n" for line in rest.splitlines())
    text = SCRIPT.format(imported=imported, own=own, made=made, rest=rest)
    return check(Program(module(text)), all_rules())


@pytest.mark.parametrize("rest", [SAVED, WRITTEN, CACHED], ids=["weights", "scores", "a cache"])
def test_what_every_rank_writes_is_a_warning_without_an_edit(rest: str) -> None:
    (finding,) = told(rest)
    assert finding.code in ("DF601", "DF602")
    assert finding.severity is Severity.DEGRADED
    assert finding.edits == ()
    assert "is_world_process_zero" in finding.because


def test_a_class_of_the_script_above_a_trainer_is_one() -> None:
    own = "class Own(Seq2SeqTrainer):\n    pass\n"
    assert len(told(SAVED, "Seq2SeqTrainer", own, "Own")) == 1
    assert told(SAVED, "Seq2SeqTrainer", "class Own:\n    pass\n", "Own") == []


@pytest.mark.parametrize(
    "test",
    [
        *("if trainer.is_world_process_zero():", "if args.should_save:"),
        *("if args.process_index == 0:", "if args.local_rank in (-1, 0):"),
    ],
)
def test_what_rank_0_writes_is_none(test: str) -> None:
    rest = f"{SAVED}\n{WRITTEN}"
    guarded = "".join(f"    {line}\n" for line in rest.splitlines())
    assert told(f"{test}\n{guarded}") == []


def test_a_switch_of_that_name_is_no_rank() -> None:
    own = "class Keeper:\n    def __init__(self):\n        self.should_save = True\n"
    rest = f"keeper = Keeper()\nif keeper.should_save:\n    {SAVED}"
    assert len(told(rest, own=own)) == 1
    assert len(told(f"if control.should_save:\n    {SAVED}")) == 1
