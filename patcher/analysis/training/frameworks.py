"""What libraries do for a training script: average gradients, deal data, gather, save on rank 0.

Tables of dotted names, as imports resolve them. A rule that asks one of them knows no library.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ...source.module import Module
from ..language.names import ModuleSet

# Wrap a model, or set a program up, so that ranks average their gradients.
AVERAGES_GRADIENTS = {
    *("torch.nn.parallel.DistributedDataParallel", "apex.parallel.DistributedDataParallel"),
    *("FullyShardedDataParallel", "fully_shard", "fully_shard_model", "auto_wrap", "enable_wrap"),
    *("ShardedDataParallel", "OffloadModel", "DistributedModelParallel", "parallelize_module"),
    *("deepspeed.initialize", "deepspeed.init_inference", "colossalai.initialize"),
    *("horovod.torch.DistributedOptimizer", "DistributedOptimizer", "BytePSDistributedOptimizer"),
    *("accelerate.Accelerator", "Accelerator", "lightning.Fabric", "Fabric", "LightningLite"),
    *("ZeroRedundancyOptimizer", "DistributedFusedAdam", "PostLocalSGDOptimizer"),
    *("prepare_ddp_model", "convert_syncbn_model_and_ddp", "Booster", "stoke.Stoke"),
    "torch.distributed._composable.replicate",
    "torch.distributed._composable.replicate.replicate",
    *("MegatronDistributedDataParallel", "LocalDDP", "OSS", "SimpleFSDP"),
}
# Classes of optimizers, of torch and of others.
OPTIMIZERS = frozenset(
    {
        *("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"),
        *("SparseAdam", "LBFGS", "Rprop", "ASGD"),
        *(
            "LARS",
            "LAMB",
            "Lamb",
            "Adafactor",
            "BertAdam",
            "BertAdamW",
            "FusedAdam",
            "Lion",
            "Optimizer",
        ),
    }
)
# Methods of a model that give its parameters.
SEES_PARAMETERS = ("parameters", "named_parameters")
# Run the training loop themselves, with all that belongs to several ranks.
OWNS_LOOP = {
    *("pytorch_lightning.Trainer", "lightning.Trainer", "lightning.pytorch.Trainer"),
    *("transformers.Trainer", "transformers.Seq2SeqTrainer"),
    *("mmcv.runner.EpochBasedRunner", "mmengine.runner.Runner", "SFTTrainer", "LightningCLI"),
}
# Of these a program makes objects by classes of its own as well.
DERIVED_FROM = {"Accelerator", "Fabric", "LightningLite"}
# Divide the work themselves: remote procedure calls, parameter servers.
DIVIDES_WORK = {*("init_rpc", "rpc_async", "rpc_sync", "DistributedModelParallel")}
# torch's sampler that deals by rank, and the one that patched scripts carry.
DEALT_BATCHES = "DealtBatches"  # of helper_code.py; needs no set_epoch
RANK_SAMPLERS = ("DistributedSampler", "DealtSampler", DEALT_BATCHES)
# Deal a loader's batches by rank.
DEALS_DATA = {
    *("DistributedSampler", "DistributedBatchSampler", "StatefulDistributedSampler"),
    *("DistributedLengthGroupedSampler", "DistributedSamplerWrapper", "RASampler"),
    "ElasticDistributedSampler",
    *("DistributedItemSampler", "dgl.distributed.node_split", "dgl.distributed.edge_split"),
    *("split_dataset_by_node", "setup_dataloaders", "prepare_data_loader", "RandomSampler_DDP"),
    *("accelerate.Accelerator", "Accelerator", "lightning.Fabric", "Fabric", "LightningLite"),
    *("deepspeed.initialize", "colossalai.initialize", "Booster", "stoke.Stoke"),
}
# What of these torch makes of a process group, and not the group.
NEED_GROUP = {
    *("torch.nn.parallel.DistributedDataParallel", "apex.parallel.DistributedDataParallel"),
    *("FullyShardedDataParallel", "fully_shard", "ZeroRedundancyOptimizer", "DistributedSampler"),
}
# Make the group, under other names than torch's.
MAKE_GROUP = {"init_distributed", "init_dist", "TrainingArguments", "PartialState", "hvd.init"}
# Make the group and average gradients, in calls that each rank makes for itself.
MAKE_RANKS = {
    *("deepspeed.initialize", "accelerate.Accelerator", "colossalai.initialize"),
    *("lightning.Fabric", "lightning.fabric.Fabric", "pytorch_lightning.Fabric", "stoke.Stoke"),
}
# Each rank of a group has to call these, or all wait.
COLLECTIVES = {
    *("barrier", "monitored_barrier", "all_reduce", "all_gather", "all_gather_object"),
    *("all_gather_into_tensor", "_all_gather_base", "broadcast", "broadcast_object_list"),
    *("reduce", "reduce_scatter", "reduce_scatter_tensor", "gather", "gather_object", "scatter"),
    *("scatter_object_list", "all_to_all", "all_to_all_single", "init_process_group"),
    *("destroy_process_group", "new_group", "all_reduce_coalesced"),
}
# Methods of accelerate's and Lightning's objects that are collectives.
COLLECTIVE_METHODS = {
    *("wait_for_everyone", "gather_for_metrics", "pad_across_processes", "get_state_dict"),
    *("all_gather_object",),
}
# Attributes and methods that answer whether this is rank 0: of accelerate, Lightning and others.
MAIN_PROCESS_NAMES = {
    *("is_main_process", "is_global_zero", "is_world_process_zero", "is_rank_zero"),
    *("is_master_process", "is_main", "is_master", "is_rank_0", "is_rank0", "is_first_worker"),
    *("is_primary", "is_local_main_process", "is_main_rank", "is_distributed_master"),
    *("is_zero_rank", "is_leader", "is_chief", "on_main_process", "master_process"),
    *("is_local_master", "is_local_main", "is_node_master"),
}
# Decorators that run a function on rank 0 only.
MAIN_ONLY_DECORATORS = {
    *("rank_zero_only", "master_only", "on_main_process", "main_process_only", "on_rank_zero"),
    *("rank0_only", "only_on_main", "run_on_main", "only_master", "on_local_main_process"),
}


def is_one_of(dotted: str, names: Iterable[str]) -> bool:
    """Whether a resolved name is one of a table's: whole, or by its last part."""
    return dotted in names or dotted.rpartition(".")[2] in names


def calls_one_of(program: ModuleSet, names: Iterable[str]) -> bool:
    """Whether a program calls anything of a table that it does not define itself."""
    lasts = {name.rpartition(".")[2] for name in names}
    return any(
        is_one_of(module.dotted(called), names) and program.resolve(module, called) is None
        for module in program.modules
        for called in (
            *(call.func for call in module.calls_to(*sorted(lasts))),
            *(call.args[0] for call in module.calls_to("partial") if call.args),
            *_bases_of_launchers(program, module),
        )
    )


def _bases_of_launchers(program: ModuleSet, module: Module) -> Iterator[ast.expr]:
    """Accelerate's and Lightning's objects that a class of the program is derived from."""
    for name in sorted(DERIVED_FROM):
        for base in module.occurrences(name):
            owner = module.parents[base]
            if isinstance(owner, ast.ClassDef) and any(
                where.calls_to(owner.name) for where in program.modules
            ):
                yield base


def starts_under_horovod(program: ModuleSet) -> bool:
    """Whether Horovod numbers the ranks, and torch has no process group that could be asked."""
    return not any(module.calls_to("init_process_group") for module in program.modules) and any(
        module.dotted(call.func).startswith("horovod.")
        for module in program.modules
        for call in module.calls_to("init")
    )


def may_have_group(program: ModuleSet) -> bool:
    """Whether something makes a process group: the program, or what it does not show."""
    if program.unread or any(
        module.calls_to("init_process_group", "destroy_process_group") for module in program.modules
    ):
        return True
    makers = AVERAGES_GRADIENTS | DEALS_DATA | DIVIDES_WORK | OWNS_LOOP | MAKE_GROUP
    return calls_one_of(program, makers - NEED_GROUP) or any(
        "dist" in (name := module.last_name(call.func).lower())
        and any(word in name for word in ("init", "setup", "launch"))
        and program.resolve(module, call.func) is None
        for module in program.modules
        for call in module.nodes(ast.Call)
    )
