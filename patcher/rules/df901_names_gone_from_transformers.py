"""A name is imported that transformers no longer has.

What         AdamW left transformers in version 5 (deprecated since 4.x).
At run time  ImportError before the first line of the script's own runs.
Example      from transformers import AdamW, get_linear_schedule_with_warmup
Fix          torch.optim.AdamW, with transformers' defaults spelled out where the call relied on
             them: weight_decay=0.0 and eps=1e-6 (torch has 0.01 and 1e-8).
Fix safety   Safe: the import can only have raised. The update differs from the old class's by the
             place of eps in the bias correction, of the order of eps.
Source       https://github.com/huggingface/transformers/releases/tag/v5.0.0; torch.optim.AdamW
"""

import ast
from collections.abc import Iterator

from ..edits import Edit, Import, Replace, Rewrite
from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..module import Module
from ..syntax import keyword, last_argument

CODE, SEVERITY, SAFETY = "DF901", Severity.ERROR, Safety.SAFE
ANYWHERE = True

HOMES = ("transformers", "transformers.optimization", "pytorch_transformers")
DEFAULTS = {"eps": (3, "1e-6"), "weight_decay": (4, "0.0")}  # position in the old signature


def findings(unit: Unit) -> Iterator[Finding]:
    for module in unit.modules:
        for stmt in module.nodes(ast.ImportFrom):
            for alias in stmt.names:
                if stmt.module in HOMES and alias.name == "AdamW":
                    yield from adamw(module, stmt, alias)


def adamw(module: Module, stmt: ast.ImportFrom, alias: ast.alias) -> Iterator[Finding]:
    local = alias.asname or alias.name
    because = f"{alias.name} is not in today's {stmt.module}"
    calls = [
        c for c in module.nodes(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == local
    ]
    if any(not is_translatable(call) for call in calls):
        yield Finding(module, stmt, f"{because}; correct_bias=False has no counterpart in torch")
        return
    edits: list[Edit] = [
        Import("torch.optim", "AdamW" if not alias.asname else f"AdamW as {local}")
    ]
    names = stmt.names
    index = names.index(alias)
    if len(names) == 1:
        edits.append(Replace(stmt, ""))
    elif index + 1 < len(names):
        edits.append(Rewrite(alias, "", names[index + 1], before=True))
    else:
        edits.append(Rewrite(names[index - 1], "", alias, after=True))
    for call in calls:
        missing = [
            f"{name}={default}"
            for name, (place, default) in DEFAULTS.items()
            if keyword(call, name) is None and len(call.args) <= place
        ]
        last = last_argument(call)
        if missing and last is not None:
            edits.append(Rewrite(last, "".join(f", {text}" for text in missing), after=True))
    yield Finding(module, stmt, because, tuple(edits))


def is_translatable(call: ast.Call) -> bool:
    """Whether torch's class takes the same call."""
    return bool(call.args or call.keywords) and not any(
        word.arg in ("correct_bias", "no_deprecation_warning", None) for word in call.keywords
    )
