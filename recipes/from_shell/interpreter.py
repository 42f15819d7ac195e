"""Which programs a shell file starts, with which words: found by reading, nothing is run.

Commands are gone through in the order in which they stand, with what the variables hold by then.
A condition is followed where its test compares what is known; else all of its branches are read,
and a loop's body once, and what hangs on that is told with the words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath

import attrs

from ...errors import InputError
from .conditions import (
    ASSIGNMENT,
    COMMAND,
    UNTOLD,
    Success,
    success_of,
    verdict,
    verdict_of,
)
from .expansion import LONGEST, Value, Values, Word, integer
from .nodes import (
    Body,
    Bracket,
    CaseStatement,
    Chain,
    Declaration,
    ForLoop,
    FunctionDefinition,
    IfStatement,
    Negation,
    OtherLoop,
    Pipeline,
    SimpleCommand,
    Statement,
)
from .repairs import WAY_OUT
from .syntax import statements_of

OF_CARDS = "CUDA_VISIBLE_DEVICES"
DEEPEST = 100
"""As many statements may be read within each other, where functions call functions."""
COST = 200
"""What a command costs, in characters: a hundred thousand may be read."""


@attrs.frozen
class ShellCommand:
    """A command: its words, the cards it is told, its folder and its log.

    `cards` is CUDA_VISIBLE_DEVICES where the command sees it, `hidden_cards` where the file sets it
    and does not export it. `folder` is relative to that of the shell file, unless absolute.
    """

    line: int
    words: tuple[Word, ...]
    cards: Word | None
    hidden_cards: Word | None
    folder: str
    log: Word | None


def commands_of(
    text: str,
    source: str,
    *,
    arguments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> list[ShellCommand]:
    """Follow a shell file that gets `arguments` and runs under `environ`, and list its commands.

    Raises:
        InputError: the text is no bash, or what it does grows without end.

    """
    interpreter = _Interpreter(source, Values(source, environ or {}))
    interpreter.values.arguments = [Word(argument) for argument in arguments]
    for statement in statements_of(text, source):
        interpreter.follow(statement)
    return interpreter.commands


class _Interpreter:
    def __init__(self, source: str, values: Values) -> None:
        self.source, self.values = source, values
        self.commands: list[ShellCommand] = []
        self.functions: dict[str, Statement] = {}
        self.calls: list[str] = []
        self.depth = 0

    def follow(self, statement: Statement) -> Success:
        """Do what a statement does to the variables, and list the commands it runs."""
        self.values.spend(COST, statement.line)
        if self.depth > DEEPEST:
            raise self._refusal(statement.line, f"followed more than {DEEPEST} deep")
        self.depth += 1
        success = self._dispatch(statement)
        self.depth -= 1
        return success

    def _dispatch(self, statement: Statement) -> Success:
        match statement:
            case SimpleCommand():
                return self._pipeline((statement,))
            case Pipeline():
                return self._pipeline(statement.stages)
            case Declaration():
                return self._declare(statement)
            case Bracket():
                return success_of(verdict(statement, self.values))
            case Negation():
                return self.follow(statement.statement).reverse
            case Chain():
                return self._chain(statement)
            case Body():
                return self._body(statement)
            case IfStatement():
                self._if(statement)
            case CaseStatement():
                for item in statement.items:
                    with self._undecided(item.line):
                        self.follow(item)
            case ForLoop():
                self._loop(statement)
            case OtherLoop():
                self.follow(statement.condition)
                self.follow(statement.body)
            case FunctionDefinition():
                self.functions[statement.name] = statement.body
        return COMMAND

    @contextmanager
    def _undecided(self, line: int) -> Iterator[None]:
        """What is followed here is run under a condition that is not known."""
        outer = self.values.branch
        self.values.branch = (*outer, line)
        yield
        self.values.branch = outer

    def _body(self, body: Body) -> Success:
        folder, success = self.values.folder, COMMAND
        for statement in body.statements:
            success = self.follow(statement)
        if body.subshell:
            self.values.folder = folder
        return success

    def _chain(self, chain: Chain) -> Success:
        success = self.follow(chain.first)
        for sign, statement in chain.links:
            runs = success.then if sign == "&&" else success.otherwise
            if runs is None:
                with self._undecided(statement.line):
                    self.follow(statement)
                success = UNTOLD
            elif runs:
                success = self.follow(statement)
            else:
                self._skip(statement)
        return success

    def _if(self, statement: IfStatement) -> None:
        earlier: bool | None = False  # whether a branch was taken
        for branch in statement.branches:
            if earlier:
                self._skip(branch.body)
                continue
            answer = verdict_of(branch.condition, self.values) if branch.condition else True
            if answer is None and branch.condition:
                # A test that is more than one is read as the commands that it may be.
                with self._undecided(branch.line):
                    self.follow(branch.condition)
            taken = None if answer and earlier is None else answer
            if taken is None:
                with self._undecided(branch.line):
                    self.follow(branch.body)
            elif taken:
                self.follow(branch.body)
            else:
                self._skip(branch.body)
            earlier = taken or (None if taken is None else earlier)

    def _loop(self, loop: ForLoop) -> None:
        values = self.values.expand_all(loop.values, loop.line)
        if values:
            first, name, line = values[0], loop.name, loop.line
            doubt = f"{name} is {first.shown}, the first of {len(values)} in line {line}"
            first += Word("", doubts=(doubt,) if len(values) > 1 else ())
            self.values.variables[name] = Value((first,), line, self.values.branch)
        self.follow(loop.body)

    def _skip(self, statement: Statement) -> None:
        """What only a branch that is not taken sets holds nothing, rather than what is unknown."""
        if isinstance(statement, SimpleCommand) and not statement.words:
            for assignment in statement.assignments:
                nothing = Value((), assignment.line)
                self.values.variables.setdefault(assignment.name, nothing)
        for inner in _inside(statement):
            self._skip(inner)

    def _declare(self, declaration: Declaration) -> Success:
        if declaration.exports:
            names = {assignment.name for assignment in declaration.assignments}
            self.values.exported |= names.union(declaration.names)
        for assignment in declaration.assignments:
            self.values.assign(assignment)
        return COMMAND

    def _pipeline(self, stages: Sequence[Statement]) -> Success:
        expansions = [
            self._expansion(stage) if isinstance(stage, SimpleCommand) else None for stage in stages
        ]
        tees = [words for words in expansions[1:] if words and words[0].text == "tee"]
        logs = [word for words in tees for word in words[1:] if not word.text.startswith("-")]
        for stage, words in zip(stages, expansions, strict=True):
            if not isinstance(stage, SimpleCommand):
                self.follow(stage)
            elif words:
                self._command(stage, words, logs)
        last = stages[-1]
        return ASSIGNMENT if isinstance(last, SimpleCommand) and not last.words else COMMAND

    def _expansion(self, command: SimpleCommand) -> list[Word]:
        """The words of a command; assignments by themselves are carried out."""
        if not command.words:
            for assignment in command.assignments:
                self.values.assign(assignment)
        return self.values.expand_all(command.words, command.line)

    def _command(self, command: SimpleCommand, words: list[Word], logs: list[Word]) -> None:
        name = words[0].text
        if name in self.functions and name not in self.calls:
            self._call(name, words[1:])
            return
        if self._is_builtin(words):
            return
        output = self.values.expand(command.output) if command.output else logs
        own = [self.values.evaluate(one) for one in command.assignments if one.name == OF_CARDS]
        variable = self.values.variables.get(OF_CARDS)
        cards = variable.words[0] if variable and variable.words else None
        exports = OF_CARDS in self.values.exported
        self.commands.append(
            ShellCommand(
                words[0].line,
                tuple(words),
                own[-1][0] if own and own[-1] else cards if exports else None,
                None if exports else cards,
                str(self.values.folder),
                output[0] if output else None,
            )
        )

    def _call(self, name: str, arguments: list[Word]) -> None:
        outer, self.values.arguments = self.values.arguments, arguments
        self.calls.append(name)
        self.follow(self.functions[name])
        self.calls.pop()
        self.values.arguments = outer

    def _is_builtin(self, words: list[Word]) -> bool:
        """Carry out what changes how later commands are read."""
        values = self.values
        if words[0].text == "cd" and len(words) == 2:
            values.folder = _normal(values.folder / words[1].text)
            values.spend(len(str(values.folder)), words[0].line)
            if len(str(values.folder)) > LONGEST:
                raise self._refusal(words[0].line, "a folder whose path grows without end")
        elif words[0].text == "shift":
            number = integer(words[1].text) if words[1:] else 1
            del values.arguments[: max(0, number or 0)]
        else:
            return False
        return True

    def _refusal(self, line: int, what: str) -> InputError:
        return InputError(f"{self.source}:{line}: {what}: {WAY_OUT}")


def _inside(statement: Statement) -> Sequence[Statement]:
    """The statements that another is made of, but for a function's."""
    match statement:
        case Body():
            return statement.statements
        case Pipeline():
            return statement.stages
        case Negation():
            return (statement.statement,)
        case Chain():
            return (statement.first, *(link for _, link in statement.links))
        case IfStatement():
            return [branch.body for branch in statement.branches]
        case CaseStatement():
            return statement.items
        case ForLoop() | OtherLoop():
            return (statement.body,)
    return ()


def _normal(path: PurePosixPath) -> PurePosixPath:
    """The path without what . and .. in it undo."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] not in ("..", "/"):
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)
