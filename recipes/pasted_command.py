"""Read a training command as a user pastes it: its script, arguments, environment and processes.

``CUDA_VISIBLE_DEVICES=0,1 python -u train.py --lr 0.1 2>&1 | tee log`` is read and never run. A
command in one word (pasted in quotes) is split as a shell would; variables in it stay unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath

from ..errors import InputError
from ..record import record
from .flag_names import normalize_flag

PYTHON = re.compile(r"(python|pypy)[\d.]*")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "colossalai")
LAUNCHING_MODULES = (
    "torch.distributed.launch",
    "torch.distributed.run",
    "accelerate.commands.launch",
)
PROCESSES = ("nproc_per_node", "num_processes", "num_gpus")
ONE_PER_CARD = ("gpu", "auto")
MACHINES = ("nnodes", "num_machines")
BEFORE_PROGRAMS = ("env", "nohup", "time", "exec", "sudo", "stdbuf", "nice", "ionice")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
SEPARATOR = re.compile(r"[|&;<>]+")
WAY_OUT = "paste it as `ddpfix launch -- python train.py ...`"


@record
class PastedCommand:
    """A Python script as a command line starts it.

    `launcher` is empty where Python itself starts the script; `processes` is how many its launcher
    is told to start over all machines, None where it is not told. `python` is the interpreter where
    the command names one by its path, else empty. `module` is the script's name as a module where
    it is started as one, ``python -m package.train``, so that it finds its package; else empty.
    """

    script: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    launcher: str = ""
    processes: int | None = None
    python: str = ""
    module: str = ""

    @property
    def cards(self) -> int | None:
        """The number of cards in its CUDA_VISIBLE_DEVICES; None without it."""
        visible = self.environment.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return None
        return len([card for card in visible.split(",") if card.strip()])


def read_command(words: Sequence[str]) -> PastedCommand:
    """Read a command's words, or its one quoted word.

    Raises InputError where no Python script is started, or a variable in quotes is not known.
    """
    environment: dict[str, str] = {}
    for command in _commands(words):
        program = _without_prefix(command, environment)
        if program[:1] == ["cd"]:
            folder = " ".join(program[1:])
            raise InputError(f"the command changes to {folder}: go there first and leave `cd` out")
        found = _python_script(program, environment)
        if found is not None:
            return found
    text = " ".join(words)
    raise InputError(f"{_short(text)}: no Python script is started in it; {WAY_OUT}")


def _commands(words: Sequence[str]) -> Iterator[list[str]]:
    """The simple commands of a line, without redirections and what they are piped into."""
    if len(words) != 1 or not re.search(r"\s", words[0]):
        yield list(words)
        return
    text = re.sub(r"(?<=\s)\d(?=[<>])", "", words[0].replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        tokens = list(lexer)
    except ValueError as error:
        raise InputError(f"{_short(text)}: {str(error).lower()}; {WAY_OUT}") from None
    command: list[str] = []
    is_redirection = is_skipped = False
    for token in tokens:
        if SEPARATOR.fullmatch(token):
            if token[0] in "<>" or token == "&>":
                is_redirection = True
                continue
            if not is_skipped:
                yield command
            command, is_skipped = [], token == "|"
        elif is_redirection:
            is_redirection = False  # the file's name
        else:
            command.append(token)
    if not is_skipped:
        yield command


def _without_prefix(command: list[str], environment: dict[str, str]) -> list[str]:
    """The words from the program's name on; assignments before it go into `environment`."""
    words = list(command)
    if words[:1] == ["export"]:
        words = words[1:]
    while words:
        word = words[0]
        if ASSIGNMENT.match(word):
            name, _, value = word.partition("=")
            environment[name] = value
        elif PurePosixPath(word).name in BEFORE_PROGRAMS:
            while len(words) > 1 and words[1].startswith("-"):
                takes_value = words[1] in ("-u", "-n", "-c", "-o")
                del words[1 : 3 if takes_value else 2]
        else:
            break
        words = words[1:]
    return words


def _python_script(words: list[str], environment: dict[str, str]) -> PastedCommand | None:
    place, is_module = _script_place(words)
    if place is None:
        return None
    head, script = words[:place], words[place]
    module = script if is_module else ""
    if is_module:
        script = script.replace(".", "/") + ".py"
    arguments = words[place + 1 :]
    unknown = next((word for word in words if re.search(r"\$[\w{(]", word)), None)
    if unknown is not None:
        raise InputError(
            f"{unknown}: a variable that only your shell knows: paste the command without quotes"
        )
    launcher = next(
        (PurePosixPath(word).name for word in head if _is_launcher(word)),
        "",
    )
    options = _options(head)
    processes = _number(options, PROCESSES) or _processes_per_card(options, environment)
    if launcher and processes is not None:
        processes *= _number(options, MACHINES) or 1
    elif launcher and launcher not in ("accelerate", "deepspeed", "accelerate.commands.launch"):
        processes = 1  # torchrun's default
    python = head[0] if head and "/" in head[0] and PYTHON.fullmatch(_name(head[0])) else ""
    return PastedCommand(
        script, tuple(arguments), dict(environment), launcher, processes, python, module
    )


def _script_place(words: list[str]) -> tuple[int | None, bool]:
    """Where the script's name stands, and whether it is a module's."""
    runs = False
    for place, word in enumerate(words):
        if word in ("-m", "--module") and runs and place + 1 < len(words):
            if words[place + 1] not in LAUNCHING_MODULES:
                return place + 1, True
        elif word.endswith(".py") and (runs or not place):
            return place, False
        elif PYTHON.fullmatch(_name(word)) or _is_launcher(word):
            runs = True
    return None, False


def _is_launcher(word: str) -> bool:
    return _name(word) in LAUNCHERS or word in LAUNCHING_MODULES


def _name(word: str) -> str:
    return PurePosixPath(word).name


def _options(words: Sequence[str]) -> dict[str, str]:
    """The launcher's options with their values; a switch has the word after it."""
    found: dict[str, str] = {}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("-"):
            flag, equals, value = word.partition("=")
            found[normalize_flag(flag)] = value if equals else following
    return found


def _number(options: dict[str, str], names: Sequence[str]) -> int | None:
    for name in names:
        value = options.get(name, "")
        if value.isdigit() and len(value) < 7 and int(value) > 0:
            return int(value)
    return None


def _processes_per_card(options: dict[str, str], environment: dict[str, str]) -> int | None:
    """How many processes torchrun's words for "one per card" make; None without such a word.

    Raises InputError where the command does not tell how many cards there were: a guess would
    change the global batch.
    """
    for name in PROCESSES:
        if (word := options.get(name, "")) in ONE_PER_CARD:
            visible = environment.get("CUDA_VISIBLE_DEVICES", "")
            if cards := [card for card in visible.split(",") if card.strip()]:
                return len(cards)
            raise InputError(
                f"--{name}={word}: how many cards that was is not told, and the global batch "
                f"depends on it: write their number, such as --{name}=4"
            )
    return None


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
