"""From a shell file to a recipe: the command that trains is found, drafted and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import InputError
from ..declared_flags import declared_flags
from .draft import draft
from .interpreter import commands
from .toml_writer import toml_text
from .training_commands import Program, chosen, programs


def recipe_text(
    path: Path, arguments: Sequence[str], environ: Mapping[str, str], line: int | None = None
) -> tuple[str, list[str]]:
    """The text of a recipe, and sentences on what was chosen, supposed or left open.

    `arguments` are the shell file's; `line` names a command where not the first that trains is
    meant.

    Raises:
        InputError: the file cannot be read, nothing in it trains, or the batch is not known.

    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: pass a shell file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from None
    found = list(programs(commands(text, str(path), arguments=arguments, environ=environ)))
    program, said = _one(found, path, line)
    script = path.parent / program.path
    drafted = draft(program, str(path), declared_flags(script))
    place = f"{path.name}, line {program.started.line}"
    said = [*said, *drafted.said]
    log = program.started.log
    if log is not None:
        said.append(f"its log {log.text} is log.txt of the run folder, and train.log by the output")
    return toml_text(drafted, place, script.resolve().parent.name or script.stem), said


def _one(found: Sequence[Program], path: Path, line: int | None) -> tuple[Program, list[str]]:
    """The program that is meant, and what is said of the others."""
    lines = ", ".join(f"{program.path} in line {program.started.line}" for program in found)
    if not found:
        raise InputError(f"{path}: it starts no Python script")
    if line is not None:
        for program in found:
            if program.started.line == line:
                return program, []
        raise InputError(f"{path}: no script is started in line {line}; there is {lines}")
    training = chosen(found)
    if not training:
        raise InputError(f"{path}: nothing here trains ({lines}); if one does, say --line N")
    first, *others = training
    said = [f"line {first.started.line} is taken, {first.path}"] if len(found) > 1 else []
    if others:
        rest = ", ".join(str(program.started.line) for program in others)
        said.append(f"line {rest} trains too: --line N takes another")
    return first, said
