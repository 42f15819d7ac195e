"""Find and set a script's flags for its output folder, batch and gradient accumulation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ...errors import InputError
from ...recipes.flag_names import ROLES, normalize_flag
from ...recipes.load import load
from ...record import record
from .arguments import parse_flags
from .source import batch_includes_accumulation, declared_flag_names, script_text

RUN_ROLES = ("output", "train_batch", "accumulation")  # the roles that differ from run to run


@record
class ScriptFlags:
    """A script's flags for what differs between runs; None where it has none, or none is passed.

    ``global_batch`` is what the arguments ask of one process, in examples per optimizer step: batch
    x accumulation, or (`batch_includes_accumulation`) the batch alone
    where the script divides it by the accumulation.
    """

    output: str | None
    train_batch: str
    accumulation: str | None
    global_batch: int
    batch_includes_accumulation: bool = False

    def arguments(
        self, user_arguments: Sequence[str], output: str, batch: int, accumulation: int
    ) -> list[str]:
        """The user's arguments with another output folder, micro-batch and accumulation."""
        batch *= accumulation if self.batch_includes_accumulation else 1
        result = list(user_arguments)
        if self.output is not None:
            result = set_flag(result, self.output, output)
        result = set_flag(result, self.train_batch, str(batch))
        if self.accumulation is not None:
            result = set_flag(result, self.accumulation, str(accumulation))
        return result


def find_script_flags(
    arguments: Sequence[str],
    script: Path,
    *,
    recipe: str | None,
    global_batch: int | None,
    roles: Mapping[str, Sequence[str]] = MappingProxyType({}),
    default_batch: int | None = None,
) -> ScriptFlags:
    """The flags among ``arguments``, by a recipe, by their ``roles`` or by their common names.

    A flag that the arguments leave at its default is found among those that the script declares;
    ``default_batch`` is that of the batch, and ``roles`` has the spellings of options.
    Raises InputError when the arguments name no batch.
    """
    names = {role: [f"--{name}" for name in ROLES[role]] for role in RUN_ROLES}
    for role in RUN_ROLES:
        if role in roles:
            names[role] = [*roles[role], *(names[role] if role == "output" else ())]
    if recipe is not None:
        flags = load(recipe).flags
        names = {role: list(filter(None, [getattr(flags, role)])) for role in RUN_ROLES}
    passed = parse_flags(arguments)
    output = _first_match(passed, names["output"])
    in_script = {*declared_flag_names(script), *(each[0] for each in roles.values())}
    batch, accumulation = (
        _first_match(passed, names[role]) or _first_match(in_script, names[role])
        for role in ("train_batch", "accumulation")
    )
    is_known = batch in passed or default_batch is not None or global_batch is not None
    if batch is None or not is_known:
        spellings = ", ".join(names["train_batch"])
        if batch is None:
            raise InputError(
                f"no option of the script is its training batch ({spellings}): --recipe tells "
                "another name for it; where it is a constant of the script, --with flags makes an "
                "option of it; else make it one, as every number of ranks needs another batch"
            )
        raise InputError(
            f"the script's arguments name no training batch ({spellings}): pass it after --, or "
            "--global-batch"
        )
    of_steps = batch_includes_accumulation(script_text(script), batch, accumulation)
    if global_batch is None:
        multiplies = accumulation in passed and not of_steps
        factor = _number(accumulation, passed) if multiplies else 1
        size = default_batch if batch not in passed else None
        global_batch = (size or _number(batch, passed)) * factor
    return ScriptFlags(output, batch, accumulation, global_batch, of_steps)


def _first_match(flags: Collection[str], names: Iterable[str]) -> str | None:
    """The first of ``names`` in ``flags``, spelled as there; dashes and underscores are equal."""
    spelled = {normalize_flag(flag): flag for flag in flags}
    return next(
        (spelled[normalize_flag(name)] for name in names if normalize_flag(name) in spelled), None
    )


def set_flag(arguments: Sequence[str], flag: str, value: str) -> list[str]:
    """``arguments`` with ``value`` at every ``flag``, or with both added at the end."""
    result: list[str] = []
    words = iter(arguments)
    is_present = False
    for word in words:
        if word == flag:
            next(words, None)
            result += [flag, value]
            is_present = True
        elif word.startswith(f"{flag}="):
            result.append(f"{flag}={value}")
            is_present = True
        else:
            result.append(word)
    return result if is_present else [*result, flag, value]


def remove_flag(arguments: Sequence[str], flag: str, *, takes_value: bool = False) -> list[str]:
    """``arguments`` without a flag, and without the value after it where it takes one."""
    return [
        word
        for previous, word in zip(["", *arguments], arguments, strict=False)
        if word != flag
        and not word.startswith(f"{flag}=")
        and not (takes_value and previous == flag and not word.startswith("--"))
    ]


def _number(flag: str | None, flags: dict[str, str | None]) -> int:
    value = flags[flag] if flag else None
    if value is None or not value.isdigit() or int(value) < 1:
        raise InputError(f"{flag} {value or ''}: it takes a whole number above 0")
    return int(value)
