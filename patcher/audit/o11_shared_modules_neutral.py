"""A module that other programs import changes in ways that are neutral for them.

What              Scripts beside the patched one that import a module which the patch changes still
                  do what they did: they are not made ranks of a group that they know nothing of.
At run time       LOCAL_RANK put into a shared set-up function turns every other script that calls
                  it into N processes that train N models of their own.
How it is judged  The scripts of the module's folder are read, up to 200 of them. A violation is a
                  changed function or class that newly reads a rank or makes a process group, and
                  that another script uses which trains without a wrapper.
                  Scripts that are patched in the same go are left out: each of them is judged.
When unknown      Another script uses a function or class that has changed in another way: patch or
                  check that script too.
Source            https://docs.python.org/3/reference/import.html
"""

import ast
import shlex
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from ...errors import InputError
from ..analysis.training.program import Program
from ..source.files import decode, read_bytes
from ..source.module import Module
from ..source.tree import DEFINITIONS
from .verdict import AuditVerdict, unknown, violated

CODE = "O11"
MAX_SCRIPTS = 200  # that are looked at in a folder
MAX_NAMED = 4  # in one sentence
MAX_BYTES = 1_000_000  # of one of them
RANK_WORDS = ("LOCAL_RANK", "init_process_group", "WORLD_SIZE")
GROUP_TEST = "is_initialized()"  # holds in no script that makes no group
WRAPPING = ("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "Accelerator")


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    if original is None:
        return
    own = {str(module.source.path.resolve()) for module in program.modules}
    own |= set(map(str, original.patched_along))
    for module, old in zip(program.modules[1:], original.modules[1:], strict=True):
        if module.source.text == old.source.text:
            continue
        changed = changed_definitions(old, module)
        made_ranks: dict[str, list[str]] = {}  # scripts, by the name that makes them ranks
        users: dict[str, list[str]] = {}  # scripts, by another name that changes
        for other in importers(module, own):
            where, used = other.source.path.name, sorted(used_names(other, module) & changed.keys())
            alone = bool(used) and trains_alone(other)
            gained = [name for name in used if changed[name][1] and alone]
            for name in gained[:1]:
                made_ranks.setdefault(name, []).append(where)
            for name in () if gained else used:
                users.setdefault(name, []).append(where)
        for name, scripts in users.items():
            use, them = ("use", "them") if scripts[1:] else ("uses", "it")
            because = f"{listed(scripts)} {use} {name}, which changes: patch or check {them} too"
            yield unknown(module, changed[name][0], because)
        folder = Path(module.source.name).parent
        others = [str(folder / name) for name in chain(*made_ranks.values())]
        together = shlex.join(["ddpfix", "patch", program.script.source.name, *others])
        for name, scripts in made_ranks.items():
            use, train = ("use", "train") if scripts[1:] else ("uses", "trains")
            yield violated(
                module,
                changed[name][0],
                f"{', '.join(scripts)} {use} {name}, which now asks for the rank, and {train}"
                f" without a wrapper: patch them in one go, `{together}`",
            )


def listed(scripts: list[str]) -> str:
    """Scripts in a sentence: the first ones by name, and the number of the rest."""
    named, rest = scripts[:MAX_NAMED], len(scripts[MAX_NAMED:])
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def changed_definitions(old: Module, new: Module) -> dict[str, tuple[ast.AST, bool]]:
    """Functions and classes that have changed: where they are, and whether they now know ranks."""
    before = {node.name: old.text(node) for node in old.tree.body if isinstance(node, DEFINITIONS)}
    found: dict[str, tuple[ast.AST, bool]] = {}
    for node in new.tree.body:
        if isinstance(node, DEFINITIONS) and node.name in before:
            text = new.text(node)
            if text != before[node.name]:
                words = RANK_WORDS if GROUP_TEST in text else (*RANK_WORDS, "DistributedSampler")
                gains = any(word in text and word not in before[node.name] for word in words)
                found[node.name] = node, gains
    return found


def importers(module: Module, own: set[str]) -> Iterator[Module]:
    """Other scripts of the module's folder that import it."""
    path = Path(module.source.name).resolve()
    try:
        others = sorted(path.parent.glob("*.py"))
    except OSError:
        return
    for other in others[:MAX_SCRIPTS]:
        if str(other) in own or not other.is_file() or other.stat().st_size > MAX_BYTES:
            continue
        try:
            data = read_bytes(str(other))
            if path.stem.encode() in data and b"import" in data:
                yield Module(decode(str(other), data))
        except (InputError, RecursionError):
            continue  # it cannot run either


def used_names(other: Module, module: Module) -> set[str]:
    """Names of a module that another one imports from it, or takes as attributes of it."""
    stem = module.source.path.stem
    found: set[str] = set()
    for stmt in other.nodes(ast.ImportFrom):
        if (stmt.module or "").rpartition(".")[2] == stem:
            found |= {alias.name for alias in stmt.names}
    if "*" in found:
        found |= {node.id for node in other.nodes(ast.Name)}
    for local, full in other.aliases.items():
        if full.rpartition(".")[2] == stem:
            found |= {
                node.attr
                for node in other.nodes(ast.Attribute)
                if isinstance(node.value, ast.Name) and node.value.id == local
            }
    return found


def trains_alone(other: Module) -> bool:
    """Whether a script trains, and nothing in it wraps a model for ranks."""
    wraps = other.occurrences(*WRAPPING) or other.calls_to(*WRAPPING)  # as DDP, too
    return bool(other.calls_to("backward")) and not wraps
