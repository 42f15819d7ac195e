"""A progress bar is closed that does not exist.

What         name.close() in the training loop, where nothing ever binds the name.
At run time  NameError when the step limit is reached.
Example      train_iterator.close()
Fix          Remove the line: leaving the loop is all that it was for.
Fix safety   Safe: the line can only have raised.
Source       the language reference, naming and binding
"""

import ast
import builtins
from collections.abc import Iterator

from ..edits import Replace
from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..syntax import bound_names, parameters, within

CODE, SEVERITY, SAFETY = "DF706", Severity.ERROR, Safety.SAFE


def findings(unit: Unit) -> Iterator[Finding]:
    for loop in unit.train_loops:
        module = loop.module
        function = module.function(loop.steps)
        known = module.module_names | bound_names(loop.scope) | set(dir(builtins))
        if function is not None:
            known |= parameters(function)
        for stmt in within(loop.scope, ast.Expr):
            call = stmt.value
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == "close"
                and isinstance(call.func.value, ast.Name)
                and call.func.value.id not in known
            ):
                name = call.func.value.id
                yield Finding(module, stmt, f"nothing binds {name}", (Replace(stmt, ""),))
