"""Of a library of which a program has a copy, it runs what its own code names."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.api import read_program
from ddpfix.patcher.engine.patch import patch

LIBRARY = {
    "__init__.py": """\
from .models import Bert, BertHead, Gpt, GptHead
from .tokens import Tokens
from .trainer import Trainer
""",
    "base.py": """\
import torch

class Base(torch.nn.Module):
    def save_pretrained(self, folder):
        weights(self, folder)

    def push(self, folder):
        torch.save(self, folder + "/pushed")

def weights(model, folder):
    torch.save(model.state_dict(), folder + "/weights")
""",
    "models.py": """\
import torch
from .base import Base

class Bert(Base):
    def forward(self, x):
        return inner(x)

class Gpt(Base):
    def forward(self, x):
        return x

class BertHead(Base):
    def __init__(self):
        super().__init__()
        self.bert = Bert()

    def forward(self, x):
        return self.bert(x)

class GptHead(Base):
    def __init__(self):
        super().__init__()
        self.gpt = Gpt()

    def forward(self, x):
        return self.gpt(x)

HEADS = {"bert": BertHead, "gpt": GptHead}

def head(kind):
    return HEADS[kind]()

def inner(x):
    def nested(y):
        return y
    return nested(x)
""",
    "tokens.py": """\
if True:
    class Tokens:
        def save_vocabulary(self, folder):
            with open(folder + "/vocab", "w") as file:
                file.write("")
""",
    "trainer.py": """\
import torch

class Trainer:
    def train(self):
        for batch in self.batches:
            self.model(batch).backward()
            self.optimizer.step()
        torch.save(self.model, "trained")
""",
}
SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from transformers import {name}

def main():
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel({make})
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.train()
    for batch in DataLoader(data):
        model(batch).mean().backward()
        optimizer.step()
    {end}

main()
"""


def program_in(folder: Path, name: str, make: str, end: str = "pass") -> Path:
    (folder / "transformers").mkdir()
    for file, text in LIBRARY.items():
        (folder / "transformers" / file).write_text(text)
    script = folder / "train.py"
    script.write_text(SCRIPT.format(name=name, make=make, end=end))
    return script


BERT = {"Bert.forward", "inner", "nested"}
SAVED = {"Base.save_pretrained", "weights"}


@pytest.mark.parametrize(
    ("name", "make", "end", "reached"),
    [
        ("BertHead", "BertHead()", "pass", {"BertHead.__init__", "BertHead.forward", *BERT}),
        ("Bert", "Bert()", "model.module.save_pretrained('out')", {*BERT, *SAVED}),
        ("Tokens", "Net()", "Tokens().save_vocabulary('out')", {"Tokens.save_vocabulary"}),
        ("Tokens", "Net()", "Tokens()", set()),
        (
            "models",
            "models.head(kind)",
            "pass",
            {
                *("head", "BertHead.__init__", "BertHead.forward", *BERT),
                *("GptHead.__init__", "GptHead.forward", "Gpt.forward"),
            },
        ),
    ],
)
def test_names_lead_from_the_script_to_what_it_runs(
    name: str, make: str, end: str, reached: set[str], tmp_path: Path
) -> None:
    program = read_program(program_in(tmp_path, name, make, end))
    live = set()
    for module in program.modules:
        for function in module.all_functions if module is not program.script else ():
            if program.is_live(module, function.body[0]):
                owner = module.enclosing_class(function)
                live.add(f"{owner.name}.{function.name}" if owner else function.name)
    assert live == reached


@pytest.mark.parametrize("parts", [True, False])
def test_a_folder_of_another_name_is_a_copy_by_its_parts(parts: bool, tmp_path: Path) -> None:
    script = program_in(tmp_path, "BertHead", "BertHead()")
    names = ["configuration_utils", "modeling_utils", "file_utils"] if parts else ["modeling_utils"]
    (tmp_path / "transformers").rename(tmp_path / "vendor")
    for name in names:
        (tmp_path / "vendor" / f"{name}.py").write_text("import torch\n")
    imports = "".join(f"from . import {name}\n" for name in names)
    (tmp_path / "vendor" / "__init__.py").write_text(imports + LIBRARY["__init__.py"])
    script.write_text(script.read_text().replace("transformers", "vendor"))
    program = read_program(script)
    base = next(each for each in program.modules if each.source.path.name == "base.py")
    assert program.is_live(base, base.functions["weights"].body[0]) is not parts


def test_a_patch_leaves_the_rest_of_the_copy_as_it_is(tmp_path: Path) -> None:
    script = program_in(tmp_path, "BertHead", "BertHead()")
    result = patch(script)
    assert result.refusal == ""
    assert [change.source.path.name for change in result.changes] == ["train.py"]
