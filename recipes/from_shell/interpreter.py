"""Which programs a shell file starts, with which words: found by reading, nothing is run.

Commands are gone through in the order in which they stand, with what the variables hold by then.
A condition is followed where its test compares what is known; else all of its branches are read,
and a loop's body once, and what hangs on that is told with the words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import attrs

from .conditions import TESTS, Condition, verdict
from .expansion import Value, Values, Word, is_assignment
from .syntax import Raw, Sign, divide

OPEN, CLOSE, ENDS = "(", ")", ("\n", ";", "&", "&&", "||", ";;")
# What is behind a command that works, as they are taken to, is run or not.
AFTER_COMMAND: Mapping[str, bool | None] = {"&&": True, "||": None}
AFTER_ASSIGNMENT: Mapping[str, bool | None] = {"&&": True, "||": False}
UNKNOWN: Mapping[str, bool | None] = {"&&": None, "||": None}
TO_FILE = (">", ">>", "&>", "&>>", ">|")
SILENT = ("then", "do", "done", "{", "}", "!", "time", "while", "until")
DECLARING = ("export", "declare", "local", "readonly", "typeset")


@attrs.frozen
class Started:
    """A command: its words, the variables it is given, its folder and its log.

    `folder` is relative to that of the shell file, unless absolute. `kept_back` are variables that
    the file sets and does not export.
    """

    line: int
    words: tuple[Word, ...]
    variables: Mapping[str, Word]
    kept_back: Mapping[str, Word]
    folder: str
    log: Word | None


def commands(
    text: str,
    source: str,
    *,
    arguments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> list[Started]:
    """All commands of a shell file that is given `arguments` and run under `environ`.

    Raises:
        InputError: a quote, parenthesis or brace that is not closed.

    """
    reading = _Reading(Values(source, environ or {}))
    return list(reading.run(divide(text, source), [Word(argument) for argument in arguments]))


@attrs.define
class _Simple:
    """One command, before expansion."""

    words: list[Raw] = attrs.field(factory=list)
    output: Raw | None = None


class _Reading:
    def __init__(self, values: Values) -> None:
        self.values = values
        self.functions: dict[str, list[Raw | Sign]] = {}
        self.calls: list[str] = []
        self.conditions: list[Condition] = []
        # Whether the command is run, as far as && and || before it say, and what they say next.
        self.linked: bool | None = True
        self.after: Mapping[str, bool | None] = AFTER_COMMAND

    @property
    def skipping(self) -> bool:
        return False in (self.linked, *(condition.taken for condition in self.conditions))

    def run(self, tokens: Sequence[Raw | Sign], arguments: list[Word]) -> Iterator[Started]:
        """The commands of a file or a function, one after the other."""
        outer, self.values.arguments = self.values.arguments, arguments
        folders: list[PurePosixPath] = []
        place = 0
        while place < len(tokens):
            token = tokens[place]
            undecided = [one.line for one in self.conditions if one.taken is None]
            undecided += [token.line] if self.linked is None else []
            self.values.branch = tuple(undecided)
            if isinstance(token, Sign):
                if token.text == OPEN:
                    folders.append(self.values.folder)
                elif token.text == CLOSE and folders:
                    self.values.folder = folders.pop()
                elif token.text == ";;" and self.conditions:
                    self.conditions[-1].next(None, token.line)
                self._link(token)
                place += 1
            elif (behind := self._compound(tokens, place)) is not None:
                place = behind
            else:
                pipeline, place = _pipeline(tokens, place)
                if self.skipping:
                    self._unset(pipeline)
                    continue
                yield from self._pipeline(pipeline)
                assigns = all(map(is_assignment, pipeline[-1].words))
                self._done(AFTER_ASSIGNMENT if assigns else AFTER_COMMAND)
        self.values.arguments = outer

    def _link(self, sign: Sign) -> None:
        """Whether the command behind && or || is run, or a new one begins."""
        if sign.text in AFTER_COMMAND:
            self.linked = self.after[sign.text]
        elif sign.text not in (OPEN, CLOSE):
            self.linked, self.after = True, AFTER_COMMAND

    def _done(self, after: Mapping[str, bool | None]) -> None:
        """Remember what a command that was read lets && and || do."""
        if not self.skipping:
            self.after = UNKNOWN if self.linked is None else after

    def _unset(self, pipeline: list[_Simple]) -> None:
        """What only a branch that is not taken sets holds nothing, rather than what is unknown."""
        for raw in (raw for simple in pipeline for raw in simple.words[:1]):
            if is_assignment(raw):
                name = raw.pieces[0].text.partition("=")[0]
                self.values.variables.setdefault(name, Value((), raw.line))

    def _compound(self, tokens: Sequence[Raw | Sign], place: int) -> int | None:
        """Where it goes on behind what is no command: a keyword, a loop's head, a function."""
        token = tokens[place]
        assert isinstance(token, Raw)
        word = token.bare
        if word in ("if", "elif"):
            return self._condition(tokens, place)
        if word == "else":
            for condition in self.conditions[-1:]:
                condition.next(True, token.line)
        elif word == "case":
            self.conditions.append(Condition(token.line, None))
            return _behind(tokens, place, "in")
        elif word in ("fi", "esac"):
            del self.conditions[-1:]
        elif word == "for":
            return self._for(tokens, place)
        elif word in TESTS:
            behind = _behind(tokens, place, TESTS[word])
            said = verdict(tokens[place:behind], self.values)
            self._done({"&&": said, "||": None if said is None else not said})
            return behind
        elif word == "function" or _signs(tokens[place + 1 : place + 3]) == "()":
            return self._function(tokens, place)
        elif word not in SILENT:
            return None
        return place + 1

    def _condition(self, tokens: Sequence[Raw | Sign], place: int) -> int:
        behind = _behind(tokens, place, "then")
        said = verdict(tokens[place + 1 : behind - 1], self.values)
        if _bare(tokens[place]) == "if":
            self.conditions.append(Condition(tokens[place].line, said))
        elif self.conditions:
            self.conditions[-1].next(said, tokens[place].line)
        # A test that is more than one is read as the commands that it may be.
        return place + 1 if said is None else behind

    def _for(self, tokens: Sequence[Raw | Sign], place: int) -> int:
        ends = (i for i in range(place, len(tokens)) if _is(tokens[i], "\n", ";"))
        end = next(ends, len(tokens))
        head = [token for token in tokens[place + 1 : end] if isinstance(token, Raw)]
        if len(head) > 2 and head[1].bare == "in":
            values = [word for raw in head[2:] for word in self.values.expanded(raw)]
            name, line = head[0].bare, head[0].line
            if values:
                doubt = f"{name} is {values[0].text}, the first of {len(values)} in line {line}"
                first = values[0] + Word("", doubts=(doubt,) if len(values) > 1 else ())
                self.values.variables[name] = Value((first,), line, self.values.branch)
        return end

    def _function(self, tokens: Sequence[Raw | Sign], place: int) -> int:
        """Remember the body, which is read where it is called."""
        named = place + (_bare(tokens[place]) == "function")
        start = _behind(tokens, place, "{")
        depth, end = 1, start
        while end < len(tokens) and depth:
            depth += (_bare(tokens[end]) == "{") - (_bare(tokens[end]) == "}")
            end += 1
        self.functions[_bare(tokens[named])] = list(tokens[start : end - 1])
        return end

    def _pipeline(self, pipeline: list[_Simple]) -> Iterator[Started]:
        expanded = [self._expanded(simple) for simple in pipeline]
        tees = [words[1:] for _, words in expanded[1:] if words and words[0].text == "tee"]
        kept = [word for words in tees for word in words if not word.text.startswith("-")]
        for simple, (own, words) in zip(pipeline, expanded, strict=True):
            name = words[0].text if words else ""
            if name in self.functions and name not in self.calls:
                self.calls.append(name)
                yield from self.run(self.functions[name], words[1:])
                self.calls.pop()
            elif words and not self._builtin(words):
                log = self.values.expanded(simple.output) if simple.output else kept
                yield self._started(words, own, log[0] if log else None)

    def _started(self, words: list[Word], own: Mapping[str, Word], log: Word | None) -> Started:
        values = self.values
        held = {name: value.words[0] for name, value in values.variables.items() if value.words}
        passed = {name: word for name, word in held.items() if name in values.exported}
        kept_back = {name: word for name, word in held.items() if name not in passed}
        folder = str(values.folder)
        return Started(words[0].line, tuple(words), {**passed, **own}, kept_back, folder, log)

    def _expanded(self, simple: _Simple) -> tuple[dict[str, Word], list[Word]]:
        """The variables of a command alone, and its words; assignments by themselves are done."""
        raws, prefix = list(simple.words), list[Raw]()
        while raws and is_assignment(raws[0]):
            prefix.append(raws.pop(0))
        if raws and raws[0].bare in DECLARING:
            options = [raw.bare for raw in raws[1:] if raw.bare.startswith("-")]
            prefix = [raw for raw in raws[1:] if is_assignment(raw)]
            if raws[0].bare == "export" or "-x" in options:
                named = {raw.bare for raw in raws[1:]}
                self.values.exported |= named | {self.values.assigned(raw)[0] for raw in prefix}
            raws = []
        if not raws:
            for raw in prefix:
                self.values.assign(raw)
            return {}, []
        own = {name: words[0] for name, words in map(self.values.assigned, prefix) if words}
        return own, [word for raw in raws for word in self.values.expanded(raw)]

    def _builtin(self, words: list[Word]) -> bool:
        """Carry out what changes how later commands are read."""
        if words[0].text == "cd" and len(words) == 2:
            self.values.folder = _normal(self.values.folder / words[1].text)
        elif words[0].text == "shift":
            number = words[1].text if words[1:] else "1"
            del self.values.arguments[: int(number) if number.isdigit() else 0]
        else:
            return False
        return True


def _pipeline(tokens: Sequence[Raw | Sign], place: int) -> tuple[list[_Simple], int]:
    """The commands up to the next separator, and where it goes on."""
    pipeline = [_Simple()]
    while place < len(tokens):
        token = tokens[place]
        if isinstance(token, Raw):
            pipeline[-1].words.append(token)
        elif token.text in ("|", "|&"):
            pipeline.append(_Simple())
            while place + 1 < len(tokens) and _is(tokens[place + 1], "\n"):
                place += 1
        elif token.text in (*ENDS, OPEN, CLOSE):
            break
        elif token.text not in ("<<", "<<-"):  # a redirection, with its target
            target = tokens[place + 1] if place + 1 < len(tokens) else None
            if isinstance(target, Raw):
                place += 1
                if token.text in TO_FILE and token.number != "2" and target.bare != "/dev/null":
                    pipeline[-1].output = target
        place += 1
    return pipeline, place


def _behind(tokens: Sequence[Raw | Sign], place: int, word: str) -> int:
    return next((i + 1 for i in range(place, len(tokens)) if _bare(tokens[i]) == word), len(tokens))


def _bare(token: Raw | Sign) -> str:
    return token.bare if isinstance(token, Raw) else ""


def _is(token: Raw | Sign, *texts: str) -> bool:
    return isinstance(token, Sign) and token.text in texts


def _signs(tokens: Sequence[Raw | Sign]) -> str:
    return "".join(token.text if isinstance(token, Sign) else " " for token in tokens)


def _normal(path: PurePosixPath) -> PurePosixPath:
    """The path without what . and .. in it undo."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] not in ("..", "/"):
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)
