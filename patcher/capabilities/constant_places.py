"""Where a script's constants stand, and how the parsed arguments get there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ..analysis.language.call_graph import reachable_functions
from ..analysis.language.names import calls_at_import
from ..analysis.settings.constant_meanings import ConstantSetting, Literal
from ..analysis.settings.parsed_arguments import argument_sites, arguments_at
from ..analysis.training.program import Program
from ..audit.o11_shared_modules_neutral import importers, used_names
from ..editing.edits import Edit, Import, Insert, Replace, Rewrite
from ..source.module import Module
from ..source.tree import FUNCTIONS, is_inside, mentions, parameters, precedes
from .errors import CannotError
from .flags import Flag, last_added_option

STARTS = ("spawn", "start_processes", "Process", "Pool", "ProcessPoolExecutor", "set_start_method")
OTHER_COMMAND_LINES = {
    *("click", "typer", "fire", "docopt", "absl", "hydra", "tyro", "configargparse", "tap"),
    *("getopt", "optparse", "plac", "simple_parsing", "jsonargparse"),
}


class CommandLine:
    """The parser that a script has or gets, and how a constant's place reaches the arguments."""

    def __init__(self, program: Program, flags: Mapping[str, Flag]) -> None:
        self.flags = flags
        self.program = program
        self.script = program.script
        self.last_option = last_added_option(program)
        guards = [stmt for stmt in self.script.tree.body if _is_guard(stmt)]
        self.guard = guards[-1] if guards else None

    def declaration(self, settings: list[ConstantSetting]) -> Iterator[Edit]:
        """The edits that declare the options, and make the parser where there is none."""
        parser = self.last_option[2] if self.last_option else "parser"
        lines = [
            f'{parser}.add_argument("{flag.spelling}", type={flag.kind}, default={one.text})'
            for one in settings
            for flag in [self.flags[one.role]]
        ]
        if self.last_option is not None:
            yield Insert(self.last_option[1], "\n".join(lines), "after")
            return
        again = [
            f"{literal.name} = args.{self.flags[one.role].name}"
            for one in settings
            for literal in one.literals
            if self._is_bound_again(literal)
        ]
        made = ["parser = argparse.ArgumentParser()", *lines, "args = parser.parse_args()"]
        code = "\n".join([*made, *again])
        if self.guard is not None:
            yield Insert(self.guard, code, "first")
        else:
            yield Insert(self._first_statement(settings), code)
        yield Import("argparse")

    def edits(self, one: ConstantSetting) -> Iterator[Edit]:
        """The edits that read a role's option. Raises CannotError."""
        flag, script = self.flags[one.role], self.script
        if flag.name in self.program.options:
            option = self.program.options[flag.name].call
            module = self.program.module_of(option)
            raise CannotError(module, option, f"{flag.spelling} is an option for something else")
        for literal in one.literals:
            if literal.module is not script:
                raise CannotError(literal.module, literal.node, "it stands in another module")
        if self.last_option is not None:
            for literal in one.literals:
                if literal.name and not self._reach(literal, literal.node):
                    yield from self._read_edits(literal, flag)
                    continue
                args = self._arguments_at(literal, literal.node)
                yield Rewrite(literal.node, f"{args}.{flag.name}")
            return
        self._check_new_parser(one.literals[0])
        for literal in one.literals:
            if self._is_bound_again(literal):
                self._check_reads(literal)
                continue
            self._check_place(literal)
            yield Rewrite(literal.node, f"args.{flag.name}")

    def _read_edits(self, literal: Literal, flag: Flag) -> Iterator[Edit]:
        """The edits that read an option for a name that is bound above the parsing."""
        module, name = literal.module, literal.name
        if not name.isidentifier():
            raise CannotError(module, literal.node, "the parsed arguments do not reach this line")
        if module.single_assignment(None, name) is not literal.node:
            raise CannotError(module, literal.node, f"{name} is bound along with something else")
        own = {str(each.source.path.resolve()) for each in self.program.modules}
        others = [*self.program.modules[1:], *importers(module, own)]
        for other in others:
            if name in used_names(other, module):
                where = other.source.path.name
                raise CannotError(module, literal.node, f"{where} imports {name}, too")
        for use in module.nodes(ast.Name):
            above = module.ancestors(use)
            functions = [up for up in above if isinstance(up, FUNCTIONS)]
            local = any((up, name) in module.stores or name in parameters(up) for up in functions)
            if use.id != name or not isinstance(use.ctx, ast.Load) or local:
                continue
            if any(isinstance(up, ast.JoinedStr) for up in above):
                raise CannotError(module, use, f"{name} stands in an f-string")
            yield Rewrite(use, f"{self._arguments_at(literal, use)}.{flag.name}")
        yield Replace(module.statement(literal.node), "")

    def _reach(self, literal: Literal, node: ast.expr) -> bool:
        """Whether the parsed arguments reach an expression."""
        try:
            return bool(self._arguments_at(literal, node))
        except CannotError:
            return False

    def _arguments_at(self, literal: Literal, node: ast.expr) -> str:
        """The expression for the arguments at an expression. Raises CannotError."""
        module = literal.module
        args = arguments_at(self.program, module, node)
        function = module.function(node)
        if args and not _is_in_signature(module, node):
            here = [
                stmt
                for where, stmt, name in argument_sites(self.program)
                if where is module and name == args and module.function(stmt) is function
            ]
            if not here or any(_comes_before(module, stmt, node) for stmt in here):
                if function is not None and self._is_global_of_guard(args):
                    self._check_importers(literal)
                return args
        raise CannotError(module, node, "the parsed arguments do not reach this line")

    def _check_new_parser(self, literal: Literal) -> None:
        """Raise CannotError where a parser would not be the script's only command line."""
        module, node = literal.module, literal.node
        packages = {
            name.partition(".")[0].lower()
            for each in self.program.modules
            for name in each.aliases.values()
        }
        parses = self.program.calls_to("parse_args", "parse_known_args", "ArgumentParser")
        if parses or packages & OTHER_COMMAND_LINES:
            raise CannotError(module, node, "the script's command line takes no more options")
        if any(each.attributes("argv") for each in self.program.modules):
            raise CannotError(module, node, "the script reads sys.argv itself")
        own = {str(each.source.path.resolve()) for each in self.program.modules}
        trains = self.program.is_training_program and not any(importers(self.script, own))
        if not (self.script.is_program or trains):
            raise CannotError(module, node, "the file is no program, but is imported by others")
        for name in ("args", "parser"):
            if name in self.script.module_names:
                raise CannotError(module, node, f"{name} is another thing in the script")

    def _is_bound_again(self, literal: Literal) -> bool:
        """Whether the constant is a name that is bound before the main guard's arguments are."""
        if self.guard is None or self.last_option is not None:
            return False
        module = literal.module
        return module.function(literal.node) is None and not is_inside(literal.node, self.guard)

    def _check_reads(self, literal: Literal) -> None:
        """Raise CannotError where a constant is read before the guard binds it again."""
        module, name = literal.module, literal.name
        is_bound_alone = module.single_assignment(None, name) is literal.node
        if not name or (name.isidentifier() and not is_bound_alone):
            raise CannotError(module, literal.node, "its statement binds other things, too")
        self._check_processes(literal)
        assert self.guard is not None
        names = {
            module.last_name(call.func)
            for call in calls_at_import(module)
            if not is_inside(call, self.guard)
        }
        at_import = reachable_functions(self.program, names) if names else set()
        spelling = name.partition("[")[0].rpartition(".")[2]  # of Config.x all x, of x["y"] all x
        for use in module.occurrences(spelling):
            if not isinstance(use.ctx, ast.Load) or is_inside(use, self.guard):
                continue
            function = module.function(use)
            if function is None or _is_in_signature(module, use) or function in at_import:
                raise CannotError(module, use, f"{name} is read before arguments can be parsed")
            if any(isinstance(up, ast.ClassDef) for up in _up_to_function(module, use)):
                raise CannotError(module, use, f"{name} is read in the body of a class")

    def _check_place(self, literal: Literal) -> None:
        """Raise CannotError where the name args would not be the parsed arguments."""
        module, node = literal.module, literal.node
        function = module.function(node)
        if self.guard is not None and _is_in_signature(module, node):
            raise CannotError(module, node, "it is a default, made before arguments can be parsed")
        for up in module.ancestors(node):
            if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                bound = {arg.arg for arg in ast.walk(up.args) if isinstance(arg, ast.arg)}
                if "args" in bound or (up, "args") in module.stores:
                    raise CannotError(module, node, "args is another thing in this function")
        if function is not None:
            self._check_importers(literal)

    def _is_global_of_guard(self, args: str) -> bool:
        """Whether only the main guard binds the arguments, which an import does not run."""
        return self.guard is not None and any(
            name == args and where is self.script and is_inside(stmt, self.guard)
            for where, stmt, name in argument_sites(self.program)
        )

    def _check_importers(self, literal: Literal) -> None:
        """Raise CannotError where another file runs a function that has no arguments there."""
        module, node = literal.module, literal.node
        self._check_processes(literal)
        own = {str(each.source.path.resolve()) for each in self.program.modules}
        for other in importers(module, own):
            if used_names(other, module):
                where = other.source.path.name
                raise CannotError(module, node, f"{where} imports this file, too")

    def _check_processes(self, literal: Literal) -> None:
        """Raise CannotError where processes of the script's own may not run the main guard."""
        if self.program.calls_to(*STARTS):
            because = "the script starts processes, which do not run the main guard"
            raise CannotError(literal.module, literal.node, because)

    def _first_statement(self, settings: list[ConstantSetting]) -> ast.stmt:
        """The first statement of the module that runs behind its imports."""
        body = self.script.tree.body
        imports = (stmt for stmt in body if isinstance(stmt, ast.Import | ast.ImportFrom))
        top = next((each for each in imports if not is_of_the_future(each)), body[0])
        first = next(
            stmt
            for stmt in body[body.index(top) :]
            if not isinstance(stmt, ast.Import | ast.ImportFrom)
            and not (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant))
        )
        nodes = [one.node for setting in settings for one in setting.literals]
        holders = [stmt for stmt in body if any(is_inside(node, stmt) for node in nodes)]
        plain = body[body.index(first) : body.index(holders[0]) + 1]
        functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        if all(isinstance(stmt, functions) or stmt is holders[0] for stmt in plain) and not (
            isinstance(holders[0], functions)
        ):
            return holders[0]
        return first


def is_of_the_future(stmt: ast.Import | ast.ImportFrom) -> bool:
    """``from __future__ import annotations``, above which nothing may be imported."""
    return isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__"


def _is_guard(stmt: ast.stmt) -> bool:
    """Whether a statement is ``if __name__ == "__main__":``."""
    return isinstance(stmt, ast.If) and mentions(stmt.test, "__name__")


def _comes_before(module: Module, stmt: ast.stmt, node: ast.AST) -> bool:
    """Whether a statement has certainly run where ``node`` is computed."""
    block = module.body(stmt)
    return (
        precedes(stmt, node)
        and any(each is stmt or is_inside(node, each) for each in block[block.index(stmt) :])
        and any(is_inside(node, each) for each in block)
    )


def _is_in_signature(module: Module, node: ast.AST) -> bool:
    """Whether a node is a default of a parameter, or in a decorator."""
    inner: ast.AST = node
    for up in module.ancestors(node):
        if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
            return inner is up.args or inner in up.decorator_list
        inner = up
    return False


def _up_to_function(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    for up in module.ancestors(node):
        if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        yield up
