"""A transform that torchvision no longer has.

What         transforms.Scale and transforms.RandomSizedCrop, which got new names in version 0.2 and
             left torchvision with 0.12.
At run time  AttributeError where the transforms are put together, or ImportError.
Example      transforms.Compose([transforms.Scale(256), transforms.CenterCrop(224)])
Fix          Resize and RandomResizedCrop, of which the old classes were other names.
Fix safety   Safe: the line could only raise before.
Source       https://github.com/pytorch/vision/pull/5386
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..analysis.training.vendored import any_has_own
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF912", Severity.ERROR, Safety.SAFE

HOMES = ("torchvision.transforms", "torchvision.transforms.transforms")
RENAMED = {"Scale": "Resize", "RandomSizedCrop": "RandomResizedCrop"}


def findings(program: Program) -> Iterator[Finding]:
    if any_has_own(program, "torchvision"):
        return
    for module in program.modules:
        for node in module.attributes(*RENAMED):
            if module.dotted(node) in {f"{home}.{node.attr}" for home in HOMES}:
                new = f"{module.text(node.value)}.{RENAMED[node.attr]}"
                yield Finding(module, node, f"{node.attr} is gone", (Rewrite(node, new),))
        for stmt in module.nodes(ast.ImportFrom):
            for alias in stmt.names if stmt.module in HOMES and not stmt.level else ():
                if alias.name in RENAMED:
                    new = f"{RENAMED[alias.name]} as {alias.asname or alias.name}"
                    yield Finding(module, stmt, f"{alias.name} is gone", (Rewrite(alias, new),))
