"""The launchers with other Pythons and torches: python benchmarks/other_python.py PYTHON...

Each PYTHON is the program of an environment with torch and numpy, and without ddpfix, such as

    python3.8 -m venv py38 && py38/bin/pip install torch==1.13.1 "numpy<1.25"
    python benchmarks/other_python.py py38/bin/python

A small script for DataParallel is patched; then `verify`, `plan --probe` and `launch` run it in
each Python, in one and two processes on the CPU. Prints a table in Markdown and why something
failed; the exit status is 1 where something did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ddpfix.launchers.backends.interpreter import read_interpreter

SCRIPT = """\
import argparse
import os
import random

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--batch_size", type=int, default=8)
    args = parser.parse_args()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    os.makedirs(args.output_dir, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 2))
    model.to(device)
    model = torch.nn.DataParallel(model)
    data = TensorDataset(torch.randn(64, 4), torch.arange(64) % 2)
    loader = DataLoader(data, sampler=RandomSampler(data), batch_size=args.batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for epoch in range(2):
        model.train()
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    torch.save(model.module.state_dict(), os.path.join(args.output_dir, "model.bin"))


if __name__ == "__main__":
    main()
"""
TRAINING = ("--", "python", "patched.py", "--output_dir", "out", "--batch_size", "8")
COMMANDS = {
    "verify": (
        *("--original", "train.py", "--world-sizes", "1,2", "--accumulation", "1"),
        *("patched.py", "--", "--output_dir", "out", "--batch_size", "8"),
    ),
    "plan": ("--cpu", "--probe", "3", *TRAINING),
    "launch": ("--cpu", "--backend", "torchrun", *TRAINING),
}


def main() -> None:
    """Print everything."""
    programs = [Path(word).absolute() for word in sys.argv[1:]]
    if not programs:
        sys.exit(__doc__)
    print("| Python | torch | verify | plan --probe | launch |")
    print("|---|---|---|---|---|")
    failed: list[str] = []
    for program in programs:
        with tempfile.TemporaryDirectory(prefix="ddpfix-other-python-") as name:
            folder = Path(name)
            (folder / "train.py").write_text(SCRIPT)
            (folder / "patched.py").write_text(SCRIPT)
            run(folder, "patch", "patched.py")
            asked = read_interpreter(str(program))
            cells = [".".join(map(str, asked.python)), asked.torch]
            for command, words in COMMANDS.items():
                done = run(folder, command, "--python", str(program), *words)
                told = f"The ranks run in {program}" in done.stderr
                cells.append("passes" if done.returncode == 0 and told else "fails")
                if cells[-1] == "fails":
                    failed.append(f"{command}: {done.stdout}\n{done.stderr}")
        print(f"| {' | '.join(cells)} |", flush=True)
    print("\n".join(failed), file=sys.stderr)
    sys.exit(bool(failed))


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ddpfix in a folder, with its state there."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "ddpfix", *words],
        cwd=folder,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    main()
