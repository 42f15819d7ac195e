"""The script starts its own ranks.

What         torch.multiprocessing.spawn, or a Process, runs a function that makes a process group,
             or one that it is given does; or the script starts itself once more for each card.
At run time  Right as "python script.py". Under torchrun or accelerate launch each of their ranks
             starts all of them once more. It is not patched: the number of a rank is an argument
             of a function there, and not a variable of the environment.
Example      torch.multiprocessing.spawn(worker, nprocs=torch.cuda.device_count())
Fix          None by patch. To start it by a launcher: call the worker once instead of spawning it,
             with int(os.environ["LOCAL_RANK"]) for its number; make the group without rank and
             world_size, which are in the environment. Then patch it.
Fix safety   Report only: the script may be right as it is.
Source       torch.multiprocessing.spawn; https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Iterator

from ..analysis.ranks.spawning import spawned_ranks
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF105", Severity.NOTE, Safety.REPORT


def findings(program: Program) -> Iterator[Finding]:
    for module, call in spawned_ranks(program):
        because = f"start it by python, not by torchrun: {module.text(call)}"
        yield Finding(module, call, because)
