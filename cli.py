"""The command line: one click group whose commands are imported only when they are called.

Lazy imports keep ``ddpfix check`` free of libcst, torch and the launcher's dependencies.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from . import __version__
from .command_help import HelpfulGroup
from .completion import matching
from .errors import InputError, missing_package
from .standard_streams import open_closed_streams

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "check": ("patcher.frontend.cli", "report what goes wrong on several GPUs, and why"),
    "patch": ("patcher.frontend.cli", "repair scripts with the smallest diff"),
    "server": ("launchers.cli.server", "show findings and repairs in an editor"),
    "audit": (
        "patcher.frontend.audit_command",
        "hold scripts to what several ranks must keep",
    ),
    "explain": ("launchers.cli.explain", "print the manual of a rule, or what a log's errors mean"),
    "rules": ("patcher.frontend.cli", "list all rules"),
    "capabilities": ("patcher.frontend.cli", "list what `patch --with` can add"),
    "facts": ("patcher.frontend.facts", "show what ddpfix knows of a script's loops and loaders"),
    "recipes": ("recipes.cli", "list, show and create recipes for training scripts"),
    "gpus": ("launchers.cli.gpus", "show the GPUs and which of them a training may use"),
    "plan": ("launchers.cli.plan", "plan batch, precision, memory and time of a training"),
    "launch": ("launchers.cli.launch", "run a training script on every GPU"),
    "attach": ("launchers.cli.runs", "follow the output of a run"),
    "stop": ("launchers.cli.runs", "stop a run and all its processes"),
    "status": ("launchers.cli.runs", "list runs and their progress"),
    "report": ("launchers.cli.report", "show what became of runs, in figures"),
    "verify": ("launchers.cli.verify", "prove by running that a patched script trains the same"),
    "demo": ("launchers.cli.demo", "check, patch and launch a tiny example, offline"),
}


MEANT = {
    "fix": "patch",
    "format": "patch",
    "kill": "stop",
    "lint": "check",
    "logs": "attach",
    "lsp": "server",
    "ps": "status",
    "run": "launch",
    "train": "launch",
}  # what other programs call it


class LazyGroup(HelpfulGroup):
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named first, or an error that names the likely one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = [MEANT[args[0]]] if args[0] in MEANT else closest(args[0])
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so, and this group's own options."""
        found = matching({name: text for name, (_, text) in COMMANDS.items()}, incomplete)
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            last_word(f"ddpfix: {error}")
            ctx.exit(2)
        except ModuleNotFoundError as error:
            if not (advice := missing_package(error.name)):
                raise
            last_word(f"ddpfix: {advice}")
            ctx.exit(2)
        except KeyboardInterrupt:
            last_word("Aborted!")
            ctx.exit(128 + signal.SIGINT)


def with_dashes(name: str) -> str:
    """An option or a choice as it is spelled here."""
    return name.replace("_", "-")


def closest(name: str) -> list[str]:
    """The command whose name is most like another one."""
    from difflib import get_close_matches

    return get_close_matches(name, COMMANDS, n=1)


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": with_dashes,  # torchrun takes --nproc_per_node, too
    },
)
@click.version_option(__version__, prog_name="ddpfix")
def ddpfix() -> None:
    """Make legacy PyTorch training scripts train correctly on every GPU the machine has."""


def last_word(text: str) -> None:
    """Print to stderr; that nobody reads it any more does not change the exit status."""
    try:
        click.echo(text, err=True)
    except OSError:
        # What is left in the stream would be written at the end, and make the status 120.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


SHORT_COMMANDS = ("check", "patch", "plan")  # that make many objects, print and end


def main() -> None:
    """Entry point of the ``ddpfix`` command."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # of any locale
    if sys.argv[1:2] and sys.argv[1] in SHORT_COMMANDS:
        # Syntax trees are many objects: only those of whole programs are worth collecting.
        gc.set_threshold(1_000_000, 5, 5)
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
