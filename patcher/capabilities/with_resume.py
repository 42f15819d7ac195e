"""Training is saved so that it can be interrupted anywhere and goes on exactly.

What         With --save_total_limit a checkpoint is written to OUTPUT/resumable/ every --save_steps
             optimizer steps and at the end, whole or not at all, and the oldest beyond the limit is
             deleted. It holds the model, optimizer, scheduler and scaler, the random states of
             every rank, the position in the training, and what the loop carries: counters, best
             scores, lists of losses. With --resume training continues from the latest checkpoint:
             batches that were already trained on are skipped, then all state is restored.
Flags        --save_total_limit N (0: off), --save_steps N, --resume
Without      What is interrupted begins again, or goes on from saved weights with other batches,
             other dropout and, often, a learning rate that starts anew.
Fix safety   Safe: without a limit nothing is written, without --resume nothing is read. With the
             same world size training continues bit for bit. Another world size at the same global
             batch does what it would have done from the start, provided the first run was started
             by a launcher too: a single process shuffles differently from ranks. Lines that the
             script appended to a log after the checkpoint appear twice. Loader workers that draw
             random numbers start each epoch as before, unless they are persistent. The script's own
             way to resume is skipped where there is such a checkpoint.
Source       https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html;
             https://docs.pytorch.org/docs/stable/notes/randomness.html; os.replace
"""

import ast
import textwrap
from collections.abc import Iterator

from ...record import record
from ..analysis.settings.parsed_arguments import argument_sites, arguments_at
from ..analysis.training.program import Program
from ..analysis.training.schedules import is_schedule
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Insert, Rewrite
from ..findings import Finding
from ..fixes.behind_binding import behind_binding
from ..source.module import Module
from ..source.tree import (
    Function,
    bound_names,
    everywhere,
    keyword,
    precedes,
    within,
)
from .errors import CannotError
from .flags import Flag, missing_flag_findings
from .loop_state import LoopState, find_loop_state
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
CALL, WIDTH = "\n" + " " * len(f"{NAME}.save("), 72  # indentation and width of wrapped arguments
OUTPUTS = ("output_dir", "out_dir", "save_dir", "output_path", "checkpoint_dir", "model_dir")
LOOKS = ("exists", "isdir", "isfile", "listdir")


@record
class ResumableLoop:
    """A train loop that can be resumed."""

    loop: TrainLoop
    args: str  # the name of the parsed arguments
    output: str  # their attribute with the output folder
    outer: ast.For  # the outermost loop
    epochs: ast.For | None  # the loop around the steps
    steps: ast.For
    parts: tuple[str, ...]  # models, optimizers and the like, as source text
    state: LoopState
    source: str  # the iterator that batches are taken from with ``next``, or empty


def findings(program: Program) -> Iterator[Finding]:
    where, first = program.script, program.script.tree.body[0]
    loops = [loop for loop in program.train_loops if program.is_live(loop.module, loop.steps)]
    if len(loops) != 1:
        because = f"it trains in {len(loops)} loops" if loops else "nothing in it trains"
        yield Finding(where, first, because)
        return
    (loop,) = loops
    added = bool(loop.module.calls_to(HELPER))
    training = None if added else _analyze_loop(program, loop)
    _check_own_resume_flag(program)
    flags = missing_flag_findings(program, FLAGS)
    if flags is None:
        yield Finding(where, first, "no command line that could take its flags")
        return
    yield from flags
    yield from _keep_given_save_steps(program)
    if training is not None:
        yield from _disable_own_resume(program, training)
        because = "an interrupted run cannot go on"
        yield Finding(loop.module, training.outer, because, tuple(_resume_edits(program, training)))


def _check_own_resume_flag(program: Program) -> None:
    """Raise CannotError if the script has its own --resume with another meaning."""
    option = program.options.get(RESUME.name)
    if option is not None and not option.is_switch:
        module = program.module_of(option.call)
        raise CannotError(
            module, module.statement(option.call), "--resume means something else here"
        )


# ---- what the script shows


def _analyze_loop(program: Program, loop: TrainLoop) -> ResumableLoop:
    """What has to be saved and restored. Raises CannotError if the loop cannot be resumed."""
    module, steps = loop.module, loop.steps
    if not isinstance(steps, ast.For):
        raise CannotError(
            module, steps, "its steps are a while loop, which may take batches from anywhere"
        )
    if loop.loader is None:
        raise CannotError(module, steps, "no one DataLoader that the steps go through is known")
    epochs, outer = _loops_around(module, steps)
    function = module.function(steps)
    if function is not None:
        callers = [(w, call) for w, call in program.callers(function) if program.is_live(w, call)]
        if len(callers) > 1:
            raise CannotError(
                module, steps, f"{function.name}(), which trains, is called in two places"
            )
        if any(_is_in_loop(where, call) for where, call in callers):
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
    stepped = _stepped_objects(module, outer)
    if not (models and stepped):
        raise CannotError(module, steps, "nothing shows which model and optimizer the loop trains")
    _check_every_batch_steps(module, loop, steps)
    source = _batch_iterator(module, loop, steps)
    state = find_loop_state(
        module, outer, epochs, steps, {*models, *stepped, source, loop.step_name}
    )
    state = _without_caches(module, outer, state)
    for name, stmt in state.opaque:
        raise CannotError(module, stmt, f"the loop carries {name}, which no checkpoint can hold")
    return ResumableLoop(
        loop, args, output, outer, epochs, steps, (*models, *stepped), state, source
    )


def _loops_around(module: Module, steps: ast.For) -> tuple[ast.For | None, ast.For]:
    """The loop directly around the steps, and the outermost one."""
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


def _is_in_loop(module: Module, call: ast.Call) -> bool:
    """Whether a call is inside a loop of its function."""
    for up in module.ancestors(call):
        if isinstance(up, Function):
            return False
        if isinstance(up, ast.For | ast.While):
            return True
    return False


def _stepped_objects(module: Module, outer: ast.For) -> list[str]:
    """A loop's optimizers, schedulers and scalers: all ``x`` and arguments of ``x.step()``."""
    stepped = [node for call, owner in _step_calls(outer.body) for node in (*call.args, owner)]
    names = [module.text(node) for node in stepped if isinstance(node, ast.Name | ast.Attribute)]
    return list(dict.fromkeys(names))


def _check_every_batch_steps(module: Module, loop: TrainLoop, steps: ast.For) -> None:
    """Raise CannotError if some batches get no optimizer step, without an accumulation test."""
    if loop.step_test is not None:
        return
    for call, owner in _step_calls(steps.body):
        if is_schedule(module, owner):
            continue
        child: ast.AST = call
        for up in module.ancestors(call):
            if up is steps:
                break
            if isinstance(up, ast.If):
                other = up.orelse if any(item is child for item in up.body) else up.body
                if not (other and _step_calls(other)):
                    raise CannotError(
                        module, up, "not every batch is followed by an optimizer step"
                    )
            child = up


def _step_calls(body: list[ast.stmt]) -> list[tuple[ast.Call, ast.expr]]:
    """The calls ``x.step(…)``, each with ``x``."""
    return [
        (call, call.func.value)
        for call in within(body, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "step"
    ]


def _batch_iterator(module: Module, loop: TrainLoop, steps: ast.For) -> str:
    """The name of the cycle that steps call ``next`` on; empty if they iterate over batches."""
    loader = loop.loader
    assert loader is not None
    if loader.cycle is None:
        return ""
    taken = [call.args[0] for call in within(steps.body, ast.Call) if _is_next(call)]
    names = {node.id for node in taken if isinstance(node, ast.Name)}
    if len(taken) != 1 or len(names) != 1:
        raise CannotError(module, steps, "batches come from more than one iterator")
    if loader.module.dotted(loader.cycle.func) != "itertools.cycle":
        raise CannotError(module, steps, "the cycle of batches may shuffle again in each round")
    return names.pop()


def _is_next(call: ast.Call) -> bool:
    """Whether a call is ``next(…)``."""
    return isinstance(call.func, ast.Name) and call.func.id == "next" and bool(call.args)


def _without_caches(module: Module, outer: ast.For, state: LoopState) -> LoopState:
    """The state without caches, which a resumed run fills again."""
    caches = {name for name, _, _ in _caches(module, outer)}
    return LoopState(
        tuple(name for name in state.through if name not in caches),
        state.of_epoch,
        tuple(item for item in state.opaque if item[0] not in caches),
    )


def _caches(module: Module, outer: ast.For) -> Iterator[tuple[str, str, list[ast.stmt]]]:
    """Dicts filled under ``if key not in cache``: name, key as source text, and that block."""
    for test in within(outer.body, ast.If):
        match test.test:
            case ast.Compare(left=ast.Constant() as key, ops=[op], comparators=[ast.Name(id=name)]):
                block = {ast.In: test.orelse, ast.NotIn: test.body}.get(type(op), [])
                if any(_fills(module, stmt, name, key) for stmt in block):
                    yield name, module.text(key), block


def _fills(module: Module, stmt: ast.stmt, name: str, key: ast.Constant) -> bool:
    """Whether a statement is ``cache[key] = …``."""
    return isinstance(stmt, ast.Assign) and any(
        isinstance(target, ast.Subscript)
        and module.text(target.value) == name
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == key.value
        for target in stmt.targets
    )


# ---- the edits


def _resume_edits(program: Program, training: ResumableLoop) -> Iterator[Edit]:
    """Edits that add the object which saves and restores, and its calls in the loops."""
    module, loop = training.loop.module, training.loop
    yield Define(HELPER)
    yield Insert(training.outer, _construction(program, training))
    through, of_epoch = _as_list(training.state.through), _as_list(training.state.of_epoch)
    if training.epochs is not None:
        iterable = training.epochs.iter
        yield Rewrite(iterable, f"{NAME}.epochs({module.text(iterable)})")
        if of_epoch:
            yield Insert(
                training.steps, _restore_statement(training.state.of_epoch, "epoch_values")
            )
    iterable = training.steps.iter
    arguments = ", ".join([module.text(iterable), *_step_arguments(training)])
    yield Rewrite(iterable, f"{NAME}.steps({arguments})")
    names = [through or "[]", of_epoch] if of_epoch else [through]
    saving = f"{NAME}.save({f',{CALL}'.join(names)})"
    test = loop.step_test
    if test is not None and test is training.steps.body[-1] and not test.orelse:
        yield Insert(test, saving, "last")
    elif test is not None:
        asked = f"not ({module.text(test.test)})" if loop.steps_in_else else module.text(test.test)
        code = f"if {asked}:\n{textwrap.indent(saving, ' ' * 4)}"
        yield Insert(training.steps, code, "last")
    else:
        yield Insert(training.steps, saving, "last")
    finishing = f"{NAME}.finish({through})"
    yield Insert(training.outer, finishing, "after")
    for stmt in within(training.outer.body, ast.Return):
        yield Insert(stmt, finishing)
    yield from _repeatable_draws(module, training.outer)


def _as_list(names: tuple[str, ...]) -> str:
    """A list of names, wrapped as an argument of ``save`` or ``finish``."""
    lines = textwrap.wrap(", ".join(names), WIDTH)
    return f"[{f'{CALL} '.join(lines)}]" if names else ""


def _restore_statement(names: tuple[str, ...], method: str) -> str:
    """The statement that restores names from the checkpoint."""
    lines = textwrap.wrap(", ".join(names), WIDTH)
    left = ", ".join(names) if len(lines) < 2 else "(" + "\n ".join(lines) + ")"
    left = f"({names[0]},)" if len(names) == 1 else left
    right = "\n    ".join(lines)
    line = "\n    " if len(lines) > 1 or len(left) + len(right) > WIDTH else ""
    return f"{left} = {NAME}.{method}({line}{right})"


def _construction(program: Program, training: ResumableLoop) -> str:
    """The object's construction, and the statement that restores names before the loops."""
    args = training.args
    every = f"{args}.{CHOSEN if _is_overwritten(program) else EVERY.name}"
    own = f"{args}.{training.output}, {args}.{LIMIT.name}, {every}, {args}.{RESUME.name}"
    parts = ", ".join(f"{_as_keyword(text)}={text}" for text in training.parts)
    code = f"{NAME} = {HELPER}({own},\n{' ' * len(f'{NAME} = {HELPER}(')}{parts})"
    through = training.state.through
    return f"{code}\n{_restore_statement(through, 'values')}" if through else code


def _as_keyword(text: str) -> str:
    """``self.optimizer`` as the name of a keyword argument."""
    return text.removeprefix("self.").replace(".", "_")


def _step_arguments(training: ResumableLoop) -> list[str]:
    """Arguments of ``steps`` about accumulation and the iterator of batches."""
    module, loop = training.loop.module, training.loop
    each = [] if loop.accumulation is None else [module.text(loop.accumulation)]
    if not training.source:
        return each
    loader = loop.loader
    assert loader is not None
    assert loader.cycle is not None
    found = [*(each or ["1"]), training.source]
    return [*found, f"len({module.text(loader.cycle.args[0])})"] if each else found


def _repeatable_draws(module: Module, outer: ast.For) -> Iterator[Edit]:
    """Edits that let a resumed run draw the same random samples for a cache."""
    for _, key, block in _caches(module, outer):
        for call in within(block, ast.Call):
            if module.dotted(call.func) in (
                "random.sample",
                "random.choices",
                "numpy.random.choice",
            ):
                yield Rewrite(call, f"{NAME}.drawn({key}, lambda: {module.text(call)})")


def _is_overwritten(program: Program) -> bool:
    """Whether the program sets ``args.save_steps`` itself."""
    objects = {args for _, _, args in argument_sites(program)}
    return any(
        node.attr == EVERY.name
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and module.text(node.value).rpartition(".")[2] in objects | {"args"}
        for module in program.modules
        for node in module.nodes(ast.Attribute)
    )


def _keep_given_save_steps(program: Program) -> Iterator[Finding]:
    """Findings that keep the user's --save_steps where the program overwrites it."""
    if not _is_overwritten(program) or any(
        node.attr == CHOSEN and isinstance(node.ctx, ast.Store)
        for module in program.modules
        for node in module.nodes(ast.Attribute)
    ):
        return
    for module, stmt, args in argument_sites(program):
        code = f"{args}.{CHOSEN} = {args}.{EVERY.name}  # which is overwritten below"
        because = f"{args}.{EVERY.name} is overwritten"
        yield Finding(module, stmt, because, behind_binding(module, stmt, args, code))


def _disable_own_resume(program: Program, training: ResumableLoop) -> Iterator[Finding]:
    """Findings that skip the script's own resuming and its refusal of a non-empty folder."""
    starts = _start_attributes(training)
    own_resumes: list[ast.If] = []
    for module in program.modules:
        for test in module.nodes(ast.If):
            args = arguments_at(program, module, test)
            if not args or not program.is_live(module, test) or not _looks_for_files(test.test):
                continue
            if any(up in own_resumes for up in module.ancestors(test)):
                continue
            text = module.conjunct(test.test)
            if any(isinstance(stmt, ast.Raise) for stmt in test.body):
                code = f"{text} and not {args}.{RESUME.name}"
                because = "--resume goes on in a folder that is not empty"
                yield Finding(module, test, because, (Rewrite(test.test, code),))
            elif _sets_attribute(test, starts):
                there = f"{args}.{RESUME.name} and {FOUND}({args}.{training.output})"
                code = f"not ({there}) and {text}"
                because = "a resume of the script's own would begin elsewhere"
                change = Rewrite(test.test, code)
                own_resumes.append(test)
                yield Finding(module, test, because, (change, Define(FOUND)))


def _looks_for_files(test: ast.expr) -> bool:
    """Whether a test looks for files."""
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr in LOOKS
        for call in everywhere(test, ast.Call)
    )


def _sets_attribute(test: ast.If, attributes: set[str]) -> bool:
    """Whether the branch assigns one of these attributes."""
    return any(
        isinstance(target, ast.Attribute) and target.attr in attributes
        for stmt in within(test.body, ast.Assign)
        for target in stmt.targets
    )


def _start_attributes(training: ResumableLoop) -> set[str]:
    """Attributes that epochs and counters start from, such as ``start_epoch``."""
    module, found = training.loop.module, set[str]()
    values = [training.outer.iter]
    values += module.alternatives(training.outer.iter, training.outer)
    for name in training.state.through:
        for stmt in within(module.scope_statements(training.outer), ast.Assign):
            if precedes(stmt, training.outer) and name in bound_names(stmt):
                values.append(stmt.value)
    for value in values:
        found |= {node.attr for node in everywhere(value, ast.Attribute)}
    return found - {"inf"}
