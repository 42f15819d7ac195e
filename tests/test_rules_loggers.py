"""DF609: event files and runs of Weights & Biases that every rank would write."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import argparse
import mlflow, trackio, visdom
from dvclive import Live
import tensorboard_logger as board
import tensorflow as tf
import torch
import wandb
from torch.utils.tensorboard import SummaryWriter

def main():
    args = argparse.ArgumentParser().parse_args()
    {above}
    torch.distributed.init_process_group("gloo")
    {made}
    for step in range(3):
        {written}

main()
"""
WRITTEN = "writer.add_scalar('loss', 1 / (step + 1), step)"
MAIN = "if torch.distributed.get_rank() == 0:"


def script(made: str, written: str = WRITTEN, above: str = "pass") -> str:
    return SCRIPT.format(made=made, written=written, above=above)


NOOP = [
    ("rank 0 alone makes it",
     f"writer = None\n    {MAIN}\n        writer = SummaryWriter()", WRITTEN),
    ("a folder for each rank",
     "writer = SummaryWriter(f'runs/{torch.distributed.get_rank()}')", WRITTEN),
    ("rank 0 alone writes", "writer = SummaryWriter()", f"{MAIN} {WRITTEN}"),
    ("nobody writes", "writer = SummaryWriter()", "pass"),
    ("a choice by rank",
     "writer = SummaryWriter('a' if torch.distributed.get_rank() == 0 else 'b')", WRITTEN),
    ("rank 0's run", f"{MAIN} wandb.init()", "pass"),
    ("a run of each rank in a group", "wandb.init(group='all')", "pass"),
    ("a run that is disabled anyway", "wandb.init(mode='disabled')", "pass"),
    ("a test that may be rank 0's",
     "writer = None\n    if args.is_leader:\n        writer = SummaryWriter()",
     WRITTEN),
    ("one rank of each machine",
     "writer = None\n    if args.node_rank % args.gpus == 0:\n        writer = SummaryWriter()",
     WRITTEN),
    ("rank 0's run of mlflow", f"{MAIN} mlflow.start_run()", "pass"),
    ("another library's init", "torch.nn.init(1)", "pass"),
    ("a Logger of another kind", "writer = metrics.Logger(args.logs)", WRITTEN),
]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "written"), [pytest.param(*rest, id=name) for name, *rest in NOOP]
)
def test_one_log_of_a_run_is_left_alone(made: str, written: str) -> None:
    assert [each.because for each in found("DF609", script(made, written))] == []


ELSE = "is_main_process() else"
FIX = [
    ("SummaryWriter()", f"SummaryWriter(None if {ELSE} tempfile.mkdtemp())"),
    ("SummaryWriter(args.logs)", f"SummaryWriter(args.logs if {ELSE} tempfile.mkdtemp())"),
    ("SummaryWriter(log_dir=args.logs, flush_secs=9)",
     f"SummaryWriter(log_dir=args.logs if {ELSE} tempfile.mkdtemp(), flush_secs=9)"),
    ("SummaryWriter(comment='x')",
     f"SummaryWriter(None if {ELSE} tempfile.mkdtemp(), comment='x')"),
    ("SummaryWriter(args.a if args.b else 'c')",
     f"SummaryWriter((args.a if args.b else 'c') if {ELSE} tempfile.mkdtemp())"),
    ("board.Logger(logdir=args.logs, flush_secs=2)",
     f"board.Logger(logdir=args.logs if {ELSE} tempfile.mkdtemp(), flush_secs=2)"),
    ("tf.summary.FileWriter(args.logs)",
     f"tf.summary.FileWriter(args.logs if {ELSE} tempfile.mkdtemp())"),
    ("wandb.init()", f"wandb.init(mode=None if {ELSE} 'disabled')"),
    ("wandb.init(project='p')", f"wandb.init(project='p', mode=None if {ELSE} 'disabled')"),
    ("wandb.init(mode=args.mode, project='p')",
     f"wandb.init(mode=args.mode if {ELSE} 'disabled', project='p')"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "patched"), FIX)
def test_rank_0_logs_for_all(made: str, patched: str) -> None:
    written = "writer.log({'step': step})" if "wandb" in made else WRITTEN
    written = written.replace("add_scalar", "log_value") if "board" in made else written
    written = written.replace("add_scalar", "add_summary") if "tf." in made else written
    new = fixed("DF609", script(f"writer = {made}", written))
    assert f"    writer = {patched}\n" in new
    assert found("DF609", new) == []


READ = f"{WRITTEN}; open(os.path.join(writer.log_dir, 'args.txt'))"


def test_all_ranks_know_the_folder_of_rank_0_where_the_script_asks_a_writer_for_it() -> None:
    new = fixed("DF609", script("writer = SummaryWriter()", READ))
    assert "    writer.log_dir = what_rank_0_has(writer.log_dir)\n" in new
    assert found("DF609", new) == []
    other = READ.replace("writer.log_dir", "args.log_dir")
    assert "what_rank_0_has" not in fixed("DF609", script("writer = SummaryWriter()", other))


def test_a_folder_that_is_read_is_told_of_where_ranks_cannot_be_told_it() -> None:
    (finding,) = found("DF609", script("pass", READ, "writer = SummaryWriter()"))
    assert "reads its folder, which all ranks need" in finding.because
    assert finding.edits == ()


OWN = """\
import torch
from torch.utils.tensorboard import SummaryWriter

class Board(SummaryWriter):
    def __init__(self, options, folder):
        super({inside}).__init__(folder)

    def log(self, step):
        self.add_scalar("loss", 1 / (step + 1), step)

torch.distributed.init_process_group("gloo")
{made}
"""


@pytest.mark.parametrize("inside", ["", "Board, self"])
def test_a_writer_of_a_class_of_its_own_gets_its_folder_in_the_constructor(inside: str) -> None:
    made = 'board = Board(options, "runs")\nboard.log(1)'
    new = fixed("DF609", OWN.format(inside=inside, made=made))
    assert f"super({inside}).__init__(folder if {ELSE} tempfile.mkdtemp())\n" in new
    assert found("DF609", new) == []
    alone = f"{MAIN}\n    {made}".replace("\nboard.", "\n    board.")
    assert found("DF609", OWN.format(inside=inside, made=alone)) == []


def test_a_group_of_runs_has_one_of_a_training_where_a_script_knew_of_no_ranks() -> None:
    group = """if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:
        torch.distributed.init_process_group("gloo")"""
    text = script("wandb.init(group='all')", "pass").replace("import torch", "import os, torch", 1)
    new = fixed("DF609", text.replace('torch.distributed.init_process_group("gloo")', group))
    assert "wandb.init(group='all', mode=None if is_main_process() else 'disabled')" in new


def test_before_the_group_the_launcher_is_asked() -> None:
    new = fixed("DF609", script("pass", above="writer = SummaryWriter('runs')"))
    test = "int(os.environ.get('RANK', -1)) in (-1, 0)"
    assert f"    writer = SummaryWriter('runs' if {test} else tempfile.mkdtemp())\n" in new


REPORTED = [
    ("a sweep's settings", "wandb.init()\n    rate = wandb.config.rate"),
    ("the run's folder", "wandb.init()\n    torch.save({}, wandb.run.dir)"),
    ("a run that is passed on", "print(wandb.init())"),
    ("a run's name", "run = wandb.init()\n    print(run.name)"),
    ("words of a dict", "wandb.init(**vars(args))"),
    ("a run of mlflow", "mlflow.start_run()"),
    ("curves of visdom", "visdom.Visdom()"),
    ("a run of trackio", "trackio.init(project='x')"),
    ("a folder of dvclive", "Live()"),
]


@pytest.mark.parametrize("made", [pytest.param(made, id=name) for name, made in REPORTED])
def test_a_run_that_is_read_back_is_reported(made: str) -> None:
    (finding,) = found("DF609", script(made, "pass"))
    assert finding.edits == ()


def test_what_is_only_set_is_not_read_back() -> None:
    made = "run = wandb.init()\n    wandb.config.update(vars(args))\n    wandb.config.lr = 1\n"
    (finding,) = found("DF609", script(made + "    run.log({'a': 1})", "wandb.log({'b': 1})"))
    assert finding.edits


TRAINING = """\
import argparse
import torch
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs")
    args = parser.parse_args()
    writer = SummaryWriter(args.logs)
    model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in DataLoader(torch.randn(8, 2), batch_size=4):
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        writer.add_scalar("loss", loss.item())

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("rank", "is_own"), [(None, True), (0, True), (1, False)])
def test_a_patched_training_logs_on_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int | None, is_own: bool
) -> None:
    path = tmp_path / "run.py"
    path.write_text(TRAINING)
    result = patch(path)
    assert result.refusal == ""
    (line,) = [each for each in result.changes[0].text.splitlines() if "SummaryWriter(" in each]
    made: list[str] = []
    names = {
        "SummaryWriter": made.append,
        "args": SimpleNamespace(logs="runs"),
        "is_main_process": lambda: not rank,
        "tempfile": SimpleNamespace(mkdtemp=lambda: "elsewhere"),
    }
    exec(line.strip(), names)
    assert made == ["runs" if is_own else "elsewhere"]


ANNOTATED = """\
import argparse
import torch
from torch.utils.tensorboard import SummaryWriter

class Log:
    def __init__(self, folder):
        self.writer = SummaryWriter(folder)

    def write(self, loss):
        self.writer.add_scalar("loss", loss)

def train(log: {annotation}):
    log.write(1.0)

def main():
    args = argparse.ArgumentParser().parse_args()
    torch.distributed.init_process_group("gloo")
    log: {annotation} = None
    if torch.distributed.get_rank() == 0:
        log = Log(args.folder)
    train(log)

main()
"""


@pytest.mark.parametrize("annotation", ["Log", "list[Log] | None"])
def test_what_annotates_a_name_makes_no_object(annotation: str) -> None:
    assert found("DF609", ANNOTATED.format(annotation=annotation)) == []


def test_an_object_of_all_ranks_makes_its_writer_on_each() -> None:
    everywhere = ANNOTATED.format(annotation="Log").replace(
        "if torch.distributed.get_rank() == 0:", "if True:"
    )
    assert len(found("DF609", everywhere)) == 1
