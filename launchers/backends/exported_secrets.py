"""The secrets of a command in an emitted file: taken from the environment in which it runs."""

from __future__ import annotations

import re

from ..script.secret_flags import is_secret, secret_values
from .command import Command
from .registry import ShellWord


def secret_variables(command: Command) -> dict[str, str]:
    """The variables that an emitted file needs, with their values: HF_TOKEN for --hf_token.

    Another value of the same flag has a number: HF_TOKEN_2.
    """
    found = {name: value for name, value in command.env.items() if is_secret(name, value)}
    for _, flag, value in secret_values(command.argv):
        found[_variable(found, flag, _plain(command, value))] = _plain(command, value)
    return found


def words_without_secrets(command: Command) -> list[str]:
    """The command's words, with the variable in the place of each secret."""
    words = list(command.argv)
    variables = secret_variables(command)
    for index, flag, value in secret_values(command.argv):
        name = _variable(variables, flag, _plain(command, value))
        word = f'"${{{name}//\\$/\\$\\$}}"' if command.expands else f'"${{{name}}}"'
        joined = f"{flag}=" if words[index].startswith(f"{flag}=") else ""
        words[index] = ShellWord(joined + word)
    return words


def _variable(taken: dict[str, str], flag: str, value: str) -> str:
    """The name of the variable for a flag's secret: one that has this value, or a free one."""
    name = re.sub(r"\W", "_", flag.lstrip("-")).upper()
    name = f"_{name}" if name[:1].isdigit() else name
    number, tried = 1, name
    while taken.get(tried, value) != value:
        number += 1
        tried = f"{name}_{number}"
    return tried


def _plain(command: Command, value: str) -> str:
    """A secret as the script gets it: the back end may need dollar signs twice."""
    return value.replace("$$", "$") if command.expands else value
