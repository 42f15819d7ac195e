"""Loaders, transfers and kernels are tuned from the command line.

What         Every DataLoader takes its workers, pinned memory and prefetching from flags, and
             several ranks share the machine's cores; batches are copied to the GPU without
             blocking; the precision of float32 matrix products and the attention implementation of
             a transformers model can be chosen.
Flags        --dataloader_num_workers, --dataloader_pin_memory, --dataloader_persistent_workers,
             --dataloader_prefetch_factor (names of transformers' TrainingArguments),
             --matmul_precision, --attn_implementation
Without      Each of 8 ranks starts the 4 workers that were meant for one process, and starts them
             anew in every epoch; each copy of a batch holds the step up.
Fix safety   Safe: without the flags a single process uses the script's own options. A non-blocking
             copy is complete before the GPU computes with it.
Source       torch.utils.data.DataLoader; torch.set_float32_matmul_precision;
             transformers.PreTrainedModel.set_attn_implementation;
             https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

import ast
from collections.abc import Iterator

from ..analysis.settings.parsed_arguments import argument_sites, arguments_at
from ..analysis.training.constructed_loaders import loader_calls
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Import, Insert, Rewrite
from ..findings import Finding
from ..fixes.behind_binding import behind_binding
from ..source.module import Module
from ..source.tree import argument, bound_names, everywhere, last_argument, position, within
from .flags import Flag, missing_flag_findings
from .models import model_constructions
from .transformers_models import model_sites

ORDER = 40
FLAGS = (
    Flag("--dataloader_num_workers", "int", "None", "Processes that load, per rank and loader."),
    Flag("--dataloader_pin_memory", "int", "None", "1: batches wait in pinned memory.", ("0", "1")),
    Flag("--dataloader_persistent_workers", "int", "None", "1: loaders keep them.", ("0", "1")),
    Flag("--dataloader_prefetch_factor", "int", "None", "Batches that each of them holds ready."),
    Flag(
        "--matmul_precision",
        "str",
        "None",
        "Of float32 products: high and medium use the tensor cores.",
        ("highest", "high", "medium"),
    ),
)
ATTENTION = Flag(
    "--attn_implementation",
    "str",
    "None",
    "How transformers computes attention; its own choice unless given.",
    ("eager", "sdpa", "flash_attention_2"),
)
OWN = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
OPTIONS, CHOOSE = "loader_options", "choose_attention"
PRECISION = """\
if {args}.matmul_precision:
    torch.set_float32_matmul_precision({args}.matmul_precision)"""
ATTEND = """\
if {args}.attn_implementation:
    choose_attention({model}, {args}.attn_implementation)"""


def findings(program: Program) -> Iterator[Finding]:
    flags = missing_flag_findings(program, FLAGS)
    if flags is None:
        first = program.script.tree.body[0]
        yield Finding(program.script, first, "no command line that could take its flags")
        return
    yield from flags
    for module, call in loader_calls(program):
        if not program.is_live(module, call) or any(word.arg is None for word in call.keywords):
            continue
        args = arguments_at(program, module, call)
        if args:
            edits = tuple(_use_options_helper(module, call, args))
            yield Finding(module, call, "workers and pinned memory are fixed", edits)
        else:
            because = "the arguments do not reach this loader, which keeps its options"
            yield Finding(module, call, because)
    yield from _set_precision(program)
    yield from _choose_attention(program)
    yield from _non_blocking_copies(program)


def _use_options_helper(module: Module, call: ast.Call, args: str) -> Iterator[Edit]:
    """Edits that pass a loader's options through the helper that lets flags override them."""
    everything: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    arguments = sorted(everything, key=position)
    own = [word for word in call.keywords if word.arg in OWN]
    text = f"**{OPTIONS}({', '.join([args, *map(module.text, own)])})"
    yield Define(OPTIONS)
    if not own:
        last = last_argument(call)
        assert last is not None
        yield Rewrite(last, f", {text}", after=True)
        return
    yield Rewrite(own[0], text)
    for word in own[1:]:
        yield Rewrite(arguments[arguments.index(word) - 1], "", word, after=True)


def _set_precision(program: Program) -> Iterator[Finding]:
    """Findings that set the precision of matrix products after the command line is parsed."""
    if any(module.calls_to("set_float32_matmul_precision") for module in program.modules):
        return
    for module, stmt, args in argument_sites(program):
        because = "float32 products never use the tensor cores"
        yield Finding(
            module,
            stmt,
            because,
            (*behind_binding(module, stmt, args, PRECISION.format(args=args)), Import("torch")),
        )


def _choose_attention(program: Program) -> Iterator[Finding]:
    """Findings that choose the attention of transformers models after their construction."""
    found = [place for place in model_sites(program, model_constructions(program)) if place.args]
    if not found:
        because = "no transformers model is seen to be made: no --attn_implementation"
        yield Finding(program.script, program.script.tree.body[0], because)
        return
    yield from missing_flag_findings(program, (ATTENTION,)) or []
    for place in found:
        module, stmt = place.construction.module, place.construction.stmt
        models = [argument(call, 0, "model") for call in place.calls_after(CHOOSE)]
        chosen = {module.text(model) for model in models if model is not None}
        for name in place.names:
            if name not in chosen:
                code = ATTEND.format(args=place.args, model=name)
                because = f"{name} has the attention that transformers chooses"
                edits = (Insert(stmt, code, "after"), Define(CHOOSE))
                yield Finding(module, stmt, because, edits)


def _non_blocking_copies(program: Program) -> Iterator[Finding]:
    """Findings that make ``x.to(device)`` of a batch non-blocking."""
    loops = [(loop.module, loop.steps) for loop in program.train_loops]
    loops += [(evaluation.module, evaluation.loop) for evaluation in program.evaluations]
    seen: set[ast.Call] = set()  # an evaluation may be inside a train loop
    for module, loop in loops:
        batch_names = _batch_names(module, loop)
        for call in within(loop.body, ast.Call):
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr in ("to", "cuda")
                and len(call.args) == (call.func.attr == "to")
                and not call.keywords
                and all(_is_device(module, arg) for arg in call.args)
                and _root_names(call.func.value) & batch_names
                and call not in seen
            ):
                seen.add(call)
                because = "the host waits for each copy to the card"
                yield Finding(module, call, because, (_with_non_blocking(call),))


def _with_non_blocking(call: ast.Call) -> Rewrite:
    """The edit that adds ``non_blocking=True`` to a call."""
    if call.args:
        return Rewrite(call.args[-1], ", non_blocking=True", after=True)
    return Rewrite(call.func, "(non_blocking=True)", call, after=True)


def _is_device(module: Module, node: ast.expr) -> bool:
    """Whether an expression mentions a device, as opposed to a dtype."""
    return "device" in module.text(node).lower()


def _batch_names(module: Module, loop: ast.For | ast.While) -> set[str]:
    """The names of a batch, and of its parts in comprehensions of the loop."""
    found = bound_names(loop.target) if isinstance(loop, ast.For) else set()
    for stmt in within(loop.body, ast.Assign):
        if isinstance(stmt.value, ast.Call) and module.dotted(stmt.value.func) == "next":
            found |= bound_names(stmt)
    for part in within(loop.body, ast.comprehension):
        if _root_names(part.iter) & found:
            found |= bound_names(part.target)
    return found


def _root_names(node: ast.expr) -> set[str]:
    """``x`` in ``x``, ``x[0]`` and ``x.ids``; empty for other expressions."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {name.id for name in everywhere(node, ast.Name)} if isinstance(node, ast.Name) else set()
