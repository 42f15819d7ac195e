"""The command line: one click group whose commands are imported only when they are called.

Lazy imports keep ``ddpfix check`` free of libcst, torch and the launcher's dependencies.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any, NoReturn

import click

from . import __version__
from .errors import InputError

COMMANDS = {
    "check": ("patcher.frontend.cli", "what is wrong in a script, and what it would do to you"),
    "patch": ("patcher.frontend.cli", "the smallest diff that makes it right"),
    "explain": ("patcher.frontend.cli", "the manual of one rule"),
    "rules": ("patcher.frontend.cli", "all rules, a line each"),
    "capabilities": ("patcher.frontend.cli", "what patch --with can add to a script"),
    "facts": (
        "patcher.frontend.facts",
        "what is known of a script: its loops, loaders, rank tests",
    ),
    "recipes": ("recipes.cli", "what is known of families of scripts, and a new one from run.sh"),
    "gpus": ("launchers.cli.gpus", "the cards of this machine, and which can be used"),
    "plan": ("launchers.cli.plan", "the batch plan for a recipe on these cards"),
    "launch": ("launchers.cli.launch", "run a script on every card"),
    "attach": ("launchers.cli.runs", "the output of a run that is under way"),
    "stop": ("launchers.cli.runs", "end a run, with all its processes"),
    "status": ("launchers.cli.runs", "which runs there are, and how far they are"),
    "verify": ("launchers.cli.verify", "proof that the patched script trains the same"),
    "demo": ("launchers.cli.demo", "the whole story on a tiny model, offline, in three minutes"),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and one-line helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"{__package__}.{module}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            click.echo(f"ddpfix: {error}", err=True)
            ctx.exit(2)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ddpfix")
def ddpfix() -> None:
    """Make legacy PyTorch training scripts train correctly on every GPU the machine has."""


SHORT_COMMANDS = ("check", "patch", "plan")  # that make many objects, print and end


def main() -> None:
    """Entry point of the ``ddpfix`` command."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # of any locale
    if sys.argv[1:2] and sys.argv[1] in SHORT_COMMANDS:
        # Syntax trees are many objects, and hardly any becomes garbage before the end.
        gc.set_threshold(1_000_000, 20, 100)
        try:
            ddpfix.main()
        except SystemExit as end:
            hard_exit(end.code)
    ddpfix.main()


def hard_exit(status: int | str | None) -> NoReturn:
    """Write the output and end the process without freeing modules and trees one by one."""
    code = status if isinstance(status, int) else 1 if status else 0
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # the reader has left
        code = code or 1
    os._exit(code)
