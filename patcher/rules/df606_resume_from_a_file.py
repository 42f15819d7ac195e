"""A model is resumed from a file where a folder is wanted.

What         from_pretrained is given …/pytorch_model.bin.
At run time  OSError: transformers takes a folder or a name on the hub.
Example      args.model_name_or_path = os.path.join(checkpoint_last, "pytorch_model.bin")
Fix          Name the folder.
Fix safety   Safe: the line can only have raised.
Source       transformers.PreTrainedModel.from_pretrained
"""

import ast
from collections.abc import Iterator

from ..edits import Rewrite
from ..facts import Unit
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF606", Severity.ERROR, Safety.SAFE

FILES = ("pytorch_model.bin", "model.safetensors")


def findings(unit: Unit) -> Iterator[Finding]:
    for module in unit.modules:
        loaded = {
            module.text(call.args[0]) for call in module.calls_to("from_pretrained") if call.args
        }
        for stmt in module.nodes(ast.Assign):
            path = stmt.value
            if not (
                any(module.text(target) in loaded for target in stmt.targets)
                and isinstance(path, ast.Call)
                and module.dotted(path.func) == "os.path.join"
                and len(path.args) == 2
                and isinstance(path.args[1], ast.Constant)
                and path.args[1].value in FILES
            ):
                continue
            yield Finding(
                module,
                stmt,
                f"{module.text(stmt.targets[0])} goes to from_pretrained",
                (Rewrite(path, module.text(path.args[0])),),
            )
