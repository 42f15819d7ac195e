"""The Trainer of transformers is asked in words that it has no more.

What         TrainingArguments(evaluation_strategy=…), Trainer(tokenizer=…), an option of an older
             release that chose nothing else, one that is read, or a subclass whose compute_loss()
             or training_step() does not take the number of items that a batch has. Or the Trainer
             is asked whether it is_world_master().
At run time  TypeError when the arguments or the Trainer are made, or in the first step;
             AttributeError behind the whole training, where the results are written.
Example      args = TrainingArguments("out", evaluation_strategy="epoch", no_cuda=True)
Fix          Today's word; an option that is gone, and chose what is the rule now, is left out. A
             method takes num_items_in_batch=None, and a loss that does not use it is divided by the
             accumulation, as before.
Fix safety   Safe: the line could only raise before. TensorBoard's folder is left to its variable,
             TENSORBOARD_LOGGING_DIR. Only reported where a word is read that has none of today.
Source       transformers.TrainingArguments and Trainer of 5.23; the migration guide of version 5
"""

import ast
from collections.abc import Iterator

from ..analysis.language.names import answered_once
from ..analysis.models.library_models import heirs_of_library
from ..analysis.models.library_trainers import is_trainer_name
from ..analysis.training.program import Program
from ..analysis.training.vendored import any_has_own
from ..editing.edits import Edit, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.statements import arguments_in_order, without_arguments
from ..source.module import Module
from ..source.tree import everywhere, is_false, is_true, keyword, parameters

CODE, SEVERITY, SAFETY = "DF914", Severity.ERROR, Safety.SAFE
ANYWHERE = True

ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
RENAMED = {
    "evaluation_strategy": "eval_strategy",
    "no_cuda": "use_cpu",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size",
    "push_to_hub_model_id": "hub_model_id",
    "push_to_hub_token": "hub_token",
    "warmup_ratio": "warmup_steps",  # below 1 it is a part of all steps
}
# What a word that is True asks for today; what is False is left out.
SWITCHES = {
    "group_by_length": "train_sampling_strategy='group_by_length'",
    "adafactor": "optim='adafactor'",
    "include_inputs_for_metrics": "include_for_metrics=['inputs']",
}
# What a word that is read asks of those of today.
READ = {
    "group_by_length": "train_sampling_strategy == 'group_by_length'",
    "adafactor": "optim == 'adafactor'",
    "evaluate_during_training": "eval_strategy != 'no'",
}
FOLDER = "overwrite_output_dir"  # which scripts ask themselves
LEFT_OUT = frozenset(
    (
        *(FOLDER, "logging_dir", "save_safetensors", "fp16_backend"),
        *("half_precision_backend", "fp16_opt_level", "use_ipex", "use_mps_device", "torchdynamo"),
        *("jit_mode_eval", "past_index", "mp_parameters", "tpu_num_cores", "tpu_metrics_debug"),
        *("ray_scope", "xpu_backend", "include_tokens_per_second", "use_legacy_prediction_loop"),
    )
)
# Methods that a subclass may have, with what the Trainer passes them today.
PASSED = {
    "compute_loss": "num_items_in_batch",
    "training_step": "num_items_in_batch",
    "log": "start_time",
}
# Methods that have another name today.
ASKED = {"is_world_master": "is_world_process_zero", "is_local_master": "is_local_process_zero"}
OWN_SCALE = "loss_is_scaled_for_ga"  # of a Trainer: whether compute_loss divides by accumulation


def findings(program: Program) -> Iterator[Finding]:
    if not any("transformers" in module.imported_packages for module in program.modules):
        return
    if any_has_own(program, "transformers"):
        return
    heirs = heirs_of_library(program, is_trainer_name)
    names = {owner.name for owner in heirs if not takes_tokenizer(owner)}
    for module in program.modules:
        for call in module.calls_to(*ARGUMENTS):
            if module.dotted(call.func).startswith("transformers."):
                yield from old_words(module, call)
        yield from old_reads(program, module)
        yield from old_calls(program, module, names)
        for call in module.calls_to("Trainer", "Seq2SeqTrainer", *names):
            is_library = module.dotted(call.func).startswith("transformers.")
            word = keyword(call, "tokenizer")
            if word is not None and (is_library or module.last_name(call.func) in names):
                edit = Rewrite(word, f"processing_class={module.text(word.value)}")
                yield Finding(module, word, "the Trainer takes no tokenizer", (edit,))
        for owner in module.nodes(ast.ClassDef) if heirs else ():
            if owner in heirs:
                yield from old_methods(module, owner)


def takes_tokenizer(owner: ast.ClassDef) -> bool:
    """Whether a class has a constructor of its own that takes a tokenizer."""
    return any(
        isinstance(each, ast.FunctionDef)
        and each.name == "__init__"
        and "tokenizer" in parameters(each)
        for each in owner.body
    )


def old_words(module: Module, call: ast.Call) -> Iterator[Finding]:
    """The words of TrainingArguments(…) that are gone, in one finding."""
    words = arguments_in_order(call)
    told = [word.arg for word in call.keywords if word.arg]
    new = {
        index: today
        for index, word in enumerate(words)
        if isinstance(word, ast.keyword) and (today := of_today(module, word, told)) is not None
    }
    if not new:
        return
    gone = [word.arg for index in new if isinstance(word := words[index], ast.keyword)]
    because = f"{module.text(call.func)} takes no {', '.join(map(str, gone))}"
    edits: list[Edit] = [Rewrite(words[index], text) for index, text in new.items() if text]
    edits += without_arguments(words, [index for index, text in new.items() if not text])
    yield Finding(module, call, because, tuple(edits))


def old_reads(program: Program, module: Module) -> Iterator[Finding]:
    """``training_args.overwrite_output_dir`` of the arguments that HfArgumentParser makes.

    And of those that the module makes itself, ``args = TrainingArguments(…)``.
    """
    parsers = module.calls_to("HfArgumentParser")
    parses = any(module.dotted(call.func).startswith("transformers.") for call in parsers)
    if not parses and not module.calls_to(*ARGUMENTS):
        return
    own = own_options(program)
    for name in (FOLDER, *RENAMED, *READ, *sorted(LEFT_OUT - {FOLDER})):
        if name in own:
            continue
        for node in module.attributes(name):
            if not isinstance(node.ctx, ast.Load) or not are_arguments(module, node.value, parses):
                continue
            if asks_for_release(module, node):
                continue
            owner = module.text(node.value)
            code = f"getattr({owner}, '{name}', False)" if name == FOLDER else ""
            if name in RENAMED:
                code = f"{owner}.{RENAMED[name]}"
            if name in READ:
                code = f"({owner}.{READ[name]})"
            edits = (Rewrite(node, code),) if code else ()
            severity = None if edits else Severity.DEGRADED
            because = f"TrainingArguments have no {name}"
            yield Finding(module, node, because, edits, severity=severity)


@answered_once
def own_options(program: Program) -> set[str]:
    """What classes of the program declare as options, and what it sets of some arguments."""
    declared = {
        each.target.id
        for module in program.modules
        for owner in module.nodes(ast.ClassDef)
        for each in owner.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return declared | {
        node.attr
        for module in program.modules
        for node in module.nodes(ast.Attribute)
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
    }


def are_arguments(module: Module, owner: ast.expr, parses: bool) -> bool:
    """Whether a name stands for TrainingArguments of transformers."""
    if not isinstance(owner, ast.Name):
        return False
    made = module.definition(owner, owner)
    if isinstance(made, ast.Call) and module.last_name(made.func) in ARGUMENTS:
        return module.dotted(made.func).startswith("transformers.")
    return parses and owner.id.endswith("training_args")


def old_calls(program: Program, module: Module, names: set[str]) -> Iterator[Finding]:
    """``trainer.is_world_master()`` and ``trainer.train(model_path=…)``."""
    for call in module.calls_to(*(ASKED.keys() - program.functions_by_name.keys())):
        func = call.func
        if isinstance(func, ast.Attribute):
            today = f"{module.text(func.value)}.{ASKED[func.attr]}"
            because = f"the Trainer has no {func.attr}()"
            yield Finding(module, call, because, (Rewrite(func, today),))
    for call in module.calls_to("train"):
        word = keyword(call, "model_path")
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        made = None if owner is None else module.definition(owner, call)
        if word is None or not isinstance(made, ast.Call):
            continue
        if is_trainer_name(module.dotted(made.func)) or module.last_name(made.func) in names:
            edit = Rewrite(word, f"resume_from_checkpoint={module.text(word.value)}")
            yield Finding(module, word, "train() takes no model_path", (edit,))


def of_today(module: Module, word: ast.keyword, told: list[str]) -> str | None:
    """What stands for a word today, "" where it is left out; None for a word of today."""
    name = word.arg or ""
    if name in RENAMED and RENAMED[name] not in told:
        return f"{RENAMED[name]}={module.text(word.value)}"
    if name in SWITCHES and (is_true(word.value) or is_false(word.value)):
        return SWITCHES[name] if is_true(word.value) else ""
    return "" if name in LEFT_OUT else None


def old_methods(module: Module, owner: ast.ClassDef) -> Iterator[Finding]:
    """Methods of a Trainer that do not take what it passes them, and the tokenizer of old."""
    for method in owner.body:
        word = PASSED.get(method.name) if isinstance(method, ast.FunctionDef) else None
        if not isinstance(method, ast.FunctionDef) or word is None:
            continue
        of = method.args
        if of.kwarg is not None or of.vararg is not None or word in parameters(method):
            continue
        because = f"{method.name}() is passed {word}"
        edits: list[Edit] = []
        if not of.kwonlyargs and (of.defaults or of.args):
            last = of.defaults[-1] if of.defaults else of.args[-1].annotation or of.args[-1]
            edits.append(Rewrite(last, f", {word}=None", after=True))
            if method.name == "compute_loss" and OWN_SCALE not in module.text(owner):
                edits.append(Insert(method, f"{OWN_SCALE} = False"))
        yield Finding(module, method, because, tuple(edits))
    is_own = any(
        isinstance(node.ctx, ast.Store) and node.attr == "tokenizer"
        for node in everywhere(owner, ast.Attribute)
    )
    for node in () if is_own else everywhere(owner, ast.Attribute):
        if asks_for_release(module, node):
            continue
        if node.attr == "tokenizer" and module.text(node.value) == "self":
            because = "the Trainer has no tokenizer"
            yield Finding(module, node, because, (Rewrite(node, "self.processing_class"),))


def asks_for_release(module: Module, node: ast.AST) -> bool:
    """Whether code is for one release: under a test of the version, or of what an object has."""
    tests = [up.test for up in module.ancestors(node) if isinstance(up, ast.If | ast.IfExp)]
    texts = [module.text(test) for test in tests]
    return any("version" in text.lower() or "hasattr(" in text for text in texts)
