"""Flags that a patched script gets, and how a place in it reads them."""

from __future__ import annotations

import ast

from ...record import record
from ..analysis.loaders import argument_for_parameter
from ..analysis.program import Program
from ..editing.edits import Import, Insert
from ..findings import Finding
from ..source.module import Module
from ..source.tree import Function, bound_names, mentions, parameters, within

DATACLASS_FIELD = "{name}: {kind} = field(default{maker}={default}, metadata={{{metadata}}})"


@record
class Flag:
    """One flag: ``default`` is Python text, ``kind`` the type's name, bool for a switch."""

    spelling: str
    kind: str
    default: str
    help: str
    choices: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()  # what the default needs
    constant: str = ""  # the value of the flag without one behind it, Python text

    @property
    def name(self) -> str:
        """The attribute that it sets."""
        return self.spelling.lstrip("-").replace("-", "_")

    def argument(self, parser: str) -> str:
        """The call that adds it to an argparse parser."""
        words = [repr(self.spelling).replace("'", '"')]
        if self.kind == "bool":
            words.append('action="store_true"')
        else:
            if self.constant:
                words += ['nargs="?"', f"const={self.constant}"]
            words += [f"type={self.kind}", f"default={self.default}"]
        between = f",\n{' ' * len(f'{parser}.add_argument(')}"
        head, choices = ", ".join(words), f"choices={self.choice_list()}" if self.choices else ""
        if choices:  # many have a line of their own
            head += (", " if len(head + choices) < 80 else between) + choices
        return f'{parser}.add_argument({head}{between}help="{self.help}")'

    def choice_list(self) -> str:
        """The choices as Python text."""
        quote = "" if self.kind == "int" else '"'
        return "[" + ", ".join(f"{quote}{choice}{quote}" for choice in self.choices) + "]"

    def field(self) -> str:
        """The field of a dataclass that transformers' HfArgumentParser makes the flag of."""
        metadata = [f'"help": "{self.help}"']
        if self.choices:
            metadata.append(f'"choices": {self.choice_list()}')
        if self.constant:  # add_argument is given all of this
            metadata += ['"nargs": "?"', f'"const": {self.constant}']
        called = "(" in self.default
        return DATACLASS_FIELD.format(
            name=self.name,
            kind=f"{self.kind} | None" if self.default == "None" else self.kind,
            maker="_factory" if called else "",
            default=f"lambda: {self.default}" if called else self.default,
            metadata=", ".join(metadata),
        )


def lacking(program: Program, flags: tuple[Flag, ...]) -> list[Finding] | None:
    """One finding that adds the flags that the command line lacks, none where it has them all.

    None where nothing shows a command line that could take them.
    """
    known = set(program.options) | fields(program)
    missing = [flag for flag in flags if flag.name not in known]
    if not missing:
        return []
    imports = tuple(Import(name) for flag in missing for name in flag.imports)
    place = last_argument_added(program)
    if place is not None:
        module, stmt, parser = place
        code = "\n".join(flag.argument(parser) for flag in missing)
        because = f"no {', '.join(flag.spelling for flag in missing)}"
        return [Finding(module, stmt, because, (Insert(stmt, code, "after"), *imports))]
    for module, owner in dataclasses_parsed(program):
        if "field" in module.module_names:
            code = "\n".join(flag.field() for flag in missing)
            because = f"no {', '.join(flag.spelling for flag in missing)}"
            return [Finding(module, owner, because, (Insert(owner, code, "last"), *imports))]
    return None


def last_argument_added(program: Program) -> tuple[Module, ast.stmt, str] | None:
    """The last statement that adds an option to the parser which parses, and that one's name."""
    parsers = {
        (module.function(call), module.text(call.func.value))
        for module in program.modules
        for call in module.calls_to("parse_args")
        if isinstance(call.func, ast.Attribute) and program.is_live(module, call)
    }
    homes = {function for function, _ in parsers}
    found: list[tuple[Module, ast.stmt, str]] = []
    for option in program.options.values():
        module = next(m for m in program.modules if option.call in m.parents)
        stmt = module.statement(option.call)
        if (
            isinstance(option.call.func, ast.Attribute)
            and isinstance(stmt, ast.Expr)
            and stmt.value is option.call
            and not is_conditional(module, stmt)
            and program.is_live(module, stmt)
        ):
            found.append((module, stmt, module.text(option.call.func.value)))
    # Groups and subcommands have other parsers: what parses stands in the function, or calls it.
    names = {name for _, name in parsers}
    found = [item for item in found if item[2] in names]
    in_place = [item for item in found if item[0].function(item[1]) in homes]
    return max(in_place or found, key=lambda item: item[1].lineno, default=None)


def is_conditional(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement stands under a test, but for that of the main guard."""
    above = module.parents[stmt]
    return isinstance(above, ast.If) and not mentions(above.test, "__name__")


def dataclasses_parsed(program: Program) -> list[tuple[Module, ast.ClassDef]]:
    """Dataclasses that are parsed into the object that the program calls its arguments."""
    if not any(m.calls_to("parse_args_into_dataclasses") for m in program.modules):
        return []
    return [
        (module, owner)
        for module in program.modules
        for owner in module.nodes(ast.ClassDef)
        if any(
            isinstance(stmt, ast.AnnAssign)
            and isinstance(stmt.target, ast.Name)
            and stmt.target.id == "local_rank"
            for stmt in owner.body
        )
    ]


def fields(program: Program) -> set[str]:
    """Names of the fields of such dataclasses."""
    return {
        stmt.target.id
        for _, owner in dataclasses_parsed(program)
        for stmt in owner.body
        if isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name)
    }


def parsed_at(program: Program) -> list[tuple[Module, ast.Assign, str]]:
    """Statements behind which the arguments are known, and their name there.

    Where a function parses and returns them, the statement in the place that called it.
    """
    found: list[tuple[Module, ast.Assign, str]] = []
    for module, stmt, args in program.parses:
        function = module.function(stmt)
        if function is None or not hands_back(program, function):
            found.append((module, stmt, args))
            continue
        for where, call in program.callers(function):
            outer = where.statement(call)
            if isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Name):
                found.append((where, outer, outer.targets[0].id))
    return found


def arguments_at(program: Program, module: Module, node: ast.AST) -> str:
    """How ``node`` names the parsed arguments; the empty string where it has no name for them."""
    function = module.function(node)
    if function is None:
        return next(iter(sorted(parsed_names(program, module, None))), "")
    own = bound_names(function.body)
    for name in sorted(parsed_names(program, module, function)):
        return name
    for name in sorted(parameters(function) - own):
        if is_given_arguments(program, module, function, name):
            return name
    if "self" in parameters(function):
        owner = next(
            (up for up in module.ancestors(function) if isinstance(up, ast.ClassDef)), None
        )
        kept = kept_arguments(program, module, owner) if owner else []
        for text in kept:
            return text
    for name in sorted(parsed_names(program, module, None) - own - parameters(function)):
        return name
    return ""


def parsed_names(program: Program, module: Module, function: Function | None) -> set[str]:
    """Names that a function, or the module's own level, gives to what the command line said.

    ``args = parser.parse_args()``, and ``args = get_args()`` of a function that parses.
    """
    found = {
        args
        for where, stmt, args in program.parses
        if where is module and where.function(stmt) is function
    }
    parsers = {where.function(stmt) for where, stmt, _ in program.parses} - {None}
    for parser in parsers:
        assert parser is not None
        for where, call in program.callers(parser):
            stmt = where.statement(call)
            if (
                where is module
                and where.function(call) is function
                and isinstance(stmt, ast.Assign)
            ):
                target = stmt.targets[0]
                if (
                    stmt.value is call
                    and isinstance(target, ast.Name)
                    and hands_back(program, parser)
                ):
                    found.add(target.id)
    return found


def hands_back(program: Program, parser: Function) -> bool:
    """Whether a function returns the arguments that it parses."""
    names = {args for where, stmt, args in program.parses if where.function(stmt) is parser}
    returned = [out.value for out in within(parser.body, ast.Return)]
    return any(isinstance(value, ast.Name) and value.id in names for value in returned)


def is_given_arguments(
    program: Program,
    module: Module,
    function: Function,
    name: str,
    seen: frozenset[Function] = frozenset(),
) -> bool:
    """Whether every call of a function gives it the parsed arguments under this name."""
    callers = [(w, call) for w, call in program.callers(function) if program.is_live(w, call)]
    if not callers or function in seen:
        return False
    for where, call in callers:
        value = argument_for_parameter(module, function, call, name)
        if value is None:
            return False
        text, caller = where.text(value), where.function(call)
        if text in parsed_names(program, where, caller) | parsed_names(program, where, None):
            continue
        if text.startswith("self."):
            owner = next((u for u in where.ancestors(call) if isinstance(u, ast.ClassDef)), None)
            if owner is not None and text in kept_arguments(program, where, owner):
                continue
            return False
        if caller is None or text not in parameters(caller):
            return False
        if not is_given_arguments(program, where, caller, text, seen | {function}):
            return False
    return True


def kept_arguments(program: Program, module: Module, owner: ast.ClassDef) -> list[str]:
    """``self.args`` and the like: where the constructor of a class keeps the parsed arguments."""
    return [
        module.text(target)
        for maker in owner.body
        if isinstance(maker, ast.FunctionDef) and maker.name == "__init__"
        for stmt in within(maker.body, ast.Assign)
        if isinstance(stmt.value, ast.Name)
        and stmt.value.id in parameters(maker)
        and is_given_arguments(program, module, maker, stmt.value.id)
        for target in stmt.targets
        if module.text(target).startswith("self.")
    ]
