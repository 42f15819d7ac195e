"""The learning rate is made of one rank's batch.

What         A script of one process, which has been made to run on ranks, multiplies its learning
             rate by the batch of its loader: the rule that a batch k times as large takes k times
             the rate.
At run time  The loader's batch is that of one rank. N ranks that share the batch of one process
             train with an N-th of its rate, and nothing says so.
Example      lr = args.lr * args.batch_size / 256
Fix          The batch of all ranks is taken for the rate.
Fix safety   Safe: one process multiplies by 1. Not where cards or ranks are counted in the product,
             or the script had ranks before.
Source       Goyal et al., Accurate, Large Minibatch SGD; facebookresearch/simsiam, main_simsiam.py
"""

from collections.abc import Iterator

from ..analysis.ranks.before_group import runs_before_group
from ..analysis.settings.rates_of_batch import rates_of_batch
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.drawn_apart import knew_no_ranks
from ..fixes.process_group import NUMBER_OF_RANKS

CODE, SEVERITY, SAFETY = "DF708", Severity.DEGRADED, Safety.SAFE

OF_LAUNCHER = "int(os.environ.get('WORLD_SIZE', 1))"


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group") or not knew_no_ranks(program):
        return
    for module, batch in rates_of_batch(program):
        because = f"{module.text(batch)} is the batch of one rank, and the rate is that of all"
        edits: tuple[Edit, ...] = (
            Rewrite(batch, f" * ({NUMBER_OF_RANKS})", after=True),
            Import("torch"),
        )
        if runs_before_group(program, module, batch):
            edits = (Rewrite(batch, f" * {OF_LAUNCHER}", after=True), Import("os"))
        yield Finding(module, batch, because, edits)
