"""Every rank asks the user.

What         input() in code that all ranks run: whether a folder may be removed, which run to go on
             with.
At run time  The ranks of a launcher share one terminal, or have none: an answer goes to one of
             them, and the others wait; without a terminal each ends with EOFError. A rank that is
             asked because another one has made the folder meanwhile holds up the job.
Example      if os.path.exists(folder) and input("remove? ") == "y": shutil.rmtree(folder)
Fix          None: take the answer from an option of the command line.
Fix safety   Report only: what is right without an answer is for you to say.
Source       https://docs.python.org/3/library/functions.html#input
"""

import ast
from collections.abc import Iterator

from ..analysis.ranks.rank_reach import RANKS, Role, roles_reaching
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import parameters

CODE, SEVERITY, SAFETY = "DF611", Severity.DEGRADED, Safety.REPORT

ASKING = ("input", "raw_input")


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group") or not program.train_loops:
        return
    for module, call in program.calls_to(*ASKING):
        if not asks(module, call) or not program.is_live(module, call):
            continue
        if roles_reaching(program, module, call) & RANKS - {Role.MAIN}:
            yield Finding(module, call, f"{module.text(call)[:60]} waits for an answer")


def asks(module: Module, call: ast.Call) -> bool:
    """Whether a call is Python's own, and no batch of that name is called."""
    name, function = call.func, module.function(call)
    return (
        isinstance(name, ast.Name)
        and (function, name.id) not in module.stores
        and (None, name.id) not in module.stores
        and name.id not in module.aliases
        and (function is None or name.id not in parameters(function))
    )
