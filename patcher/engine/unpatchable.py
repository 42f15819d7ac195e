"""Programs that patch does not repair whatever its rules find, and what their author can do."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ..analysis.ranks.spawning import spawned_ranks
from ..analysis.ranks.started_workers import NotLaunchableError
from ..analysis.training.program import Program
from ..findings import Finding
from ..fixes.launched_worker import edits_to_launch
from ..source.module import Module


def reason_not_to_begin(program: Program, findings: Iterable[Finding]) -> str:
    """Why no edit of this program could be right, and what to change by hand; "" for most."""
    repaired = {finding.at for finding in findings if finding.code == "DF105" and finding.edits}
    for module, call in spawned_ranks(program):
        if call in repaired:
            continue
        start = " ".join(module.text(call).split())
        return (
            f"not patched: DF105 line {call.lineno} of {module.source.name}: it starts its own "
            f"ranks ({start}), and a launcher would start all of them once more"
            f"{why_not_launched(program, module, call)}. Call the worker "
            "once, with int(os.environ['LOCAL_RANK']) for its number, and leave rank and "
            "world_size out of init_process_group; then patch again"
        )
    return ""


def why_not_launched(program: Program, module: Module, call: ast.Call) -> str:
    """Why patch does not let a launcher start the ranks."""
    try:
        edits_to_launch(program, module, call)
    except NotLaunchableError as error:
        return f"; patch does not change that, as {error}"
    return ""
