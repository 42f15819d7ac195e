"""LOCAL_RANK is never read.

What         The script has a --local_rank option (or a rank variable) and nothing reads the
             environment that torchrun and accelerate launch set.
At run time  Every process takes itself for the only one: N independent trainings on the same
             card write the same files, the last writer wins. The old launcher's newer spelling,
             --local-rank=0, is rejected by argparse, or the option is required and not there.
Example      parser.add_argument("--local_rank", type=int, default=-1); args = parser.parse_args()
Fix          Take the rank from the environment right after parsing, or where a class of settings
             has -1 for it; accept both spellings, and require the option of no rank.
Fix safety   Safe: without a launcher the variables are absent and nothing changes. It wakes code
             that never ran, so it is applied together with the other fixes or not at all.
Source       https://docs.pytorch.org/docs/stable/elastic/run.html (environment variables)
"""

import ast
from collections.abc import Iterator

from ...recipes.script_flags import Option
from ..analysis.ranks.spawning import is_spawned_number
from ..analysis.training.frameworks import calls_one_of
from ..analysis.training.program import Program
from ..editing.edits import Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.behind_binding import behind_binding
from ..fixes.process_group import READ_RANK
from ..fixes.statements import main_guard
from ..source.module import Module
from ..source.tree import bound_names, everywhere, is_inside, keyword, mentions, within

CODE, SEVERITY, SAFETY = "DF101", Severity.ERROR, Safety.SAFE

DEEPSPEED = {
    *("deepspeed.initialize", "deepspeed.init_distributed", "deepspeed.add_config_arguments"),
}


def findings(program: Program) -> Iterator[Finding]:
    option = option_of_launchers(program)
    name = "local_rank" if option is None else option.dest
    is_for_deepspeed = calls_one_of(program, DEEPSPEED)  # whose launcher passes --local_rank
    for module in program.modules:
        if option is None or option.call not in module.parents:
            continue
        if (
            "--local-rank" not in option.spellings
            and isinstance(option.call, ast.Call)
            and not is_for_deepspeed
        ):
            last = option.call.args[-1]
            yield Finding(
                module,
                option.call,
                "only the spelling --local_rank is accepted",
                (Rewrite(last, ", '--local-rank'", after=True),),
                severity=Severity.DEGRADED,
            )
        if isinstance(option.call, ast.Call):
            yield from required_of_ranks(program, module, option.call)
    if reads_environment(program, name):
        return
    if option is not None and is_for_deepspeed:
        return
    if not is_read(program, name) and knows_its_rank(program):
        return
    if option is None and any(
        name.endswith("TrainingArguments") for m in program.modules for name in m.aliases.values()
    ):
        return  # the class of transformers, or one below it, reads the environment itself
    if option is None and is_made_here(program):
        return  # by mp.spawn's index, by horovod: no option, and no default
    if is_set_in_spawned(program):
        return  # whatever the option says
    if option is None and (constants := set_to_none(program)):
        for module, assign in constants:
            because = f"{module.text(assign)}, and nothing else sets it"
            value = "int(os.environ.get('LOCAL_RANK', -1))"
            yield Finding(module, assign, because, (Rewrite(assign.value, value), Import("os")))
        return
    for module, stmt, args in program.parse_sites:
        if option is not None or program.has_argument(name):
            read = READ_RANK.format(args=args).replace(".local_rank", f".{name}")
            yield Finding(
                module,
                stmt,
                f"{args}.{name} keeps its default under torchrun and accelerate launch",
                (*behind_binding(module, stmt, args, read), Import("os")),
                severity=Severity.DEGRADED if is_told_elsewhere(program, name) else None,
            )
    if not any(is_of_script(program, module) for module, _, _ in program.parse_sites):
        yield from unexplained_local_rank(program)


def required_of_ranks(program: Program, module: Module, declared: ast.Call) -> Iterator[Finding]:
    """The finding of an option that has to be given, which today's launchers do not do."""
    option = keyword(declared, "required")
    value = None if option is None else option.value
    is_set = isinstance(value, ast.Name) or (isinstance(value, ast.Constant) and bool(value.value))
    if value is None or not is_set or calls_one_of(program, DEEPSPEED):
        return
    is_tested = any(isinstance(up, ast.If) for up in module.ancestors(declared))
    yield Finding(
        module,
        value,
        "the option has to be given, and torchrun and accelerate launch do not give it",
        (Rewrite(value, "'LOCAL_RANK' not in os.environ"), Import("os")),
        severity=Severity.DEGRADED if is_tested else None,
    )


def is_of_script(program: Program, module: Module) -> bool:
    """Whether what a module parses is the script's: not so of another that is run by itself."""
    return module is program.script or main_guard(module) is None


def option_of_launchers(program: Program) -> Option | None:
    """The option that old launchers pass, whatever attribute it sets."""
    options = program.options
    spelled = (each for each in options.values() if "--local_rank" in each.spellings)
    return options.get("local_rank") or next(spelled, None)


def reads_environment(program: Program, name: str) -> bool:
    """Whether the launcher's variable is read, or set from the option, which is all that reads it.

    ``if "LOCAL_RANK" not in os.environ: os.environ["LOCAL_RANK"] = str(args.local_rank)`` reads
    nothing where the rank is taken from the option elsewhere, too.
    """
    told: list[ast.stmt] = []
    for module in program.modules:
        for node in module.nodes(ast.Constant):
            if node.value != "LOCAL_RANK":
                continue
            up = module.parents[node]
            if isinstance(up, ast.Subscript) and isinstance(up.ctx, ast.Store):
                told.append(module.statement(node))
            elif not isinstance(up, ast.Compare):
                return True
    return bool(told) and all(
        any(is_inside(node, stmt) for stmt in told)
        for module in program.modules
        for node in module.attributes(name)
    )


def is_read(program: Program, name: str) -> bool:
    """Whether anything asks for the option, as an attribute or by its name."""
    return any(
        isinstance(node.ctx, ast.Load)
        for module in program.modules
        for node in module.attributes(name)
    ) or any(
        node.value == name for module in program.modules for node in module.nodes(ast.Constant)
    )


def is_made_here(program: Program) -> bool:
    """Whether the program sets the attribute to something else than a constant, under no test.

    What one branch sets, such as that of Slurm, leaves the ranks of a launcher without.
    """
    return any(
        isinstance(node.ctx, ast.Store)
        and isinstance(stmt := module.statement(node), ast.Assign)
        and not isinstance(stmt.value, ast.Constant | ast.UnaryOp)
        and not any(isinstance(up, ast.If) for up in module.ancestors(stmt))
        for module in program.modules
        for node in module.attributes("local_rank")
    )


def set_to_none(program: Program) -> list[tuple[Module, ast.Assign]]:
    """``self.local_rank = -1`` in a class of settings, where that is all that sets it."""
    found: list[tuple[Module, ast.Assign]] = []
    for module in program.modules:
        for node in module.attributes("local_rank"):
            stmt = module.statement(node)
            if isinstance(node.ctx, ast.Load) or not program.is_live(module, stmt):
                continue
            if not isinstance(stmt, ast.Assign) or module.text(stmt.value) != "-1":
                return []
            found.append((module, stmt))
    return found if program.calls_to("init_process_group") else []


def is_set_in_spawned(program: Program) -> bool:
    """Whether a process that the program spawns sets the attribute to its own number."""
    return any(
        is_spawned_number(program, module, stmt.value) or counts_processes(module, stmt)
        for module in program.modules
        for node in module.attributes("local_rank")
        if isinstance(node.ctx, ast.Store)
        for stmt in [module.statement(node)]
        if isinstance(stmt, ast.Assign)
    )


def counts_processes(module: Module, stmt: ast.Assign) -> bool:
    """Whether a value is the number in a loop that starts processes, and passes them the object.

    ``for rank in range(n): args.local_rank = rank; Process(target=train, args=(args,)).start()``
    """
    loop, target = module.parents[stmt], stmt.targets[0]
    return (
        isinstance(loop, ast.For)
        and isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and isinstance(stmt.value, ast.Name)
        and stmt.value.id in bound_names(loop.target)
        and any(
            module.last_name(call.func) == "Process" and mentions(call, target.value.id)
            for call in within(loop.body, ast.Call)
        )
    )


def is_told_elsewhere(program: Program, name: str) -> bool:
    """Whether nothing that is read asks for the option, or makes the group of the wrapper.

    What makes it may take the rank from the launcher.
    """
    return (
        not is_read(program, name)
        and bool(program.calls_to("DistributedDataParallel"))
        and not program.calls_to("init_process_group")
    )


def knows_its_rank(program: Program) -> bool:
    """Whether a program takes its rank from what a launcher or Slurm sets."""
    return any(
        node.value in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
        for module in program.modules
        for node in module.nodes(ast.Constant)
    )


def is_of_library(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether an object is what a call of a library that is not read returns, or of its class."""
    function = module.function(node)
    if isinstance(node, ast.Name) and function is not None:
        for each in everywhere(function.args, ast.arg):  # fabric: L.Fabric
            kind = each.annotation if each.arg == node.id else None
            if kind is not None and program.resolve(module, kind) is None:
                return any(name.id in module.aliases for name in everywhere(kind, ast.Name))
    value = module.definition(node, node) if isinstance(node, ast.Name) else node
    return (
        isinstance(value, ast.Call)
        and not program.callees(module, value)
        and any(name.id in module.aliases for name in everywhere(value.func, ast.Name))
    )


def is_asked_of_library(program: Program, module: Module, node: ast.Attribute) -> bool:
    """``hvd.local_rank()``: a function of an imported library, which nothing here has to set."""
    call = module.parents[node]
    return (
        isinstance(call, ast.Call)
        and call.func is node
        and isinstance(node.value, ast.Name)
        and node.value.id in module.aliases
        and not any(program.callees(module, call))
    )


def unexplained_local_rank(program: Program) -> Iterator[Finding]:
    """``x.local_rank`` where no statement shows where its value comes from."""
    for module in program.modules:
        for node in module.attributes("local_rank"):
            if not isinstance(node.ctx, ast.Load) or is_of_library(program, module, node.value):
                continue
            if is_asked_of_library(program, module, node):
                continue
            yield Finding(module, node, "nothing in the script shows where it is set")
            return
