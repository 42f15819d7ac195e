"""Code and questions of the rules that make a script use its process group."""

from __future__ import annotations

import ast

from ..analysis.models.batch_norm import norms_by_batch
from ..analysis.models.forward_passes import forwards_twice
from ..analysis.models.unused_parameters import all_get_gradients
from ..analysis.ranks.barrier_turns import may_be_in_turn
from ..analysis.ranks.evaluating_ranks import calls_another_wrapper
from ..analysis.settings.parsed_arguments import parameter_with_arguments
from ..analysis.training.accumulators import Accumulator
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..analysis.training.unmoved_batches import wrapper_moves
from ..editing.edits import Define, Edit, Guard, Import, Insert
from ..source.module import Module
from ..source.tree import (
    Function,
    argument_values,
    below,
    bound_names,
    everywhere,
    keyword,
    mentions,
    names_within,
    parameters,
    position,
    precedes,
    within,
)
from .counted_batches import counted_batches
from .dataset_by_name import dataset_by_name

NUMBER_OF_RANKS = "torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1"
READ_RANK = """\
if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
    {args}.local_rank = int(os.environ['LOCAL_RANK'])"""

SET_UP = """\
if {args}.local_rank != -1:
    use_cuda = {use_cuda}
    if use_cuda:
        torch.cuda.set_device({args}.local_rank)
    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
                                         timeout={timeout})
    {device} = torch.device('cuda', {args}.local_rank) if use_cuda else torch.device('cpu')
    {args}.n_gpu = 1"""

SET_UP_FROM_ENVIRONMENT = """\
if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
    use_cuda = torch.cuda.is_available()
    if use_cuda:
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
                                         timeout={timeout})"""
SET_UP_ON_CPU = """\
if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
    torch.distributed.init_process_group(backend='gloo', timeout={timeout})"""

DATASET_NAMES = ("eval_dataset", "evaluation_dataset", "eval_dataset_to_share")
BATCH_SAMPLER = "SharedBatchSampler"  # of helper_code.py: deals a lone process's batches out

WAIT = """\
if torch.distributed.is_initialized():
    torch.distributed.barrier()  # rank 0 may still be writing"""

WRAP = """\
if {group}:
    {model} = torch.nn.parallel.DistributedDataParallel({model}, {options})"""

IS_FIRST = "int(os.environ.get('RANK', -1)) in (-1, 0)"


def one_hour(module: Module) -> tuple[str, Import]:
    """The text of a timeout, and the import it needs beside the names that the module has."""
    if "datetime" not in module.module_names or module.aliases.get("datetime") == "datetime":
        return "datetime.timedelta(hours=1)", Import("datetime")
    return "timedelta(hours=1)", Import("datetime", "timedelta")


def arguments_name(program: Program, module: Module, node: ast.AST) -> str:
    """The name that holds the parsed command line at ``node``; "" where none is in scope."""
    names = [name for name in program.argument_names if is_in_scope(module, node, name)]
    return names[0] if names else parameter_with_arguments(program, module, node)


def is_in_scope(module: Module, node: ast.AST, name: str) -> bool:
    """Whether ``name`` is a parameter or a variable of the function around ``node``, or global.

    An attribute such as ``settings.args`` is in scope where that very object is.
    """
    function = module.function(node)
    root, _, attribute = name.partition(".")
    if attribute and not is_same_object(module, function, name):
        return False
    if function is None:
        return root in module.module_names
    return root in parameters(function) | bound_names(function.body) | module.module_names


def is_same_object(module: Module, function: Function | None, name: str) -> bool:
    """Whether an attribute is one of an object that the function, or the module, also fills in."""
    root, _, path = name.partition(".")
    homes = {
        None if home is None or root not in bound_names(home.body) else home
        for node in module.attributes(path.rpartition(".")[2])
        if isinstance(node.ctx, ast.Store) and module.text(node) == name
        for home in [module.function(node)]
    }
    own = set() if function is None else parameters(function) | bound_names(function.body)
    return (function if root in own else None) in homes


def marks_lone_process(program: Program) -> bool:
    """Whether ``args.local_rank`` is -1 in a process that no launcher has started."""
    option = program.options.get("local_rank")
    if option is None or not isinstance(option.call, ast.Call):
        return program.has_argument("local_rank")
    default = keyword(option.call, "default")
    return default is not None and ast.unparse(default.value) == "-1"


def lone_process_test(program: Program, module: Module, node: ast.AST) -> str:
    """The text of a test at ``node`` that holds for a process without a group."""
    args = arguments_name(program, module, node)
    if args and marks_lone_process(program):
        return f"{args}.local_rank == -1"
    return "not torch.distributed.is_initialized()"


def use_cuda_test(program: Program, args: str) -> str:
    """The text of a test whether ranks are to compute on cards."""
    test = "torch.cuda.is_available()"
    return f"{test} and not {args}.no_cuda" if args and program.has_argument("no_cuda") else test


def on_cuda_test(program: Program, at: tuple[Module, ast.AST] | None = None) -> str:
    """The text of a test whether this process computes on a card.

    It reads the arguments where they hold the device, and are in scope at a node of a module.
    """
    devices = [f"{name}.device" for name in program.argument_names]
    values = [
        (where, holder.value)
        for where in program.modules
        for target in where.attributes("device")
        for holder in [where.parents[target]]
        if isinstance(target.ctx, ast.Store)
        and isinstance(holder, ast.Assign)
        and where.text(target) in devices
        and program.is_live(where, target)
    ]
    is_kept = bool(values) and all(is_device(program, *value) for value in values)
    args = next(iter(program.argument_names), "") if at is None else arguments_name(program, *at)
    if is_kept and args:
        return f"{args}.device.type == 'cuda'"
    return "torch.cuda.is_available()"


def is_device(program: Program, module: Module, value: ast.expr) -> bool:
    """Whether a value is a ``torch.device``, which has a type; a text, "cuda:0", has none."""
    if isinstance(value, ast.IfExp):
        return is_device(program, module, value.body) and is_device(program, module, value.orelse)
    if isinstance(value, ast.Name):
        values = module.alternatives(value, value)
        return bool(values) and all(is_device(program, module, each) for each in values)
    if not isinstance(value, ast.Call):
        return False
    return module.dotted(value.func) == "torch.device"


def card_and_group_test(program: Program, module: Module, node: ast.AST) -> tuple[str, str]:
    """Texts at ``node`` for this rank's card, and for a test that holds in a process group."""
    function = module.function(node)
    names = [
        arguments_name(program, module, node),
        *(["self.args"] if function and "self" in parameters(function) else []),
    ]
    for args in filter(None, names):
        root = args.partition(".")[0]
        is_known = marks_lone_process(program) and is_in_scope(module, node, root)
        if is_known and (root == args or args.partition(".")[2] in module.attribute_values):
            return f"{args}.local_rank", f"{args}.local_rank != -1"
    return "torch.cuda.current_device()", "torch.distributed.is_initialized()"


def ddp_options(program: Program, card: str, model: str) -> str:
    """The text of DistributedDataParallel's arguments behind the model of this name."""
    test = on_cuda_test(program)
    if "local_rank" not in card:
        test = "torch.cuda.is_available()"
    elif ".device." in test:
        test = f"{card.rpartition('.')[0]}.device.{test.partition('.device.')[2]}"
    devices = f"device_ids=[{card}] if {test} else None"
    option = unused_parameters_option(program)
    if norms_by_batch(program) and (option == "static_graph" or forwards_twice(program, model)):
        # The second forward pass would put averages in place that the backward of the first needs.
        devices += ", broadcast_buffers=False"
    if option == "find_unused_parameters" and all_get_gradients(program, model):
        return devices
    return f"{devices}, {option}=True"


def unused_parameters_option(program: Program) -> str:
    """The option by which DistributedDataParallel copes with parameters that get no gradient.

    Without one, torch raises in the second step where there are any (a RoBERTa's pooler).
    find_unused_parameters looks at each forward on its own
    and so misjudges a step with several; a static graph covers the whole step.
    """
    several = any(forwards_several_times(loop) for loop in program.train_loops)
    return "static_graph" if several else "find_unused_parameters"


def forwards_several_times(loop: TrainLoop) -> bool:
    """Whether a step certainly calls its model twice before one backward and one update.

    False for gradient accumulation: a graph is static only if every backward is like the first.
    """
    module = loop.module
    if loop.accumulation is not None or len(loop.backwards) != 1:
        return False
    models = {
        module.text(call.func.value)
        for call in module.calls_to("parameters", "train", "zero_grad")
        if isinstance(call.func, ast.Attribute)
        and (module.function(call) is module.function(loop.steps) or is_of_self(call.func.value))
    }
    calls = [
        module.text(call.func)
        for stmt in loop.steps.body
        if isinstance(stmt, ast.Assign)
        for call in within(stmt, ast.Call)
    ]
    return any(calls.count(model) > 1 for model in models)


def is_of_self(owner: ast.expr) -> bool:
    """``self.model``, of which another method of the trainer may tell that it is a model."""
    return (
        isinstance(owner, ast.Attribute)
        and isinstance(owner.value, ast.Name)
        and owner.value.id == "self"
    )


def unwrapped_model(model: str) -> str:
    """Text for the module in a wrapper, or for the model itself if it is not wrapped."""
    return f"getattr({model}, 'module', {model})"


def only_on_main(stmt: ast.stmt, *, before_group: bool = False) -> tuple[Edit, ...]:
    """Edits that leave a statement to rank 0, which no process group can tell ``before_group``."""
    if before_group:
        return (Guard(stmt, IS_FIRST), Import("os"))
    return (Guard(stmt, "is_main_process()"), Define("is_main_process"))


def evaluation_share(
    program: Program, evaluation: Evaluation
) -> tuple[str, tuple[Edit, ...]] | None:
    """The text of a sampler for this rank's share, and edits that gather the results of all shares.

    None where the results of an evaluation with this loader cannot provably be gathered, where the
    loader has other uses, or where its data or batch size are unknown or bound after its sampler.
    Nor where rank 0 evaluates while the others wait for it to be through.
    """
    loader, module = evaluation.loader, evaluation.loader.module
    if loader.dataset is None or loader.batch_size is None:
        return None
    if any(each.call is not loader.call for each in loader.others):
        return None  # a share of one, and all of another that a test picks
    if wrapper_moves(program, evaluation) or calls_another_wrapper(program, evaluation):
        return None  # whose wrapper stays, and ranks forward through it as often
    if any(is_rebound_before_loader(loader, part) for part in (loader.dataset, loader.batch_size)):
        return None
    alike = [e for e in program.evaluations if e.loader.shares_with(loader)]
    users = list({e.loop: e for e in reversed(alike)}.values())[::-1]  # one loop, several models
    if not users or users[0] is not evaluation:
        return None  # another of its loop comes first, or another branch's loader is first there
    if not all(e.accumulators and forwards_itself(e) for e in users):
        return None
    if any(e.module is not evaluation.module for e in users):
        return None
    if any(may_be_in_turn(program, e.module, e.loop) for e in users):
        return None  # rank 0 would wait for shares of ranks that wait for it
    counted = [counted_batches(each) for each in users]
    counts = frozenset[ast.expr]().union(*(each.reads for each in counted))
    if is_used_elsewhere(module, loader, users, counts):
        return None
    if any(reads_more_than_batches(each, counts) for each in users):
        return None
    data, gather = dataset_by_name(module, loader.call, loader.dataset, DATASET_NAMES)
    sampler = f"shard_of_batches({data}, {module.text(loader.batch_size)})"
    for each, batches in zip(users, counted, strict=True):
        sums = each.accumulators or {}
        lines = [gathering_line(each, name, sums[name]) for name in sums]
        if not all(lines):
            return None
        gather.append(Insert(each.loop, "\n".join([*lines, *batches.lines]), "after"))
        gather += batches.edits
    helpers = (
        Define("shard_of_batches", module.statement(loader.call)),
        Define("gathered", evaluation.loop),
        Import("torch"),
    )
    return sampler, (*gather, *helpers)


def gathering_line(evaluation: Evaluation, name: str, accumulator: Accumulator) -> str:
    """The lines that gather what all ranks accumulated; "" where it cannot be pickled.

    Of rows a rank without a share has none. Objects of a class that the function makes cannot, and
    named tuples of it go as plain ones.
    """
    module, function = evaluation.module, evaluation.function
    join, meter = accumulator.join, accumulator.meter
    if meter is not None:
        sums = ", ".join(f"{name}.{each}" for each in meter.sums)
        parts = ", ".join(f"gathered({name}.{each})" for each in meter.sums)
        means = [f"{name}.{mean} = {text.format(name)}" for mean, text in meter.means]
        return "\n".join([f"{sums} = {parts}", *means])
    if join:
        parts = f"[each for each in gathered([{name}]) if each is not None and len(each)]"
        return f"if torch.distributed.is_initialized():\n    {name} = {join}({parts})"
    local = {stmt.name for stmt in within([] if function is None else function.body, ast.ClassDef)}
    for call in within(evaluation.loop.body, ast.Call):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "append" and call.args):
            continue
        item = call.args[0]
        if isinstance(item, ast.Name):
            item = module.definition(item, call) or item
        if module.text(call.func.value) != name or not isinstance(item, ast.Call):
            continue
        kind = module.text(item.func)
        made = None if function is None else module.single_assignment(function, kind)
        if isinstance(made, ast.Call) and module.last_name(made.func) == "namedtuple":
            return (
                f"{name} = [{kind}(*each) for each in gathered([tuple(each) for each in {name}])]"
            )
        if kind in local:
            return ""
    return f"{name} = gathered({name})"


def is_rebound_before_loader(loader: Loader, value: ast.expr) -> bool:
    """Whether a name in an argument of the loader is bound between a sampler and the loader."""
    module, function = loader.module, loader.module.function(loader.call)
    return any(
        position(sampler) < position(store) < position(loader.call)
        for name in everywhere(value, ast.Name)
        for store in module.stores.get((function, name.id), ())
        for sampler in loader.samplers
    )


def forwards_itself(evaluation: Evaluation) -> bool:
    """Whether the loop calls the model itself, and not in another method of the class."""
    return not any(
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "self"
        and call.func.attr in evaluation.module.functions
        for call in within(evaluation.loop.body, ast.Call)
    )


def is_used_elsewhere(
    module: Module, loader: Loader, users: list[Evaluation], counts: frozenset[ast.expr]
) -> bool:
    """Whether the loader's name is read except to loop over it or to pass it to an evaluation.

    ``counts`` are reads of its batches that are those of all ranks.
    """
    stmt = module.statement(loader.call)
    if not (isinstance(stmt, ast.Assign) and stmt.value is loader.call):
        return True
    name = module.text(stmt.targets[0])
    loop_heads = {node for e in users for node in below(e.loop.iter)}
    arguments = {
        arg
        for e in users
        if e.function is not None
        for call in module.calls_to(e.function.name)
        for arg in argument_values(call)
    }
    mentions_of_name: list[ast.Name | ast.Attribute]
    if isinstance(stmt.targets[0], ast.Attribute):
        attributes = module.attributes(stmt.targets[0].attr)
        mentions_of_name = [node for node in attributes if module.text(node) == name]
    else:
        mentions_of_name = [*names_within(module.scope_statements(stmt), {name})]
    rebindings = [
        node
        for node in mentions_of_name
        if not isinstance(node.ctx, ast.Load)
        and precedes(stmt, node)
        and not are_alternatives(module, stmt, node)
    ]
    return any(
        isinstance(node.ctx, ast.Load)
        and node not in loop_heads
        and node not in arguments
        and node not in counts
        and getattr(module.parents[node], "attr", "") != "dataset"
        and precedes(stmt, node)
        and not any(precedes(other, node) for other in rebindings)
        and not is_handed_on(module, node)
        for node in mentions_of_name
    )


def reads_more_than_batches(evaluation: Evaluation, counts: frozenset[ast.expr]) -> bool:
    """Whether more is asked of the loader that an evaluation gets than batches and data set.

    ``counts`` are reads of its batches that are those of all ranks. What the function itself
    constructs is looked after where it is constructed.
    """
    module, function, loader = evaluation.module, evaluation.function, evaluation.loader
    if function is None or loader.call in below(function):
        return False
    heads: list[ast.expr] = [evaluation.loop.iter]
    heads += filter(None, (module.definition(n, n) for n in everywhere(heads[0], ast.Name)))
    looped = {node for head in heads for node in below(head)}  # bar = tqdm(loader), and over bar
    own = {each.attr for head in heads for each in everywhere(head, ast.Attribute) if is_own(each)}
    reads: list[ast.Name | ast.Attribute] = [*names_within(function.body, {loader.name})]
    reads += [node for attribute in own for node in module.attributes(attribute) if is_own(node)]
    return any(
        isinstance(node.ctx, ast.Load)
        and node not in looped
        and node not in counts
        and getattr(module.parents[node], "attr", "") != "dataset"
        for node in reads
    )


def is_own(node: ast.Attribute) -> bool:
    """``self.loader``."""
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def are_alternatives(module: Module, stmt: ast.stmt, later: ast.AST) -> bool:
    """Whether ``later`` stands in another branch of a test around ``stmt``."""
    child: ast.AST = stmt
    for up in module.ancestors(stmt):
        if isinstance(up, ast.If) and child in up.body and up in module.ancestors(later):
            return all(later not in below(inside) for inside in up.body)
        child = up
    return False


def is_handed_on(module: Module, node: ast.expr) -> bool:
    """``self.loader = loader`` and ``Trainer(args, loader)``, which analysis follows."""
    up = module.parents[node]
    if isinstance(up, ast.Assign):
        return True
    return isinstance(up, ast.Call) and module.last_name(up.func)[:1].isupper()


def shares_batches(loader: Loader) -> bool:
    """Whether ``patch --exact`` shares the loader's batches among the ranks already."""
    made = loader.batch_sampler
    if made is None:
        return False
    value = loader.module.definition(made, loader.call) or made
    return mentions(value, BATCH_SAMPLER)
