"""A rank is computed instead of read.

What         A rank is computed from node_index and gpu_per_node, or taken modulo a number of cards
             that comes from an option.
At run time  Under torchrun and accelerate launch, which number ranks themselves: no rank 0, nothing
             saved, two ranks on one card, or a wrong shard.
Example      args.local_rank += args.node_index * args.gpu_per_node
Fix          The renumbering goes, and with it the modulo; a local rank made of get_rank() is read
             from LOCAL_RANK where a launcher has set it; a global rank is get_rank().
Fix safety   Safe: only ranks of a process group run these lines, and a launcher's variables hold
             what the arithmetic was meant to find out. Only reported where a lone process runs the
             line too.
Source       https://docs.pytorch.org/docs/stable/elastic/run.html (environment variables)
"""

import ast
import re
from collections.abc import Iterator

from ...record import replace
from ..analysis.ranks.rank_reach import (
    RANK_OF_ROLE,
    Role,
    is_doubtful,
    is_world_size,
    roles_reaching,
    value_for_role,
)
from ..analysis.ranks.spawning import is_spawned_number, spawned_ranks
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import argument, everywhere, mentions

CODE, SEVERITY, SAFETY = "DF103", Severity.ERROR, Safety.SAFE

RANKS_PER_NODE = (
    "gpu_per_node",
    "gpus_per_node",
    "n_gpu_per_node",
    "ngpus_per_node",
    "nproc_per_node",
)
OF_CARDS = re.compile(r"gpu|cuda|card|device|node|nproc", re.I)
NODE_NAMES = ("node_index", "node_rank", *RANKS_PER_NODE)


def findings(program: Program) -> Iterator[Finding]:
    for each in computed_ranks(program) if program.calls_to("init_process_group") else ():
        doubtful = is_doubtful(program, each.module, each.at)
        yield replace(each, severity=Severity.DEGRADED) if doubtful else each


def computed_ranks(program: Program) -> Iterator[Finding]:
    """A finding for each rank that is computed, as if the script came to all of them."""
    for module in program.modules:
        for add in module.nodes(ast.AugAssign):
            if (
                isinstance(add.op, ast.Add)
                and is_rank(module, add.target)
                and not is_spawned_number(program, module, add.value)
            ):
                yield Finding(
                    module,
                    add,
                    f"{module.text(add)} renumbers the ranks",
                    drop_renumbering(program, module, add),
                )
        for node in module.nodes(ast.BinOp):
            because = f"{module.text(node)} is no rank of a launcher's"
            if isinstance(node.op, ast.Mod) and is_rank(module, node.left):
                if sounds_of_cards(module, node.right) and not (
                    is_fallback(module, node)
                    or is_card_count(module, node.right)
                    or is_world_size(module, node.right)
                    or is_compared(module, node)
                ):
                    yield Finding(module, node, because, read_local_rank(program, module, node))
            elif (
                isinstance(node.op, ast.Add)
                and is_offset_by_node(module, node)
                and not counts_for_launcher(program, module, node)
            ):
                yield Finding(module, node, because, read_global_rank(module, node))


def is_rank(module: Module, node: ast.expr) -> bool:
    """``args.local_rank``, ``rank`` or ``torch.distributed.get_rank()``."""
    named = isinstance(node, ast.Attribute | ast.Name | ast.Call)
    return named and all(  # a counter may stand at the same number on all ranks
        value_for_role(module, node, role) == RANK_OF_ROLE[role] for role in (Role.MAIN, Role.OTHER)
    )


def sounds_of_cards(module: Module, number: ast.expr) -> bool:
    """Whether a number may be that of a machine's cards; of a group of ranks it may be any."""
    return isinstance(number, ast.Constant) or bool(OF_CARDS.search(module.text(number)))


def is_card_count(module: Module, node: ast.expr) -> bool:
    """``torch.cuda.device_count()``: a rank modulo it is this rank's card on equal machines.

    An attribute may be given another number than this instead.
    """
    values = [node]
    if isinstance(node, ast.Name):
        values = [module.definition(node, node) or node]
    elif isinstance(node, ast.Attribute):
        values = module.attribute_values.get(node.attr, [])
    calls = [call for value in values for call in (value, *arguments_of_max(value))]
    return any(
        isinstance(call, ast.Call) and module.last_name(call.func) == "device_count"
        for call in calls
    )


def arguments_of_max(value: ast.expr) -> list[ast.expr]:
    """What ``max(1, torch.cuda.device_count())`` takes the larger of."""
    match value:
        case ast.Call(func=ast.Name(id="max"), args=args):
            return args
    return []


def is_compared(module: Module, node: ast.BinOp) -> bool:
    """``rank % cards == 0``: asks for the first of each machine, and computes no rank."""
    return isinstance(module.parents[node], ast.Compare)


def is_offset_by_node(module: Module, node: ast.BinOp) -> bool:
    """``local_rank + args.node_index * args.gpu_per_node``, either way round."""
    return any(
        any(mentions(rest, name) for name in NODE_NAMES) and is_rank(module, rank)
        for rank, rest in ((node.left, node.right), (node.right, node.left))
    )


def counts_for_launcher(program: Program, module: Module, node: ast.BinOp) -> bool:
    """Whether the script starts its ranks itself, or a launcher says which machine this is."""
    return any(spawned_ranks(program)) or any(
        mentions(value, "environ")
        for each in everywhere(node, ast.Attribute)
        for value in module.attribute_values.get(each.attr, ())
    )


def is_fallback(module: Module, node: ast.BinOp) -> bool:
    """``os.environ.get("LOCAL_RANK", get_rank() % cards)``: the default without a launcher."""
    call = module.parents[node]
    return (
        isinstance(call, ast.Call)
        and module.dotted(call.func) in ("os.environ.get", "os.getenv")
        and argument(call, 1, "default") is node
    )


def drop_renumbering(program: Program, module: Module, add: ast.AugAssign) -> tuple[Edit, ...]:
    """Edits that leave the launcher's local rank as it was read."""
    reached_alone = Role.SINGLE in roles_reaching(program, module, add)
    is_whole_block = len(module.body(add)) == 1
    return () if reached_alone or is_whole_block else (Replace(add, ""),)


def read_local_rank(program: Program, module: Module, node: ast.BinOp) -> tuple[Edit, ...]:
    """Edits that drop the modulo of a local rank, or read LOCAL_RANK before get_rank() % cards."""
    if isinstance(node.left, ast.Attribute) and node.left.attr == "local_rank":
        reached_alone = Role.SINGLE in roles_reaching(program, module, node)
        return () if reached_alone else (Rewrite(node, module.text(node.left)),)
    if isinstance(node.left, ast.Call):
        code = f"int(os.environ.get('LOCAL_RANK', {module.text(node)}))"
        return (Rewrite(node, code), Import("os"))
    return ()


def read_global_rank(module: Module, node: ast.BinOp) -> tuple[Edit, ...]:
    """Edits that call ``get_rank()``, where the group is set up earlier in the same block."""
    stmt = module.statement(node)
    block = module.body(stmt)
    for call in module.calls_to("init_process_group"):
        init = module.statement(call)
        if init in block and block.index(init) < block.index(stmt):
            prefix = module.text(call.func).rpartition(".")[0]
            return (Rewrite(node, f"{prefix}.get_rank()"),) if prefix else ()
    return ()
