"""A module that knows nothing of torch gets the import that a barrier in it needs (DF604)."""

from __future__ import annotations

from pathlib import Path

from ddpfix.patcher.engine.patch import patch

TRAINER = """\
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self):
        self.model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.loader = DataLoader(torch.zeros(8, 2), batch_size=2, shuffle=True)

    def train(self, epoch):
        for batch in self.loader:
            self.optimizer.zero_grad()
            self.model(batch).mean().backward()
            self.optimizer.step()
        torch.save(self.model.state_dict(), "last.pt")

    def load(self):
        self.model.load_state_dict(torch.load("last.pt"))
"""
SCRIPT = """\
from trainer import Trainer

def main():
    trainer = Trainer()
    for epoch in range(3):
        trainer.train(epoch)
    trainer.load()

if __name__ == "__main__":
    main()
"""


def test_the_script_imports_torch_for_a_barrier(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    path = tmp_path / "run.py"
    path.write_text(SCRIPT)
    result = patch(path)
    assert result.refusal == ""
    text = result.changes[0].text
    assert "import torch\n" in text
    assert "        torch.distributed.barrier()  # rank 0 may still be writing\n" in text
