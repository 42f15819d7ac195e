"""Python scripts among the commands of a shell file, and which of them train."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import attrs

from ..roles import DATA, TESTING, TRAINING_DATA, bare
from .expansion import Word
from .interpreter import Started

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
    """A flag with its values, of which a switch has none; `given` is its last one.

    `joined` is true where an equals sign holds them together.
    """

    flag: Word
    values: tuple[Word, ...]
    joined: bool = False

    @property
    def given(self) -> Word | None:
        return self.values[-1] if self.values else None


@attrs.frozen
class Program:
    """A Python script as a shell file starts it.

    `launcher` is empty where Python starts it; `processes` and `machines` are what the launcher is
    told, if anything. `loose` are words of the script that belong to no flag.
    """

    started: Started
    script: Word
    module: bool
    launcher: str
    processes: Word | None
    machines: Word | None
    arguments: tuple[Argument, ...]
    loose: tuple[Word, ...]

    @property
    def flags(self) -> dict[str, Argument]:
        """By name; argparse has the last of several win."""
        return {argument.flag.text: argument for argument in self.arguments}

    @property
    def single(self) -> bool:
        """Whether a launcher that is not told a number starts one process."""
        return self.launcher in ("torchrun", *LAUNCHING[:2])

    @property
    def path(self) -> PurePosixPath:
        """The script, relative to the folder of the shell file unless absolute."""
        return PurePosixPath(self.started.folder) / self.script.text

    @property
    def trains(self) -> bool:
        """Whether its flags or its name say so."""
        names = {bare(flag) for flag in self.flags}
        if self.told_to_train:
            return True
        if any(TESTING.fullmatch(name) for name in names):
            return False
        of_data = any(TRAINING_DATA.match(name) and DATA.match(name) for name in names)
        return of_data or bool(TRAINS.search(PurePosixPath(self.script.text).name))

    @property
    def told_to_train(self) -> bool:
        """Whether a switch says so."""
        return bool({"do_train", "train", "is_train"} & {bare(flag) for flag in self.flags})


def programs(commands: Sequence[Started]) -> Iterator[Program]:
    """The Python scripts that are started, in order."""
    for command in commands:
        words = command.words
        if words[0].text not in NOT_RUN and (found := _script(words)) is not None:
            place, module = found
            head, tail = words[:place], words[place + 1 :]
            script = words[place]
            if module:
                path = script.text.replace(".", "/") + ".py"
                script = attrs.evolve(script, text=path)
            told = {bare(one.flag.text): one.given for one in _arguments(head)[0]}
            arguments, loose = _arguments(tail)
            yield Program(
                command,
                script,
                module,
                next((word.text for word in head if word.text in (*LAUNCHING, *LAUNCHERS)), ""),
                next((told[name] for name in PROCESSES if name in told), None),
                next((told[name] for name in MACHINES if name in told), None),
                tuple(arguments),
                tuple(loose),
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
    arguments: list[Argument] = []
    loose: list[Word] = []
    for word in words:
        name, equals, value = word.text.partition("=")
        if word.text.startswith("-") and not VALUE.match(word.text):
            values = (attrs.evolve(word, text=value),) if equals else ()
            # Of --a=$1 the value is what is missing, not the flag.
            arguments.append(Argument(Word(name, word.line), values, bool(equals)))
        elif not arguments:
            loose.append(word)
        else:
            last = arguments[-1]
            arguments[-1] = attrs.evolve(last, values=(*last.values, word))
    return arguments, loose


def chosen(found: Sequence[Program]) -> list[Program]:
    """Those that train, in order; where some are told to by a switch, only those."""
    training = [program for program in found if program.trains]
    return [program for program in training if program.told_to_train] or training


def cards(program: Program) -> tuple[int, list[str]]:
    """How many cards it trains on as far as that can be read, and what had to be supposed."""
    processes, machines = (whole_number(word) for word in (program.processes, program.machines))
    if program.launcher:
        if processes is not None:
            return processes * (machines or 1), []
        if program.processes is None and program.single:
            return 1, []
        what = program.processes.text if program.processes else "its launcher's settings"
        return 1, [f"how many processes it starts is not known ({what}): read as for one"]
    visible = program.started.variables.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.missing:
        return max(1, len([one for one in visible.text.split(",") if one.strip()])), []
    said = ["without CUDA_VISIBLE_DEVICES it takes all cards; its batch is read as for one"]
    hidden = program.started.kept_back.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None:
        where = f"CUDA_VISIBLE_DEVICES of line {hidden.line}"
        said.insert(0, f"{where} is not exported, so the script does not see it")
    return 1, said


def whole_number(word: Word | None) -> int | None:
    """The number, above 0, that a word is."""
    return int(word.text) if word and word.text.isdecimal() and int(word.text) else None
