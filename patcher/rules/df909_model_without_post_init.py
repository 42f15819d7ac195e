"""A model of transformers is not finished by its constructor.

What         A class that derives from a model of transformers calls self.init_weights() at the end
             of its constructor, and never self.post_init().
At run time  AttributeError in the constructor: the model has no attribute all_tied_weights_keys.
Example      class Tagger(BertPreTrainedModel): def __init__(self, config): …; self.init_weights()
Fix          self.post_init(), which calls init_weights() and sets what version 5 asks for.
Fix safety   Safe: the line could only raise before; the weights are those that init_weights makes.
Source       transformers.PreTrainedModel.post_init
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Set

from ..analysis.program import Program
from ..analysis.vendored import has_own
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import within

CODE, SEVERITY, SAFETY = "DF909", Severity.ERROR, Safety.SAFE
ANYWHERE = True

MAX_DEPTH = 5  # classes of the program between a class and transformers'


Classes = dict[str, list[tuple[Module, ast.ClassDef]]]


def findings(program: Program) -> Iterator[Finding]:
    calling = [m for m in program.modules if m.calls_to("init_weights")]
    if not calling:
        return
    classes: Classes = defaultdict(list)
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            classes[owner.name].append((module, owner))
    own = {module for module in program.modules if has_own(program, module, "transformers")}
    for module in calling:
        for owner in module.nodes(ast.ClassDef):
            methods = {f.name: f for f in owner.body if isinstance(f, ast.FunctionDef)}
            constructor = methods.get("__init__")
            if constructor is None or {"init_weights", "post_init"} & methods.keys():
                continue
            calls = {module.text(call.func): call for call in within(constructor.body, ast.Call)}
            call = calls.get("self.init_weights")
            if call is None or "self.post_init" in calls or call.args or call.keywords:
                continue
            if not is_model(classes, own, module, owner):
                continue
            because = f"{owner.name} calls self.init_weights() and not self.post_init()"
            yield Finding(module, call, because, (Rewrite(call.func, "self.post_init"),))


def is_model(
    classes: Classes, own: Set[Module], module: Module, owner: ast.ClassDef, depth: int = 0
) -> bool:
    """Whether a class derives from a model of the installed transformers.

    ``own``: modules whose transformers is a local copy.
    """
    for base in owner.bases:
        name = module.dotted(base)
        is_library = name.startswith("transformers.") and (name.endswith("Model") or "For" in name)
        if is_library and module not in own:
            return True
        if depth < MAX_DEPTH and any(
            other is not owner and is_model(classes, own, where, other, depth + 1)
            for where, other in classes.get(module.last_name(base), ())
        ):
            return True
    return False
