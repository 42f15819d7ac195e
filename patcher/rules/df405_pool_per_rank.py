"""Every rank starts a full pool of workers.

What         multiprocessing.Pool in a script that runs once per card.
At run time  N ranks start N times as many workers as the machine was thought to bear; memory and
             start-up grow with the number of cards.
Example      pool = multiprocessing.Pool(16)
Fix          Share the workers out among the ranks of this machine (LOCAL_WORLD_SIZE).
Fix safety   Safe: without a launcher the number is unchanged, and a pool's map keeps its order.
Source       multiprocessing.pool.Pool; https://docs.pytorch.org/docs/stable/elastic/run.html
"""

import ast
import re
from collections.abc import Iterator

from ..analysis.ranks.rank_reach import Role, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.tree import argument, everywhere

CODE, SEVERITY, SAFETY = "DF405", Severity.DEGRADED, Safety.SAFE

OF_RANKS = re.compile(r"(?i)(get_)?(local_)?(world_?size|num_(ranks|gpus|processes))")
UNORDERED_METHODS = ("imap_unordered", "apply_async")


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        for call in module.calls_to("Pool"):
            if not module.dotted(call.func).startswith("multiprocessing"):
                continue
            if any(node.value == "LOCAL_WORLD_SIZE" for node in everywhere(call, ast.Constant)):
                continue
            if Role.OTHER not in roles_reaching(program, module, call):
                continue
            size = argument(call, 0, "processes")
            if size is None or module.calls_to(*UNORDERED_METHODS):
                yield Finding(module, call, "one pool per rank, each with a worker per core")
                continue
            names = [each.id for each in everywhere(size, ast.Name)]
            names += [each.attr for each in everywhere(size, ast.Attribute)]
            if any(map(OF_RANKS.fullmatch, names)):
                continue  # shared out already
            text = module.operand(size)
            shared = f"max(1, {text} // int(os.environ.get('LOCAL_WORLD_SIZE', 1)))"
            yield Finding(
                module, call, f"{text} workers per rank", (Rewrite(size, shared), Import("os"))
            )
