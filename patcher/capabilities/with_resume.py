"""Training is saved so that it can be interrupted anywhere and goes on exactly.

What         With a limit, every so many optimizer steps, and at the end, a checkpoint appears below
             OUTPUT/resumable/, whole or not at all, and the oldest beyond the limit goes. It holds
             the model, optimizer, scheduler and scaler, the random states of every rank, where
             training is, and what the loop carries: counters, best scores, lists of losses.
             With --resume training goes on from the one that was written last: the batches behind
             which a step is done are gone through without one, then all is as it was.
Flags        --save_total_limit N (0: off), --save_steps N, --resume
Without      What is interrupted begins again, or goes on from saved weights with other batches,
             other dropout and, often, a learning rate that starts anew.
Fix safety   Safe: without a limit nothing is written, without --resume nothing is read. The same
             world size goes on bit for bit; another one at the same global batch does what it
             would have done from the start, if the run was started by a launcher before, too: a
             lone process shuffles otherwise than ranks do. Lines that the script has appended to
             a log since the checkpoint are there twice. Workers of a loader that draw at random
             begin each epoch as they did, unless they are persistent.
             A resume of the script's own makes way where there is such a checkpoint.
Source       https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html;
             https://docs.pytorch.org/docs/stable/notes/randomness.html; os.replace
"""

import ast
import textwrap
from collections.abc import Iterator

from ...record import record
from ..analysis.program import Program
from ..analysis.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Insert, Rewrite
from ..findings import Finding
from ..fixes.grad_scaler import is_schedule
from ..source.module import Module
from ..source.tree import Function, bound_names, everywhere, keyword, within
from .errors import CannotError
from .flags import Flag, arguments_at, lacking, parsed_at
from .loop_state import LoopState, carried
from .models import models_of

ORDER = 60
EVERY, LIMIT, RESUME = FLAGS = (
    Flag("--save_steps", "int", "500", "Optimizer steps from one checkpoint to the next."),
    Flag(
        "--save_total_limit",
        "int",
        "0",
        "Keep so many checkpoints to resume from; 0 writes none.",
    ),
    Flag("--resume", "bool", "False", "Go on from the last of them, if there is one."),
)
HELPER, NAME = "Resumable", "resumable"
FOUND, CHOSEN = "resumable_checkpoints", "resumable_steps"
CALL, WIDTH = "\n" + " " * len(f"{NAME}.save("), 72  # where arguments go on, and end
OUTPUTS = ("output_dir", "out_dir", "save_dir", "output_path", "checkpoint_dir", "model_dir")
LOOKS = ("exists", "isdir", "isfile", "listdir")


@record
class ResumableLoop:
    """A train loop that can be resumed.

    ``outer`` is its outermost loop, ``epochs`` the loop around the steps; ``parts`` are models,
    optimizers and the like as the loop spells them. ``source`` is the iterator that the steps take
    their batches from, where they go through numbers.
    """

    loop: TrainLoop
    args: str
    output: str
    outer: ast.For
    epochs: ast.For | None
    steps: ast.For
    parts: tuple[str, ...]
    state: LoopState
    source: str


def findings(program: Program) -> Iterator[Finding]:
    where, first = program.script, program.script.tree.body[0]
    loops = [loop for loop in program.train_loops if program.is_live(loop.module, loop.steps)]
    if len(loops) != 1:
        because = f"it trains in {len(loops)} loops" if loops else "nothing in it trains"
        yield Finding(where, first, because)
        return
    (loop,) = loops
    added = bool(loop.module.calls_to(HELPER))
    training = None if added else understood(program, loop)
    known_flags(program)
    flags = lacking(program, FLAGS)
    if flags is None:
        yield Finding(where, first, "no command line that could take its flags")
        return
    yield from flags
    yield from steps_chosen(program)
    if training is not None:
        yield from makes_way(program, training)
        because = "an interrupted run cannot go on"
        yield Finding(loop.module, training.outer, because, tuple(edits(program, training)))


def known_flags(program: Program) -> None:
    """Raises CannotError where --resume is a flag of the script's own."""
    option = program.options.get(RESUME.name)
    if option is not None:
        action = keyword(option.call, "action")
        if action is None or ast.unparse(action.value) != "'store_true'":
            module = next(m for m in program.modules if option.call in m.parents)
            raise CannotError(
                module, module.statement(option.call), "--resume means something else here"
            )


# ---- what the script shows


def understood(program: Program, loop: TrainLoop) -> ResumableLoop:
    """What is to be saved and gone through. Raises CannotError with what stands in the way."""
    module, steps = loop.module, loop.steps
    if not isinstance(steps, ast.For):
        raise CannotError(
            module, steps, "its steps are a while loop, which may take batches from anywhere"
        )
    if loop.loader is None:
        raise CannotError(module, steps, "no one DataLoader that the steps go through is known")
    epochs, outer = loops_around(module, steps)
    function = module.function(steps)
    if function is not None:
        callers = [(w, call) for w, call in program.callers(function) if program.is_live(w, call)]
        if len(callers) > 1:
            raise CannotError(
                module, steps, f"{function.name}(), which trains, is called in two places"
            )
        if any(in_loop(where, call) for where, call in callers):
            raise CannotError(
                module, steps, f"{function.name}(), which trains, is called in a loop"
            )
    args = arguments_at(program, module, steps)
    output = next((name for name in OUTPUTS if program.has_argument(name)), "")
    if not (args and output):
        raise CannotError(module, steps, "no arguments with an output folder reach the loop")
    for sampler in (loop.loader.call, *loop.loader.samplers):
        for call in everywhere(sampler, ast.Call):
            if keyword(call, "generator"):
                raise CannotError(module, steps, "the loader shuffles by a generator of its own")
    models = models_of(program, loop)
    updating = updaters(module, outer)
    if not (models and updating):
        raise CannotError(module, steps, "nothing shows which model and optimizer the loop trains")
    whole_steps(module, loop, steps)
    source = iterator(module, loop, steps)
    state = carried(module, outer, epochs, steps, {*models, *updating, source, loop.step_name})
    state = without_caches(module, outer, state)
    for name, stmt in state.opaque:
        raise CannotError(module, stmt, f"the loop carries {name}, which no checkpoint can hold")
    return ResumableLoop(
        loop, args, output, outer, epochs, steps, (*models, *updating), state, source
    )


def loops_around(module: Module, steps: ast.For) -> tuple[ast.For | None, ast.For]:
    """The loop around the steps, and the outermost one."""
    around: list[ast.For] = []
    for up in module.ancestors(steps):
        if isinstance(up, Function):
            break
        if isinstance(up, ast.While):
            raise CannotError(module, up, "its epochs are counted in a while loop")
        if isinstance(up, ast.For):
            around.append(up)
    if len(around) > 2 or any(up.orelse for up in (steps, *around)):
        raise CannotError(module, steps, "its loops are nested too deeply, or have an else")
    if len(around) == 2 and around[0] is not around[1].body[-1]:
        raise CannotError(module, around[1], "something follows on several loaders in an epoch")
    return (around[0], around[-1]) if around else (None, steps)


def in_loop(module: Module, call: ast.Call) -> bool:
    """Whether a call stands in a loop of its function."""
    for up in module.ancestors(call):
        if isinstance(up, Function):
            return False
        if isinstance(up, ast.For | ast.While):
            return True
    return False


def updaters(module: Module, outer: ast.For) -> list[str]:
    """Optimizers, schedulers and scalers of a loop: what is stepped, and what a scaler steps."""
    stepped = [node for call, owner in step_calls(outer.body) for node in (*call.args, owner)]
    names = [module.text(node) for node in stepped if isinstance(node, ast.Name | ast.Attribute)]
    return list(dict.fromkeys(names))


def whole_steps(module: Module, loop: TrainLoop, steps: ast.For) -> None:
    """Raises CannotError where some batches are not stepped behind, and nothing says which."""
    if loop.step_test is not None:
        return
    for call, owner in step_calls(steps.body):
        if is_schedule(module, owner):
            continue
        child: ast.AST = call
        for up in module.ancestors(call):
            if up is steps:
                break
            if isinstance(up, ast.If):
                other = up.orelse if any(item is child for item in up.body) else up.body
                if not (other and step_calls(other)):
                    raise CannotError(
                        module, up, "not every batch is followed by an optimizer step"
                    )
            child = up


def step_calls(body: list[ast.stmt]) -> list[tuple[ast.Call, ast.expr]]:
    """Calls of ``x.step``, with what is stepped."""
    return [
        (call, call.func.value)
        for call in within(body, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step"
    ]


def iterator(module: Module, loop: TrainLoop, steps: ast.For) -> str:
    """The cycle that the steps take ``next`` of; the empty string where they go through batches."""
    loader = loop.loader
    assert loader is not None
    if loader.cycle is None:
        return ""
    taken = [call.args[0] for call in within(steps.body, ast.Call) if is_next(call)]
    names = {node.id for node in taken if isinstance(node, ast.Name)}
    if len(taken) != 1 or len(names) != 1:
        raise CannotError(module, steps, "batches come from more than one iterator")
    if loader.module.dotted(loader.cycle.func) != "itertools.cycle":
        raise CannotError(module, steps, "the cycle of batches may shuffle again in each round")
    return names.pop()


def is_next(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "next" and bool(call.args)


def without_caches(module: Module, outer: ast.For, state: LoopState) -> LoopState:
    """The same without dicts that are filled once, which a resumed run fills again."""
    caches = {name for name, _, _ in filled_once(module, outer)}
    return LoopState(
        tuple(name for name in state.through if name not in caches),
        state.of_epoch,
        tuple(item for item in state.opaque if item[0] not in caches),
    )


def filled_once(module: Module, outer: ast.For) -> Iterator[tuple[str, str, list[ast.stmt]]]:
    """Dicts that the loop fills where a key is not in them: name, key as text, and the block."""
    for test in within(outer.body, ast.If):
        match test.test:
            case ast.Compare(left=ast.Constant() as key, ops=[op], comparators=[ast.Name(id=name)]):
                block = {ast.In: test.orelse, ast.NotIn: test.body}.get(type(op), [])
                if any(fills(module, stmt, name, key) for stmt in block):
                    yield name, module.text(key), block


def fills(module: Module, stmt: ast.stmt, name: str, key: ast.Constant) -> bool:
    """``cache[key] = …``."""
    return isinstance(stmt, ast.Assign) and any(
        isinstance(target, ast.Subscript)
        and module.text(target.value) == name
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == key.value
        for target in stmt.targets
    )


# ---- what is added


def edits(program: Program, training: ResumableLoop) -> Iterator[Edit]:
    """The object that saves and restores, and its calls in the loops."""
    module, loop = training.loop.module, training.loop
    yield Define(HELPER)
    yield Insert(training.outer, beginning(program, training))
    through, of_epoch = listed(training.state.through), listed(training.state.of_epoch)
    if training.epochs is not None:
        iterable = training.epochs.iter
        yield Rewrite(iterable, f"{NAME}.epochs({module.text(iterable)})")
        if of_epoch:
            yield Insert(training.steps, restored(training.state.of_epoch, "epoch_values"))
    iterable = training.steps.iter
    arguments = ", ".join([module.text(iterable), *counting(training)])
    yield Rewrite(iterable, f"{NAME}.steps({arguments})")
    kept = [through or "[]", of_epoch] if of_epoch else [through]
    saving = f"{NAME}.save({f',{CALL}'.join(kept)})"
    test = loop.step_test
    if test is not None and test is training.steps.body[-1] and not test.orelse:
        yield Insert(test, saving, "last")
    elif test is not None:
        code = f"if {module.text(test.test)}:\n{textwrap.indent(saving, ' ' * 4)}"
        yield Insert(training.steps, code, "last")
    else:
        yield Insert(training.steps, saving, "last")
    finishing = f"{NAME}.finish({through})"
    yield Insert(training.outer, finishing, "after")
    for stmt in within(training.outer.body, ast.Return):
        yield Insert(stmt, finishing)
    yield from drawn_once(module, training.outer)


def listed(names: tuple[str, ...]) -> str:
    """A list of names as it stands in a call of save or finish."""
    lines = textwrap.wrap(", ".join(names), WIDTH)
    return f"[{f'{CALL} '.join(lines)}]" if names else ""


def restored(names: tuple[str, ...], method: str) -> str:
    """The statement that gives names what they had at the checkpoint."""
    lines = textwrap.wrap(", ".join(names), WIDTH)
    left = ", ".join(names) if len(lines) < 2 else "(" + "\n ".join(lines) + ")"
    left = f"({names[0]},)" if len(names) == 1 else left
    right = "\n    ".join(lines)
    line = "\n    " if len(lines) > 1 or len(left) + len(right) > WIDTH else ""
    return f"{left} = {NAME}.{method}({line}{right})"


def beginning(program: Program, training: ResumableLoop) -> str:
    """The object's construction, and what it restores before the loops."""
    args = training.args
    every = f"{args}.{CHOSEN if is_overwritten(program) else EVERY.name}"
    own = f"{args}.{training.output}, {args}.{LIMIT.name}, {every}, {args}.{RESUME.name}"
    parts = ", ".join(f"{keyed(text)}={text}" for text in training.parts)
    code = f"{NAME} = {HELPER}({own},\n{' ' * len(f'{NAME} = {HELPER}(')}{parts})"
    through = training.state.through
    return f"{code}\n{restored(through, 'values')}" if through else code


def keyed(text: str) -> str:
    """``self.optimizer`` as the name of an argument."""
    return text.removeprefix("self.").replace(".", "_")


def counting(training: ResumableLoop) -> list[str]:
    """Arguments that say how batches and optimizer steps belong together."""
    module, loop = training.loop.module, training.loop
    each = [] if loop.accumulation is None else [module.text(loop.accumulation)]
    if not training.source:
        return each
    loader = loop.loader
    assert loader is not None
    assert loader.cycle is not None
    found = [*(each or ["1"]), training.source]
    return [*found, f"len({module.text(loader.cycle.args[0])})"] if each else found


def drawn_once(module: Module, outer: ast.For) -> Iterator[Edit]:
    """Random samples that are kept in a cache: a resumed run draws the same ones again."""
    for _, key, block in filled_once(module, outer):
        for call in within(block, ast.Call):
            if module.dotted(call.func) in (
                "random.sample",
                "random.choices",
                "numpy.random.choice",
            ):
                yield Rewrite(call, f"{NAME}.drawn({key}, lambda: {module.text(call)})")


def is_overwritten(program: Program) -> bool:
    """Whether the program sets ``args.save_steps`` itself."""
    objects = {args for _, _, args in parsed_at(program)}
    return any(
        node.attr == EVERY.name
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and module.text(node.value).rpartition(".")[2] in objects | {"args"}
        for module in program.modules
        for node in module.nodes(ast.Attribute)
    )


def steps_chosen(program: Program) -> Iterator[Finding]:
    """Where the program overwrites --save_steps, what the user gave is kept."""
    if not is_overwritten(program) or any(
        node.attr == CHOSEN and isinstance(node.ctx, ast.Store)
        for module in program.modules
        for node in module.nodes(ast.Attribute)
    ):
        return
    for module, stmt, args in parsed_at(program):
        code = f"{args}.{CHOSEN} = {args}.{EVERY.name}  # which is overwritten below"
        because = f"{args}.{EVERY.name} is overwritten"
        yield Finding(module, stmt, because, (Insert(stmt, code, "after"),))


def makes_way(program: Program, training: ResumableLoop) -> Iterator[Finding]:
    """A resume of the script's own, and a refusal of what is in the output folder."""
    starts = attributes_read(training)
    ways: list[ast.If] = []
    for module in program.modules:
        for test in module.nodes(ast.If):
            args = arguments_at(program, module, test)
            if not args or not program.is_live(module, test) or not looks(test.test):
                continue
            if any(up in ways for up in module.ancestors(test)):
                continue
            text = module.text(test.test)
            if any(isinstance(stmt, ast.Raise) for stmt in test.body):
                code = f"{ored(text, test.test)} and not {args}.{RESUME.name}"
                because = "--resume goes on in a folder that is not empty"
                yield Finding(module, test, because, (Rewrite(test.test, code),))
            elif sets(test, starts):
                there = f"{args}.{RESUME.name} and {FOUND}({args}.{training.output})"
                code = f"not ({there}) and {ored(text, test.test)}"
                because = "a resume of the script's own would begin elsewhere"
                change = Rewrite(test.test, code)
                ways.append(test)
                yield Finding(module, test, because, (change, Define(FOUND)))


def ored(text: str, test: ast.expr) -> str:
    """The text of a test as a part of a conjunction."""
    loose = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
    return f"({text})" if loose or isinstance(test, ast.IfExp | ast.Lambda) else text


def looks(test: ast.expr) -> bool:
    """Whether a test asks for files."""
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr in LOOKS
        for call in everywhere(test, ast.Call)
    )


def sets(test: ast.If, attributes: set[str]) -> bool:
    """Whether the branch sets one of these attributes."""
    return any(
        isinstance(target, ast.Attribute) and target.attr in attributes
        for stmt in within(test.body, ast.Assign)
        for target in stmt.targets
    )


def attributes_read(training: ResumableLoop) -> set[str]:
    """Attributes that epochs and counters start from: ``start_epoch``, ``start_step``."""
    module, found = training.loop.module, set[str]()
    values = [training.outer.iter]
    values += module.alternatives(training.outer.iter, training.outer)
    for name in training.state.through:
        for stmt in within(module.scope_statements(training.outer), ast.Assign):
            if stmt.lineno < training.outer.lineno and name in bound_names(stmt):
                values.append(stmt.value)
    for value in values:
        found |= {node.attr for node in everywhere(value, ast.Attribute)}
    return found - {"inf"}
