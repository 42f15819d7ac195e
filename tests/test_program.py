"""What counts as a program, and which modules are part of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from ddpfix.patcher.analysis.language.objects import class_of, method_of
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.frontend.cache import Cache
from ddpfix.patcher.frontend.checker import check_script
from ddpfix.patcher.rules import all_rules

CODES = tuple(rule.code for rule in all_rules())
TRAIN = """
import torch
def train():
    torch.distributed.init_process_group("nccl")
    for batch in torch.utils.data.DataLoader(torch.zeros(8, 2)):
        model(batch).mean().backward()
"""


def program_of(folder: Path, script: str = "run.py", **files: str) -> Program:
    """Write files, ``__`` in their names being a folder's slash, and read the script's program."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_program(str(folder / script))


@pytest.mark.parametrize(
    ("trains", "text"),
    [
        (True, TRAIN + "train()\n"),
        (True, TRAIN + "def main():\n    train()\nmain()\n"),
        (True, TRAIN + "if __name__ == '__main__':\n    train()\n"),
        (True, TRAIN + "class Trainer:\n    def fit(self):\n        train()\nTrainer().fit()\n"),
        (True, TRAIN + "try:\n    train()\nexcept KeyboardInterrupt:\n    pass\n"),
        (False, TRAIN),
        (False, TRAIN + "def register():\n    pass\nregister()\n"),
        (False, TRAIN + "import logging\nlogging.basicConfig()\n"),
    ],
)
def test_a_script_is_a_program_where_importing_it_trains(
    tmp_path: Path, trains: bool, text: str
) -> None:
    assert program_of(tmp_path, run=text).is_training_program is trains


@pytest.mark.parametrize(
    "start", ["import engine\nengine.train()\n", "if __name__ == '__main__':\n    train()\n"]
)
def test_torch_may_come_through_local_modules_alone(tmp_path: Path, start: str) -> None:
    (tmp_path / "engine.py").write_text(TRAIN)
    run = tmp_path / "run.py"
    run.write_text("from engine import train\n" + start)
    found = check_script(str(run), CODES, Cache(None, "")).diagnostics
    assert {item.code for item in found} >= {"DF301", "DF401"}
    assert "engine.py" in {item.path for item in found}
    run.write_text("from engine import train\n")
    assert check_script(str(run), CODES, Cache(None, "")).diagnostics == ()


def test_what_is_cached_knows_the_modules_of_a_script_without_torch(tmp_path: Path) -> None:
    engine, run = tmp_path / "engine.py", tmp_path / "run.py"
    engine.write_text("def train():\n    pass\n")
    run.write_text("import engine\nengine.train()\n")
    entry = check_script(str(run), CODES, Cache(None, ""))
    assert entry.diagnostics == ()
    assert [names for folder, files, _ in entry.lookups for names, _ in files] == ["engine.py"]


TWICE = """
import torch
from torch.utils.data import DataLoader

class Trainer:
    def run(self):
        raise NotImplementedError
    @property
    def rank(self):
        return 0
    @rank.setter
    def rank(self, value):
        pass
    def run(self):
        for batch in DataLoader(data):
            self.model(batch).backward()

class First:
    def score(self, model):
        pass

class Second:
    def score(self, model):
        model.eval()
        for batch in DataLoader(data):
            model(batch)

trainer = Trainer()
trainer.run()
"""


def test_of_two_methods_of_one_name_the_last_one_counts(tmp_path: Path) -> None:
    program = program_of(tmp_path, run=TWICE)
    module = program.script
    first, last = (each for each in module.all_functions if each.name == "run")
    assert [call.lineno for _, call in program.callers(last)] == [29]
    assert program.callers(first) == []
    call = module.calls_to("run")[0].func
    assert isinstance(call, ast.Attribute)
    owner = class_of(program, module, call.value)
    assert owner is not None
    found = method_of(program, owner, "rank")
    assert found is not None
    assert [ast.unparse(each) for each in found[1].decorator_list] == ["property"]


def test_a_method_evaluates_that_has_the_name_of_another_class_s(tmp_path: Path) -> None:
    assert [each.name for each in program_of(tmp_path, run=TWICE).evaluations] == ["score()"]
