"""A recipe from a command of a shell file, and what of it had to be supposed or is left open."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import attrs

from ...errors import InputError
from ..flag_names import (
    DATA_FOLDERS,
    LINE_FORMATS,
    PER_PROCESS,
    ROLES,
    TRAINING_DATA,
    flag_for,
    is_data,
    normalize_flag,
)
from ..model import Value
from .expansion import Word, integer, on_one_line, shown
from .training_commands import Argument, TrainingCommand, cards, whole_number

SET_BY_LAUNCH = ("train_batch", "eval_batch", "accumulation", "output")
OF_PROCESSES = re.compile(
    r"gpus?(_ids?|_per_node)?|n_?gpus?|num_gpus|devices?|world_size|local_rank"
)
"""Flags that tell a script what its launcher decides."""
LACKED = {
    "eval_batch": "the batch of evaluations",
    "accumulation": "the accumulation",
    "output": "the output folder",
}
WITHOUT = {
    "eval_batch": "the script's own default stands",
    "accumulation": "no plan accumulates",
    "output": "the script writes where it always does",
}
FOLDER = "output"
"""Where a script writes that does not say it in a way that can be read."""


@attrs.define
class Draft:
    """The fields of a recipe before they are written, each table by itself.

    `omissions` are arguments that could not be taken over, each with its reason; `sentences` are
    for whoever asked for the recipe. `remarks` belong to a field, such as "data.files".
    `start` is the folder in which the script is started, relative to the shell file's.
    """

    script: str
    start: str = "."
    joined: bool = False
    flags: dict[str, str] = attrs.field(factory=dict)
    batch: dict[str, int] = attrs.field(factory=dict)
    folder: str = "."
    files: dict[str, str] = attrs.field(factory=dict)
    train: str | None = None
    output: str = FOLDER
    arguments: dict[str, Value] = attrs.field(factory=dict)
    sources: dict[str, str] = attrs.field(factory=dict)
    omissions: list[str] = attrs.field(factory=list)
    remarks: dict[str, str] = attrs.field(factory=dict)
    sentences: list[str] = attrs.field(factory=list)


def draft_of(
    training: TrainingCommand, source: str, defaults: Mapping[str, object] | None
) -> Draft:
    """Draft the recipe of a command in the shell file `source`.

    `defaults` are those of its script's flags, by flag, None where the script cannot be read.

    Raises:
        InputError: the batch is not known.

    """
    return _Drafting(training, source, defaults).result


class _Drafting:
    def __init__(
        self, training: TrainingCommand, source: str, defaults: Mapping[str, object] | None
    ) -> None:
        self.training, self.source, self.defaults = training, source, defaults
        self.file = PurePosixPath(source).name
        self.script = posixpath.normpath(training.script.text)
        self.result = Draft(self.script)
        valued = [argument for argument in training.arguments if argument.values]
        self.result.joined = bool(valued) and all(argument.joined for argument in valued)
        self._folder()
        self.cards, sentences = cards(training)
        for sentence in sentences:
            self._say(sentence)
        self._flags()
        self._batch()
        self._output()
        self._data()
        self._arguments()
        self._positional()

    def _folder(self) -> None:
        self.result.start = self.training.command.folder
        if self.result.start != ".":
            self._say(
                f"it is started in the folder {self.result.start}: launch it there, as relative "
                "paths among the arguments count from there"
            )

    def _flags(self) -> None:
        result, flags = self.result, self.training.flags
        for role in ROLES:
            flag = flag_for(role, flags)
            if flag is None and self.defaults is not None and role != "max_steps":
                flag = flag_for(role, self.defaults)
            if flag is not None:
                result.flags[role] = flag
                if role == "max_steps":  # some scripts have it and set it themselves
                    self._say(f"{flag} is taken to be obeyed; if not, leave flags.max_steps out")
            elif role in LACKED:
                if self.defaults:
                    self._say(f"{self.script} has no flag for {LACKED[role]}: {WITHOUT[role]}")
                else:
                    self._say(
                        f"no flag for {LACKED[role]} is known, and {self.script} cannot be read: "
                        f"name it as flags.{role}, else {WITHOUT[role]}"
                    )
        batch = result.flags.get("train_batch")
        if batch not in flags and batch not in (self.defaults or {}):
            raise InputError(
                f"{self._at()}: no flag of {self.script} is known as that of the training batch; "
                f"known are {', '.join(f'--{name}' for name in ROLES['train_batch'])}"
            )

    def _batch(self) -> None:
        result = self.result
        size = self._size("train_batch")
        if size is None:
            raise InputError(self._unknown(result.flags["train_batch"]))
        accumulation = self._size("accumulation") or 1
        evaluation = self._size("eval_batch")
        each = bool(self.training.launcher) or _per_process(result.flags["train_batch"])
        cap = size if each else max(1, size // self.cards)
        together = size * self.cards if each else size
        result.batch = {"global_batch": together * accumulation, "per_device_cap": cap}
        share = self.cards if "eval_batch" in result.flags and not each else 1
        if evaluation is None:
            result.remarks["batch.eval_per_device"] = "not told: as in training"
        result.batch["eval_per_device"] = max(1, evaluation // share) if evaluation else cap
        how = f"{size} per process x {self.cards}" if each else f"{size} over all cards"
        words = f"{how} x {accumulation} accumulated"
        for figure in ("global_batch", "per_device_cap"):
            self._source(f"batch.{figure}", result.flags["train_batch"], words)
        if evaluation is not None:
            self._source("batch.eval_per_device", result.flags["eval_batch"])

    def _size(self, role: str) -> int | None:
        """A number that the command gives, or else is the script's default."""
        flag = self.result.flags.get(role)
        argument = self.training.flags.get(flag or "")
        if argument is not None:
            number = whole_number(argument.value)
            if number is None:
                raise InputError(self._unknown(argument.flag.text))
            return number
        default = (self.defaults or {}).get(flag or "")
        return default if type(default) is int else None

    def _output(self) -> None:
        result = self.result
        argument = self.training.flags.get(result.flags.get("output", ""))
        word = argument.value if argument else None
        if word is None or word.missing:
            written = f" ({word.shown})" if word else ""
            self._say(f"where it writes is not known{written}: a launch has it write to {FOLDER}")
            return
        parts = [part for part in PurePosixPath(word.text).parts if part not in ("..", "/")]
        result.output = "/".join(parts) or FOLDER
        self._doubt(word)

    def _data(self) -> None:
        """The data files, relative to the folder that they share, and that to the script."""
        result = self.result
        folder = next(
            (flag for flag in self.training.flags if normalize_flag(flag) in DATA_FOLDERS), ""
        )
        files: dict[str, str] = {}
        for flag, argument in self.training.flags.items():
            word = argument.value
            if not word or len(argument.values) > 1 or word.missing or not is_data(flag, word.text):
                continue
            if folder and "/" not in word.text:
                self._say(f"{flag} {word.text} is taken to be a name below that of {folder}")
                continue
            files[flag] = posixpath.normpath(word.text)
            self._doubt(word)
        # With the folders that there are: from `..` alone no path leads back.
        here = posixpath.abspath(posixpath.join(posixpath.dirname(self.source), result.start))
        relative = {flag: path for flag, path in files.items() if not posixpath.isabs(path)}
        if relative:
            folders = [posixpath.dirname(posixpath.join(here, path)) for path in relative.values()]
            common = posixpath.commonpath(folders)
            script = posixpath.join(here, posixpath.dirname(self.script))
            result.folder = posixpath.relpath(common, script)
            for flag, path in relative.items():
                files[flag] = posixpath.relpath(posixpath.join(here, path), common)
        result.files = files
        training = [flag for flag in files if TRAINING_DATA.match(normalize_flag(flag))]
        result.train = next((one for one in training if files[one].endswith(LINE_FORMATS)), None)
        if training and not result.train:
            result.remarks["data.files"] = f'train = "{training[0]}", if it has an example a line'

    def _arguments(self) -> None:
        result = self.result
        mine = {result.flags[role] for role in SET_BY_LAUNCH if role in result.flags}
        for flag, argument in self.training.flags.items():
            if flag in mine or flag in result.files:
                continue
            if reason := self._unusable(flag, argument):
                words = shown(" ".join([flag, *(word.text for word in argument.values)]))
                result.omissions.append(f"{words}: {reason}")
                self._say(f"{words} is left out: {reason}")
                continue
            word = argument.value
            result.arguments[flag] = True if word is None else _value(word.text)
            if word is not None:
                self._source(flag, flag)
                self._doubt(word)
            if OF_PROCESSES.fullmatch(normalize_flag(flag)):
                self._say(f"{flag} stays as it is, though the number of processes may not")

    def _unusable(self, flag: str, argument: Argument) -> str:
        """Why an argument cannot be a recipe's."""
        if missing := [text for word in argument.values for text in word.missing]:
            return f"{shown(missing[0])} is not known, {self._way_out(missing[0])}"
        if len(argument.values) > 1:
            return "it takes several values, a recipe's one"
        if not flag.startswith("--"):
            return "a recipe's flags begin with --"
        return ""

    def _positional(self) -> None:
        if self.training.positional:
            words = shown(" ".join(word.text for word in self.training.positional))
            self.result.omissions.append(f"{words}: not behind a flag")
            self._say(f"{words} is left out: a recipe has arguments behind flags only")

    def _source(self, figure: str, flag: str, more: str = "") -> None:
        argument = self.training.flags.get(flag)
        if argument is not None:
            where = f"{self.file}, line {argument.flag.line}"
        else:
            where = f"default of {self.script}"
        self.result.sources[figure] = f"{where}: {more}" if more else where

    def _doubt(self, word: Word) -> None:
        for doubt in word.doubts:
            self._say(doubt)

    def _say(self, sentence: str) -> None:
        sentence = on_one_line(sentence)
        if sentence not in self.result.sentences:
            self.result.sentences.append(sentence)

    def _at(self) -> str:
        return f"{self.source}:{self.training.command.line}"

    def _unknown(self, flag: str) -> str:
        argument = self.training.flags.get(flag)
        word = argument.value if argument else None
        if word is None:
            return (
                f"{self._at()}: {self.script} is not told {flag}, and has no default that is read"
            )
        if not word.missing:
            return f"{self.source}:{word.line}: {flag} {word.shown}: it takes a whole number"
        way_out = self._way_out(word.missing[0])
        return f"{self.source}:{word.line}: {flag} {word.shown}: it has to be known, {way_out}"

    def _way_out(self, missing: str) -> str:
        name = missing.strip("${}")
        if name.isdigit():
            return f"pass the arguments of {self.file} behind --"
        return f"set {name} in the environment" if name.isidentifier() else "only a run tells it"


def _per_process(flag: str) -> bool:
    return any(part in normalize_flag(flag) for part in PER_PROCESS)


def _value(text: str) -> Value:
    """A number where writing it gives the same text again."""
    number = integer(text)
    if number is not None and str(number) == text:
        return number
    try:
        return float(text) if str(float(text)) == text else text
    except ValueError:
        return text
