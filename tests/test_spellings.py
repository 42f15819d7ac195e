"""A program in another spelling has the same findings and the same patch."""

from __future__ import annotations

import ast
import functools
import random

import pytest
from cases import found, module
from ddpfix.patcher.analysis.training.program import Program
from spelling_cases import KINDS, Baselines, fixture_scripts, judge, mutants, plain
from spellings_undone import one_spelling

SEED = 7


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Baselines:
    """The outcomes of the scripts as they are, for all kinds."""
    return Baselines(tmp_path_factory.mktemp("spellings") / "program")


@pytest.mark.parametrize("kind", KINDS)
def test_another_spelling_changes_nothing(kind: str, bases: Baselines) -> None:
    for mutant in mutants(fixture_scripts(), [kind], 2, SEED):
        verdict, details = judge(bases, mutant)
        assert verdict == "same", f"{mutant.script} seed {mutant.seed}: {verdict}\n{details}"


ONCE_ANOTHER = [  # a kind and a script of which mutants had other findings or another patch
    ("keywords", "dataparallel_trainer"),  # DataParallel(module=self.model)
    ("keywords", "mp_spawn"),  # main_worker(gpu=0, …) beside spawn(main_worker, …)
    ("test in a name", "loader_list"),  # is_main = args.local_rank in [-1, 0]
]


@pytest.mark.parametrize(("kind", "script"), ONCE_ANOTHER)
def test_what_was_once_another_program_is_the_same(
    kind: str, script: str, bases: Baselines
) -> None:
    paths = [path for path in fixture_scripts() if path.stem == script]
    (mutant,) = mutants(paths, [kind], 1, SEED)
    verdict, details = judge(bases, mutant)
    assert verdict == "same", details


@functools.cache
def spelled_once(text: str) -> dict[str, str]:
    return one_spelling({"": text})


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
            assert one_spelling(files) == spelled_once(text)
            changed += 1
    assert changed


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        ("from d import t\nx = t(1)", "import d\nx = d.t(1)", True),
        ("from d import t\nx = t(1)", "from e import t\nx = t(1)", False),
        ("from d import t\ndef f(t): t(1)", "import d\ndef f(t): d.t(1)", False),
        ("a.x = 1\na.y = 2", "a.y = 2\na.x = 1", True),
        ("a.x = 1\na.y = a.x", "a.y = a.x\na.x = 1", False),
        ("a.x = f()\na.y = 2", "a.y = 2\na.x = f()", False),
        ("a = 1\na.y = 2", "a.y = 2\na = 1", False),
        ("if a:\n if b: pass\n else: x()", "if a and not b: x()", True),
        ("if a:\n if b: y()\n else: x()", "if a and not b: x()", False),
        ("if a:\n if b: x()\nelse: y()", "if a and b: x()", False),
        (
            "def k():\n a = f()\n g(a, a)",
            "def k():\n spelled_1 = f()\n g(spelled_1, spelled_1)",
            True,
        ),
        ("def k():\n a = f()\n g(a, a)", "def k():\n g(f(), f())", False),
        ("def k():\n a = f()\n g(a, a)\n h(a)", "def k():\n b = f()\n g(b, b)\n h(b)", False),
    ],
)
def test_one_spelling_makes_equal_what_is_equally_right_and_nothing_else(
    one: str, two: str, *, is_same: bool
) -> None:
    assert (one_spelling({"": one}) == one_spelling({"": two})) is is_same


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
