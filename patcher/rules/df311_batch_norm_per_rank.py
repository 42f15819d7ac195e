"""Batch norm has the statistics of one rank's part of the batch.

What         The model has BatchNorm layers, and its program trains on several cards. Layers that
             share their statistics among the cards of DataParallel are such ones in ranks.
At run time  With N ranks mean and variance are those of 1/N of the global batch, as they are under
             DataParallel; rank 0's running averages are saved. Losses and gradients are other ones
             than one process has at that batch, the more so the smaller a rank's part. Nothing
             warns.
Example      self.norm = torch.nn.BatchNorm2d(64)
Fix          Where parts are small, wrap torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) in
             DistributedDataParallel in place of the model: it shares the statistics of all ranks,
             on GPUs alone, and costs a message per layer and pass.
Fix safety   Unsafe: DataParallel's replicas had statistics of their own as well, so that neither is
             certainly meant; only reported.
Source       torch.nn.SyncBatchNorm, torch.nn.parallel.DistributedDataParallel
"""

from collections.abc import Iterator

from ..analysis.models.batch_norm import batch_norm_layers, norms_of_cards
from ..analysis.training.program import Program, trains_on_several_devices
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF311", Severity.NOTE, Safety.UNSAFE


def findings(program: Program) -> Iterator[Finding]:
    if not trains_on_several_devices(program) or program.calls_to(
        "convert_sync_batchnorm", "SyncBatchNorm"
    ):
        return
    for module, name in norms_of_cards(program):
        because = (
            f"{module.last_name(name)} shares its statistics among the cards of DataParallel, and"
            " ranks have one card each: convert_sync_batchnorm(model) shares those of all ranks"
        )
        yield Finding(module, name, because)
        return
    for module, call in batch_norm_layers(program):
        because = f"{module.last_name(call.func)} sees the examples of one rank at a time"
        yield Finding(module, call, because)
        return  # of all layers the first
