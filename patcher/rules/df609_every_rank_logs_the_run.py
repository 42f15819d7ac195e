"""Every rank logs the run.

What         A SummaryWriter, or an object of a class below it, or a Logger of tensorboard_logger or
             FileWriter of tensorflow, that every rank makes and writes to, or a wandb.init that
             every rank calls, or the start of a run of mlflow, comet_ml, neptune, clearml, aim,
             swanlab, trackio, dvclive or sacred's files; or a Visdom.
At run time  N event files in one folder, which TensorBoard draws as one curve that jumps back and
             forth between the ranks' losses; N runs of Weights & Biases for one training.
Example      writer = SummaryWriter(args.log_dir)
Fix          Ranks other than 0 write to a temporary folder, and know that of rank 0 where the
             script asks the writer for it; their wandb run is disabled.
Fix safety   Safe: rank 0 and a lone process log as before. Only reported where the script reads
             back what wandb.init gives, such as wandb.config of a sweep, and of the other trackers,
             whose calls have to stand behind a test of the rank one by one.
Source       torch.utils.tensorboard.SummaryWriter (log_dir); wandb.init (mode)
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from ..analysis.effects.written_paths import names_rank
from ..analysis.ranks.before_group import runs_before_group
from ..analysis.ranks.certain_reach import surely_on_every_rank
from ..analysis.ranks.rank_reach import RANKS, is_rank_test, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Import, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.drawn_apart import knew_no_ranks
from ..fixes.process_group import IS_FIRST
from ..source.module import Module
from ..source.tree import argument, everywhere, keyword, last_argument

CODE, SEVERITY, SAFETY = "DF609", Severity.DEGRADED, Safety.SAFE

OF_TENSORFLOW = ("tensorflow.summary.FileWriter", "tensorflow.compat.v1.summary.FileWriter")
WRITERS = ("tensorboard_logger.Logger", "tensorboard_logger.configure", *OF_TENSORFLOW)
WRITES = (
    *("add_scalar", "add_scalars", "add_image", "add_images", "add_histogram", "add_text"),
    *("log_value", "add_summary"),
)
SAME = "what_rank_0_has"  # of helper_code.py
TRACKERS = frozenset(
    (
        *("mlflow.start_run", "comet_ml.Experiment", "comet_ml.start", "neptune.init"),
        *("neptune.init_run", "neptune.new.init", "clearml.Task.init", "trains.Task.init"),
        *("aim.Run", "swanlab.init", "visdom.Visdom", "trackio.init", "dvclive.Live"),
        *("sacred.observers.FileStorageObserver", "sacred.observers.FileStorageObserver.create"),
    )
)
# What may be done with wandb and its run where it is disabled.
WRITES_OF_WANDB = frozenset(
    (
        *("init", "login", "log", "finish", "join", "watch", "unwatch", "save", "alert"),
        *("define_metric", "mark_preempting", "log_artifact", "log_code", "summary", "plot"),
        *("Artifact", "Audio", "Histogram", "Html", "Image", "Object3D", "Settings", "Table"),
        *("Video", "util"),
    )
)


def findings(program: Program) -> Iterator[Finding]:
    if program.only_evaluates or not program.calls_to("init_process_group"):
        return
    is_written_by_all = any(
        roles_reaching(program, module, call) >= RANKS for module, call in program.calls_to(*WRITES)
    )
    for module, call in event_files(program) if is_written_by_all else ():
        if is_made_by_all(program, module, call):
            because = "every rank writes an event file of its own"
            edits: tuple[Edit, ...] = ()
            reads = reads_of_folder(program, module, call)
            told = same_folder(program, module, call) if reads else ()
            if reads and not told:
                because += f", and line {reads[0][1].lineno} reads its folder, which all ranks need"
            else:
                edits = (*to_temporary_folder(program, module, call), *told)
            yield Finding(module, call, because, edits)
    for module, call in program.calls_to(*{name.rpartition(".")[2] for name in TRACKERS}):
        if module.dotted(call.func) in TRACKERS and is_made_by_all(program, module, call):
            because = "every rank starts a run of its own; let rank 0 alone start it, and log to it"
            yield Finding(module, call, because)
    for module, call in program.calls_to("init"):
        if module.dotted(call.func) != "wandb.init":
            continue
        if keyword(call, "group") and not knew_no_ranks(program):
            continue  # a group of runs may be meant to have one of each rank
        if (mode := keyword(call, "mode")) and is_constant(mode.value, "disabled"):
            continue
        if is_made_by_all(program, module, call):
            because = "every rank starts a run of its own"
            if reason := why_not_disabled(program, module, call):
                yield Finding(module, call, f"{because}; {reason}")
            else:
                yield Finding(module, call, because, disabled(program, module, call))


def event_files(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that make what writes event files, also in a constructor of a class below."""
    for module, call in program.calls_to("SummaryWriter", "Logger", "configure", *OF_TENSORFLOW):
        name = module.dotted(call.func)
        if name.endswith("SummaryWriter") or name in WRITERS:
            yield module, call
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            if any(module.last_name(base) == "SummaryWriter" for base in owner.bases):
                for call in module.calls_to("__init__"):
                    if module.enclosing_class(call) is owner and is_of_super(call):
                        yield module, call


def is_of_super(call: ast.Call) -> bool:
    """Whether a call is ``super().__init__(…)``."""
    match call.func:
        case ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"))):
            return True
    return False


def is_constant(node: ast.expr, value: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def is_made_by_all(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether every rank comes to a call, and none of its arguments differs between ranks."""
    values = [*call.args, *(word.value for word in call.keywords)]
    return (
        program.is_live(module, call)
        and roles_reaching(program, module, call) >= RANKS
        and surely_on_every_rank(program, module, call, with_options=True)
        and not any(names_rank(program, module, value) for value in values)
        and not any(
            is_rank_test(module, choice.test)
            for value in values
            for choice in everywhere(value, ast.IfExp)
        )
    )


def rank_test(program: Program, module: Module, call: ast.Call) -> tuple[str, tuple[Edit, ...]]:
    """A test for rank 0 at a call, and the edits that it needs."""
    if runs_before_group(program, module, call):
        return IS_FIRST, (Import("os"),)
    return "is_main_process()", (Define("is_main_process"),)


def to_temporary_folder(program: Program, module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that give a SummaryWriter of other ranks than 0 a folder that nobody looks at."""
    test, needed = rank_test(program, module, call)
    folder = argument(call, 0, "log_dir", "logdir")
    choice = "{} if " + test + " else tempfile.mkdtemp()"
    if folder is not None:
        edit = Rewrite(folder, choice.format(module.conjunct(folder)))
    elif is_spread(call):
        return ()
    else:
        words = ", ".join([choice.format(None), *map(module.text, call.keywords)])
        edit = Rewrite(call, f"{module.text(call.func)}({words})")
    return (edit, Import("tempfile"), *needed)


def reads_of_folder(
    program: Program, module: Module, call: ast.Call
) -> list[tuple[Module, ast.Attribute]]:
    """Where the program asks a writer for its folder: ``self.writer.log_dir``."""
    if module.dotted(call.func) in WRITERS:
        return []  # of which only torch's and tensorboardX's keep one
    stmt = module.statement(call)
    targets = stmt.targets if isinstance(stmt, ast.Assign) and stmt.value is call else []
    names = {module.last_name(target) for target in targets} or {"self"}
    return [
        (where, each)
        for where in program.modules
        for attribute in ("log_dir", "logdir", "get_logdir")
        for each in where.attributes(attribute)
        if isinstance(each.ctx, ast.Load) and where.last_name(each.value) in names
        if names != {"self"} or where.enclosing_class(each) is module.enclosing_class(call)
    ]


def same_folder(program: Program, module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits by which all ranks know rank 0's folder for what lies beside the events, as its files.

    None where there is no group yet to tell it.
    """
    stmt = module.statement(call)
    if runs_before_group(program, module, call):
        return ()
    if isinstance(stmt, ast.Assign) and stmt.value is call and len(stmt.targets) == 1:
        writer = module.text(stmt.targets[0])
    elif isinstance(stmt, ast.Expr) and is_of_super(call):
        writer = "self"
    else:
        return ()
    code = f"{writer}.log_dir = {SAME}({writer}.log_dir)"
    return (Insert(stmt, code, "after"), Define("onto_own_card"), Define(SAME))


def is_spread(call: ast.Call) -> bool:
    """Whether some of a call's arguments come from a list or a dict."""
    return any(word.arg is None for word in call.keywords) or any(
        isinstance(each, ast.Starred) for each in call.args
    )


def why_not_disabled(program: Program, module: Module, call: ast.Call) -> str:
    """Why a run cannot be disabled on the other ranks; "" where it can."""
    if is_spread(call):
        return "what it is called with is not known"
    if program.calls_to("sweep", "agent"):
        return "a sweep may choose its settings"
    for where in program.modules:
        for node in where.nodes(ast.Attribute):
            name = where.text(node)
            if name.startswith("wandb.") and name.count(".") == 1:
                if node.attr == "config" and is_only_set(where, node):
                    continue
                if node.attr not in WRITES_OF_WANDB:
                    return f"{name} is used in line {node.lineno} of {Path(where.source.path).name}"
    parent = module.parents[call]
    if isinstance(parent, ast.Expr):
        return ""
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
        return "its run is passed on"
    run = parent.targets[0].id
    for read in module.nodes(ast.Name):
        used = module.parents[read]
        if read.id != run or isinstance(read.ctx, ast.Store):
            continue
        if not isinstance(used, ast.Attribute) or used.attr not in WRITES_OF_WANDB:
            return f"{run} is used in line {read.lineno}"
    return ""


def is_only_set(module: Module, config: ast.Attribute) -> bool:
    """``wandb.config.update(…)`` and ``wandb.config.lr = …``."""
    parent = module.parents[config]
    if isinstance(config.ctx, ast.Store):
        return True
    if not isinstance(parent, ast.Attribute | ast.Subscript):
        return False
    is_update = isinstance(parent, ast.Attribute) and parent.attr in ("update", "setdefaults")
    return is_update or isinstance(parent.ctx, ast.Store)


def disabled(program: Program, module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that disable a run on the other ranks."""
    test, needed = rank_test(program, module, call)
    choice = "{} if " + test + " else 'disabled'"
    mode = keyword(call, "mode")
    if mode is not None:
        return (Rewrite(mode.value, choice.format(module.conjunct(mode.value))), *needed)
    words = f"mode={choice.format(None)}"
    if last := last_argument(call):
        return (Rewrite(last, f", {words}", after=True), *needed)
    return (Rewrite(call, f"{module.text(call.func)}({words})"), *needed)
