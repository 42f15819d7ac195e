"""The process group works on one kind of machine only, and is left behind.

What         The back end is the literal nccl, --no_cuda skips the set-up while later tests still
             expect a group, DDP is given a card unconditionally, an evaluation names card 0, no
             time-out is set, or nothing destroys the group. A note for what is right on cards.
At run time  On a CPU machine (or with --no_cuda) the ranks crash; an evaluation longer than the
             default time-out kills the job; torch warns of leaked resources at every exit.
Example      torch.distributed.init_process_group(backend='nccl')
Fix          Choose card and back end by what the machine has, set a time-out, let DDP find the
             device on a CPU, destroy the group after main().
Fix safety   Safe: every edited line runs in a process group only. Code that asserts
             torch.cuda.is_available() keeps its back end and its cards.
Source       https://docs.pytorch.org/docs/stable/distributed.html
"""

import ast
from collections.abc import Iterator

from ..analysis.language.conditions import condition, tests_that_hold
from ..analysis.language.liveness import entry_points
from ..analysis.language.process_exits import exit_call, runs_command
from ..analysis.ranks.rank_reach import is_rank_test
from ..analysis.training.program import Program
from ..editing.edits import Edit, Guard, Import, Insert, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.evaluated_modules import is_plain_object
from ..fixes.process_group import arguments_name, on_cuda_test, one_hour, use_cuda_test
from ..fixes.statements import arguments_in_order, main_guard, without_arguments
from ..source.module import Module
from ..source.tree import (
    argument,
    everywhere,
    is_annotation,
    is_within,
    keyword,
    last_argument,
    position,
    within,
)

CODE, SEVERITY, SAFETY = "DF202", Severity.ERROR, Safety.SAFE

DESTROY = """\
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()"""
COMMAND = """\
try:
    {}
except SystemExit as ended:  # a command ends the process itself
    if not ended.code and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    raise"""


def findings(program: Program) -> Iterator[Finding]:
    groups = program.calls_to("init_process_group")
    needs_cards = insists_on_cards(program)
    for module, call in groups:
        yield from skipped_setup(module, call)
        if not needs_cards:
            yield from nccl_only(program, module, call)
        yield from missing_timeout(module, call)
    if not groups:
        return
    yield from fixed_card(program)
    for module in program.modules:
        yield from cuda_tensor_types(module)
    for module in () if needs_cards else program.modules:
        yield from ddp_on_cpu(program, module)
    if not program.calls_to("destroy_process_group"):
        yield from missing_destroy(program.script)


def insists_on_cards(program: Program) -> bool:
    """``assert torch.cuda.is_available()``: nothing behind it is for a machine without cards."""
    return any(
        isinstance(stmt, ast.Assert)
        and stmt.test is call
        and module.dotted(call.func) == "torch.cuda.is_available"
        and module is program.script
        and program.is_live(module, stmt)
        and not any(isinstance(up, ast.If) for up in module.ancestors(stmt))
        for module, call in program.calls_to("is_available")
        for stmt in [module.statement(call)]
    )


def skipped_setup(module: Module, call: ast.Call) -> Iterator[Finding]:
    """``if local_rank == -1 or no_cuda: … else: init_process_group``."""
    for up in module.ancestors(call):
        if not isinstance(up, ast.If):
            continue
        asked = condition(module, up)
        if not isinstance(asked.test, ast.BoolOp):
            continue
        ranks = [part for part in asked.test.values if is_rank_test(module, part)]
        if (
            isinstance(asked.test.op, ast.Or)
            and ranks
            and len(ranks) < len(asked.test.values)
            and is_within(call, asked.orelse)
        ):
            yield Finding(
                module,
                up,
                f"{module.text(asked.test)}: no group with --no_cuda, yet later tests expect one",
                (Rewrite(asked.test, " or ".join(map(module.conjunct, ranks))),),
            )


def nccl_only(program: Program, module: Module, call: ast.Call) -> Iterator[Finding]:
    """``init_process_group(backend="nccl")``, with the card chosen in the same block."""
    backend = argument(call, 0, "backend")
    if not (isinstance(backend, ast.Constant) and backend.value == "nccl"):
        return
    if any("cuda.is_available" in module.text(test) for test in tests_that_hold(module, call)):
        return
    init = module.statement(call)
    block = module.body(init)
    edits: list[Edit] = [Rewrite(backend, f"{module.text(backend)} if use_cuda else 'gloo'")]
    first = init
    for stmt in block[: block.index(init)]:
        if any(is_within(chosen, stmt) for chosen in module.calls_to("set_device")):
            edits.append(Guard(stmt, "use_cuda"))
            first = min(first, stmt, key=position)
    for stmt in block:
        if isinstance(stmt, ast.Assign) and is_cuda_device(module, stmt.value):
            text = f"{module.text(stmt.value)} if use_cuda else torch.device('cpu')"
            edits.append(Rewrite(stmt.value, text))
            first = min(first, stmt, key=position)
    args = arguments_name(program, module, first)
    test = use_cuda_test(program, args)
    edits.append(Insert(first, f"use_cuda = {test}"))
    edits += [Import("torch")] if "torch." in test else []
    because = "the back end is nccl whatever the machine has"
    yield Finding(module, call, because, tuple(edits), severity=severity_of(program))


def severity_of(program: Program) -> Severity:
    """An error where the script has a flag for machines without cards, which fails then.

    Else it is meant for cards, and right on them.
    """
    return Severity.ERROR if program.has_argument("no_cuda") else Severity.NOTE


def is_cuda_device(module: Module, node: ast.expr) -> bool:
    """``torch.device("cuda", …)``, with a literal for the kind of device."""
    if not isinstance(node, ast.Call) or module.dotted(node.func) != "torch.device":
        return False
    kind = argument(node, 0, "type", "device")
    return isinstance(kind, ast.Constant | ast.JoinedStr) and "cuda" in module.text(kind)


def missing_timeout(module: Module, call: ast.Call) -> Iterator[Finding]:
    last = last_argument(call)
    if any(word.arg is None for word in call.keywords):
        return  # **options may have one
    if keyword(call, "timeout") is None and last is not None:
        timeout, needed = one_hour(module)
        yield Finding(
            module,
            call,
            "no time-out is set: 10 minutes under nccl, also for a wait while rank 0 writes",
            (
                Rewrite(last, f", timeout={timeout}", after=True),
                needed,
            ),
            severity=Severity.NOTE,
        )


def ddp_on_cpu(program: Program, module: Module) -> Iterator[Finding]:
    """``device_ids`` and ``output_device``, which DDP refuses for a module on the CPU."""
    for call in module.calls_to("DistributedDataParallel"):
        ids = argument(call, 1, "device_ids")
        if not isinstance(ids, ast.List) or is_for_cards(module, call):
            continue
        test = on_cuda_test(program, (module, call))
        edits: list[Edit] = [Rewrite(ids, f"{module.text(ids)} if {test} else None")]
        edits += [Import("torch")] if test.startswith("torch.") else []
        output = argument(call, 2, "output_device")
        if output is not None:
            edits += without_argument(call, output)
        because = "device_ids names a card on a machine without one"
        yield Finding(module, call, because, tuple(edits), severity=severity_of(program))


def is_for_cards(module: Module, node: ast.AST) -> bool:
    """Whether a test that holds here says that the device is of the kind cuda."""
    tests = list(tests_that_hold(module, node))
    parts = [part for test in tests if isinstance(test, ast.BoolOp) for part in test.values]
    both = all(isinstance(test.op, ast.And) for test in tests if isinstance(test, ast.BoolOp))
    return any(
        isinstance(compare, ast.Compare)
        and isinstance(compare.ops[0], ast.Eq)
        and module.text(compare.comparators[0]).strip("'\"") == "cuda"
        for compare in (*tests, *(parts if both else ()))
    )


def without_argument(call: ast.Call, value: ast.expr) -> Iterator[Rewrite]:
    """The edit that takes an argument out; it leaves None where others follow by position."""
    words = arguments_in_order(call)
    index = next(i for i, word in enumerate(words) if value in (word, getattr(word, "value", None)))
    if value in call.args[:-1]:
        yield Rewrite(value, "None")
    else:
        yield from without_arguments(words, [index])


def fixed_card(program: Program) -> Iterator[Finding]:
    """``local_rank = 0`` and ``x.to(local_rank)`` in an evaluation that every rank will run."""
    for evaluation in program.evaluations:
        module, function = evaluation.module, evaluation.function
        for call in within(evaluation.loop if function is None else function.body, ast.Call):
            if not (isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda")):
                continue
            card = argument(call, 0, "device")
            if isinstance(card, ast.Name):
                card = module.single_assignment(function, card.id)
            if isinstance(card, ast.Constant) and type(card.value) is int:
                device = f"next({evaluation.model}.parameters()).device"
                because = (
                    f"every rank but the first has its model on another card than {card.value}"
                )
                edits = () if is_plain_object(program, evaluation) else (Rewrite(card, device),)
                yield Finding(module, call, because, edits)


def cuda_tensor_types(module: Module) -> Iterator[Finding]:
    """``torch.cuda.LongTensor(1)`` and ``self.tt = torch.cuda``, which fail without a card."""
    for node in module.attributes("cuda"):
        parent = module.parents[node]
        is_type = isinstance(parent, ast.Attribute) and parent.attr.endswith("Tensor")
        is_alias = isinstance(parent, ast.Assign) and parent.value is node
        if not (is_type or is_alias) or module.dotted(node) != "torch.cuda":
            continue
        owner = module.enclosing_class(node)
        if owner is not None and any(module.last_name(base) == "Function" for base in owner.bases):
            continue  # a kernel of its own, for cards only
        if is_under_cuda_test(module, node) or is_annotation(parent):
            continue
        text = f"{module.text(node)} if torch.cuda.is_available() else torch"
        yield Finding(
            module,
            node,
            "its tensors are a card's, also on a machine without one",
            (Rewrite(node, f"({text})" if is_type else text),),
            severity=Severity.DEGRADED,
        )


def is_under_cuda_test(module: Module, node: ast.AST) -> bool:
    """Whether a test around ``node`` mentions cuda."""
    tests = (up.test for up in module.ancestors(node) if isinstance(up, ast.If | ast.IfExp))
    return any("cuda" in module.text(test) for test in tests)


def missing_destroy(module: Module) -> Iterator[Finding]:
    guard = main_guard(module)
    # Without a main guard the program ends with the last line of the file, or of what is called.
    called = [] if guard else entry_points(module)
    anchor = called[-1].body[-1] if called else guard or module.tree.body[-1]
    ends = Insert(anchor, DESTROY, "last" if guard else "after")
    if isinstance(anchor, ast.Return):
        ends = Insert(anchor, DESTROY)
    edits: tuple[Edit, ...] = (ends,)
    end = guard.body[-1] if guard else anchor
    if (status := exit_status(module, end)) is not None:
        edits = before_exit(module, end, status)
    elif runs_command(module, end):
        edits = (Replace(end, COMMAND.format(module.text(end))),)
    yield Finding(
        module,
        anchor,
        "the process group is never destroyed",
        (*edits, Import("torch")),
        severity=Severity.NOTE,
    )


def exit_status(module: Module, stmt: ast.stmt) -> ast.Call | None:
    """The call of a statement that ends the process: ``sys.exit(main())``."""
    call = exit_call(module, stmt)
    return call if call is not None and len(call.args) < 2 and not call.keywords else None


def before_exit(module: Module, stmt: ast.stmt, status: ast.Call) -> tuple[Edit, ...]:
    """Edits that destroy the group before a statement that exits, behind what it calls."""
    if not any(everywhere(each, ast.Call) for each in status.args):
        return (Insert(stmt, DESTROY),)
    name = "exit_status" if module.spells("status") else "status"
    (result,) = status.args
    text = module.text(result)
    code = f"{name} = {f'({text})' if chr(10) in text else text}\n{DESTROY}"
    return (Insert(stmt, code), Rewrite(result, name))
