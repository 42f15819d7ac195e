"""torch.compile: the trained model runs as generated code.

What         The model is compiled in place after it is wrapped: DistributedDataParallel then
             splits the code at its buckets, so that it reduces while the rest still runs.
Flags        --compile [MODE]: default, reduce-overhead, max-autotune, or the last without CUDA
             graphs; default where no mode is given
Without      Every operation is a kernel of its own, started from Python.
Fix safety   Safe: without the flag the call is not reached. With it sums are rounded differently
             and dropout draws other numbers. Parameters keep their names. The first step, and the
             first one with another input length, wait for the compiler; a CPU needs g++. Ranks
             evaluate on the model inside the wrapper, which is not compiled.
Source       https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (compile);
             https://docs.pytorch.org/docs/stable/notes/ddp.html (TorchDynamo DDPOptimizer)
"""

import ast
from collections.abc import Iterator

from ..analysis.language.binding_tests import binding_test
from ..analysis.ranks.rank_reach import differs_by_role
from ..analysis.settings.parsed_arguments import arguments_at
from ..analysis.training.program import Program
from ..editing.edits import Insert
from ..findings import Finding
from ..source.tree import precedes
from .errors import CannotError
from .flags import Flag, missing_flag_findings
from .models import DdpWrap, ddp_wraps

ORDER = 30
FLAGS = (
    Flag(
        "--compile",
        "str",
        "None",
        "Compile the model, in this mode of torch.compile.",
        ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
        constant='"default"',
    ),
)


def findings(program: Program) -> Iterator[Finding]:
    where, first = program.script, program.script.tree.body[0]
    found = [one for one in ddp_wraps(program) if is_for_training(program, one)]
    if not found:
        yield Finding(where, first, "no assignment wraps the trained model")
        return
    for one in found:
        for call in one.module.calls_to("compile"):
            if one.module.dotted(call.func) == "torch.compile":
                raise CannotError(one.module, call, "the script calls torch.compile itself")
    flags = missing_flag_findings(program, FLAGS)
    if flags is None or not all(arguments_at(program, one.module, one.stmt) for one in found):
        yield Finding(where, first, "no command line whose arguments reach the wrapping")
        return
    yield from flags
    for one in found:
        if not _is_compiled(one):
            mode = f"{arguments_at(program, one.module, one.stmt)}.{FLAGS[0].name}"
            place = _outermost_rank_test(one)
            bound = binding_test(one.module, place, one.name) if one.name.isidentifier() else ""
            if bound is None:
                raise CannotError(one.module, one.stmt, f"{one.name} may be unbound behind it")
            test = f"{bound} and {mode}" if bound else mode
            code = f"if {test}:\n    {one.name}.compile(mode={mode})"
            because = f"{one.name} is run operation by operation"
            yield Finding(one.module, one.stmt, because, (Insert(place, code, "after"),))


def is_for_training(program: Program, one: DdpWrap) -> bool:
    """Whether a model is wrapped for training, and not only for an evaluation."""
    function = one.module.function(one.stmt)
    return program.evaluation_of(one.module, one.stmt) is None or any(
        loop.module.function(loop.steps) is function for loop in program.train_loops
    )


def _outermost_rank_test(one: DdpWrap) -> ast.stmt:
    """The wrapping statement or the rank tests around it: a single process compiles as well."""
    outermost: ast.stmt = one.stmt
    for up in one.module.ancestors(one.stmt):
        if not (isinstance(up, ast.If) and differs_by_role(one.module, up.test)):
            break
        outermost = up
    return outermost


def _is_compiled(one: DdpWrap) -> bool:
    """Whether a wrapped model's ``compile`` method is called after the wrapping."""
    return any(
        isinstance(call.func, ast.Attribute)
        and one.module.text(call.func.value) == one.name
        and one.module.function(call) is one.module.function(one.stmt)
        and precedes(one.stmt, call)
        for call in one.module.calls_to("compile")
    )
