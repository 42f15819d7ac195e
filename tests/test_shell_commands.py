"""DF607 and O7: commands of the shell that change files, on several ranks."""

from __future__ import annotations

import ast

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.effects.shell_commands import change_of
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import audit

SCRIPT = """\
import os
import shutil
import subprocess
import torch
from torch.utils.data import DataLoader

def main(args, model, data, optimizer):
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    for epoch in range(3):
        for batch in DataLoader(data):
            model(batch).backward()
            optimizer.step()
        {line}
    print("done")

main(*args)
"""


@pytest.mark.parametrize(
    ("command", "change"),
    [
        ("'cp a b'", "write"),
        ("'cd out && mv a b'", "write"),
        ("'sudo /usr/bin/rsync -a a b'", "write"),
        ("'LC_ALL=C sort a > b'", "write"),
        ("'cat a >> b'", "write"),
        ("'git clone ' + url", "write"),
        ("f'wget {url}'", "write"),
        ("'tar xf %s' % name", "write"),
        ("'unzip {}'.format(name)", "write"),
        ("['cp', source, target]", "write"),
        ("'convert -delay 10 ' + names + ' ' + name", "write"),
        ("f'ffmpeg -i {names} {name}'", "write"),
        ("'rm -rf out'", "remove"),
        ("('rm', name)", "remove"),
        ("'nvidia-smi'", ""),
        ("'nvidia-smi > /dev/null 2>&1'", ""),
        ("'git rev-parse HEAD'", ""),
        ("['git', 'rev-parse', 'HEAD']", ""),
        ("['echo', 'a > b']", ""),
        ("'mkdir -p out'", ""),
        ("'awk $1>=2'", ""),
        ("f'{tool} cp'", ""),
        ("f'wget -q -O - {url}'", ""),
        ("f'wget -qO- {url}'", ""),
        ("f'wget -O a.zip {url}'", "write"),
        ("['curl', '-sL', url]", ""),
        ("f'curl -sLo a.zip {url}'", "write"),
        ("f'ffmpeg -i {name} -f wav -'", ""),
        ("['ffmpeg', '-i', name, '-f', 's16le', 'pipe:1']", ""),
        ("f'gunzip -c {name}'", ""),
        ("f'gunzip {name}'", "write"),
        ("command", ""),
    ],
)
def test_what_a_command_changes(command: str, change: str) -> None:
    assert change_of(ast.parse(command, mode="eval").body) == change


@pytest.mark.parametrize(
    "line",
    [
        "os.system('cp last.pt best.pt')",
        "subprocess.run(['cp', 'last.pt', 'best.pt'], check=True)",
        "subprocess.check_call('rm -f epoch*.pt', shell=True)",
    ],
)
def test_rank_0_alone_runs_it_and_the_others_wait(line: str) -> None:
    new = fixed("DF607", SCRIPT.format(line=line))
    assert f"        if is_main_process():\n            {line}\n" in new
    assert new.count("torch.distributed.barrier()  # rank 0 may still be writing") == 1
    assert found("DF607", new) == []


@pytest.mark.parametrize(
    "line",
    [
        "os.system('nvidia-smi')",
        "os.system(f'cp last.pt best{rank}.pt')",
        "print(subprocess.check_output(['git', 'rev-parse', 'HEAD']))",
        "if rank == 0:\n            os.system('cp last.pt best.pt')",
    ],
)
def test_what_changes_no_file_of_all_ranks_is_left_alone(line: str) -> None:
    assert found("DF607", SCRIPT.format(line=line)) == []


def test_a_command_whose_status_is_used_is_told_of_by_rule_and_audit() -> None:
    text = SCRIPT.format(line="status = os.system('cp last.pt best.pt')")
    assert len(found("DF607", text)) == 1
    assert fixed("DF607", text) == text
    told = [each for each in audit(Program(module(text))) if each.code == "O7"]
    assert [(each.answer.value, each.line) for each in told] == [("unknown", 14)]
    assert "a command that changes files" in told[0].because


@pytest.mark.parametrize(
    ("then", "is_told"),
    [("os.makedirs('out')", True), ("torch.save(model, 'out/last.pt')", False), ("pass", False)],
)
def test_a_folder_that_is_emptied_is_emptied_before_it_is_filled(then: str, is_told: bool) -> None:
    text = SCRIPT.format(line=f"shutil.rmtree('out', ignore_errors=True)\n        {then}")
    new = fixed("DF607", text)
    assert ("is_main_process():\n            shutil.rmtree(" in new) is is_told
