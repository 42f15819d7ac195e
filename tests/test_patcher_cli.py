"""The commands check, patch, explain and rules, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ddpfix.cli import ddpfix
from ddpfix.fixtures.tiny import copy_family

LEGACY = "import torch\nfor b in bs: b.backward()\nx = batch // args.n_gpu\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(ddpfix, [str(argument) for argument in arguments])


@pytest.fixture
def family(tmp_path: Path) -> Path:
    return copy_family("bigclonebench", tmp_path / "code")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.py"
    path.write_text(LEGACY)
    return path


BAD = [
    pytest.param(["check", "{folder}/bad.py"], "bad.py:2: not valid Python", id="syntax error"),
    pytest.param(["patch", "{folder}/bad.py"], "bad.py:2: not valid Python", id="patching it"),
    pytest.param(["check", "{folder}/gone.py"], "gone.py: no such file", id="missing file"),
    pytest.param(["patch", "{folder}/gone.py"], "gone.py: no such file", id="patching that"),
    pytest.param(["check", "{folder}/empty"], "no Python files in this folder", id="no scripts"),
    pytest.param(["patch", "{folder}/empty"], "no Python files in this folder", id="none to patch"),
    pytest.param(["explain", "DF999"], "no rule DF999", id="unknown code"),
    pytest.param(["check", "--select", "XY", "{folder}/run.py"], "starts with XY", id="selection"),
    pytest.param(["check", "{folder}/cookie.py"], "cannot be decoded", id="unknown encoding"),
    pytest.param(["check", "{folder}/book.ipynb"], "nbconvert --to script", id="a notebook"),
    pytest.param(["check", "{folder}/null.py"], "null.py:1: not valid Python", id="null bytes"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, script: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "bad.py").write_text("import torch\nprint 'Python 2'\n")
    (tmp_path / "cookie.py").write_text("# coding: nonsense\nimport torch\n")
    (tmp_path / "book.ipynb").write_text('{"cells": [{"source": ["import torch"]}]}')
    (tmp_path / "null.py").write_bytes(b"import torch\0\n")
    (tmp_path / "empty").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    result = run(*(argument.format(folder=tmp_path) for argument in arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_broken_file_does_not_stop_the_others(tmp_path: Path, script: Path) -> None:
    (tmp_path / "bad.py").write_text("import torch\nprint 'Python 2'\n")
    result = run("check", tmp_path)
    assert result.exit_code == 2
    assert "DF203" in result.stdout
    assert "bad.py:2" in result.stderr


def test_check_names_place_consequence_and_way_out(script: Path) -> None:
    result = run("check", script)
    assert result.exit_code == 1
    assert (
        result.stdout
        == f"""{script}
  DF203 error: A batch size is divided by the number of cards, which may be none
    ZeroDivisionError on a machine without a card.
    3:5 | x = batch // args.n_gpu
        |     ^^^^^^^^^^^^^^^^^^^ batch // args.n_gpu: args.n_gpu is 0 without a card

  fix: `ddpfix patch` has an edit for it

"""
    )


def test_check_prints_its_findings_as_json(script: Path) -> None:
    (row,) = json.loads(run("check", "--output-format", "json", script).stdout)
    assert (row["line"], row["code"], row["severity"], row["safety"]) == (
        3,
        "DF203",
        "error",
        "safe",
    )


def test_a_clean_script_is_silent(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text("import torch\n")
    result = run("check", path)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "0 findings in 1 file\n")


def test_dry_run_prints_the_diff_and_writes_nothing(script: Path) -> None:
    result = run("patch", "--dry-run", script)
    assert result.exit_code == 1
    assert "-x = batch // args.n_gpu\n+x = batch // max(1, args.n_gpu)\n" in result.stdout
    assert script.read_text() == LEGACY
    assert f"`ddpfix verify {script} -- ITS ARGUMENTS` proves" in result.stderr


def test_patch_once_is_patch_twice_and_check_is_silent(family: Path) -> None:
    first = run("patch", family)
    assert first.exit_code == 1
    assert first.stdout == ""
    assert f"`ddpfix verify {family} --rev HEAD -- ITS ARGUMENTS` proves" in first.stderr
    text = family.read_bytes()
    second = run("patch", family)
    assert (second.exit_code, second.stdout, second.stderr) == (0, "", "")
    assert family.read_bytes() == text
    check = run("check", family.parent)
    assert (check.exit_code, check.stdout, check.stderr) == (0, "", "0 findings in 2 files\n")


FOR_CARDS = """
import os
import torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
sampler = torch.utils.data.distributed.DistributedSampler(data)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in torch.utils.data.DataLoader(data, sampler=sampler):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
"""


def test_a_script_that_is_right_on_cards_is_left_as_it_is_unless_asked(script: Path) -> None:
    script.write_text(FOR_CARDS)
    left = run("patch", script)
    assert (left.exit_code, left.stdout) == (0, "")
    assert f"{script}: nothing to repair; `--select DF202` makes the edits of its n" in left.stderr
    assert script.read_text() == FOR_CARDS
    assert run("patch", "--select", "DF202", script).exit_code == 1
    assert "destroy_process_group()" in script.read_text()


def test_one_that_is_also_wrong_gets_the_edits_of_its_notes_as_well(script: Path) -> None:
    script.write_text(FOR_CARDS.replace("    sampler.set_epoch(epoch)\n", ""))
    assert run("patch", script).exit_code == 1
    assert "set_epoch(epoch)" in script.read_text()
    assert "destroy_process_group()" in script.read_text()


def test_that_one_process_trains_alone_is_told_where_nothing_else_is_to_do(script: Path) -> None:
    script.write_text(
        "import torch\nbody, head = make()\n"
        "optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (body, head)]\n"
        "for batch in torch.utils.data.DataLoader(data):\n    head(body(batch)).backward()\n"
        "    for each in optimizers:\n        each.step(closure)\n"
    )
    result = run("patch", script)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"left alone: {script}:4:1: DF204 note: One process trains, on one" in result.stderr


def test_a_script_whose_modules_cannot_be_read_is_not_called_right(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def train(loss):\n    loss.backward()\n    print loss\n")
    script = tmp_path / "run.py"
    script.write_text("import torch\nfrom model import train\ntrain(torch.ones(1))\n")
    result = run("patch", "--diff", script)
    assert f"{script}: nothing found in what could be read; not read: model.py" in result.stderr
    (tmp_path / "model.py").write_text("def train(loss):\n    return loss\n")
    assert run("patch", "--diff", script).stderr == ""


def test_a_patch_tells_what_it_has_not_read(script: Path) -> None:
    told = f"{script}: this rests on what could be read; not read: model.py\n"
    text = f"from model import Net\n{script.read_text()}"
    script.write_text(text)
    model = script.with_name("model.py")
    for code, is_read in (("class Net: pass\n", True), ("class Net(: pass\n", False)):
        model.write_text(code + "import torch\n")
        assert (told in run("patch", "--diff", script).stderr) is not is_read


def test_a_refusal_names_what_stands_in_the_way(family: Path) -> None:
    before = family.read_bytes()
    result = run("patch", "--select", "DF101", family)
    assert result.exit_code == 2
    assert "errors would be left: DF" in result.stderr
    assert family.read_bytes() == before


def test_explain_prints_the_manual() -> None:
    result = run("explain", "df402")
    assert result.exit_code == 0
    assert "The sampler deals the same order in every epoch." in result.stdout
    assert "Fix safety   Safe" in result.stdout


def test_explain_suggests_a_code() -> None:
    assert "did you mean DF10" in run("explain", "DF10").stderr


def test_rules_lists_every_code_once() -> None:
    lines = run("rules").stdout.splitlines()
    codes = [line.split()[0] for line in lines]
    assert len(set(codes)) == len(codes)
    assert {"DF101", "DF202", "DF203", "DF303", "DF402", "DF501", "DF502", "DF503"} <= set(codes)
    assert {"DF504", "DF601", "DF602", "DF604", "DF606", "DF702", "DF706", "DF901"} <= set(codes)


def test_a_patch_tells_which_module_only_the_run_chooses(script: Path) -> None:
    chosen = "importlib.import_module(args.kind)"
    script.write_text(f"import importlib\n{script.read_text()}\nmodel = {chosen}.Net()\n")
    told = f"{script}: this rests on what could be read; not read: {chosen}\n"
    assert told in run("patch", "--diff", script).stderr
