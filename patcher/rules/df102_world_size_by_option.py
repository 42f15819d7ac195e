"""The world's size is an option that no launcher passes.

What         init_process_group() gets its world_size, rank or init_method from options of the
             command line, and nothing reads what torchrun and accelerate launch set.
At run time  Each rank of a launcher takes the world's size to be the default, 1: there is no group,
             and each trains a model of its own. With the option given, all of them are rank 0, or
             wait at an address that no launcher serves. It is right where each process is started
             by hand, with a rank of its own.
Example      args.distributed = args.world_size > 1
Fix          Under a launcher, take size, rank and card from the environment, right after parsing.
Fix safety   Safe: without a launcher the variables are absent and nothing changes. It wakes code
             that never ran, so it is applied together with the other fixes or not at all.
Source       https://docs.pytorch.org/docs/stable/elastic/run.html (environment variables)
"""

import ast
from collections.abc import Iterator

from ..analysis.effects.path_text import options_in
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.ranks.spawning import spawned_ranks
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import
from ..findings import Finding, Safety, Severity
from ..fixes.behind_binding import behind_binding
from ..fixes.process_group import READ_RANK
from ..source.module import Module
from ..source.tree import Function, argument, parameters

CODE, SEVERITY, SAFETY = "DF102", Severity.DEGRADED, Safety.SAFE

# Parameters of init_process_group, with their places and what ranks of a launcher pass for them.
PARAMETERS = {
    "world_size": (3, "int(os.environ['WORLD_SIZE'])"),
    "rank": (4, "int(os.environ['RANK'])"),
    "init_method": (1, "'env://'"),
}
MAX_CALLERS = 3
IN_LAUNCH = READ_RANK.partition("\n")[0]
SET_BY_LAUNCHERS = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK")


def findings(program: Program) -> Iterator[Finding]:
    if any(reads_environment(module) for module in program.modules) or [*spawned_ranks(program)]:
        return
    for module, call in program.calls_to("init_process_group"):
        options = {
            name: option
            for name, (place, _) in PARAMETERS.items()
            if (option := option_passed(program, module, call, place, name))
            if option != "local_rank"  # DF101 reads it, and it is the number of a card as well
        }
        if "world_size" in options and program.is_live(module, call):
            because = f"--{options['world_size']} keeps its default under torchrun"
            values = {option: PARAMETERS[name][1] for name, option in options.items()}
            values |= options_of_cards(program)
            yield Finding(module, call, because, taken_from_launcher(program, values))
            return


def reads_environment(module: Module) -> bool:
    """Whether a module takes rank or size from a launcher, and not only asks if there is one."""
    return any(
        node.value in SET_BY_LAUNCHERS and not isinstance(module.parents[node], ast.Compare)
        for node in module.nodes(ast.Constant)
    )


def option_passed(program: Program, module: Module, call: ast.Call, place: int, name: str) -> str:
    """The option of the command line that a call passes as it was given; or ""."""
    value = argument(call, place, name)
    return option_unset(program, module, value)


def option_unset(program: Program, module: Module, value: ast.expr | None, depth: int = 0) -> str:
    """The option of the command line that an expression is, and that nothing else sets; or "".

    Also of a parameter for which all callers pass the same one.
    """
    function = module.function(value) if isinstance(value, ast.Name) else None
    if isinstance(value, ast.Name) and isinstance(function, Function):
        if value.id not in parameters(function) or (function, value.id) in module.stores:
            return ""
        passed = {
            option_unset(program, where, given, depth + 1) if depth < MAX_CALLERS else ""
            for where, call in program.callers(function)
            for given in [argument_for_parameter(module, function, call, value.id)]
        }
        return passed.pop() if len(passed) == 1 else ""
    if not isinstance(value, ast.Attribute) or options_in(program, module, value) != [value]:
        return ""
    is_set = any(
        isinstance(node.ctx, ast.Store) and options_in(program, where, node)
        for where in program.modules
        for node in where.attributes(value.attr)
    )
    return "" if is_set else value.attr


def options_of_cards(program: Program) -> dict[str, str]:
    """Options that choose the card of a process, ``torch.cuda.set_device(int(args.gpu))``."""
    found: dict[str, str] = {}
    for module, call in program.calls_to("set_device"):
        card = argument(call, 0, "device")
        if isinstance(card, ast.Call) and module.text(card.func) == "int" and len(card.args) == 1:
            card = card.args[0]
        option = option_unset(program, module, card)
        if option and option != "local_rank":
            found[option] = "int(os.environ['LOCAL_RANK'])"
    return found


def taken_from_launcher(program: Program, values: dict[str, str]) -> tuple[Edit, ...]:
    """Edits that give options the values of a launcher's rank; none where they are not parsed."""
    if len({(module, args) for module, _, args in program.parse_sites}) != 1:
        return ()
    edits: list[Edit] = [Import("os")]
    for module, parse, args in program.parse_sites:
        lines = [f"    {args}.{option} = {value}" for option, value in values.items()]
        edits += behind_binding(module, parse, args, "\n".join([IN_LAUNCH, *lines]))
    return tuple(edits)
