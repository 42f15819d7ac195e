"""Each file compiles, and each name is bound on every way to where it is read.

What              Python accepts the text of each file; no name is read that nothing on the way to
                  it can have bound; a patch has lost no form feed and left a text that libcst
                  prints as it stands.
At run time       SyntaxError at the start; NameError or UnboundLocalError on the first process that
                  comes to the line, and the others wait for it.
How it is judged  compile() takes the text. The ways through each function are followed for a
                  process alone, for rank 0 and for the others: a read is a violation if no way of
                  that process binds the name first. An import inside a function makes its name
                  local to the whole of it, also above the import.
When unknown      Names that exec, globals(), a pattern or a star import may bind are not judged.
Source            https://docs.python.org/3/reference/executionmodel.html#resolution-of-names
"""

import ast
import warnings
from collections.abc import Iterator

from ..analysis.ranks.rank_reach import Role, roles_reaching
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import mentions
from .never_bound import binds_dynamically, invisible_names, is_decided_by_role, never_bound
from .verdict import AuditVerdict, violated

CODE = "O1"
OF_PYTHON_2 = {"unicode", "unichr", "basestring", "xrange", "long", "raw_input"}
VERSIONS = ("version_info", "hexversion", "PY2", "PY3")
PROCESSES = {
    Role.SINGLE: "no way to this line binds it",
    Role.MAIN: "no way of rank 0 to this line binds it",
    Role.OTHER: "no way of the other ranks to this line binds it",
}


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    before = original.modules if original else program.modules
    for module, old in zip(program.modules, before, strict=True):
        if message := why_not_compiled(module):
            yield violated(module, place(message), f"Python does not accept it: {message.msg}")
            continue
        if module.source.text != old.source.text:
            yield from lost_text(module, old)
        yield from unbound_names(program, module)


def why_not_compiled(module: Module) -> SyntaxError | None:
    """Why compile() refuses a file; ast.parse accepts some of it, such as a keyword given twice."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(module.source.text, module.source.name, "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    return None


def place(error: SyntaxError) -> ast.AST:
    """The place of an error, as a node."""
    line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
    return ast.Pass(lineno=line, col_offset=column, end_lineno=line, end_col_offset=column)


def lost_text(module: Module, old: Module) -> Iterator[AuditVerdict]:
    """Text that an edit has swallowed or written in another form."""
    import libcst  # slow to import, and only patched files need it

    text = module.source.text
    if text.count("\f") < old.source.text.count("\f"):
        yield violated(module, module.tree.body[0], "a form feed of the original is lost")
    try:
        printed = libcst.parse_module(text).code
    except libcst.ParserSyntaxError as error:
        at = ast.Pass(lineno=error.raw_line, col_offset=0)
        yield violated(module, at, f"libcst cannot read it: {error.message}")
        return
    if printed.rstrip() != text.rstrip():  # it drops blanks behind the last statement
        yield violated(module, module.tree.body[0], "libcst does not print the text as it stands")


def unbound_names(program: Program, module: Module) -> Iterator[AuditVerdict]:
    """Reads that fail in some process."""
    told: set[ast.Name] = set()
    for function in (None, *module.all_functions):
        if function is not None and function not in program.live_functions:
            continue
        failing = never_bound(module, function, Role.SINGLE)
        is_alike = not is_decided_by_role(module, function)
        for role, because in PROCESSES.items():
            if role is not Role.SINGLE and not program.has_ranks:
                continue
            of_role = failing if is_alike else never_bound(module, function, role)
            for name in of_role:
                if name not in told and role in roles_reaching(program, module, name):
                    told.add(name)
                    yield violated(module, name, f"`{name.id}` is read, and {because}")
    stars = any(alias.name == "*" for node in module.nodes(ast.ImportFrom) for alias in node.names)
    if stars or module.nodes(ast.Match) or binds_dynamically(module):
        return
    for name in invisible_names(module):
        if (
            name not in told
            and program.is_live(module, name)
            and not any(isinstance(up, ast.Try) for up in module.ancestors(name))
            and not (name.id in OF_PYTHON_2 and is_for_a_version(module, name))
        ):
            where = "in the file" if name.id in module.unbound_names else "that it can see"
            yield violated(module, name, f"`{name.id}` is read, and nothing {where} binds it")


def is_for_a_version(module: Module, name: ast.Name) -> bool:
    """Whether a test on the way to a name asks which Python runs."""
    tests = [getattr(up, "test", up) for up in module.ancestors(name)]
    return any(
        mentions(test, word) for test in tests if isinstance(test, ast.expr) for word in VERSIONS
    )
