"""DF602, DF604: where ranks meet before they read what rank 0 saved; DF101: arguments."""

from __future__ import annotations

import textwrap

import pytest
from cases import fixed, found

READ = """
import torch
from transformers import AutoProcessor
{head}
def main(accelerator, folder):
    if accelerator.is_main_process:
        tokenizer.save_pretrained(folder)
    {meet}
    processor = AutoProcessor.from_pretrained(folder)
main(accelerator, "out")
"""
MEETINGS = [
    ("accelerator.wait_for_everyone()", ""),
    ("torch.distributed.monitored_barrier()", ""),
    ("synchronize()", "def synchronize():\n    torch.distributed.barrier()\n"),
]


@pytest.mark.parametrize(("meet", "head"), MEETINGS)
def test_ranks_that_have_met_read_the_folder(meet: str, head: str) -> None:
    assert found("DF604", READ.format(meet=meet, head=head)) == []


def test_ranks_meet_in_the_branch_that_reads() -> None:
    code = """
    import torch
    def main(accelerator, args, model, path):
        if args.sharded:
            if accelerator.is_main_process:
                torch.save(model.state_dict(), path)
            {meet}
            model.load_state_dict(torch.load(path, map_location="cpu"))
    main(accelerator, args, model, "out.bin")
    """
    assert found("DF604", code.format(meet="accelerator.wait_for_everyone()")) == []
    (finding,) = found("DF604", code.format(meet="print(path)"))
    assert "rank 0 may still be writing" in finding.because


PERHAPS = "def synchronize():\n    {0}\n"
NO_MEETINGS = {
    "nothing": ("print(folder)", ""),
    "a test of an option": (
        "if args.do_eval:\n        synchronize()", PERHAPS.format("torch.distributed.barrier()")
    ),
    "a test in the function": (
        "synchronize()", PERHAPS.format("if args.do_eval:\n        torch.distributed.barrier()")
    ),
    "rank 0 alone": (
        "synchronize()",
        PERHAPS.format("if accelerator.is_main_process:\n        torch.distributed.barrier()"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("meet", "head"), NO_MEETINGS.values(), ids=NO_MEETINGS)
def test_ranks_that_may_not_have_met_may_read_too_early(meet: str, head: str) -> None:
    (finding,) = found("DF604", READ.format(meet=meet, head=head))
    assert "rank 0 may still be writing" in finding.because


TESTED = """
import argparse
import json
import os
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--try_all", action="store_true")
args = parser.parse_args()
torch.distributed.init_process_group("gloo")
def save(path, scores):
    if torch.distributed.get_rank() == 0:
        torch.save(scores, path)
def test(scores):
    path = os.path.join("out", "scores.bin")
    {write}
    return {read}
if args.try_all:
    test([])
{last}
"""
EARLY = {
    "DF604": ("save(path, scores)", "torch.load(path, map_location='cpu')"),
    "DF602": ("json.dump(scores, open(path, 'w'))", "sum(1 for _ in open(path))"),
}


@pytest.mark.parametrize(("code", "parts"), EARLY.items())
def test_no_barrier_stands_where_rank_0_comes_alone_too(code: str, parts: tuple[str, str]) -> None:
    def barriers(last: str) -> list[bool]:
        write, read = parts
        findings = found(code, TESTED.format(write=write, read=read, last=last))
        return ["barrier" in str(each.edits) for each in findings]

    assert barriers("test([])") == [True]
    assert barriers("if torch.distributed.get_rank() == 0:\n    test([])") == [False]


GROUP_TEST = "torch.distributed.is_initialized()"
MADE = """
import json
import os
import torch
torch.distributed.init_process_group("gloo")
def words(path, texts):
    if not os.path.exists(path):
        texts = sorted(texts)
        {write}
    {end}
words("words.txt", [])
"""


def test_ranks_wait_behind_the_test_for_the_file_that_one_makes() -> None:
    write = "json.dump(texts, open(path, 'w'))"
    after = fixed("DF602", MADE.format(write=write, end="return open(path).read()"))
    assert f"        if is_main_process():\n            {write}\n" in after
    assert f"    if {GROUP_TEST}:\n        torch.distributed.barrier()" in after
    assert found("DF602", after) == []
    assert "barrier" not in fixed("DF602", MADE.format(write=write, end="return texts"))


PARSED = """
from transformers import HfArgumentParser, {parent}

class Settings({parent}):
    pass

args, = HfArgumentParser((Settings,)).parse_args_into_dataclasses()
print(args.local_rank)
"""


def test_arguments_of_transformers_read_the_environment() -> None:
    parser = "class Parent:\n    local_rank: int = -1\n"
    own = PARSED.replace(", {parent}", "\n" + parser).format(parent="Parent")
    assert found("DF101", own)
    assert found("DF101", textwrap.dedent(PARSED).format(parent="Seq2SeqTrainingArguments")) == []


CACHED = """
import torch
torch.distributed.init_process_group("gloo")
def statistics(path, rows):
    {loop}
    if not os.path.exists(path):
        found = rows.mean()
        torch.save(found, path)
    else:
        found = torch.load(path, map_location="cpu")
    return found
print(statistics("mean.pt", rows))
"""


def test_what_one_branch_reads_is_not_what_the_other_has_written() -> None:
    assert found("DF604", CACHED.format(loop="pass")) == []
    again = CACHED.replace("    if not", "      if not").replace(
        "    {loop}", "    for row in rows:"
    )
    again = again.replace("        found", "          found").replace("    else", "      else")
    again = again.replace("        torch.save", "          torch.save")
    (finding,) = found("DF604", again)  # its barrier would wait for ranks that have not found it
    assert not finding.edits
    assert found("DF604", again.replace("torch.save(", "save_on_main(")) == []


LATEST = """
import os
import torch
import torch.distributed as dist
{maker}
def save_on_main(obj, path):
    if dist.get_rank() == 0:
        torch.save(obj, path)

def evaluate(model, folder, number):
    path = os.path.join(folder, {read})
    model.load_state_dict(torch.load(path, map_location="cpu"))

def main(model, folder):
    dist.init_process_group("gloo")
    for number in range(3):
        step(model)
        {save}
    {meet}
    evaluate(model, folder, number)
main(model, "out")
"""
NUMBERED = {
    "maker": "",
    "save": "save_on_main(model, os.path.join(folder, 'epoch_%s.pt' % number))",
    "read": "'epoch_%s.pt' % number",
    "meet": "pass",
}


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({}, 1),
        ({"meet": "dist.barrier()"}, 0),
        ({"save": "save_on_main(model, folder + '/last.bin')"}, 0),
        ({"save": "save_on_main(model, f'{folder}/epoch_{number}.pt')"}, 1),
        ({"read": "'pretrained.pt'"}, 0),
    ],
)
def test_a_checkpoint_that_may_be_the_one_just_saved_is_waited_for(
    parts: dict[str, str], told: int
) -> None:
    text = LATEST.format(**{**NUMBERED, **parts})
    assert len(found("DF604", text)) == told
    if told:
        assert "# rank 0 may still be writing\n    evaluate(" in fixed("DF604", text)


def test_an_object_of_a_part_of_what_a_function_returns_saves() -> None:
    maker = """
class Stopping:
    def __init__(self, path):
        self.path = path
    def __call__(self, model):
        save_on_main(model, self.path)

def make(folder):
    return Stopping(folder + "/best.pt"), 3
"""
    save = "keep(model)"
    text = LATEST.format(**{**NUMBERED, "maker": maker, "save": save, "read": "'best.pt'"})
    text = text.replace("    for number", "    keep, _ = make(folder)\n    for number")
    assert len(found("DF604", text)) == 1
    assert found("DF604", text.replace("        keep(model)", "        pass")) == []


LED_TO = """
import torch
def save_best(model, folder):
    if torch.distributed.get_rank() == 0:
        torch.save(model.state_dict(), folder + "/best.bin")
def train(model, folder):
    for batch in loader:
        model(batch).backward()
    {saves}(model, folder)
def main(model, folder):
    torch.distributed.init_process_group("gloo")
    {first}train(model, folder)
    model.load_state_dict(torch.load(folder + "/best.bin", map_location="cpu"))
main(net, "out")
"""


@pytest.mark.parametrize(
    ("saves", "first", "told"),
    [("save_best", "", True), ("print", "", False), ("save_best", "model.", False)],
    ids=["through two functions", "nothing is saved", "a method of that name"],
)
def test_a_call_may_lead_to_a_save(saves: str, first: str, told: bool) -> None:
    text = LED_TO.format(saves=saves, first=first)
    assert ("barrier()  # rank 0 may still be writing" in fixed("DF604", text)) is told


FETCHED = """
import os
import torch
torch.distributed.init_process_group("gloo")
def fetch(path):
    if torch.distributed.get_rank() == 0:
        torch.save(rows, path + ".new")
    fresh = torch.load(path + ".new", map_location="cpu")
    torch.save(fresh, path)
def weights(path):
    {test}:
        fetch(path)
weights("out")
for batch in loader:
    model(batch).backward()
"""
TESTS = [
    ("if not os.path.exists(path)", False),
    ("if os.path.exists(path):\n        return\n    if path", False),
    ("for path in (path, 'other')", True),
]


@pytest.mark.parametrize(("test", "meets"), TESTS)
def test_ranks_do_not_meet_where_a_rank_that_finds_the_file_does_not_come(
    test: str, meets: bool
) -> None:
    (finding,) = found("DF604", FETCHED.format(test=test))
    assert bool(finding.edits) is meets
    assert ("that do not find a file" in finding.because) is not meets
