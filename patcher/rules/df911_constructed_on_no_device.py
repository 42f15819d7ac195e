"""What a model's constructor draws is lost when the model is loaded.

What         A class that derives from a model of transformers makes parameters or buffers of its
             own, such as a CRF's transitions, and is loaded by from_pretrained().
At run time  transformers 5 runs the constructor on no device and then fills in the checkpoint. What
             the checkpoint lacks is drawn again only for the layers that it knows, Linear and
             Embedding among them; all else is left as it lies in memory. The loss is nan, or
             another one in each run; a tensor that is no parameter stays without a device.
Example      class Tagger(BertPreTrainedModel): def __init__(self, config): …; self.crf = CRF(9)
Fix          from_pretrained() of the class builds it once more, and takes from there what the
             checkpoint lacks of these attributes.
Fix safety   Safe: what is in the checkpoint is loaded as before, and what is not had no value.
Source       transformers.PreTrainedModel.get_init_context and _init_weights
"""

import ast
from collections.abc import Iterator

from ..analysis.models.library_models import Classes, classes_by_name, library_models
from ..analysis.training.program import Program
from ..editing.edits import Define, Insert
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import within
from .df909_model_without_post_init import is_loaded

CODE, SEVERITY, SAFETY = "DF911", Severity.DEGRADED, Safety.SAFE
ANYWHERE = True

HELPER = "load_with_drawn"
LOAD = """
@classmethod
def from_pretrained(cls, *args, **options):
    return load_with_drawn(super().from_pretrained, cls, {names}, args, options)
"""
PARAMETERS = {"torch.nn.Parameter", "torch.nn.parameter.Parameter"}
TENSORS = {f"torch.{name}" for name in ("arange", "linspace", "ones", "rand", "randn", "tensor")}
TENSORS |= {"torch.eye", "torch.full", "torch.zeros", "torch.from_numpy", "torch.FloatTensor"}
PACKAGES = ("torchcrf.", "TorchCRF.")  # whose modules have parameters of their own
NORMS = ("LayerNorm", "RMSNorm")  # transformers knows a class by such a name
MAX_DEPTH = 5  # modules in modules


def findings(program: Program) -> Iterator[Finding]:
    if not any(module.calls_to("from_pretrained") for module in program.modules):
        return
    classes = classes_by_name(program)
    models = library_models(program)
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            methods = {f.name: f for f in owner.body if isinstance(f, ast.FunctionDef)}
            constructor = methods.get("__init__")
            if constructor is None or {"from_pretrained", "_init_weights"} & methods.keys():
                continue
            if owner not in models:
                continue
            names = list(dict.fromkeys(drawn_attributes(classes, module, constructor)))
            if names and may_be_loaded(program, classes, owner):
                because = f"{', '.join(names)} of {owner.name} are in no checkpoint of its base"
                told = [each.arg for each in constructor.args.args]
                simple = told[1:2] == ["config"] and constructor.args.kwarg is None
                edits = (
                    Insert(constructor, LOAD.format(names=names).strip("\n"), "after"),
                    Define(HELPER),
                )
                yield Finding(module, owner, because, edits if simple else ())


def drawn_attributes(
    classes: Classes, module: Module, constructor: ast.FunctionDef
) -> Iterator[str]:
    """The attributes whose values transformers draws for no model."""
    for stmt in within(constructor.body, ast.Assign):
        for target in stmt.targets:
            if (
                isinstance(target, ast.Attribute)
                and module.text(target.value) == "self"
                and any(is_drawn(classes, module, call) for call in within(stmt, ast.Call))
            ):
                yield target.attr
    for call in within(constructor.body, ast.Call):
        if module.text(call.func) == "self.register_buffer" and call.args:
            name = call.args[0]
            if isinstance(name, ast.Constant):
                yield str(name.value)


def is_drawn(classes: Classes, module: Module, call: ast.Call, depth: int = 0) -> bool:
    """Whether a call makes a tensor, or a module of the program's own that makes some."""
    name = module.dotted(call.func)
    if name in PARAMETERS | TENSORS or name.startswith(PACKAGES):
        return True
    found = classes.get(module.last_name(call.func), ())
    if len(found) != 1 or depth == MAX_DEPTH:
        return False
    where, owner = found[0]
    if any(word in owner.name for word in NORMS):
        return False
    return any(
        where.text(inner.func) == "self.register_buffer"
        or (where.dotted(inner.func) not in TENSORS and is_drawn(classes, where, inner, depth + 1))
        for function in owner.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        for inner in within(function.body, ast.Call)
    )


def may_be_loaded(program: Program, classes: Classes, owner: ast.ClassDef) -> bool:
    """Whether from_pretrained() may be called on a class, or on one that derives from it."""
    names = {owner.name}
    for _ in range(MAX_DEPTH):
        names |= {
            name
            for name, found in classes.items()
            for where, other in found
            if any(where.last_name(base) in names for base in other.bases)
        }
    return any(
        where.last_name(name) in names and is_loaded(where, name)
        for where in program.modules
        for name in (*where.nodes(ast.Name), *where.nodes(ast.Attribute))
    )
