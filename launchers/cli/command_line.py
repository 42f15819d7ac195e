"""Turn `SCRIPT -- ARGS` or `-- COMMAND` into a recipe, from what the script itself says.

The script is read and never run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import InputError
from ...patcher.api import FlagRole, Program, divides_batch, flag_roles, read_program
from ...patcher.api import constant_batch as find_constant_batch
from ...recipes.from_command import CommandRecipe, ScriptOption, ScriptUse, recipe_of, with_model
from ...recipes.pasted_command import PastedCommand, read_command
from ...record import record
from ..backends.command import STALE_PREFIXES, STALE_VARIABLES
from ..script.source import batch_includes_accumulation, script_text
from .model_from_arguments import model_from_arguments

NO_SCRIPT = (
    "name what to run: `ddpfix launch train.py -- ARGS`, today's command as "
    "`ddpfix launch -- python train.py ARGS`, or --recipe NAME"
)


@record
class ScriptRequest:
    """A script with its recipe, made from the user's command, and the command's environment.

    `unknown_model` says why the recipe does not tell its model; it is empty where it does. `module`
    is its name where the command starts it as a module, else empty.
    """

    script: Path
    recipe: CommandRecipe
    unknown_model: str
    environment: Mapping[str, str]
    python: str
    module: str


def read_request(
    words: Sequence[str],
    *,
    script: Path | None = None,
    batch_flag: str | None = None,
    accumulation_flag: str | None = None,
) -> ScriptRequest:
    """Read a script and its arguments, or the command that starts it today.

    `batch_flag` and `accumulation_flag` name the script's options where they cannot be told. The
    variable CUDA_VISIBLE_DEVICES of a command takes the place of this process's own.

    Raises InputError where there is no script, or its batch is not known.
    """
    command = _command(words, script)
    path = Path(command.script)
    if not path.is_file():
        raise InputError(f"{path}: no such script; name it relative to the current folder")
    program = read_program(str(path))
    roles = _with_named(program, flag_roles(program), batch_flag, accumulation_flag)
    constant = None if "train_batch" in roles else find_constant_batch(program)
    batch, accumulation = roles.get("train_batch"), roles.get("accumulation")
    recipe = recipe_of(
        ScriptUse(
            path,
            command.arguments,
            {role: ScriptOption(one.spellings, one.default) for role, one in roles.items()},
            processes=command.processes,
            cards=command.cards,
            includes_accumulation=batch_includes_accumulation(
                script_text(path),
                batch.flag if batch else None,
                accumulation.flag if accumulation else None,
            ),
            is_shared=divides_batch(program),
            constant_batch=constant.size if constant else None,
        )
    )
    model = model_from_arguments(program, roles, command.arguments)
    if model.network is not None:
        recipe = with_model(recipe, model.network, model.words)
    if "CUDA_VISIBLE_DEVICES" in command.environment:
        os.environ["CUDA_VISIBLE_DEVICES"] = command.environment["CUDA_VISIBLE_DEVICES"]
    environment = {
        name: value
        for name, value in command.environment.items()
        if name not in STALE_VARIABLES and not name.startswith(STALE_PREFIXES)
    }
    unknown = "" if model.network is not None else model.words
    return ScriptRequest(path, recipe, unknown, environment, command.python, command.module)


def _command(words: Sequence[str], script: Path | None) -> PastedCommand:
    if script is not None:
        return PastedCommand(str(script), tuple(words), {})
    if not words:
        raise InputError(NO_SCRIPT)
    if words[0].endswith(".py") and not any(map(str.isspace, words[0])):
        return PastedCommand(words[0], tuple(words[1:]), {})
    return read_command(words)


def _with_named(
    program: Program,
    roles: dict[str, FlagRole],
    batch_flag: str | None,
    accumulation_flag: str | None,
) -> dict[str, FlagRole]:
    """The roles with those options that the user names."""
    named = {"train_batch": batch_flag, "accumulation": accumulation_flag}
    for role, flag in named.items():
        if flag is None:
            continue
        option = next((one for one in program.options.values() if flag in one.spellings), None)
        spellings = option.spellings if option else (flag,)
        default = option.default if option else None
        taken = {other for other, one in roles.items() if set(one.spellings) & set(spellings)}
        roles = {other: one for other, one in roles.items() if other not in taken}
        roles[role] = FlagRole(role, spellings, default, program.script.source.name, 0)
    return roles
