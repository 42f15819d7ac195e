"""A model of transformers is not finished by its constructor.

What         A class that derives from a model of transformers never calls self.post_init(): it
             calls self.init_weights() at the end of its constructor, or neither and is loaded by
             from_pretrained().
At run time  AttributeError in the constructor or in from_pretrained(): the model has no attribute
             all_tied_weights_keys.
Example      class Tagger(BertPreTrainedModel): def __init__(self, config): …; self.init_weights()
Fix          self.post_init(), which calls init_weights() and sets what version 5 asks for.
Fix safety   Safe: it could only raise before; the weights are those that init_weights makes.
Source       transformers.PreTrainedModel.post_init
"""

import ast
from collections.abc import Iterator

from ..analysis.models.library_models import library_models
from ..analysis.training.program import Program
from ..analysis.training.vendored import has_own
from ..editing.edits import Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import within

CODE, SEVERITY, SAFETY = "DF909", Severity.ERROR, Safety.SAFE
ANYWHERE = True

BASE = "PreTrainedModel"  # how the bases of the library are called, which finish nothing
FINISHING = {"init_weights", "post_init"}


def findings(program: Program) -> Iterator[Finding]:
    calling = {m for m in program.modules if m.calls_to("init_weights")}
    loading = any(m.calls_to("from_pretrained") for m in program.modules)
    naming = {m for m in program.modules if loading and BASE in m.source.text}
    if not calling | naming:
        return
    models = library_models(program)
    own = {module for module in program.modules if has_own(program, module, "transformers")}
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef) if module in calling | naming else ():
            methods = {f.name: f for f in owner.body if isinstance(f, ast.FunctionDef)}
            constructor = methods.get("__init__")
            if constructor is None or FINISHING & methods.keys():
                continue
            calls = {module.text(call.func): call for call in within(constructor.body, ast.Call)}
            call = calls.get("self.init_weights")
            if "self.post_init" in calls:
                continue
            if call is None:
                if module not in own and is_left_open(program, module, owner, constructor):
                    because = f"{owner.name} calls neither self.post_init() nor init_weights()"
                    edit = Insert(constructor, "self.post_init()", "last")
                    yield Finding(module, owner, because, (edit,))
                continue
            if call.args or call.keywords or owner not in models:
                continue
            because = f"{owner.name} calls self.init_weights() and not self.post_init()"
            yield Finding(module, call, because, (Rewrite(call.func, "self.post_init"),))


def is_left_open(
    program: Program, module: Module, owner: ast.ClassDef, constructor: ast.FunctionDef
) -> bool:
    """Whether nothing finishes a class that is loaded, which derives from a base of the library.

    A complete model of the library finishes itself. A class that others derive from may be finished
    by them; one that is only constructed needs no more than its constructor.
    """
    bases = [module.dotted(base) for base in owner.bases]
    if len(bases) != 1 or not (bases[0].startswith("transformers.") and bases[0].endswith(BASE)):
        return False
    if any(isinstance(node, ast.Return) for node in ast.walk(constructor)):
        return False
    uses = [
        (where, name)
        for where in program.modules
        for name in (*where.nodes(ast.Name), *where.nodes(ast.Attribute))
        if where.last_name(name) == owner.name
    ]
    is_base = any(
        isinstance(parent := where.parents[name], ast.ClassDef) and name in parent.bases
        for where, name in uses
    )
    return not is_base and any(is_loaded(where, name) for where, name in uses)


def is_loaded(module: Module, name: ast.expr) -> bool:
    """Whether from_pretrained() is called on a class, or may be: it stands in a table."""
    parent = module.parents[name]
    if isinstance(parent, ast.Attribute):
        return parent.attr == "from_pretrained"
    return isinstance(parent, ast.Tuple | ast.Dict | ast.List)
