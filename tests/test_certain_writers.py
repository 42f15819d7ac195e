"""An error is what certainly happens: a checkpoint in a function that every rank calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import run

HEAD = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for batch in batches:
    model(batch).backward()


"""
SAVE = 'torch.save(model.state_dict(), "model.pt")'
WORK = """\
def work(rank, size=2):
    dist.init_process_group("gloo", rank=rank, world_size=size)


def main():
    {save}
    {start}


main()
"""
SPAWN = "torch.multiprocessing.spawn(work, nprocs=2)"
SCRIPTS = [
    pytest.param(WORK.format(save=SAVE, start=SPAWN), "note", id="before it starts the ranks"),
    pytest.param(WORK.format(save=SAVE, start=f"work(0, 1) if args.alone else {SPAWN}"),
        "note", id="before it starts them, or works alone"),
    pytest.param(WORK.format(save=SAVE, start=f"work(args.rank) if args.started else {SPAWN}"),
        "error", id="before it starts them, or is one of them"),
    pytest.param(WORK.replace("world_size=size)", f"world_size=size)\n    {SAVE}").format(
        save="pass", start=SPAWN), "error", id="in the ranks that it starts"),
    pytest.param(f"def save(model):\n    {SAVE}\n\n\nsave(model)\n", "error", id="called"),
    pytest.param(f"if place.cuda_id == 0:\n    {SAVE}\n", "warning", id="on the first card, maybe"),
    pytest.param(f"if place.colours == 0:\n    {SAVE}\n", "error", id="without colours"),
    pytest.param(
        f"def save(model):\n    {SAVE}\n\n\ndef main():\n    save(model)\n\n\nmain()\n",
        "error",
        id="called by what is called",
    ),
    pytest.param(
        f"class Trainer:\n    def save(self):\n        {SAVE}\n\n\n"
        "trainer = Trainer()\ntrainer.save()\n",
        "error",
        id="a method of a known object",
    ),
    pytest.param(
        f"def work(rank, model):\n    {SAVE}\n\n\ntorch.multiprocessing.spawn(work, (model,), 2)\n",
        "error",
        id="passed on to be called",
    ),
    pytest.param(f"if not os.path.exists(cache):\n    {SAVE}\n",
        "warning", id="if there is no file, which another rank may have left by then"),
    pytest.param(f"if os.path.exists(data):\n    {SAVE}\n", "error", id="if there is a file"),
    pytest.param(f"if os.path.exists(cache):\n    pass\nelse:\n    {SAVE}\n",
        "warning", id="else, where there is none"),
    pytest.param(f"if not os.path.exists(data):\n    raise OSError(data)\n{SAVE}\n",
        "error", id="behind a test for the input"),
    pytest.param(f"def save(model):\n    {SAVE}\n", "warning", id="called by nothing that is read"),
    pytest.param(
        f"class Saver:\n    def save(self):\n        {SAVE}\n\n\nmade_elsewhere().save()\n",
        "warning",
        id="a method that may be this one",
    ),
    pytest.param(
        f"def save(model):\n    {SAVE}\n\n\ndef convert(model):\n    save(model)\n",
        "warning",
        id="called by what nothing calls",
    ),
    pytest.param(f"if not args.spawned or args.rank % args.cards == 0:\n    {SAVE}\n",
        "warning", id="only the first of each machine, in one of two ways to start it"),
    pytest.param(
        "def is_first():\n    return not args.spawned or args.rank % args.cards == 0\n\n\n"
        f"args.saves = is_first()\nif args.saves:\n    {SAVE}\n",
        "warning", id="the same behind a function and an attribute"),
    pytest.param(
        "def save(saves):\n    if not saves:\n        return\n"
        f"    {SAVE}\n\n\nsave(int(os.environ[\"SLURM_PROCID\"]) < 1)\n",
        "note", id="the same passed to a function, by a number of a scheduler's"),
    pytest.param(
        "is_root = backend.is_root_worker()\n\n\ndef save(model):\n    if not is_root:\n"
        f"        return\n    {SAVE}\n\n\nsave(model)\n",
        "warning", id="unless a library that is not read says otherwise"),
    pytest.param(
        f"def save(model):\n    {SAVE}\n\n\nclass Saver:\n    def all(self):\n"
        "        save(model)\n\n\nmade_elsewhere().all()\nif dist.get_rank() == 0:\n"
        "    save(model)\n",
        "warning", id="for certain by rank 0, perhaps by others"),
    pytest.param(
        "class Env:\n    @property\n    def first(self):\n        return self.rank == 0\n\n\n"
        f"env = made_elsewhere()\nif env.first:\n    {SAVE}\n",
        "warning", id="by a property that asks for a rank"),
    pytest.param(f"if not config.sharded:\n    {SAVE}\n", "error", id="another setting"),
    pytest.param(f"if config.save_again:\n    {SAVE}\n",
        "warning", id="with a setting of a file that is not read"),
    pytest.param(f"if batch % 100 == 0:\n    {SAVE}\n", "error", id="at every 100th step"),
    pytest.param(f"if config.get(\"save\", False):\n    {SAVE}\n",
        "warning", id="a setting that is off by default"),
    pytest.param(f"if config.get(\"save\", True):\n    {SAVE}\n",
        "error", id="a setting that is on by default"),
    pytest.param(f"if not config.get(\"dry\", False):\n    {SAVE}\n",
        "error", id="unless a setting is turned on"),
    pytest.param(f"if config.get(\"dry\", False):\n    pass\nelse:\n    {SAVE}\n",
        "error", id="in the other branch of one that is off by default"),
    pytest.param(
        f"def save(model, scaler=None):\n    if scaler is not None:\n        {SAVE}\n\n\n"
        "save(model, trainer.scaler)\n",
        "warning", id="for an object that is optional"),
    pytest.param(
        f"def save(safely):\n    if safely:\n        pass\n    else:\n        {SAVE}\n\n\n"
        "save(not config.get(\"plain\", False))\n",
        "warning", id="where an option turns the usual way off"),
    pytest.param(
        "args = ArgumentParser()\nargs.add_argument(\"--save\", action=\"store_true\")\n"
        f"args = args.parse_args()\nif args.save and batch:\n    {SAVE}\n",
        "warning", id="with a switch"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "severity"), SCRIPTS)
def test_every_rank_writes_it_for_certain_only_where_it_is_called(
    tmp_path: Path, script: str, severity: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + script)
    output = run("check", "--select", "DF601", "--notes", "--output-format", "concise", path).stdout
    (told,) = re.findall(r"DF601 (\w+): ", output)
    assert told == severity


def test_a_loop_of_unknown_data_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        HEAD + "for _ in range(10):\n    loss = model(torch.rand(4)).sum()\n    loss.backward()\n"
        "    optimizer.step()\n"
    )
    output = run("check", "--select", "DF401", "--output-format", "concise", path).stdout
    assert set(re.findall(r"DF401 (\w+): ", output)) == {"warning"}


def test_the_main_guard_of_an_imported_script_calls_nothing(tmp_path: Path) -> None:
    guard = f'def save(model):\n    {SAVE}\n\n\nif __name__ == "__main__":\n    save(model)\n'
    (tmp_path / "export.py").write_text("import torch\n\n\n" + guard)
    (tmp_path / "train.py").write_text("import export\n" + HEAD)
    output = run(
        "check", "--notes", "--select", "DF601", "--output-format", "concise", tmp_path / "train.py"
    )
    assert re.findall(r"DF601 (\w+): ", output.stdout) == ["note"]


def test_rank_0_of_a_script_calls_what_the_guard_of_an_imported_one_calls(tmp_path: Path) -> None:
    guard = f'def save(model):\n    {SAVE}\n\n\nif __name__ == "__main__":\n    save(model)\n'
    (tmp_path / "export.py").write_text("import torch\n\n\n" + guard)
    call = "if dist.get_rank() == 0:\n    export.save(model)\n"
    (tmp_path / "train.py").write_text("import export\n" + HEAD + call)
    output = run(
        "check", "--notes", "--select", "DF601", "--output-format", "concise", tmp_path / "train.py"
    )
    assert "written in place" in output.stdout
    assert "every rank" not in output.stdout


@pytest.mark.parametrize(
    ("taken", "severity"), [("batches[i]", "error"), ("batches[order[i]]", "warning")]
)
def test_a_loop_that_takes_each_of_its_batches_is_an_error(
    tmp_path: Path, taken: str, severity: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        f"{HEAD}for i in range(len(batches)):\n    loss = model({taken}).sum()\n"
        "    loss.backward()\n    optimizer.step()\n"
    )
    output = run("check", "--select", "DF401", "--output-format", "concise", path).stdout
    assert re.findall(r"DF401 (\w+): ", output) == ["warning", severity]  # HEAD has one, too


def test_ranks_are_made_by_an_option_and_none_comes_where_it_is_off(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    made = HEAD.replace("dist.init", "if config.sharded:\n    dist.init")
    path.write_text(f"{made}if not config.sharded:\n    {SAVE}\n")
    output = run("check", "--select", "DF601", "--notes", "--output-format", "concise", path).stdout
    assert re.findall(r"DF601 (\w+): ", output) == ["warning"]
