"""Examples are dealt to the ranks by hand while they are read.

What         A data set keeps only its rank's share: every world_size-th line, or a slice of the
             files.
At run time  Shares differ in length, so that ranks take unequal numbers of steps and the job ends
             in a time-out; shares never mix between epochs; evaluation scores one share; a
             DistributedSampler on top of it deals each share out once more.
Example      data = [line for i, line in enumerate(file) if i % world_size == local_rank]
Fix          Every rank reads what a lone process reads: of "if args.local_rank == -1: rank 0 of 1,
             else: …" the first branch stays. DF401 then deals by a DistributedSampler.
Fix safety   Safe: the branch of a lone process stays as it is. Each rank then holds all examples in
             memory. Without such a branch it is only reported: what deals equal shares is right.
Source       torch.utils.data.distributed.DistributedSampler; hazards counted in 6 of 134 scripts
"""

from collections.abc import Iterator

from ..analysis.manual_sharding import manual_shards, single_process_tests
from ..analysis.program import Program
from ..editing.edits import Unwrap
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF403", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    if not program.train_loops and not program.evaluations:
        return
    shares = [
        (module, node) for module in program.modules for node in manual_shards(program, module)
    ]
    if not shares:
        return
    branches = [
        (module, *found) for module in program.modules for found in single_process_tests(module)
    ]
    first = shares[0][0]
    lines = ", ".join(sorted({str(node.lineno) for module, node in shares if module is first}))
    for module, stmt, is_first in branches:
        because = f"line {lines} of {first.source.file} keeps this rank's share only"
        yield Finding(module, stmt, because, (Unwrap(stmt, "body" if is_first else "orelse"),))
    if not branches:
        for module, node in shares:
            because = f"{module.text(node)} keeps this rank's share only"
            yield Finding(module, node, because, severity=Severity.DEGRADED)
