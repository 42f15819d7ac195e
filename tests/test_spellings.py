"""A program in another spelling has the same findings and the same patch."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest
from cases import found, module
from ddpfix.patcher.analysis.program import Program
from spelling_cases import KINDS, Baselines, fixture_scripts, judge, mutants, plain
from spellings_undone import one_spelling

SEED = 7
KINDS_THAT_HOLD = [
    "annotations",
    "walrus statement",
    "x = x + 1",
    "backslashes",
    "docstrings",
    "keywords",
    "positions",
    "semicolons",
    "comparison turned",
    "if inverted",
    "test in a name",
]


@pytest.mark.parametrize("kind", KINDS_THAT_HOLD)
def test_another_spelling_changes_nothing(kind: str, tmp_path: Path) -> None:
    bases = Baselines(tmp_path / "program")
    for mutant in mutants(fixture_scripts(), [kind], 3, SEED):
        verdict, details = judge(bases, mutant)
        assert verdict == "same", f"{mutant.script} seed {mutant.seed}: {verdict}\n{details}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_spelling_is_another_text_and_the_same_program(kind: str) -> None:
    changed = 0
    for script in fixture_scripts():
        if changed == 3:
            break
        text = plain(script)
        files, count = KINDS[kind](text, random.Random(SEED))
        if count:
            assert files[""] != text
            assert one_spelling(files) == one_spelling({"": text})
            changed += 1
    assert changed


TRAINING = """
import argparse, torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
{args}
torch.distributed.init_process_group("gloo")
{sampler}
{loader}
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in loader:
        model(batch).backward()
"""
VALUES = {
    "args": "parser.parse_args()",
    "sampler": "torch.utils.data.distributed.DistributedSampler(data)",
    "loader": "DataLoader(data, sampler=sampler)",
}


@pytest.mark.parametrize("form", ["{0} = {1}", "{0}: object = {1}", "({0} := {1})"])
def test_every_form_of_a_binding_is_seen(form: str) -> None:
    text = TRAINING.format(**{name: form.format(name, value) for name, value in VALUES.items()})
    program = Program(module(text))
    assert [name for _, _, name in program.parse_sites] == ["args"]
    assert [loop.loader.name for loop in program.train_loops if loop.loader] == ["loader"]
    assert not found("DF401", text)


def test_fields_of_a_class_keep_their_form() -> None:
    (owner,) = module("class A:\n    x: int = 1\n").nodes(ast.ClassDef)
    assert type(owner.body[0]) is ast.AnnAssign


def test_a_sum_with_itself_is_the_value_of_a_name() -> None:
    parsed = module("path = 'a'\npath = path + suffix\nuse(path)\n")
    (call,) = parsed.calls_to("use")
    value = parsed.definition(call.args[0], call)
    assert value is not None
    assert parsed.text(value) == "path + suffix"
