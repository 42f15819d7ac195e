"""Which of a script's arguments are its output folder, its batch and its accumulation."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from ...errors import InputError
from ...recipes.load import load
from .arguments import parse_flags
from .source import counts_steps

OUTPUT = (
    "--output_dir",
    "--output-dir",
    "--save_dir",
    "--save-dir",
    "--out_dir",
    "--out-dir",
    "--output",
    "--model_dir",
)
TRAIN_BATCH = (
    "--train_batch_size",
    "--per_gpu_train_batch_size",
    "--per_device_train_batch_size",
    "--train-batch-size",
    "--batch_size",
    "--batch-size",
)
ACCUMULATION = (
    "--gradient_accumulation_steps",
    "--gradient-accumulation-steps",
    "--accumulation_steps",
    "--grad_accum_steps",
    "--grad_accum",
)


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
    arguments: Sequence[str], text: str, *, recipe: str | None, global_batch: int | None
) -> ScriptFlags:
    """The flags among ``arguments``, by a recipe or by their common names.

    ``text`` is the script's source: a flag that it declares, and that the arguments leave at its
    default, is found there.
    Raises InputError when the arguments name no output folder or no batch.
    """
    names: tuple[tuple[str, ...], ...] = (OUTPUT, TRAIN_BATCH, ACCUMULATION)
    if recipe is not None:
        flags = load(recipe).flags
        known = ((flags.output,), (flags.train_batch,), (flags.accumulation,))
        names = tuple(tuple(filter(None, one)) for one in known)
    mine = parse_flags(arguments)
    output = next((name for name in names[0] if name in mine), None)
    if output is None:
        raise InputError(
            f"the script's arguments name no output folder ({', '.join(names[0])}), so its runs "
            "would overwrite each other: pass it after --, or --recipe with its name for it"
        )
    batch = _either(names[1], mine, text)
    if batch is None or (batch not in mine and global_batch is None):
        raise InputError(
            f"the script's arguments name no training batch ({', '.join(names[1])}): pass it after "
            "--, --global-batch, or --recipe with its name for it"
        )
    accumulation = _either(names[2], mine, text)
    of_steps = counts_steps(text, batch, accumulation)
    if global_batch is None:
        accumulated = _number(accumulation, mine) if accumulation in mine and not of_steps else 1
        global_batch = _number(batch, mine) * accumulated
    return ScriptFlags(output, batch, accumulation, global_batch, of_steps)


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


def _either(names: Sequence[str], mine: dict[str, str | None], text: str) -> str | None:
    passed = next((name for name in names if name in mine), None)
    declared = (n for n in names if f'"{n}"' in text or f"'{n}'" in text)
    return passed or next(declared, None)


def _number(flag: str | None, mine: dict[str, str | None]) -> int:
    value = mine[flag] if flag else None
    if value is None or not value.isdigit() or int(value) < 1:
        raise InputError(f"{flag} {value or ''}: it takes a whole number above 0")
    return int(value)
