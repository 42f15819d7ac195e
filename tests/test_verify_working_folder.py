"""A script without an option for its output: what each run writes where it runs is compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run
from ddpfix.launchers.trace.events import File
from ddpfix.launchers.trace.written_files import WrittenFiles
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.scripts import prepare_scripts
from ddpfix.launchers.verify.verifier import Verdict, verify

PICTURES = """
import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 12

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch_size", type=int, default=8)
args = parser.parse_args()
torch.manual_seed(1)
here = os.path.dirname(os.path.abspath(__file__))
pictures = torch.randn(24, 1, 4, 4)
labels = (pictures[:, 0, 0, 0] > 0).long()
trainset, testset = TensorDataset(pictures, labels), TensorDataset(pictures[:6], labels[:6])
trainloader = DataLoader(trainset, batch_size=args.batch_size, shuffle=True)
testloader = DataLoader(testset, batch_size=3)
device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(12, 2)).to(device)
if device == "cuda":
    net = nn.DataParallel(net)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=args.lr)


def train():
    net.train()
    for inputs, targets in trainloader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = criterion(net(inputs), targets)
        loss.backward()
        optimizer.step()


def test(epoch):
    net.eval()
    right = 0
    with torch.no_grad():
        for inputs, targets in testloader:
            inputs, targets = inputs.to(device), targets.to(device)
            right += net(inputs).max(1)[1].eq(targets).sum().item()
    if not os.path.isdir("checkpoint"):
        os.mkdir("checkpoint")
    torch.save({"net": net.state_dict(), "epoch": epoch}, "./checkpoint/ckpt.pth")
    with open(os.path.join(here, "scores.txt"), "a") as file:
        file.write("%d %d\\n" % (epoch, right))


for epoch in range(2):
    train()
    test(epoch)
"""
ARGUMENTS = ("--lr", "0.1", "--batch_size", "8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the script, a checkpoint of a user's beside it, and a folder to run in."""
    folder = tmp_path / "project"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "ckpt.pth").write_bytes(b"months of work")
    (folder / "train.py").write_text(PICTURES)
    monkeypatch.chdir(folder)
    return folder


def judge(script: Path, isolation: str, **request: object) -> Verdict:
    """The verdict on this script in one and two processes."""
    settings: dict[str, object] = {"world_sizes": (1, 2), "accumulations": (1,), **request}
    return verify(VerifyRequest(script, ARGUMENTS, isolation=isolation, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("isolation", ["auto", "copy"])
def test_what_a_script_writes_where_it_runs_is_its_output(project: Path, isolation: str) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    worlds = (1, 2) if isolation == "auto" else (1,)
    verdict = judge(project / "train.py", isolation, world_sizes=worlds)
    assert verdict.holds or worlds == (1,), verdict.rows
    assert verdict.broken == ()
    assert verdict.row("C2").evidence.endswith("2 files the same")
    assert "the same bytes in scores.txt" in verdict.row("C4").evidence
    assert verdict.row("C5").evidence == "checkpoint/ckpt.pth, scores.txt: one writer each"
    assert (
        "no argument names an output folder: each run had a working folder of its own, and what it "
        f"wrote there is compared (checkpoint/ckpt.pth, scores.txt, in {project})"
    ) in verdict.notes
    after = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert after == before


def test_files_that_come_out_otherwise_break_c2(project: Path) -> None:
    """The patched script writes another score, and trains as it did."""
    original = project.parent / "original.py"
    original.write_text(PICTURES)
    script = project / "train.py"
    script.write_text(PICTURES.replace('"%d %d', '"%d, %d'))
    verdict = judge(script, "auto", original=original, world_sizes=(1,))
    assert verdict.row("C2").status == "broken"
    assert verdict.row("C2").evidence == "files differ: scores.txt"


TIMED = """
began = time.time()
for epoch in range(2):
    train()
    test(epoch)
    logging.getLogger("t").info("epoch took = %.9f", time.time() - began)
    with open("timed.txt", "a") as file:
        file.write("%d %.9f\\n" % (epoch, time.time() - began))
with open("run-%d.txt" % time.time_ns(), "w") as file:
    file.write("done")
"""


def test_seconds_in_what_a_script_writes_are_no_fault_of_the_patch(project: Path) -> None:
    text = PICTURES.replace("import os\n", "import logging, os, time\n", 1)
    (project / "train.py").write_text(text.partition("for epoch in range(2):")[0] + TIMED)
    verdict = judge(project / "train.py", "auto", world_sizes=(1,))
    assert verdict.broken == ()
    assert verdict.row("C2").status == "holds"
    assert verdict.row("C2").evidence.endswith(
        "2 files the same; the original alone gives another run-#.txt, timed.txt, epoch took each "
        "time"
    )


def test_in_place_such_runs_are_refused(project: Path) -> None:
    result = run("verify", "--in-place", "train.py", "--", *ARGUMENTS)
    assert result.exit_code == 2
    assert result.stderr.strip().splitlines()[-1] == (
        "ddpfix: train.py: its arguments name no output folder, so in place its runs would "
        "overwrite each other's files and yours: leave --in-place out"
    )
    assert (project / "checkpoint" / "ckpt.pth").read_bytes() == b"months of work"
    assert not (project / "scores.txt").exists()


def test_a_constant_batch_is_told_with_what_makes_an_option_of_it(project: Path) -> None:
    """Also where another constant, here the epochs, has to stay as it is."""
    script = project / "train.py"
    option = 'parser.add_argument("--batch_size", type=int, default=8)\n'
    text = PICTURES.replace(option, "").replace("args.batch_size", "12")
    script.write_text(text.replace("range(2)", "range(args.first, args.first + 2)"))
    result = run("verify", "--isolation", "auto", "train.py", "--", "--lr", "0.1")
    assert result.exit_code == 2
    assert "--with flags makes an option of it" in result.stderr
    request = VerifyRequest(script, ("--lr", "0.1"), capabilities=("flags",))
    scripts = prepare_scripts(request, project.parent / "runs")
    assert '"--batch_size", type=int, default=12' in scripts.patched.read_text()
    assert scripts.arguments_for_original(["--batch_size", "12", "--lr", "1"]) == ["--lr", "1"]


def test_of_what_is_written_the_files_that_stay_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept = tmp_path / "work", tmp_path / "kept"
    (folder / "code").mkdir(parents=True)
    written = WrittenFiles(kept, (folder, folder / "code"))
    monkeypatch.chdir(folder)

    def write(name: str, op: str = "write", to: str | None = None) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        full = str(tmp_path / to) if to else None
        written.note(
            File(op=op, path=str(path), to=full, existed=False, via="audit", pid=1, site=None)
        )

    for name in ("work/a", "work/code/b", "elsewhere/c", "work/.cache/d", "work/gone", "work/t/e"):
        write(name)
    (folder / "gone").unlink()
    write("work/f.partial", "rename", "work/f")
    (folder / "f.partial").rename(folder / "f")
    written.note(
        File(
            op="rename",
            path=str(folder / "t"),
            to=str(folder / "best"),
            existed=True,
            via="audit",
            pid=1,
            site=None,
        )
    )
    (folder / "t").rename(folder / "best")
    written.copy()
    written.copy()
    names = [str(path.relative_to(kept)) for path in sorted(kept.rglob("*")) if path.is_file()]
    assert names == ["a", "best/e", "code/b", "f"]
