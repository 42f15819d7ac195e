"""``patch --with flags``: constants become options, and only where they are proved to be."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from capable import added, reasons
from command_line import run
from ddpfix.patcher.capabilities import select_capabilities

(CAPABILITY,) = select_capabilities(["flags"])

BEFORE = """\
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BATCH_SIZE = 64
EPOCHS = 2
OUT = "made"


def train(model, loader, optimizer, sampler):
    steps = []
    for epoch in range(EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            steps.append(len(x))
    return steps


def main():
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.arange(512.0).reshape(256, 2))
    model = torch.nn.Linear(2, 1)
    sampler = None
    if dist.is_initialized():
        model = DistributedDataParallel(model)
        sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH_SIZE, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    steps = train(model, loader, optimizer, sampler)
    world = dist.get_world_size() if dist.is_initialized() else 1
    if not dist.is_initialized() or dist.get_rank() == 0:
        os.makedirs(OUT, exist_ok=True)
        with open(os.path.join(OUT, "seen.json"), "w") as file:
            weight = next(model.parameters()).tolist()
            json.dump([world, steps, optimizer.param_groups[0]["lr"], weight], file)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
PARSER = """\
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--learning_rate", type=float, default=1e-6)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--output", type=str, default="made")
    args = parser.parse_args()
    BATCH_SIZE = args.batch_size
    EPOCHS = args.epochs
    OUT = args.output
"""
AFTER = (
    BEFORE.replace("import json\n", "import json\nimport argparse\n", 1)
    .replace("lr=1e-6", "lr=args.learning_rate")
    .replace('"__main__":\n', f'"__main__":\n{PARSER}')
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(BEFORE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def python(*words: str) -> None:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def seen(folder: str = "made") -> tuple[int, list[int], float, list[list[float]]]:
    world, steps, rate, weight = json.loads(Path(folder, "seen.json").read_text())
    return world, steps, rate, weight


def test_a_script_without_a_command_line_gets_one_in_its_main_guard(here: Path) -> None:
    assert added(CAPABILITY, BEFORE) == AFTER
    done = run("patch", "--with", "flags", "train.py")
    assert "without flags" not in done.output
    text = (here / "train.py").read_text()
    assert PARSER in text
    again = run("patch", "--with", "flags", "train.py")
    assert again.exit_code == 0, again.output
    assert (here / "train.py").read_text() == text


@pytest.mark.usefixtures("here")
def test_without_options_it_computes_what_it_did_and_with_them_what_they_say() -> None:
    python("train.py")
    before = seen()
    run("patch", "--with", "flags", "train.py")
    python("train.py")
    assert seen() == before
    assert before[:3] == (1, [64] * 8, 1e-6)
    words = "--batch_size 32 --learning_rate 1e-7 --epochs 1 --output elsewhere"
    python("train.py", *words.split())
    assert seen("elsewhere")[:3] == (1, [32] * 8, 1e-7)


@pytest.mark.parametrize(
    ("world", "bound", "read"),
    [
        *((world, "BATCH_SIZE = 64", "BATCH_SIZE") for world in (1, 2, 4, 8)),
        (4, "class Config:\n    size = 64", "Config.size"),
        (4, "config = {'size': 64}", "config['size']"),
    ],
)
def test_then_launch_keeps_the_global_batch(world: int, bound: str, read: str, here: Path) -> None:
    text = BEFORE.replace("BATCH_SIZE = 64", bound).replace("=BATCH_SIZE", f"={read}")
    (here / "train.py").write_text(text)
    cards = f"{world}x A100 80GB"
    before = run("launch", "--dry-run", "--gpus", cards, "train.py")
    assert "`ddpfix patch --with flags train.py` makes it an option" in before.stderr
    assert f"global batch {64 * world} = 64 per device" in before.stderr
    run("patch", "--with", "flags", "train.py")
    after = run("launch", "--dry-run", "--gpus", cards, "train.py")
    assert f"global batch 64 = {64 // world} per device" in after.stderr
    assert "--with flags" not in after.stderr
    words = shlex.split(after.stdout)
    assert words[words.index("train.py") + 1 :] == ["--batch_size", str(64 // world)]


@pytest.mark.usefixtures("here")
def test_two_processes_train_on_the_original_batch() -> None:
    python("train.py")
    before = seen()
    run("patch", "--with", "flags", "train.py")
    python("-m", "ddpfix", "launch", "--cpu", "train.py")
    world, steps, rate, weight = seen()
    assert (world, steps, rate) == (2, [32] * 8, 1e-6)
    for found, expected in zip(weight[0], before[3][0], strict=True):
        assert found == pytest.approx(expected, rel=1e-4)


def test_facts_tell_the_constants(here: Path) -> None:
    text = run("facts", "train.py").output
    assert "train.py:10  64 is the training batch\n" in text
    assert "1e-6 is the learning rate\n" in text
    facts = json.loads(run("facts", "--json", "train.py").output)
    assert {one["role"]: one["text"] for one in facts["constants"]} == {
        "train_batch": "64",
        "learning_rate": "1e-6",
        "epochs": "2",
        "output": '"made"',
    }
    (here / "train.py").write_text(AFTER)
    assert json.loads(run("facts", "--json", "train.py").output)["constants"] == []


# ---- places, to the letter

HEAD = "import torch\nfrom torch.utils.data import DataLoader\n"
LOOP = """\
for epoch in range({epochs}):
    for x in DataLoader(data, batch_size={batch}):
        model(x).backward()
"""
PARSED = """\
import argparse
import torch
from torch.utils.data import DataLoader
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
{}args = parser.parse_args()
"""
OPTION = 'parser.add_argument("--batch_size", type=int, default=64)\n'
MADE = f"parser = argparse.ArgumentParser()\n{OPTION}args = parser.parse_args()\n"
PLACES = {
    "a number in the loader of a script with a parser": (
        PARSED.format("") + LOOP.format(epochs="n", batch="64"),
        PARSED.format(OPTION) + LOOP.format(epochs="n", batch="args.batch_size"),
    ),
    "a name behind the parsing": (
        PARSED.format("") + "size = 64\n" + LOOP.format(epochs="n", batch="size"),
        PARSED.format(OPTION) + "size = args.batch_size\n" + LOOP.format(epochs="n", batch="size"),
    ),
    "a name that an evaluation shares": (
        PARSED.format("")
        + "size = 64\ntest = DataLoader(other, batch_size=size)\n"
        + LOOP.format(epochs="n", batch="size"),
        PARSED.format(OPTION)
        + "size = args.batch_size\ntest = DataLoader(other, batch_size=size)\n"
        + LOOP.format(epochs="n", batch="size"),
    ),
    "a script that has no function": (
        HEAD + "size = 64\n" + LOOP.format(epochs="n", batch="size"),
        HEAD.replace("torch\n", "torch\nimport argparse\n", 1)
        + MADE
        + "size = args.batch_size\n"
        + LOOP.format(epochs="n", batch="size"),
    ),
    "a name above the imports": (
        "__author__ = 'me'\n" + HEAD + "size = 64\n" + LOOP.format(epochs="n", batch="size"),
        "__author__ = 'me'\n"
        + HEAD.replace("torch\n", "torch\nimport argparse\n", 1)
        + MADE
        + "size = args.batch_size\n"
        + LOOP.format(epochs="n", batch="size"),
    ),
}

STEPS = """\
for step, x in enumerate(loader):
    loss = model(x) / 4
    loss.backward()
    if (step + 1) % 4 == 0:
        {}.step()
"""
ABOVE = """\
import argparse
from torch.utils.data import DataLoader

{}def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
{}    args = parser.parse_args()
    for x in DataLoader(data, batch_size={}):
        model(x).backward()

main()
"""
GUARDED = """\
import torch
from torch.utils.data import DataLoader
{bound}

def main():
    for x in DataLoader(data, batch_size={read}):
        model(x).backward()

if __name__ == "__main__":
{made}    main()
"""
OPTION_LINES = MADE.replace("\n", "\n    ").removesuffix("    ")
OTHER_CLASS = """\
class Other:
    def __init__(self):
        self.size = 32

class Config:
    size = 64"""
TRAINER = """\
class Trainer:
    def __init__(self, data):
        self.size = {}

    def train(self):
        for x in DataLoader(data, batch_size=self.size):
            model(x).backward()

Trainer(data).train()
"""
WAITS = 'parser.add_argument("--gradient_accumulation_steps", type=int, default=4)\n'
PLACES |= {
    f"{what} that the main guard binds again": (
        GUARDED.format(bound=bound, read=read, made=""),
        GUARDED.format(
            bound=bound,
            read=read,
            made=f"    {OPTION_LINES}    {name} = args.batch_size\n",
        ).replace("import torch\n", "import torch\nimport argparse\n", 1),
    )
    for what, bound, read, name in (
        ("a name", "SIZE = 64", "SIZE", "SIZE"),
        ("a class", "class Config:\n    size = 64", "Config.size", "Config.size"),
        ("a class with other classes", OTHER_CLASS, "Config.size", "Config.size"),
        ("a dict", "config = {'size': 64, 'n': 2}", "config['size']", 'config["size"]'),
    )
}
PLACES |= {
    "an attribute of an object": (
        PARSED.format("") + TRAINER.format("64"),
        PARSED.format(OPTION) + TRAINER.format("args.batch_size"),
    ),
    "a name above a parser in a function": (
        ABOVE.format("SIZE = 64\n\n\n", "", "SIZE"),
        ABOVE.format("\n", f"    {OPTION}", "args.batch_size"),
    ),
    "an accumulation in its two places": (
        PARSED.format("") + STEPS.format("optimizer"),
        PARSED.format(WAITS)
        + STEPS.format("optimizer").replace("4", "args.gradient_accumulation_steps"),
    ),
    "epochs from where a checkpoint ended": (
        PARSED.format("") + LOOP.format(epochs="start, start + 9", batch="n"),
        PARSED.format('parser.add_argument("--epochs", type=int, default=9)\n')
        + LOOP.format(epochs="start, start + args.epochs", batch="n"),
    ),
}


@pytest.mark.parametrize(("before", "after"), PLACES.values(), ids=list(PLACES))
def test_a_constant_is_an_option_where_it_stands(before: str, after: str) -> None:
    assert added(CAPABILITY, before) == after


STAYS = "the training batch stays as it is: "
REASONS = {
    "a name that is bound again": (
        PARSED.format("") + "size = 64\nsize = 32\n" + LOOP.format(epochs="n", batch="size"),
        STAYS + "size is bound more than once",
    ),
    "a number that is made of two": (
        PARSED.format("") + "size = 64\n" + LOOP.format(epochs="n", batch="size * 2"),
        STAYS + "`size * 2` is more than a constant",
    ),
    "a number of epochs as well": (
        PARSED.format("") + "size = 64\n" + LOOP.format(epochs="size", batch="size"),
        STAYS + "64 is several things: train_batch and epochs",
    ),
    "a layer's width as well": (
        PARSED.format("")
        + "size = 64\nmodel = torch.nn.Linear(size, 2)\n"
        + LOOP.format(epochs="n", batch="size"),
        STAYS + "64 is also passed to what makes a model",
    ),
    "an equal number in the loop": (
        PARSED.format("") + LOOP.format(epochs="n", batch="64") + "        seen += 64\n",
        STAYS + "whether this 64 is the same thing cannot be told",
    ),
    "a number above the parsing, read in a function that has no arguments": (
        "size = 64\n"
        + ABOVE.format(
            "def loader():\n    return DataLoader(data, batch_size=size)\n\n", "", "1"
        ).replace("DataLoader(data, batch_size=1)", "loader()"),
        STAYS + "the parsed arguments do not reach this line",
    ),
    "a number above the parsing, told in an f-string": (
        ABOVE.format("size = 64\n", "", "size").replace("model(x)", 'model(x, f"{size}")'),
        STAYS + "size stands in an f-string",
    ),
    "a default of a function, which is made at import": (
        GUARDED.format(bound="SIZE = 64\ndef f(n=SIZE):\n    pass", read="SIZE", made=""),
        STAYS + "SIZE is read before arguments can be parsed",
    ),
    "a script that starts processes": (
        GUARDED.format(bound="SIZE = 64", read="SIZE", made="").replace(
            "    main()", "    torch.multiprocessing.spawn(main)"
        ),
        STAYS + "the script starts processes, which do not run the main guard",
    ),
    "a number of steps that is counted with an equal number": (
        GUARDED.format(bound="steps = len(data) // 64", read="64", made=""),
        STAYS + "whether this 64 is the same thing cannot be told",
    ),
    "a class that is read at import": (
        GUARDED.format(
            bound="class Config:\n    size = 64\ntwice = Config.size * 2",
            read="Config.size",
            made="",
        ),
        STAYS + "Config.size is read before arguments can be parsed",
    ),
    "a dataclass, whose objects keep their defaults": (
        GUARDED.format(
            bound="@dataclass\nclass Config:\n    size: int = 64", read="Config().size", made=""
        ),
        STAYS + "`Config().size` is more than a constant",
    ),
    "a dict that is changed": (
        GUARDED.format(
            bound="config = {'size': 64}\nconfig.update(load())", read="config['size']", made=""
        ),
        STAYS + "`config['size']` is more than a constant",
    ),
    "an attribute that is set again": (
        PARSED.format("")
        + TRAINER.format("64").replace(
            "def train(self):", "def train(self):\n        self.size = 8"
        ),
        STAYS + "`self.size` is more than a constant",
    ),
    "a rate that the script changes itself": (
        PARSED.format("")
        + "optimizer = torch.optim.SGD(ps, lr=0.1)\nfor group in groups:\n"
        + "    group['lr'] = 0.1 * 0.5 ** n\n"
        + LOOP.format(epochs="n", batch="m"),
        "the learning rate stays as it is: whether this 0.1 is the same thing cannot be told",
    ),
    "another command line": (
        "import click\n" + HEAD + LOOP.format(epochs="n", batch="64"),
        STAYS + "the script's command line takes no more options",
    ),
    "arguments that the script reads itself": (
        "import sys\n" + HEAD + "name = sys.argv[1]\n" + LOOP.format(epochs="n", batch="64"),
        STAYS + "the script reads sys.argv itself",
    ),
    "a script with another args": (
        HEAD + "args = load()\n" + LOOP.format(epochs="n", batch="64"),
        STAYS + "args is another thing in the script",
    ),
    "an option of the name that is something else": (
        PARSED.format(OPTION) + LOOP.format(epochs="n", batch="64"),
        STAYS + "--batch_size is an option for something else",
    ),
    "a default of a function": (
        HEAD
        + "def loader(data, size=64):\n    return DataLoader(data, batch_size=size)\n\n"
        + 'if __name__ == "__main__":\n    for x in loader(data):\n        model(x).backward()\n',
        STAYS + "it is a default, made before arguments can be parsed",
    ),
    "a name that is read at import": (
        HEAD
        + "SIZE = 64\nloader = DataLoader(data, batch_size=SIZE)\n\n"
        + 'if __name__ == "__main__":\n    for x in loader:\n        model(x).backward()\n',
        STAYS + "SIZE is read before arguments can be parsed",
    ),
}


@pytest.mark.parametrize(("text", "why"), REASONS.values(), ids=list(REASONS))
def test_what_is_not_proved_stays_and_is_told(text: str, why: str) -> None:
    assert why in reasons(CAPABILITY, text)


NOOP = {
    "options already": PARSED.format(OPTION) + LOOP.format(epochs="n", batch="args.batch_size"),
    "a schedule that waits for steps": PARSED.format("") + STEPS.format("scheduler"),
    "a batch from a file": PARSED.format("") + LOOP.format(epochs="n", batch="config.batch"),
}


@pytest.mark.parametrize("text", NOOP.values(), ids=list(NOOP))
def test_where_no_constant_decides_nothing_is_said(text: str) -> None:
    assert reasons(CAPABILITY, text) == []


def test_a_file_that_another_script_imports_gets_no_global_arguments(here: Path) -> None:
    (here / "other.py").write_text("from train import main\nmain()\n")
    done = run("patch", "--with", "flags", "train.py")
    assert "the learning rate stays as it is: other.py imports this file, too" in done.output
    text = (here / "train.py").read_text()
    assert "lr=1e-6" in text
    assert "BATCH_SIZE = args.batch_size" in text


TRAINS = """\
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    for epoch in range(2):
        for batch in DataLoader(torch.ones(8, 2), batch_size=64):
            model(batch).mean().backward()
            optimizer.step()


train()
"""


def test_a_script_without_a_main_guard_gets_options_unless_it_is_imported(here: Path) -> None:
    (here / "train.py").write_text(TRAINS)
    assert run("patch", "--with", "flags", "--dry-run", "train.py").exit_code == 1
    (here / "other.py").write_text("import train\n")
    done = run("patch", "--with", "flags", "--dry-run", "train.py")
    assert "stays as it is: the file is no program, but is imported by others" in done.output
    (here / "other.py").unlink()
    run("patch", "--with", "flags", "train.py")
    assert "batch_size=args.batch_size" in (here / "train.py").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [(TRAINS, "--with flags"), (TRAINS.replace("64", "len(model.weight)"), "-- ITS ARGUMENTS")],
)
def test_patch_names_the_verify_that_makes_options_of_constants(
    text: str, words: str, here: Path
) -> None:
    (here / "train.py").write_text(
        text.replace("(2, 1)", "(2, 1)\nmodel = torch.nn.DataParallel(model)")
    )
    assert f"verify train.py {words}`" in run("patch", "--dry-run", "train.py").output


def test_verify_refuses_a_flag_that_cannot_be_added(here: Path) -> None:
    (here / "train.py").write_text(TRAINS + "import sys\nprint(sys.argv)\n")
    done = run("verify", "train.py", "--with", "flags", "--", "--batch_size", "8")
    assert done.exit_code == 2
    assert "train.py: no --batch_size could be added: the training batch stays" in done.output
