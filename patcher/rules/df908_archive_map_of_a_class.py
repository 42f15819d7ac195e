"""A class is asked for the names of its checkpoints.

What         pretrained_config_archive_map of a configuration, or pretrained_model_archive_map of a
             model, both of which left transformers in version 3.
At run time  AttributeError while the script is imported: the names are listed for a help text.
Example      ALL = sum((tuple(c.pretrained_config_archive_map.keys()) for c in (BertConfig,)), ())
Fix          An empty table where the class has none: any name on the hub is taken today.
Fix safety   Safe: the line could only raise before.
Source       https://github.com/huggingface/transformers/releases/tag/v3.0.0
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..analysis.training.vendored import has_own
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF908", Severity.ERROR, Safety.SAFE
ANYWHERE = True

MAPS = ("pretrained_config_archive_map", "pretrained_model_archive_map")


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        if "transformers" not in module.imported_packages:
            continue
        if has_own(program, module, "transformers"):
            continue
        for node in module.attributes(*MAPS):
            if not isinstance(node.ctx, ast.Load) or is_of_self(node):
                continue
            owner = module.text(node.value)
            code = f"getattr({owner}, '{node.attr}', {{}})"
            yield Finding(module, node, f"{owner} has no {node.attr}", (Rewrite(node, code),))


def is_of_self(node: ast.Attribute) -> bool:
    """Whether a class of the script asks for its own table."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
