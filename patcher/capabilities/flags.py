"""Flags that a capability adds to a script, and how code in the script reaches their values."""

from __future__ import annotations

import ast

from ...record import record
from ..analysis.training.program import Program
from ..editing.edits import Import, Insert
from ..findings import Finding
from ..source.module import Module
from ..source.tree import mentions, position

DATACLASS_FIELD = "{name}: {kind} = field(default{maker}={default}, metadata={{{metadata}}})"


@record
class Flag:
    """A flag: ``default`` is Python code, ``kind`` the name of its type, bool for a switch."""

    spelling: str
    kind: str
    default: str
    help: str
    choices: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()  # modules that the default needs
    constant: str = ""  # the value (Python code) if the flag is used without one

    @property
    def name(self) -> str:
        """The attribute that the flag sets."""
        return self.spelling.lstrip("-").replace("-", "_")

    def argument(self, parser: str) -> str:
        """The call that adds the flag to an argparse parser."""
        words = [repr(self.spelling).replace("'", '"')]
        if self.kind == "bool":
            words.append('action="store_true"')
        else:
            if self.constant:
                words += ['nargs="?"', f"const={self.constant}"]
            words += [f"type={self.kind}", f"default={self.default}"]
        between = f",\n{' ' * len(f'{parser}.add_argument(')}"
        head, choices = ", ".join(words), f"choices={self.choice_list()}" if self.choices else ""
        if choices:  # on a line of their own if there are many
            head += (", " if len(head + choices) < 80 else between) + choices
        return f'{parser}.add_argument({head}{between}help="{self.help}")'

    def choice_list(self) -> str:
        """The choices as Python code."""
        quote = "" if self.kind == "int" else '"'
        return "[" + ", ".join(f"{quote}{choice}{quote}" for choice in self.choices) + "]"

    def field(self) -> str:
        """The dataclass field from which transformers' HfArgumentParser makes the flag."""
        metadata = [f'"help": "{self.help}"']
        if self.choices:
            metadata.append(f'"choices": {self.choice_list()}')
        if self.constant:  # HfArgumentParser passes the metadata on to add_argument
            metadata += ['"nargs": "?"', f'"const": {self.constant}']
        called = "(" in self.default
        return DATACLASS_FIELD.format(
            name=self.name,
            kind=f"{self.kind} | None" if self.default == "None" else self.kind,
            maker="_factory" if called else "",
            default=f"lambda: {self.default}" if called else self.default,
            metadata=", ".join(metadata),
        )


def missing_flag_findings(program: Program, flags: tuple[Flag, ...]) -> list[Finding] | None:
    """A finding that adds the missing flags; no finding if the script has them all.

    None if there is no command line that they could be added to.
    """
    known = set(program.options) | _field_names(program)
    missing = [flag for flag in flags if flag.name not in known]
    if not missing:
        return []
    imports = tuple(Import(name) for flag in missing for name in flag.imports)
    last_option = last_added_option(program)
    if last_option is not None:
        module, stmt, parser = last_option
        code = "\n".join(flag.argument(parser) for flag in missing)
        because = f"no {', '.join(flag.spelling for flag in missing)}"
        return [Finding(module, stmt, because, (Insert(stmt, code, "after"), *imports))]
    for module, owner in _parsed_dataclasses(program):
        if "field" in module.module_names:
            code = "\n".join(flag.field() for flag in missing)
            because = f"no {', '.join(flag.spelling for flag in missing)}"
            return [Finding(module, owner, because, (Insert(owner, code, "last"), *imports))]
    return None


def last_added_option(program: Program) -> tuple[Module, ast.stmt, str] | None:
    """The last statement that adds an option to the parser in use, and the parser's name."""
    parsers = {
        (module.function(call), module.text(call.func.value))
        for module in program.modules
        for call in module.calls_to("parse_args")
        if isinstance(call.func, ast.Attribute) and program.is_live(module, call)
    }
    parsing_functions = {function for function, _ in parsers}
    additions: list[tuple[Module, ast.stmt, str]] = []
    for option in program.options.values():
        module = program.module_of(option.call)
        stmt = module.statement(option.call)
        if (
            isinstance(option.call, ast.Call)
            and isinstance(option.call.func, ast.Attribute)
            and isinstance(stmt, ast.Expr)
            and stmt.value is option.call
            and not _is_conditional(module, stmt)
            and program.is_live(module, stmt)
        ):
            additions.append((module, stmt, module.text(option.call.func.value)))
    # Not those of argument groups and subcommands; best those in the function that parses.
    names = {name for _, name in parsers}
    additions = [item for item in additions if item[2] in names]
    in_place = [item for item in additions if item[0].function(item[1]) in parsing_functions]
    return max(in_place or additions, key=lambda item: position(item[1]), default=None)


def _is_conditional(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement stands under a test other than the main guard."""
    above = module.parents[stmt]
    return isinstance(above, ast.If) and not mentions(above.test, "__name__")


def _parsed_dataclasses(program: Program) -> list[tuple[Module, ast.ClassDef]]:
    """Dataclasses with a ``local_rank`` that HfArgumentParser fills from the command line."""
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


def _field_names(program: Program) -> set[str]:
    """The names of the fields of those dataclasses."""
    return {
        stmt.target.id
        for _, owner in _parsed_dataclasses(program)
        for stmt in owner.body
        if isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name)
    }
