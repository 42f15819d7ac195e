"""Programs that patch does not repair whatever its rules find, and what their author can do."""

from __future__ import annotations

from ..analysis.ranks.spawning import spawned_ranks
from ..analysis.training.program import Program


def reason_not_to_begin(program: Program) -> str:
    """Why no edit of this program could be right, and what to change by hand; "" for most."""
    for module, call in spawned_ranks(program):
        start = " ".join(module.text(call).split())
        return (
            f"not patched: DF105 line {call.lineno} of {module.source.name}: it starts its own "
            f"ranks ({start}), and a launcher would start all of them once more. Call the worker "
            "once, with int(os.environ['LOCAL_RANK']) for its number, and leave rank and "
            "world_size out of init_process_group; then patch again"
        )
    return ""
