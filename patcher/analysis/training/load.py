"""Load a script and the local modules it imports as one program."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache

from ....errors import InputError
from ....record import replace
from ...source.files import Source, decode, read_bytes
from ...source.module import Module
from ...source.old_syntax import modernized
from ..language.import_paths import added_roots, folders_above, package_roots, project_roots
from ..language.imports import Links, links_of, module_finder
from ..language.names import Unread, calls_at_import
from .frameworks import OPTIMIZERS
from .program import Program

MAX_FILES = 400  # of one program
MAX_TEXTS = 4096  # of which it is remembered whether they have to do with training
# What a module outside of the script's folder has to mention to be part of the program.
ABOUT_TRAINING = (
    r"backward\(|distributed|DataLoader\(|DataParallel|\brank\b|_rank\b|_RANK\b|WORLD_SIZE|is_main"
    r"|is_master|torch\.save|save_pretrained|ArgumentParser|barrier\(|Sampler\("
    r"|(?:from|import) transformers\b|init_weights\("  # of which today's library lacks names
    r"|\bopen\([^\n]*['\"][wax]|FileHandler|SummaryWriter|FileWriter|savefig|to_csv|np\.save|makedirs|rmtree"
    r"|wandb\.init|basicConfig|imwrite|imsave|save_image|savemat|shutil\.|Visdom\(|mlflow\.|\binput\("
    r"|\bmkdir\(|\bsavez|savetxt|\.save\(|\.dump\(|\.to_(?:json|pickle|parquet|excel|hdf)\b|WriteImage"
    r"|VideoWriter|\bmim(?:save|write)\(|get_writer|\bwrite_(?:text|bytes|video|image|point_cloud)\("
    r"|\bos\.(?:system|popen|remove|unlink|rename|replace|symlink)\(|\bsubprocess\."
    r"|\bsqlite3\.|\bdictConfig\("
    r"|[lL]oss\(|cross_entropy|kl_div\(|async *="
    r"|Parameter\(|register_buffer\("  # which a model draws
    r"|def forward\("  # which may sum a loss over the batch
    r"|\]\.view\(-1\)"  # of hits that are sliced
    r"|loader\b"  # which it may go over, or hand on
    r"|^from \.+ import"
    r"|^[ \t]*(?:from|import) [^\n]*\b(?:models?|networks?|losses)\b"  # of a factory
    r"|CUDA_VISIBLE_DEVICES|\bset_device\(|torch\.device\(|['\"]cuda:"  # which card it chooses
    r"|torch\.optim\b|\boptim\."  # what steps the model
    r"|\.grad\b"  # what an attack reads between two passes
    r"|random\.(?:choice|shuffle|sample|permutation|rand)|\brandperm\("  # what is drawn of the data
    r"|^[ \t]*(?:from|import) torch(?:vision|audio|text)\b[^\n]*\bdatasets\b"  # what it downloads
    # Whose words each rank numbers in an order of its own.
    r"|(?:\bin|\breturn|\w *=) *(?:enumerate\()?(?:list\()?set\("
    r"|^[ \t]*(?:from|import)\b[^\n]*[tT]rain"  # where the one that trains comes from
)

IMPORT = re.compile(r"^[ \t]*(?:from|import) ", re.MULTILINE)
DEFINITION = re.compile(r"^[ \t]*(?:def|class) ", re.MULTILINE)
SourceReader = Callable[[str], Source | None]


def read_source(path: str) -> Source | None:
    """Read ``path``; None where there is no such file. Raises InputError."""
    return decode(path, read_bytes(path)) if os.path.isfile(path) else None


def read_modernized(path: str) -> Source | None:
    """Read ``path`` as `patch` does, with today's words; None where there is no such file."""
    source = read_source(path)
    return source and replace(source, text=modernized(source.text))


def read_program(path: str, data: bytes | None = None, look: SourceReader = read_source) -> Program:
    """Read the program whose script is ``path``; ``data`` replaces the file's content.

    All other files are read through ``look``, which lets a caller record what the program depends
    on. A sibling that cannot be parsed is left out: checking that file itself reports the error.
    Raises InputError when the script itself cannot be read or parsed.
    """
    script = Module(decode(path, read_bytes(path) if data is None else data))
    return with_siblings(script, look)


def with_siblings(script: Module, look: SourceReader = read_source) -> Program:
    """The program of ``script`` and the local modules that it imports, also indirectly.

    A library module becomes a program without siblings. At most MAX_FILES modules are read, those
    nearest to the script first; outside of its folder, those that have to do with training, or that
    import such a module.
    """
    if not script.is_program and not calls_at_import(script):
        return Program(script)
    path = os.path.realpath(script.source.name)
    folder = os.path.dirname(path)
    sources: dict[str, Source | None] = {}

    def find(wanted: str) -> Source | None:
        if wanted not in sources:
            try:
                sources[wanted] = look(wanted)
            except InputError:
                sources[wanted] = None
        return sources[wanted]

    def exists(wanted: str) -> bool:
        return find(wanted) is not None

    def links_at(place: str, module: Module) -> Links:
        key = (place, *roots)  # of which a module may add some
        if key not in known:
            known[key] = links_of(module, place, roots, exists, find_module)
        return known[key]

    def leads_to_training(module: Module, place: str) -> bool:
        files = links_at(place, module).files
        texts = [source.text for file in files if (source := find(file)) is not None]
        return any(text.strip() and is_about_training(text) for text in texts)

    find_module = module_finder(exists)
    roots = [folder, *package_roots(path, exists)]
    climbed = False
    known: dict[tuple[str, ...], Links] = {}
    unread: dict[str, Unread] = {}
    siblings: dict[str, Module | None] = {path: None}
    pending = [(path, script)]
    linked: list[tuple[str, Module]] = []
    while pending:
        place, module = pending.pop(0)
        for is_first, root in added_roots(module, place, folder):
            if root not in roots:
                roots.insert(0 if is_first else len(roots), root)
                pending += linked  # their imports may be found there
                linked = []
        linked.append((place, module))
        links = links_at(place, module)
        if links.missing and not climbed:
            climbed = True
            above = (*project_roots(path, exists), *folders_above(script, path, exists))
            more = [root for root in dict.fromkeys(above) if root not in roots]
            roots += more
            links = links_at(place, module)
        for line, name in links.unread:
            unread.setdefault(name, (module.source.name, line, name))
        for wanted in links.files:
            source = find(wanted)
            if wanted in siblings or source is None or len(siblings) > MAX_FILES:
                continue
            siblings[wanted] = None
            if not source.text.strip():
                continue
            is_part = (
                os.path.dirname(wanted) == folder
                or wanted.endswith("__init__.py")
                or is_about_training(source.text)
            )
            if not is_part and not IMPORT.search(source.text):
                continue
            try:
                sibling = Module(source)
            except InputError:
                if is_part:
                    name = os.path.relpath(wanted, folder)
                    unread.setdefault(name, (wanted, 1, name))
                continue
            if is_part or leads_to_training(sibling, wanted):
                siblings[wanted] = sibling
                pending.append((wanted, sibling))
    modules = [module for module in siblings.values() if module is not None]
    if not unread and trains_elsewhere(script, modules):
        for line, name in links_at(path, script).missing:
            unread.setdefault(name, (script.source.name, line, name))
    return Program(script, tuple(modules), tuple(roots), tuple(unread.values()))


def trains_elsewhere(script: Module, siblings: list[Module]) -> bool:
    """Whether a script makes an optimizer of torch, and nothing that is read goes back by it."""
    return any(
        script.dotted(call.func).startswith("torch.optim.") for call in script.calls_to(*OPTIMIZERS)
    ) and not any("backward" in module.source.text for module in (script, *siblings))


@lru_cache(MAX_TEXTS)
def is_about_training(text: str) -> bool:
    """Whether a module's text holds a word that rules or rank tests are about, or may re-export."""
    return (
        re.search(ABOUT_TRAINING, text, re.MULTILINE) is not None or DEFINITION.search(text) is None
    )
