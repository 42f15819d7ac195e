"""Python scripts among the commands of a shell file, and which of them train."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import attrs

from ..flag_names import DATA_FLAG, EVALUATION_SWITCH, TRAINING_DATA, normalize_flag
from .expansion import Word, integer
from .interpreter import ShellCommand

PYTHON = re.compile(r"(python|pypy)[\d.]*")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
LAUNCHING = ("torch.distributed.launch", "torch.distributed.run", "accelerate.commands.launch")
NOT_RUN = ("echo", "printf", "which", "alias", "type")
PROCESSES = ("nproc_per_node", "num_processes", "num_gpus")
MACHINES = ("nnodes", "num_machines")
TRAINS = re.compile(r"(pre)?(train|fine_?tun)", re.IGNORECASE)
VALUE = re.compile(r"(?!-)|-\.?\d")
"""What may follow a flag as its value: no flag, but a number below zero."""


@attrs.frozen
class Argument:
    """A flag with its values, of which a switch has none; `value` is the last of them.

    `joined` is true where an equals sign holds them together.
    """

    flag: Word
    values: tuple[Word, ...]
    joined: bool = False

    @property
    def value(self) -> Word | None:
        return self.values[-1] if self.values else None


@attrs.frozen
class TrainingCommand:
    """A Python script as a shell file starts it.

    `launcher` is empty where Python starts it; `processes` and `machines` are what the launcher is
    told, if anything. `flags` are the script's arguments by name, as argparse has the last of
    several win; `positional` are words of the script that belong to no flag.
    """

    command: ShellCommand
    script: Word
    launcher: str
    processes: Word | None
    machines: Word | None
    arguments: tuple[Argument, ...]
    flags: Mapping[str, Argument]
    positional: tuple[Word, ...]

    @property
    def single(self) -> bool:
        """Whether a launcher that is not told a number starts one process."""
        return self.launcher in ("torchrun", *LAUNCHING[:2])

    @property
    def path(self) -> PurePosixPath:
        """The script, relative to the folder of the shell file unless absolute."""
        return PurePosixPath(self.command.folder) / self.script.text

    @property
    def trains(self) -> bool:
        """Whether its flags or its name say so."""
        names = {normalize_flag(flag) for flag in self.flags}
        if self.told_to_train:
            return True
        if any(EVALUATION_SWITCH.fullmatch(name) for name in names):
            return False
        of_data = any(TRAINING_DATA.match(name) and DATA_FLAG.match(name) for name in names)
        return of_data or bool(TRAINS.search(PurePosixPath(self.script.text).name))

    @property
    def told_to_train(self) -> bool:
        """Whether a switch says so."""
        return bool(
            {"do_train", "train", "is_train"} & {normalize_flag(flag) for flag in self.flags}
        )


def python_commands(commands: Sequence[ShellCommand]) -> Iterator[TrainingCommand]:
    """Pick the commands that start a Python script, in order; some may only test."""
    for command in commands:
        words = command.words
        position = None if words[0].text in NOT_RUN else _script(words)
        if position is None:
            continue
        place, module = position
        head, script = words[:place], words[place]
        if module:
            script = attrs.evolve(script, text=script.text.replace(".", "/") + ".py")
        options = {normalize_flag(one.flag.text): one.value for one in _arguments(head)[0]}
        arguments, positional = _arguments(words[place + 1 :])
        yield TrainingCommand(
            command,
            script,
            next((word.text for word in head if word.text in (*LAUNCHING, *LAUNCHERS)), ""),
            next((options[name] for name in PROCESSES if name in options), None),
            next((options[name] for name in MACHINES if name in options), None),
            tuple(arguments),
            {argument.flag.text: argument for argument in arguments},
            tuple(positional),
        )


def _script(words: Sequence[Word]) -> tuple[int, bool] | None:
    """Where the script's name stands, and whether it is a module's."""
    runs = False
    for place, word in enumerate(words):
        name = PurePosixPath(word.text).name
        if word.text == "-m" and runs and place + 1 < len(words):
            if words[place + 1].text not in LAUNCHING:
                return place + 1, True
        elif name.endswith(".py") and (runs or not place):
            return place, False
        elif PYTHON.fullmatch(name) or name in LAUNCHERS or word.missing:
            runs = True
    return None


def _arguments(words: Sequence[Word]) -> tuple[list[Argument], list[Word]]:
    """Flags with their values, and what belongs to none."""
    flags: list[tuple[Word, list[Word], bool]] = []
    positional: list[Word] = []
    for word in words:
        name, equals, value = word.text.partition("=")
        if word.text.startswith("-") and not VALUE.match(word.text):
            values = [attrs.evolve(word, text=value)] if equals else []
            # Of --a=$1 the value is what is missing, not the flag.
            flags.append((Word(name, word.line), values, bool(equals)))
        elif flags:
            flags[-1][1].append(word)
        else:
            positional.append(word)
    return [Argument(flag, tuple(values), joined) for flag, values, joined in flags], positional


def that_train(commands: Sequence[TrainingCommand]) -> list[TrainingCommand]:
    """Pick those that train, in order; where some are told to by a switch, only those."""
    training = [command for command in commands if command.trains]
    return [command for command in training if command.told_to_train] or training


def cards(program: TrainingCommand) -> tuple[int, list[str]]:
    """Count the cards it trains on as far as that can be read, and say what had to be supposed."""
    processes, machines = (whole_number(word) for word in (program.processes, program.machines))
    if program.launcher:
        if processes is not None:
            return processes * (machines or 1), []
        if program.processes is None and program.single:
            return 1, []
        what = program.processes.shown if program.processes else "its launcher's settings"
        return 1, [f"how many processes it starts is not known ({what}): read as for one"]
    visible = program.command.cards
    if visible is not None and not visible.missing:
        return max(1, len([one for one in visible.text.split(",") if one.strip()])), []
    sentences = ["without CUDA_VISIBLE_DEVICES it takes all cards; its batch is read as for one"]
    hidden = program.command.hidden_cards
    if hidden is not None:
        where = f"CUDA_VISIBLE_DEVICES of line {hidden.line}"
        sentences.insert(0, f"{where} is not exported, so the script does not see it")
    return 1, sentences


def whole_number(word: Word | None) -> int | None:
    """Read the number, above 0, that a word is."""
    number = integer(word.text) if word else None
    return number if number and number > 0 else None
