"""The group of a script ends with it, also where its last statement ends the process."""

from __future__ import annotations

import pytest
from cases import fixed

SCRIPT = """\
import sys
import click
import torch
import typer
from absl import app
tool = typer.Typer()
torch.distributed.init_process_group("gloo", timeout=hour)

@click.command()
def main():
    train()

def run(argv=None):
    train()

{last}
"""
DESTROY = "torch.distributed.destroy_process_group()\n"
ENDED = """\
try:
    {last}
except SystemExit as ended:  # a command ends the process itself
    if not ended.code and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    raise
"""
PLAIN = "{last}\nif torch.distributed.is_initialized():\n    " + DESTROY
STATUS = "status = {call}\nif torch.distributed.is_initialized():\n    " + DESTROY


@pytest.mark.parametrize("last", ["main()", "typer.run(run)", "tool()", "app.run(run)"])
def test_a_command_ends_its_group_before_the_process(last: str) -> None:
    assert fixed("DF202", SCRIPT.format(last=last)).endswith("\n\n" + ENDED.format(last=last))


@pytest.mark.parametrize("last", ["run()", "main(standalone_mode=False)", "other.run(run)"])
def test_what_returns_is_followed_by_the_end(last: str) -> None:
    assert fixed("DF202", SCRIPT.format(last=last)).endswith("\n\n" + PLAIN.format(last=last))


@pytest.mark.parametrize("last", ["sys.exit(run())", "raise SystemExit(run())"])
def test_a_status_is_asked_for_before_the_end(last: str) -> None:
    end = STATUS.format(call="run()") + last.replace("run()", "status") + "\n"
    assert fixed("DF202", SCRIPT.format(last=last)).endswith("\n\n" + end)
