"""The recipe of a script that has none, from its arguments and what its options mean.

Nothing is added to the script's own arguments but the batch and the accumulation; what it writes
stays where its arguments put it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from ..errors import InputError
from ..record import record, replace
from .flag_names import PER_PROCESS, normalize_flag
from .model import Batch, Data, Flags, Output, Recipe
from .network import Network
from .script_flags import Option

MOST_BATCH = 1_000_000_000  # a larger number is a mistake


@record
class ScriptOption:
    """An option of a script by its role: its spellings and its default, None if no constant."""

    spellings: tuple[str, ...]
    default: object = None

    @property
    def flag(self) -> str:
        """The spelling to pass: the first one that begins with two dashes, else the first."""
        long = (one for one in self.spellings if one.startswith("--"))
        return next(long, self.spellings[0])


@record
class ScriptUse:
    """How a script is run today.

    `options` are its options by role (`recipes.flag_names.ROLES`). `processes` is how many ranks a
    launcher starts, None where Python starts the script; `cards` is how many cards it sees then,
    None where that is not known. `includes_accumulation`: the script divides its batch by the
    accumulation; `is_shared`: it divides its batch by the number of ranks. `constant_batch` is the
    batch of a script without an option for it.
    """

    script: Path
    arguments: tuple[str, ...]
    options: Mapping[str, ScriptOption]
    processes: int | None = None
    cards: int | None = None
    includes_accumulation: bool = False
    is_shared: bool = False
    constant_batch: int | None = None


@record
class CommandRecipe:
    """A recipe, the arguments that the script gets besides the recipe's, and remarks on it."""

    recipe: Recipe
    extra: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def values_of(arguments: Sequence[str], options: Mapping[str, Option]) -> dict[str, str]:
    """The values that arguments give options, by the attributes they set; switches are "True"."""
    found: dict[str, str] = {}
    for dest, option in options.items():
        value = _value(arguments, ScriptOption(option.spellings))
        if option.is_switch:
            value = "True" if {*arguments} & {*option.spellings} else None
        if value is not None:
            found[dest] = value
    return found


def recipe_of(use: ScriptUse) -> CommandRecipe:
    """The recipe of a script as it is run today: the same global batch on any number of ranks.

    Raises InputError where the batch is not known, or is no number above 0.
    """
    batch = use.options.get("train_batch")
    if batch is None and use.constant_batch is not None:
        return _with_constant_batch(use, use.constant_batch)
    if batch is None:
        raise InputError(
            f"{use.script}: which option is its training batch cannot be told: name it with "
            "--batch-flag"
        )
    size = _number(use, batch)
    accumulation_option = use.options.get("accumulation")
    accumulation = _number(use, accumulation_option, 1) if accumulation_option else 1
    per_process, sharers, remarks = _batch_per_process(use, batch, size)
    steps = 1 if use.includes_accumulation else accumulation
    total = per_process * sharers * steps
    micro = per_process // accumulation if use.includes_accumulation else per_process
    rest, joined = _without(use.arguments, batch)
    if accumulation_option is not None:
        rest, _ = _without(rest, accumulation_option)
    cap = max(1, micro) if accumulation_option is not None else total
    flags = Flags(
        batch.flag,
        accumulation=accumulation_option.flag if accumulation_option else None,
        output=_passed_flag(use, "output"),
        learning_rate=_flag(use, "learning_rate"),
        epochs=_flag(use, "epochs"),
        sequence_length=_flag(use, "sequence_length"),
        seed=_flag(use, "seed"),
    )
    recipe = _recipe(use, flags, Batch(total, cap, cap), joined=joined)
    return CommandRecipe(recipe, tuple(rest), remarks)


def with_model(recipe: CommandRecipe, network: Network, source: str) -> CommandRecipe:
    """A recipe that tells its model too, and where that is known from."""
    told = replace(recipe.recipe, model=network, sources={"model": source})
    return replace(recipe, recipe=told)


def _with_constant_batch(use: ScriptUse, size: int) -> CommandRecipe:
    """The recipe of a script whose batch nobody can change: N processes make N times as much."""
    flags = Flags("", output=_passed_flag(use, "output"), seed=_flag(use, "seed"))
    remark = (
        f"{use.script.name} has no option for its batch, which is {size} in the script: N "
        f"processes make a global batch of N x {size} against the original's {size}; "
        f"`ddpfix patch --with flags {use.script}` makes it an option"
    )
    recipe = _recipe(use, flags, Batch(size, size, size))
    return CommandRecipe(recipe, use.arguments, (remark,))


def _recipe(use: ScriptUse, flags: Flags, batch: Batch, *, joined: bool = False) -> Recipe:
    output = use.options.get("output")
    where = _value(use.arguments, output) if output else None
    return Recipe(
        description=f"the command of {use.script.name}",
        family=use.script.stem,
        script=str(use.script),
        task="",
        flags=flags,
        batch=batch,
        data=Data(".", {}),
        output=Output(str(Path(where).absolute()) if where else "output"),
        arguments={},
        if_declared={},
        out_of_memory={},
        sources={},
        joined=joined,
        name=use.script.name,
        batch_is_shared=use.is_shared,
    )


def _batch_per_process(
    use: ScriptUse, batch: ScriptOption, size: int
) -> tuple[int, int, tuple[str, ...]]:
    """The batch of one process today, the number of processes or cards, and remarks."""
    if use.is_shared:
        return size, 1, ()
    if use.processes is not None:
        return size, use.processes, ()
    if not any(part in normalize_flag(batch.flag) for part in PER_PROCESS):
        return size, 1, ()
    if use.cards is None:
        remark = f"{batch.flag} is per card and the command names no cards: read as for one card"
        return size, 1, (remark,)
    return size, max(1, use.cards), ()


def _flag(use: ScriptUse, role: str) -> str | None:
    option = use.options.get(role)
    return option.flag if option else None


def _passed_flag(use: ScriptUse, role: str) -> str | None:
    """The role's option as the arguments spell it; None where they leave it at its default."""
    option = use.options.get(role)
    return option.flag if option and _value(use.arguments, option) is not None else None


def _number(use: ScriptUse, option: ScriptOption, fallback: int | None = None) -> int:
    text = _value(use.arguments, option)
    value: object = option.default if text is None else text
    if value is None and fallback is not None:
        return fallback
    if re.fullmatch(r"[1-9]\d{0,9}", str(value)) is None or int(str(value)) > MOST_BATCH:
        shown = f"{option.flag} {value}"
        reason = "it takes a whole number above 0" if text is not None else "pass it after --"
        raise InputError(f"{use.script}: {shown if text is not None else option.flag}: {reason}")
    return int(str(value))


def _value(arguments: Sequence[str], option: ScriptOption) -> str | None:
    """The last value that the arguments give an option: ``--flag 8``, ``--flag=8``, ``-b8``."""
    found = None
    for word, following in zip_longest(arguments, arguments[1:]):
        for spelling in option.spellings:
            if word == spelling:
                found = following
            elif word.startswith(f"{spelling}="):
                found = word[len(spelling) + 1 :]
            elif _is_short(spelling) and word.startswith(spelling) and word[2:].isdigit():
                found = word[2:]
    return found


def _without(arguments: Sequence[str], option: ScriptOption) -> tuple[list[str], bool]:
    """The arguments without an option, and whether it was joined to its value by ``=``."""
    rest: list[str] = []
    joined = skip = False
    for word in arguments:
        if skip:
            skip = False
            continue
        if word in option.spellings:
            skip = True
        elif any(word.startswith(f"{one}=") for one in option.spellings):
            joined = word.startswith("--")
        elif not any(
            _is_short(one) and word.startswith(one) and word[2:].isdigit()
            for one in option.spellings
        ):
            rest.append(word)
    return rest, joined


def _is_short(spelling: str) -> bool:
    return len(spelling) == 2 and spelling[0] == "-" and spelling[1] != "-"
