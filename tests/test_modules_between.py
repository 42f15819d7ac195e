"""A module that only leads to the one that trains is part of the program."""

from __future__ import annotations

from pathlib import Path

from ddpfix.patcher.analysis.training.load import read_program

FILES = {
    "models/cnn/__main__.py": "from common.factory import make\n\nif __name__ == '__main__':\n"
    "    make('cnn').fit()\n",
    "models/__init__.py": "",
    "models/cnn/__init__.py": "",
    "common/__init__.py": "",
    "common/factory.py": "from common.trainers import Trainer\n\ndef make(name):\n"
    "    return Trainer(name)\n",
    "common/trainers.py": "class Trainer:\n    def fit(self):\n        for batch in self.loader:\n"
    "            self.model(batch).backward()\n            self.optimizer.step()\n",
}


def test_a_factory_without_a_word_of_training_is_followed(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    program = read_program(str(tmp_path / "models/cnn/__main__.py"))
    read = {Path(module.source.name).name for module in program.modules}
    assert {"factory.py", "trainers.py"} <= read
    assert len(program.train_loops) == 1


def test_a_function_that_hands_a_loader_on_is_followed(tmp_path: Path) -> None:
    files = {
        "run.py": "from utils.data import load\nloader = load(rows)\nfor batch in loader:\n"
        "    model(batch).backward()\n    optimizer.step()\n",
        "utils/data.py": "from .tensors import pack\n\ndef load(rows):\n    "
        "dataloader = pack(rows)\n    return dataloader\n",
        "utils/tensors.py": "from torch.utils.data import DataLoader\n\ndef pack(rows):\n"
        "    return DataLoader(rows)\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (loop,) = read_program(str(tmp_path / "run.py")).train_loops
    assert loop.loader is not None
    assert loop.loader.module.source.file == "tensors.py"
