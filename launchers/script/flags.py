"""Which of a script's arguments are its output folder, its batch and its accumulation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from attrs import frozen

from ...errors import InputError
from ...recipes.flag_names import ROLES, bare
from ...recipes.load import load
from .arguments import parse_flags
from .source import counts_steps, declared, text_of

OF_A_RUN = ("output", "train_batch", "accumulation")  # the roles that differ from run to run


@frozen
class ScriptFlags:
    """The script's names for what a run of it is told; ``accumulation`` is None where it has none.

    ``global_batch`` is what the arguments ask of one process, in examples per optimizer step: batch
    x accumulation, unless the script's batch is that `of_steps`.
    """

    output: str
    train_batch: str
    accumulation: str | None
    global_batch: int
    of_steps: bool = False

    def arguments(
        self, given_arguments: Sequence[str], output: str, batch: int, accumulation: int
    ) -> list[str]:
        """The user's arguments with another output folder, micro-batch and accumulation."""
        batch *= accumulation if self.of_steps else 1
        result = replaced(given_arguments, self.output, output)
        result = replaced(result, self.train_batch, str(batch))
        if self.accumulation is not None:
            result = replaced(result, self.accumulation, str(accumulation))
        return result


def find(
    arguments: Sequence[str], script: Path, *, recipe: str | None, global_batch: int | None
) -> ScriptFlags:
    """The flags among ``arguments``, by a recipe or by their common names.

    A flag that the script declares, and that the arguments leave at its default, is found there.
    Raises InputError when the arguments name no output folder or no batch.
    """
    names = {role: [f"--{name}" for name in ROLES[role]] for role in OF_A_RUN}
    if recipe is not None:
        flags = load(recipe).flags
        names = {role: list(filter(None, [getattr(flags, role)])) for role in OF_A_RUN}
    mine = parse_flags(arguments)
    output = among(mine, names["output"])
    if output is None:
        raise InputError(
            f"the script's arguments name no output folder ({', '.join(names['output'])}), so its "
            "runs would overwrite each other: pass it after --, or --recipe with its name for it"
        )
    known = declared(script)
    batch = among(mine, names["train_batch"]) or among(known, names["train_batch"])
    if batch is None or (batch not in mine and global_batch is None):
        raise InputError(
            f"the script's arguments name no training batch ({', '.join(names['train_batch'])}): "
            "pass it after --, --global-batch, or --recipe with its name for it"
        )
    accumulation = among(mine, names["accumulation"]) or among(known, names["accumulation"])
    of_steps = counts_steps(text_of(script), batch, accumulation)
    if global_batch is None:
        accumulated = _number(accumulation, mine) if accumulation in mine and not of_steps else 1
        global_batch = _number(batch, mine) * accumulated
    return ScriptFlags(output, batch, accumulation, global_batch, of_steps)


def among(flags: Collection[str], names: Iterable[str]) -> str | None:
    """The first of ``names`` in ``flags``, as it is spelled there; dashes are underscores."""
    spelled = {bare(flag): flag for flag in flags}
    return next((spelled[bare(name)] for name in names if bare(name) in spelled), None)


def replaced(arguments: Sequence[str], flag: str, value: str) -> list[str]:
    """``arguments`` with every ``flag`` given ``value``, or with it at the end."""
    result: list[str] = []
    words = iter(arguments)
    met = False
    for word in words:
        if word == flag:
            next(words, None)
            result += [flag, value]
            met = True
        elif word.startswith(f"{flag}="):
            result.append(f"{flag}={value}")
            met = True
        else:
            result.append(word)
    return result if met else [*result, flag, value]


def without(arguments: Sequence[str], flag: str, *, takes_value: bool = False) -> list[str]:
    """``arguments`` less a flag, with the value behind it where it takes one and has one."""
    return [
        word
        for before, word in zip(["", *arguments], arguments, strict=False)
        if word != flag
        and not word.startswith(f"{flag}=")
        and not (takes_value and before == flag and not word.startswith("--"))
    ]


def _number(flag: str | None, mine: dict[str, str | None]) -> int:
    value = mine[flag] if flag else None
    if value is None or not value.isdigit() or int(value) < 1:
        raise InputError(f"{flag} {value or ''}: it takes a whole number above 0")
    return int(value)
