"""The script starts its own ranks.

What         torch.multiprocessing.spawn, or a Process, runs a function that makes a process group,
             or one that it is given does; or the script starts itself once more for each card.
At run time  Right as "python script.py". Under torchrun or accelerate launch each of their ranks
             starts all of them once more: the number of a rank is an argument of a function there,
             and not a variable of the environment.
Example      torch.multiprocessing.spawn(worker, args=(size,), nprocs=size)
Fix          A process of a launcher calls the worker once, with LOCAL_RANK for its number. The
             script goes on counting, and what it counts with is the launcher's: the processes of
             a machine, the machines and the machine's number. What it draws at random for all ranks
             they draw by one seed, the launcher's port. Where it counts the ranks of one
             machine only, ranks on several stop. Not done, and nothing else repaired, where how it
             counts cannot be told, where its processes share a queue or a lock, or where it goes on
             alone when they are done; the finding says which. Then call the worker once instead of
             spawning it, with int(os.environ["LOCAL_RANK"]) for its number, make the group without
             rank and world_size, which are in the environment, and patch again.
Fix safety   Safe: without a launcher the script starts its ranks as before.
Source       torch.multiprocessing.spawn; https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Iterator

from ..analysis.ranks.spawning import spawned_ranks
from ..analysis.ranks.started_workers import NotLaunchableError
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity
from ..fixes.launched_worker import edits_to_launch

CODE, SEVERITY, SAFETY = "DF105", Severity.NOTE, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    for module, call in spawned_ranks(program):
        because = f"start it by python, not by torchrun: {module.text(call)}"
        try:
            edits = edits_to_launch(program, module, call)
        except NotLaunchableError as error:
            yield Finding(module, call, f"{because}; {error}")
        else:
            yield Finding(module, call, because, edits)
