"""From a shell file to a recipe: the command that trains is found, drafted and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import InputError
from ..script_flags import declared_flags
from .draft import draft_of
from .expansion import on_one_line
from .interpreter import commands_of
from .repairs import WAY_OUT
from .toml_writer import toml_text
from .training_commands import TrainingCommand, python_commands, that_train

MOST = 100_000
"""Bytes of a shell file: dozens of times a launcher's, and read within seconds."""


def recipe_text(
    path: Path, arguments: Sequence[str], environ: Mapping[str, str], line: int | None = None
) -> tuple[str, list[str]]:
    """Write the text of a recipe, with sentences on what was picked, supposed or left open.

    `arguments` are the shell file's; `line` names a command where not the first that trains is
    meant.

    Raises:
        InputError: the file cannot be read, nothing in it trains, or the batch is not known.

    """
    for argument in arguments:
        if not _is_text(argument):
            raise InputError(f"{path}: its argument {argument!a} is not UTF-8: leave it out")
    known = {name: value for name, value in environ.items() if _is_text(value)}
    commands = commands_of(_content(path), str(path), arguments=arguments, environ=known)
    training, sentences = _pick(list(python_commands(commands)), path, line)
    script = path.parent / training.path
    draft = draft_of(training, str(path), declared_flags(script))
    place = f"{path.name}, line {training.command.line}"
    sentences += draft.sentences
    log = training.command.log
    if log is not None:
        own = f"its log {log.shown} is log.txt of the run folder, and train.log by the output"
        sentences.append(own)
    return toml_text(draft, place, script.resolve().parent.name or script.stem), sentences


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST + 1)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: pass a shell file") from None
    if len(content) > MOST:
        raise InputError(f"{path}: larger than {MOST:,} bytes: {WAY_OUT}")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        where = f"{path}:{line}: not UTF-8 at byte {error.start}"
        raise InputError(f"{where}: save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _is_text(text: str) -> bool:
    """Whether it can be written: what is not UTF-8 in the environment becomes half characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pick(
    commands: Sequence[TrainingCommand], path: Path, line: int | None
) -> tuple[TrainingCommand, list[str]]:
    """The command that is meant, and sentences on the others."""
    if not commands:
        raise InputError(f"{path}: it starts no Python script")
    lines = on_one_line(", ".join(f"{one.path} in line {one.command.line}" for one in commands))
    if line is not None:
        for command in commands:
            if command.command.line == line:
                return command, []
        raise InputError(f"{path}: no script is started in line {line}; there is {lines}")
    training = that_train(commands)
    if not training:
        raise InputError(f"{path}: nothing here trains ({lines}); if one does, say --line N")
    first, *others = training
    sentences: list[str] = []
    if len(commands) > 1:
        script = on_one_line(str(first.path))
        sentences.append(f"line {first.command.line} is taken, {script}")
    if others:
        rest = ", ".join(str(one.command.line) for one in others)
        sentences.append(f"line {rest} trains too: --line N takes another")
    return first, sentences
