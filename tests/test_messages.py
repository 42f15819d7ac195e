"""What a user reads: places as they lie on the disk, counts, and a diff that can be applied."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from cases import module
from command_line import LEGACY, run
from ddpfix.patcher.api import all_rules, check, patch, read_program
from ddpfix.patcher.engine import disk_lines
from ddpfix.patcher.engine.diffs import unified_diff
from ddpfix.patcher.frontend.remedies import remedies
from ddpfix.patcher.rules import Rule
from ddpfix.record import replace
from spelling_cases import fixture_scripts


def test_lines_of_an_edited_text_are_those_on_the_disk() -> None:
    old = module("a\nb\nc\nd\n")
    new = module("new\na\nb2\nb3\nc\nd\n")
    lines = [disk_lines.line_on_disk(old, new, number) for number in range(1, 7)]
    assert lines == [1, 1, 2, 2, 3, 4]


def test_a_reason_that_was_given_before_names_lines_of_the_disk_already(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import torch\n\ntorch.save({}, 'x')\n")
    program, edited = read_program(str(path)), module("import os\n" * 9 + path.read_text())
    edited.source = replace(edited.source, name=program.script.source.name)
    text = f"line 12 saves{disk_lines.NOT_SHARED}line 3 saves"
    assert disk_lines.text_on_disk(program, edited, text) == text.replace("12", "3")


def test_a_line_of_another_file_keeps_all_of_its_number(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import torch\n")
    program, edited = read_program(str(path)), module("import os\n" * 9 + path.read_text())
    edited.source = replace(edited.source, name=program.script.source.name)
    text = "line 125 of util.py calls it"
    assert disk_lines.text_on_disk(program, edited, text) == text


def test_a_line_of_another_module_is_the_one_on_the_disk_too(tmp_path: Path) -> None:
    script, other = tmp_path / "train.py", tmp_path / "util.py"
    script.write_text("import util\n\nutil.save()\n")
    other.write_text("\ndef save():\n    open('x', 'w')\n")
    program = read_program(str(script))
    other.write_text("import os\n" * 9 + other.read_text())
    edited = read_program(str(script)).script
    told = disk_lines.text_on_disk(program, edited, "line 3 calls, line 12 of util.py writes")
    assert told == "line 3 calls, line 3 of util.py writes"


def test_a_refusal_names_a_line_of_the_file_with_its_text(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "class Endless: __iter__ = draw\n"
        "torch.distributed.init_process_group('nccl')\n"
        "torch.save(model.state_dict(), path)\n"
        "model = net()\n"
        "for batch in DataLoader(data, batch_sampler=Endless(data)):\n"
        "    model(batch).backward()\n"
    )
    refusal = patch(script).refusal
    places = re.findall(r"DF\d+ line (\d+) \((?:[^()]|\([^()]*\))*\): ([^;]+)", refusal)
    assert places
    lines = script.read_text().splitlines()
    assert [lines[int(number) - 1].strip() for number, _ in places] == [text for _, text in places]
    assert len(lines) < max(len(patch(script).findings_after), 1) or "line 7" in refusal


def test_check_promises_what_patch_does() -> None:
    promised = []
    for path in fixture_scripts():
        program = read_program(str(path))
        found = check(program, all_rules())
        if any(finding.edits for finding in found):
            text, goes_through = remedies(program, found)["safe"]
            refusal = patch(path, unsafe="--unsafe-fixes" in text).refusal
            assert goes_through == (not refusal), f"{path}: {text}; {refusal}"
            promised.append(goes_through)
    assert len(promised) > 20
    assert set(promised) == {True, False}


def test_findings_and_files_are_counted_also_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "clean.py").write_text("import torch\n")
    (tmp_path / "build").mkdir()
    assert run("check", "--no-cache", tmp_path).stderr == (
        f"0 findings in 1 file; skipped: {tmp_path / 'build'}\n"
    )
    (tmp_path / "run.py").write_text(LEGACY)
    (tmp_path / "bad.py").write_text("import torch\nx = = 1\n")
    last = run("check", "--no-cache", tmp_path).stderr.splitlines()[-1]
    assert re.match(r"\d+ findings? in 3 files, \d+ of them errors; .*; 1 file not checked", last)


def test_a_mistake_of_ours_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.py").write_text(LEGACY + "trap()\n")
    (tmp_path / "good.py").write_text(LEGACY)
    findings = Rule.findings

    def fails(self: Rule, program: object) -> object:
        if getattr(program, "script").calls_to("trap"):  # noqa: B009
            raise KeyError("made for the test")
        return findings(self, program)  # type: ignore[arg-type]

    monkeypatch.setattr(Rule, "findings", fails)
    checked = run("check", "--no-cache", tmp_path)
    assert "good.py\n  DF203" in checked.stdout
    assert checked.exit_code == 2
    assert "bad.py: ddpfix failed on it (KeyError in test_messages.py" in checked.stderr
    patched = run("patch", tmp_path)
    assert "bad.py: not patched: ddpfix failed on it" in patched.stderr
    assert "max(1, args.n_gpu)" in (tmp_path / "good.py").read_text()


FILES = {
    "one.py": b"import helper\n" + LEGACY.encode() + b"helper.keep(1)",
    "sub/two.py": b"\xef\xbb\xbf" + LEGACY.encode().replace(b"\n", b"\r\n"),
    "latin.py": b"# coding: latin-1\n# \xe9\x0c\n" + LEGACY.encode(),
    "three.py": b"import helper\n" + LEGACY.encode() + b"helper.keep(2)\n",
    "helper.py": b"import torch\ndef keep(x):\n    torch.save(x, 'b')",
}


@pytest.mark.parametrize("option", ["--diff", "--dry-run"])
def test_git_applies_the_diff_of_a_folder(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    result = run("patch", option, ".")
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == FILES  # nothing is written
    assert b"\\ No newline at end of file" in result.stdout_bytes
    (tmp_path / "changes").write_bytes(result.stdout_bytes)
    git = ["git", "apply", "changes"]
    subprocess.run([*git, "--check"], check=True)
    subprocess.run(git, check=True)
    applied = {name: (tmp_path / name).read_bytes() for name in FILES}
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    run("patch", ".")
    assert applied == {name: (tmp_path / name).read_bytes() for name in FILES}
    assert applied != FILES


def test_a_file_outside_of_the_folder_is_named_from_the_root(tmp_path: Path) -> None:
    diff = unified_diff(str(tmp_path / "a.py"), "x\n", "y\n")
    assert diff.splitlines()[0] == f"--- a{tmp_path / 'a.py'}"


def test_a_refusal_is_one_line_whatever_it_quotes(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "import torch\n"
        "def worker(rank):\n"
        "    torch.distributed.init_process_group('gloo', rank=5 - rank, world_size=2)\n"
        "if __name__ == '__main__':\n"
        "    torch.multiprocessing.spawn(\n        worker,\n        nprocs=2,\n    )\n"
    )
    refusal = patch(path).refusal
    assert "spawn( worker, nprocs=2, )" in refusal
    assert "\n" not in refusal
