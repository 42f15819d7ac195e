"""A name is imported that transformers no longer has.

What         AdamW, TruncationStrategy, BertLayerNorm, find_pruneable_heads_and_indices, the modules
             of single models (transformers.modeling_roberta) and others left transformers between
             versions 4 and 5.
At run time  ImportError before the first line of the script's own runs.
Example      from transformers import AdamW, get_linear_schedule_with_warmup
Fix          The same thing where it is today. For AdamW, torch.optim.AdamW with transformers'
             defaults spelled out where the call relied on them: weight_decay=0.0 and eps=1e-6
             (torch has 0.01 and 1e-8). What has no equal (AutoModelWithLMHead chose by the
             checkpoint) is reported with the way out. DataProcessor, InputExample, InputFeatures,
             whitespace_tokenize, is_tf_available and, for correct_bias=False, the old AdamW are
             carried along; tables of checkpoints become empty ones, and what nothing uses goes.
             WarmupLinearSchedule and its kin are made by the functions of today, where all uses are
             calls. A star import of such a module becomes imports of what the file reads.
             If you keep the older transformers: `--ignore DF901`, or `# noqa: DF901` behind the
             line, leaves it to you, and the rest is patched. A local copy of transformers, and the
             older pytorch_transformers, are left alone.
Fix safety   Safe: the import could only raise before. AdamW's update differs from the old class's
             in where eps enters the bias correction, by the order of eps.
Source       https://github.com/huggingface/transformers/releases/tag/v5.0.0; torch.optim.AdamW;
             each entry of the tables is imported in a test
"""

import ast
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from ..analysis.training.program import Program
from ..analysis.training.vendored import has_own
from ..editing.edits import Define, Edit, Import, Insert, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import Function, everywhere, keyword, last_argument, position
from .transformers_gone import OLD_NAMES_BY_ADVICE, RENAMED
from .transformers_modules import MODEL_CLASSES, MODELS, PREFIXES, moved_class, split_model_module
from .transformers_stars import instead_of_star

__all__ = ["MODELS", "MODEL_CLASSES", "PREFIXES"]
CODE, SEVERITY, SAFETY = "DF901", Severity.ERROR, Safety.SAFE
ANYWHERE = True

OTHER_LIBRARIES = {  # which exist, and are not transformers
    "pytorch_transformers": "pytorch-transformers",
    "pytorch_pretrained_bert": "pytorch-pretrained-bert",
}

OLD_ADAMW = {
    "transformers.AdamW",
    "transformers.optimization.AdamW",
}
# Parameters of the old AdamW with other defaults than torch's: position and default.
DEFAULTS = {"eps": (3, "1e-6"), "weight_decay": (4, "0.0")}
CORRECT_BIAS = 5  # position of the parameter that torch's class does not have
OLD_OPTIONS = ("correct_bias", "no_deprecation_warning")
CARRIED_ADAMW = "BertAdamW"

LAYER_NORM = "torch.nn.LayerNorm"
MOVED = {  # old name, and today's name of the same thing
    "transformers.TruncationStrategy": "transformers.tokenization_utils_base.TruncationStrategy",
    "transformers.tokenization_utils.TruncationStrategy": (
        "transformers.tokenization_utils_base.TruncationStrategy"
    ),
    "transformers.PaddingStrategy": "transformers.utils.PaddingStrategy",
    "transformers.BertLayerNorm": LAYER_NORM,
    "transformers.modeling_bert.BertLayerNorm": LAYER_NORM,
    "transformers.modeling_roberta.BertLayerNorm": LAYER_NORM,
    "transformers.models.bert.modeling_bert.BertLayerNorm": LAYER_NORM,
    "transformers.modeling_bert.gelu": "transformers.activations.gelu",
    "transformers.modeling_bert.ACT2FN": "transformers.activations.ACT2FN",
    "transformers.modeling_roberta.gelu": "transformers.activations.gelu",
    "transformers.models.bert.modeling_bert.gelu": "transformers.activations.gelu",
    "transformers.activations.swish": "torch.nn.functional.silu",
    "transformers.modeling_utils.Conv1D": "transformers.pytorch_utils.Conv1D",
    "transformers.modeling_utils.prune_linear_layer": (
        "transformers.pytorch_utils.prune_linear_layer"
    ),
    "transformers.modeling_bert.prune_linear_layer": (
        "transformers.pytorch_utils.prune_linear_layer"
    ),
    "transformers.modeling_utils.apply_chunking_to_forward": (
        "transformers.pytorch_utils.apply_chunking_to_forward"
    ),
    "transformers.trainer_utils.EvaluationStrategy": "transformers.trainer_utils.IntervalStrategy",
    "transformers.LogitsWarper": "transformers.LogitsProcessor",
    "transformers.file_utils.cached_property": "functools.cached_property",
    "transformers.file_utils.add_start_docstrings_to_callable": (
        "transformers.utils.add_start_docstrings_to_model_forward"
    ),
    "transformers.generation_utils.GenerationMixin": "transformers.generation.GenerationMixin",
    **{
        f"transformers.generation_{home}.{name}": f"transformers.generation.{name}"
        for home, names in {
            "logits_process": "LogitsProcessor LogitsProcessorList MinLengthLogitsProcessor",
            "stopping_criteria": "MaxLengthCriteria StoppingCriteria StoppingCriteriaList",
        }.items()
        for name in names.split()
    },
    **RENAMED,
    **{
        f"transformers.{home}{library}_CACHE": "huggingface_hub.constants.HF_HUB_CACHE"
        for home in ("", "file_utils.")
        for library in ("TRANSFORMERS", "PYTORCH_TRANSFORMERS", "PYTORCH_PRETRAINED_BERT")
    },
    **{
        f"transformers.deepspeed.{name}": f"transformers.integrations.deepspeed.{name}"
        for name in ("HfDeepSpeedConfig", "is_deepspeed_zero3_enabled")
    },
}
SCHEDULES = {  # old class, and the function that makes the same schedule
    f"transformers.{home}{old}": f"transformers.{new}"
    for home in ("", "optimization.")
    for old, new in {
        "ConstantLRSchedule": "get_constant_schedule",
        "WarmupConstantSchedule": "get_constant_schedule_with_warmup",
        "WarmupLinearSchedule": "get_linear_schedule_with_warmup",
        "WarmupCosineSchedule": "get_cosine_schedule_with_warmup",
        "WarmupCosineWithHardRestartsSchedule": (
            "get_cosine_with_hard_restarts_schedule_with_warmup"
        ),
    }.items()
}
SCHEDULE_WORDS = {
    "warmup_steps": "num_warmup_steps",
    "t_total": "num_training_steps",
    "cycles": "num_cycles",
}
PRUNEABLE = "find_pruneable_heads_and_indices"
HELPERS = {  # old name, and its replacement in helper_code.py
    **{
        f"transformers.{home}{name}": name
        for home in ("", "data.", "data.processors.", "data.processors.utils.")
        for name in ("DataProcessor", "InputExample", "InputFeatures")
    },
    **{
        f"transformers.{home}.whitespace_tokenize": "whitespace_tokenize"
        for home in ("tokenization_bert", "models.bert.tokenization_bert")
    },
    **{
        f"transformers.{home}is_tf_available": "is_tf_available"
        for home in ("", "file_utils.", "utils.", "utils.import_utils.")
    },
    f"transformers.pytorch_utils.{PRUNEABLE}": "heads_to_prune",
    f"transformers.modeling_utils.{PRUNEABLE}": "heads_to_prune",
}
ADVICE = {name: way for way, names in OLD_NAMES_BY_ADVICE.items() for name in names.split()}
TENSORFLOW = tuple(f"transformers.TF{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
TABLES = ("_ARCHIVE_LIST", "_ARCHIVE_MAP", "_FILES_LIST", "_FILES_MAP")
FAMILIES = (  # prefixes of dotted names, a part of them, suffixes, and advice
    (
        ("transformers.",),
        "_PRETRAINED_",
        TABLES,
        "any name on the hub is taken today",
    ),
    (
        tuple(f"transformers.data.{part}." for part in ("processors", "metrics", "datasets")),
        "",
        ("",),
        "copy it from transformers 4 into the script",
    ),
    (
        ("transformers.models.",),
        "",
        ("_INPUTS_DOCSTRING", "_START_DOCSTRING"),
        "take the decorator out",
    ),
    ((*TENSORFLOW, "transformers.Flax"), "", ("",), "the class without TF or Flax"),
    (
        ("transformers.TF_", "transformers.FLAX_", "transformers.load_tf"),
        "",
        ("",),
        "load the checkpoint as PyTorch's, which transformers 4 converts",
    ),
    (
        ("transformers.TransfoXL", "transformers.RetriBert"),
        "",
        ("",),
        "the model left transformers",
    ),
)
STILL_THERE = "transformers.ZOEDEPTH_"  # its archive list is the last one left


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        yield from other_libraries(program, module)
        if "transformers" not in module.imported_packages:
            continue
        if has_own(program, module, "transformers"):
            continue
        explicit: set[ast.Call] = set()  # calls whose defaults an earlier import's edits spell out
        for stmt in module.nodes(ast.ImportFrom):
            parts = (stmt.module or "").split(".")
            is_old = parts[0].startswith("transformers") and not stmt.level
            is_checkout = set(parts) & OTHER_LIBRARIES.keys()  # transformers/pytorch_transformers/
            if is_old and not is_checkout and not is_conditional(module, stmt):
                yield from import_findings(program, module, stmt, explicit)
        for call in module.calls_to("AdamW"):
            if isinstance(call.func, ast.Attribute) and module.dotted(call.func) in OLD_ADAMW:
                because = f"{module.dotted(call.func)} is gone"
                edits: tuple[Edit, ...] = (Define(CARRIED_ADAMW), Rewrite(call.func, CARRIED_ADAMW))
                if is_translatable(call):
                    edits = (Rewrite(call.func, "torch.optim.AdamW"), Import("torch"))
                    edits += (*explicit_defaults(call), *without_old_options(call))
                yield Finding(module, call, because, edits)


def other_libraries(program: Program, module: Module) -> Iterator[Finding]:
    """A note for each older library of the same makers, which is left as it is."""
    for stmt in module.nodes(ast.ImportFrom):
        package = (stmt.module or "").partition(".")[0]
        if package in OTHER_LIBRARIES and not stmt.level and not has_own(program, module, package):
            because = (
                f"{package} is a library of its own, which is left as it is: "
                f"pip install {OTHER_LIBRARIES[package]}"
            )
            yield Finding(module, stmt, because, severity=Severity.NOTE)
            return


def is_conditional(module: Module, stmt: ast.stmt) -> bool:
    """Whether the import stands in a ``try`` or under a test, usually of a version."""
    return any(isinstance(up, ast.Try | ast.If) for up in module.ancestors(stmt))


def import_findings(
    program: Program, module: Module, stmt: ast.ImportFrom, explicit: set[ast.Call]
) -> Iterator[Finding]:
    """One finding for all names of an import statement that are gone: its edits belong together."""
    if stmt.names[0].name == "*":
        yield from star_finding(module, stmt)
        return
    full_names = {alias: f"{stmt.module}.{alias.name}" for alias in stmt.names}
    removed = {
        alias: current_name(name)
        for alias, name in full_names.items()
        if current_name(name) or advice_for(name)
    }
    if not removed:
        return
    tables = {alias: empty_table(module, alias) for alias in removed if not removed[alias]}
    inside_function = any(isinstance(up, Function) for up in module.ancestors(stmt))
    severity = Severity.DEGRADED if inside_function else None  # raises only if it is called
    code = "\n".join(filter(None, tables.values()))
    edits: list[Edit] = list(remove_names(stmt, list(removed), code))
    obstacles: list[str] = []
    for alias, replacement in removed.items():
        local = alias.asname or alias.name
        calls: list[ast.Call] = []
        if full_names[alias] in OLD_ADAMW:
            old = module.calls_to("AdamW")
            calls = [c for c in old if isinstance(c.func, ast.Name) and c.func.id == local]
            if not all(map(is_translatable, calls)):
                replacement, calls = CARRIED_ADAMW, []
        home, _, name = replacement.rpartition(".")
        if tables.get(alias):
            continue
        if full_names[alias] in SCHEDULES:
            renamed = renamed_schedules(module, local, name)
            edits += renamed and [Import(home, name), *renamed]
            if not renamed:
                obstacles.append(f"; the way out of {alias.name}: {name}, with its own arguments")
            continue
        if not replacement and is_unused(program, module, local):
            continue
        if not replacement:
            obstacles.append(f"; the way out of {alias.name}: {advice_for(full_names[alias])}")
        elif home:
            edits.append(Import(home, name if local == name else f"{name} as {local}"))
        else:
            uses = [use for use in module.occurrences(local) if isinstance(use, ast.Name)]
            uses = [] if local == replacement else uses
            edits += [Define(replacement), *(Rewrite(use, replacement) for use in uses)]
        for call in (call for call in calls if call not in explicit):
            edits += [*explicit_defaults(call), *without_old_options(call)]
        explicit.update(calls)
    names = [alias.name for alias in removed]
    because = f"{', '.join(names)} {'are' if names[1:] else 'is'} not in today's {stmt.module}"
    because += "".join(obstacles)
    yield Finding(module, stmt, because, () if obstacles else tuple(edits), severity=severity)


def star_finding(module: Module, stmt: ast.ImportFrom) -> Iterator[Finding]:
    """The finding for ``from transformers.modeling_bert import *``."""
    home = stmt.module or ""
    if not split_model_module(home)[1]:
        return
    lines, unknown = instead_of_star(module, home)
    because = f"{home} is no module of today's transformers"
    if unknown:
        because += (
            f", and where {', '.join(unknown)} may come from cannot be told: import it by name"
        )
    yield Finding(module, stmt, because, () if unknown else (Replace(stmt, "\n".join(lines)),))


def is_unused(program: Program, module: Module, name: str) -> bool:
    """Whether nothing in the program has a name but the import that binds it."""
    listed = any(node.value == name for node in module.nodes(ast.Constant))
    handed_on = any(
        alias.name == name
        for other in program.modules
        if other is not module
        for stmt in other.nodes(ast.ImportFrom)
        for alias in stmt.names
    )
    used = any(each.occurrences(name) for each in program.modules)
    return not (listed or handed_on or used)


def renamed_schedules(module: Module, local: str, name: str) -> list[Edit]:
    """Edits of all uses of an old schedule's class; none if one is no plain call of it."""
    edits: list[Edit] = []
    for use in module.occurrences(local):
        call = module.parents[use]
        words = call.keywords if isinstance(call, ast.Call) and call.func is use else [None]
        if any(word is None or word.arg is None for word in words):
            return []
        edits.append(Rewrite(use, name))
        edits += [
            Rewrite(word, f"{SCHEDULE_WORDS[word.arg]}={module.text(word.value)}")
            for word in words
            if word is not None and word.arg in SCHEDULE_WORDS
        ]
    return edits


@cache
def current_name(name: str) -> str:
    """The dotted name, or the helper, that replaces an old name; the empty string for neither."""
    if name in OLD_ADAMW:
        return "torch.optim.AdamW"
    if name in SCHEDULES:
        return SCHEDULES[name]
    if name in MOVED or name in HELPERS:
        return MOVED.get(name) or HELPERS[name]
    return moved_class(name)


@cache
def advice_for(name: str) -> str:
    """What to do about a name that is gone; the empty string where it may still exist."""
    if name in ADVICE:
        return ADVICE[name]
    for prefixes, part, suffixes, advice in FAMILIES:
        if name.startswith(prefixes) and part in name and name.endswith(suffixes):
            return "" if name.startswith(STILL_THERE) else advice
    kind, model = split_model_module(name.rpartition(".")[0])
    if model in MODELS:
        return f"look for it in transformers.models.{model}.{kind}_{model}"
    return ""


def empty_table(module: Module, alias: ast.alias) -> str:
    """The line that binds a table of checkpoints to nothing; "" for other names.

    Empty also where the script looks up an entry, which would then be missing, in the table or in
    what it makes of it.
    """
    name = alias.asname or alias.name
    if "_PRETRAINED_" not in alias.name or not alias.name.endswith(TABLES):
        return ""
    made = {name}
    for stmt in sorted(module.nodes(ast.Assign), key=position):
        if any(use.id in made for use in everywhere(stmt.value, ast.Name)):
            made |= {target.id for target in stmt.targets if isinstance(target, ast.Name)}
    if any(is_looked_up(module, use) for use in module.nodes(ast.Name) if use.id in made):
        return ""
    return (
        f"{name} = {'[]' if alias.name.endswith('LIST') else '{}'}  # any name on the hub is taken"
    )


def is_looked_up(module: Module, use: ast.Name) -> bool:
    """Whether an entry of a table is asked for: ``table[key]``, ``key in table``, choices=table."""
    match module.parents[use]:
        case ast.Subscript(value=value):
            return value is use
        case ast.Attribute(attr=name):
            return name in ("get", "index")
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[table]):
            return table is use
        case ast.keyword(arg="choices"):
            return True
    return False


def remove_names(stmt: ast.ImportFrom, removed: list[ast.alias], code: str = "") -> Iterator[Edit]:
    """Edits that take some names out of an import, or put ``code`` in its place if all go."""
    names = stmt.names
    if len(removed) == len(names):
        yield Replace(stmt, code)
        return
    if code:
        yield Insert(stmt, code, "after")
    runs: list[tuple[int, int]] = []  # first and last index of adjacent names
    for index in (names.index(alias) for alias in removed):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = runs[-1][0], index
        else:
            runs.append((index, index))
    for first, last in runs:
        if last + 1 < len(names):
            yield Rewrite(names[first], "", names[last + 1], before=True)
        else:
            yield Rewrite(names[first - 1], "", names[last], after=True)


def explicit_defaults(call: ast.Call) -> Iterator[Edit]:
    """Edits that pass the old class's defaults, where the call relies on them."""
    missing = [
        f"{name}={default}"
        for name, (index, default) in DEFAULTS.items()
        if keyword(call, name) is None and len(call.args) <= index
    ]
    last = last_argument(call)
    if missing and last is not None:
        yield Rewrite(last, "".join(f", {text}" for text in missing), after=True)


def without_old_options(call: ast.Call) -> Iterator[Edit]:
    """Edits that take out the options that torch's class does not have."""
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    for before, word in pairwise(sorted(arguments, key=position)):
        if isinstance(word, ast.keyword) and word.arg in OLD_OPTIONS:
            yield Rewrite(before, "", word, after=True)


def is_translatable(call: ast.Call) -> bool:
    """Whether torch's class can do what the call asks for."""
    correct = keyword(call, "correct_bias")
    names = [word.arg for word in call.keywords]
    return (
        bool(call.args or names)
        and len(call.args) <= CORRECT_BIAS
        and None not in names
        and (bool(call.args) or names[0] not in OLD_OPTIONS)
        and (
            correct is None
            or (isinstance(correct.value, ast.Constant) and correct.value.value is True)
        )
    )
