"""DistributedDataParallel waits for gradients that never come.

What         The model is wrapped without find_unused_parameters, and has parameters that no loss
             depends on: a layer that forward never calls, one of a list of which forward takes
             one by an argument (a head for each task), or the pooler of a BertModel or RobertaModel
             of which the first output alone is read.
At run time  RuntimeError in the second step: expected to have finished reduction in the prior
             iteration.
Example      torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank])
Fix          find_unused_parameters=True; static_graph=True where one step calls the model twice.
Fix safety   Safe: no gradient changes. It costs a walk of the graph in every step, and torch warns
             once where nothing is unused after all.
Source       torch.nn.parallel.DistributedDataParallel (find_unused_parameters)
"""

import ast
from collections.abc import Iterator
from typing import TypeGuard

from ..analysis.training.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import unused_parameters_option
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    bound_names,
    everywhere,
    keyword,
    last_argument,
    parameters,
    same_code,
    within,
)

CODE, SEVERITY, SAFETY = "DF302", Severity.ERROR, Safety.SAFE

HANDLING_OPTIONS = ("find_unused_parameters", "static_graph", None)
LAYERS_WITH_PARAMETERS = (
    *("Bilinear", "Conv1d", "Conv2d", "Embedding", "GRU", "LSTM", "LayerNorm", "Linear"),
    *("MultiheadAttention", "Parameter", "TransformerDecoder", "TransformerEncoder"),
)
MODELS_WITH_POOLER = {
    *("AlbertModel", "BertModel", "CamembertModel", "LayoutLMModel", "LongformerModel"),
    *("MPNetModel", "RobertaModel", "XLMRobertaModel"),
}


def findings(program: Program) -> Iterator[Finding]:
    wraps = [
        (module, call)
        for module, call in program.calls_to("DistributedDataParallel")
        if module.dotted(call.func).startswith("torch.")
        and not any(word.arg in HANDLING_OPTIONS for word in call.keywords)
        and argument(call, 7, "find_unused_parameters") is None
    ]
    if not wraps:
        return
    severity, option = None, unused_parameters_option(program)
    because = uncalled_layer(program)
    if not because and (because := chosen_layer(program)):
        severity = Severity.DEGRADED  # it may be the same one in each step
        option = option if option == "find_unused_parameters" else ""  # no step is like the first
    if not because:
        severity, because = Severity.DEGRADED, unread_pooler(program)
    if not because:
        return
    for module, call in wraps:
        last = last_argument(call)
        if last is not None:
            edits = (Rewrite(last, f", {option}=True", after=True),) if option else ()
            yield Finding(module, call, because, edits, severity=severity)


def uncalled_layer(program: Program) -> str:
    """Evidence for a layer that a model of the program creates and nothing reads, or ``""``."""
    read = {
        node.attr
        for module in program.modules
        for node in module.nodes(ast.Attribute)
        if isinstance(node.ctx, ast.Load)
    }
    if read & {"children", "modules", "named_children", "_modules"}:
        return ""  # layers may be called without their names
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            if not program.calls_to(owner.name):
                continue
            for name in layer_attributes(module, owner):
                if name not in read and not any(
                    node.value == name for m in program.modules for node in m.nodes(ast.Constant)
                ):
                    return f"{owner.name}.{name} is made and never called"
    return ""


def chosen_layer(program: Program) -> str:
    """Evidence for a list of layers of which an argument of forward tells one, or ``""``."""
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            forward = next((f for f in owner.body if is_forward(f)), None)
            if forward is None or not is_constructed(program, owner):
                continue
            for node in within(forward.body, ast.Subscript):
                key = node.slice
                if (
                    isinstance(key, ast.Name)
                    and key.id in parameters(forward)
                    and key.id not in bound_names(forward.body)
                    and is_list_of_layers(module, owner, node.value)
                    and not is_gone_over(owner, node.value)
                ):
                    text = module.text(node)
                    return f"{owner.name}.forward calls {text} alone, and not the others"
    return ""


def is_forward(stmt: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    return isinstance(stmt, ast.FunctionDef) and stmt.name == "forward"


def is_constructed(program: Program, owner: ast.ClassDef) -> bool:
    """Whether the program makes an object of a class, also by ``from_pretrained``."""
    return bool(program.calls_to(owner.name)) or any(
        isinstance(call.func, ast.Attribute) and module.last_name(call.func.value) == owner.name
        for module, call in program.calls_to("from_pretrained")
    )


def is_list_of_layers(module: Module, owner: ast.ClassDef, node: ast.expr) -> bool:
    """Whether a class makes ``self.x`` a list or a dictionary of layers."""
    return isinstance(node, ast.Attribute) and any(
        isinstance(stmt.value, ast.Call)
        and module.dotted(stmt.value.func) in ("torch.nn.ModuleList", "torch.nn.ModuleDict")
        and module.text(node) in map(module.text, stmt.targets)
        for stmt in everywhere(owner, ast.Assign)
    )


def is_gone_over(owner: ast.ClassDef, layers: ast.expr) -> bool:
    """Whether a method of the class, which does not only construct, goes over all of a list."""
    methods = [f for f in owner.body if isinstance(f, Function) and f.name != "__init__"]
    sources = [loop.iter for method in methods for loop in everywhere(method, ast.For)]
    sources += [each.iter for method in methods for each in everywhere(method, ast.comprehension)]
    return any(
        same_code(part, layers) for source in sources for part in everywhere(source, type(layers))
    )


def layer_attributes(module: Module, owner: ast.ClassDef) -> Iterator[str]:
    """Attributes to which a class assigns layers with parameters."""
    for function in owner.body:
        if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
            continue
        for stmt in within(function.body, ast.Assign):
            value, target = stmt.value, stmt.targets[0]
            if (
                isinstance(value, ast.Call)
                and module.dotted(value.func).startswith("torch.nn.")
                and module.last_name(value.func) in LAYERS_WITH_PARAMETERS
                and isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
                and not isinstance(module.parents[stmt], ast.If)  # an argument may leave it out
            ):
                yield target.attr


def unread_pooler(program: Program) -> str:
    """Evidence for a model of transformers whose pooler output nothing reads, or ``""``."""
    used = program.names_of_transformers & MODELS_WITH_POOLER
    if not used or any(reads_pooler(module) for module in program.modules):
        return ""
    return f"nothing reads the pooler of {', '.join(sorted(used))}"


def reads_pooler(module: Module) -> bool:
    """Whether a second output is indexed, or a pooler is named."""
    return (
        any(node.attr.startswith("pooler") for node in module.nodes(ast.Attribute))
        or any(keyword(call, "add_pooling_layer") for call in module.nodes(ast.Call))
        or any(
            isinstance(node.slice, ast.Constant) and node.slice.value in (1, "pooler_output")
            for node in module.nodes(ast.Subscript)
        )
    )
