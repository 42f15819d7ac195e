"""A recipe: what the launcher must know of a family of scripts, read from one TOML file.

A recipe is data. Those beside this file are known by name, and a path to any other TOML file does
as well. Its fields::

    description, task     for people
    aliases               other names that it answers to
    family, script        the family of scripts and the script's usual file name
    [flags]               how the script names what the launcher sets: the batch per process in
                          training and evaluation, the accumulation, the output folder, and more;
                          `max_steps` only where it ends the training, as many scripts overwrite it
    [batch]               global batch (examples per optimizer step over all processes), the most
                          a device takes at once, and the evaluation batch per process;
                          `cap_memory` is the size in GB of the card that the most is known from
    [data]                flag = file, relative to `folder`, which is relative to the script;
                          `beside` names files the script expects next to the first of them;
                          `train` is the flag of the training file, with an example a line, and
                          `train_share` the part of its lines that the script trains on
    [output]              the folder the script writes to, relative to the run folder
    joined                true for a script that reads "--flag=value" only, and no "--flag value"
    [arguments]           the script's other arguments, in order; true stands for a bare switch
    [if_declared]         arguments for a script that declares the flag, and for no other
    [out_of_memory]       flags whose numbers may be halved, in this order, when nothing else helps
                          a run that is out of memory, and the least of each, which it gets instead
                          where the half is less
    [model]               the model that is trained, in numbers: network.py beside this file
    [sources]             where a figure comes from: "batch.global_batch" or a flag = words
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..record import fields_of, record
from .network import Network, numbers_of

SHIPPED = Path(__file__).parent

Value = str | int | float | bool


@record
class Flags:
    """The script's own names for what the launcher, now or later, sets; None where it has none."""

    train_batch: str
    eval_batch: str | None = None
    accumulation: str | None = None
    output: str | None = None
    learning_rate: str | None = None
    epochs: str | None = None
    max_steps: str | None = None
    sequence_length: str | None = None
    seed: str | None = None


@record
class Batch:
    """Examples: per optimizer step over all processes, and at most per device at once.

    The cap is known from a card with `cap_memory` GB. On larger ones a prediction may exceed it.
    """

    global_batch: int
    per_device_cap: int
    eval_per_device: int
    cap_memory: int = 48


@record
class Data:
    """Where the script's data is expected."""

    folder: str
    files: dict[str, str]
    beside: tuple[str, ...] = ()
    train: str | None = None
    train_share: float = 1.0


@record
class Output:
    """Where the script writes, relative to the run folder."""

    folder: str


@record
class Recipe:
    """One family of scripts, ready to be launched."""

    description: str
    family: str
    script: str
    task: str
    flags: Flags
    batch: Batch
    data: Data
    output: Output
    arguments: dict[str, Value]
    if_declared: dict[str, Value]
    out_of_memory: dict[str, int]
    sources: dict[str, str]
    model: Network | None = None
    aliases: tuple[str, ...] = ()
    joined: bool = False
    name: str = ""


PARTS = {"flags": Flags, "batch": Batch, "data": Data, "output": Output, "model": Network}
MAY_LACK = ("arguments", "if_declared", "out_of_memory", "sources")
"""Tables that are empty where they are left out."""


def figures_of(recipe: Recipe) -> list[str]:
    """What a source may be given for: the sizes of batch and model, and all arguments.

    Where the cap is from tells the card, too.
    """
    sizes = [f"batch.{name}" for name in fields_of(Batch) if name != "cap_memory"]
    sizes += [f"model.{name}" for name in numbers_of(recipe.model)] if recipe.model else []
    return [*sizes, "data.train_share", *recipe.arguments, *recipe.if_declared]


def known() -> list[str]:
    """The names of the recipes that come with ddpfix, sorted."""
    return sorted(file.stem for file in SHIPPED.glob("*.toml"))


def load(name_or_path: str) -> Recipe:
    """Read a recipe by its name, or from the TOML file at a path.

    Raises:
        InputError: an unknown name (the message lists the known ones), a file that cannot be read
            or is no TOML, a field that is missing, unknown or of the wrong kind.

    """
    if _is_path(name_or_path):
        from .parse import parse  # with cattrs, which what is shipped does without

        text = _read(Path(name_or_path))
        return parse(text, source=name_or_path, name=Path(name_or_path).stem)
    if name_or_path in known():
        return _shipped(name_or_path)
    # Only now, as all of them have to be read for it.
    for recipe in map(_shipped, known()):
        if name_or_path in recipe.aliases:
            return recipe
    raise InputError(_unknown(name_or_path))


def text_of(name_or_path: str) -> str:
    """The text of a recipe's file. Raises InputError as `load` does."""
    if _is_path(name_or_path):
        return _read(Path(name_or_path))
    return _shipped_text(load(name_or_path).name)


def _is_path(name_or_path: str) -> bool:
    return name_or_path.endswith(".toml") or Path(name_or_path).name != name_or_path


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: pass a recipe's name or file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from None


def _shipped(name: str) -> Recipe:
    """A recipe whose file is known to be right: the kinds of its fields are not looked at."""
    fields = tomllib.loads(_shipped_text(name))
    nested = {key: kind(**_hashable(fields[key])) for key, kind in PARTS.items() if key in fields}
    tables = {key: fields.get(key, {}) for key in MAY_LACK}
    return Recipe(**{**_hashable(fields), **nested, **tables, "name": name})


def _hashable(fields: dict[str, Any]) -> dict[str, Any]:
    """With tuples in the place of lists, as the records have them."""
    return {key: tuple(one) if isinstance(one, list) else one for key, one in fields.items()}


def _shipped_text(name: str) -> str:
    return (SHIPPED / f"{name}.toml").read_text(encoding="utf-8")


def _unknown(name: str) -> str:
    import difflib  # only here, for a complaint

    close = difflib.get_close_matches(name, known(), n=1, cutoff=0.4)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"no recipe {name!r}: {hint}Known: {', '.join(known())}; or the path of a TOML file"
