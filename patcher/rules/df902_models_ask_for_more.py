"""A model is used in a way that transformers 5 no longer takes.

What         config.torchscript is read; an attention mask of token pairs has three dimensions; a
             cache is a list or tuple of tensors; a cache is passed as past=; a mask of four
             dimensions holds 0 and 1.
At run time  AttributeError; RuntimeError in the first forward; AttributeError in the first step of
             a beam search. past= is ignored without a word, so that every step sees one token; so
             is a mask of 0 and 1 by eager attention, which adds it to the scores (a note).
Example      out = self.decoder(ids, attention_mask=self.bias[:, :n, :n], past_key_values=context)
Fix          getattr with False; the mask as it is added to the scores, (1 - mask) * -10000 in four
             dimensions; a DynamicCache around the tensors, of which a layer's first two are key
             and value.
Fix safety   Safe: the line could only raise before, and a mask of other dimensions stays as it is.
             Unsafe for past=: the predictions of one process change, as they were wrong.
Source       transformers.masking_utils, transformers.DynamicCache; measured against eager attention
             with the mask that transformers 4 made
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..analysis.training.vendored import any_has_own
from ..editing.edits import Define, Edit, Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import parameters, within

CODE, SEVERITY, SAFETY = "DF902", Severity.ERROR, Safety.SAFE

Comprehension = ast.ListComp | ast.GeneratorExp

MASK_HELPER = "pairwise_mask"  # of helper_code.py
MAX_DEPTH = 6  # expressions to follow from a mask to where it is created
SHAPE_KEEPING = {"bool", "eq", "float", "ge", "gt", "int", "le", "long", "lt", "ne", "to", "type"}
RESHAPING = {"expand", "reshape", "view"}
ROW_AND_COLUMN = ({1, 2}, {1, -1}, {-2, 2}, {-2, -1})  # where both get a dimension
CACHE_IMPORT = Import("transformers", "DynamicCache")


def findings(program: Program) -> Iterator[Finding]:
    if not any("transformers" in module.imported_packages for module in program.modules):
        return
    if any_has_own(program, "transformers"):
        return
    passed = KEYWORD_CHECKS.keys() - forward_parameters(program)
    for module in program.modules:
        yield from torchscript_findings(module)
        if module.attributes("past_key_values"):
            yield from layer_findings(module)
        for word in [word for word in module.nodes(ast.keyword) if word.arg in passed]:
            call = module.parents[word]
            if word.arg and isinstance(call, ast.Call):
                yield from KEYWORD_CHECKS[word.arg](module, call, word)


def forward_parameters(program: Program) -> set[str]:
    """Parameters of the script's own forward functions, which need not follow transformers."""
    return {
        name
        for module in program.modules
        for function in module.nodes(ast.FunctionDef)
        if function.name == "forward"
        for name in parameters(function)
    }


def torchscript_findings(module: Module) -> Iterator[Finding]:
    for node in module.attributes("torchscript"):
        if isinstance(node.ctx, ast.Load):
            base = module.text(node.value)
            if base.endswith("config"):
                edit = Rewrite(node, f"getattr({base}, 'torchscript', False)")
                yield Finding(module, node, "a config has no torchscript", (edit,))


def mask_findings(module: Module, call: ast.Call, word: ast.keyword) -> Iterator[Finding]:
    """An attention mask that says which query may see which key."""
    if is_added(module, word.value, call):
        because = f"{module.text(word.value)} is added to the scores as it is: 0 and 1 hide nothing"
        yield Finding(module, word, because, severity=Severity.NOTE)
    elif is_pairwise(module, word.value, call):
        text = module.text(word.value)
        edits = (Rewrite(word.value, f"{MASK_HELPER}({text})"), Define(MASK_HELPER))
        yield Finding(module, word, f"{text} has a row for every token", edits)


def is_pairwise(module: Module, node: ast.expr, at: ast.AST, depth: int = 0) -> bool:
    """Whether an expression has the dimensions batch, query and key, as far as it shows."""
    if depth > MAX_DEPTH:
        return False
    match node:
        case ast.Subscript(slice=ast.Tuple(elts=parts)):
            return len(parts) == 3 and all(
                isinstance(part, ast.Slice)
                or (isinstance(part, ast.Constant) and part.value is None)
                for part in parts
            )
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.Mult()):
            sides = (node.left, node.right)
            if {unsqueezed_at(side) for side in sides} in ROW_AND_COLUMN:
                return True
            return any(is_pairwise(module, side, at, depth + 1) for side in sides)
        case ast.Call(func=ast.Attribute(value=base, attr=name)):
            if name in SHAPE_KEEPING:
                return is_pairwise(module, base, at, depth + 1)
            return name in RESHAPING and len(node.args) == 3
        case ast.Name():
            value = module.definition(node, at)
            if value is not None:
                return is_pairwise(module, value, at, depth + 1)
            return is_combined_with_pairs(module, node, at)
    return False


def unsqueezed_at(node: ast.expr) -> int | None:
    """Where ``mask.unsqueeze(2)`` has its new dimension."""
    match node:
        case ast.Call(func=ast.Attribute(attr="unsqueeze"), args=[at]):
            value = ast.unparse(at)
            return int(value) if value in ("1", "2", "-1", "-2") else None
    return None


def is_added(module: Module, node: ast.expr, at: ast.AST) -> bool:
    """Whether a mask gets its fourth dimension without the arithmetic that makes it a bias."""
    for _ in range(4):
        match node:
            case ast.Subscript(slice=ast.Tuple(elts=parts)):
                new = [getattr(part, "value", part) is None for part in parts]
                return len(parts) == 4 and any(new)
            case ast.Call(func=ast.Attribute(value=base, attr=name)) if name in SHAPE_KEEPING:
                node = base
            case ast.Name():
                value = module.definition(node, at)
                if value is None:
                    return False
                node = value
    return False


def is_combined_with_pairs(module: Module, name: ast.Name, at: ast.AST) -> bool:
    """Whether a parameter is combined with a mask of token pairs."""
    for pair in within(module.scope_statements(at), ast.BinOp):
        for side, other in ((pair.left, pair.right), (pair.right, pair.left)):
            is_side = isinstance(side, ast.Name) and side.id == name.id
            if is_side and isinstance(other, ast.BinOp | ast.Subscript):
                return is_pairwise(module, other, at, 1)
    return False


def layer_findings(module: Module) -> Iterator[Finding]:
    """Comprehensions over each layer of a cache, of which the first two items are key and value."""
    inners: list[Comprehension] = [*module.nodes(ast.ListComp), *module.nodes(ast.GeneratorExp)]
    for inner in inners:
        layer = inner.generators[0].iter
        if not isinstance(layer, ast.Name):
            continue
        for outer in module.ancestors(inner):
            if not isinstance(outer, ast.ListComp | ast.GeneratorExp):
                continue
            source = outer.generators[0]
            cache = module.definition(source.iter, outer) or source.iter
            is_cache = isinstance(cache, ast.Attribute) and cache.attr == "past_key_values"
            if is_cache and module.text(source.target) == layer.id:
                because = f"{layer.id} is key, value and a third thing that may be None"
                yield Finding(module, layer, because, (Rewrite(layer, f"{layer.id}[:2]"),))


def cache_findings(module: Module, call: ast.Call, word: ast.keyword) -> Iterator[Finding]:
    """A cache that is a list or tuple of tensors."""
    if is_bare(module, word.value):
        text = module.text(word.value)
        edits = (Rewrite(word.value, f"DynamicCache({text})"), CACHE_IMPORT)
        yield Finding(module, word, f"{text} is no Cache", edits)


def is_bare(module: Module, node: ast.expr) -> bool:
    """Whether a cache is a list or tuple of tensors, in every assignment to its name."""
    match node:
        case ast.List() | ast.ListComp() | ast.Tuple():
            return True
        case ast.Call(func=ast.Name(id="tuple" | "list")):
            return True
        case ast.Name():
            stores = module.stores.get((module.function(node), node.id), [])
            values = [
                stmt.value
                for store in stores
                for stmt in [module.parents[store]]
                if isinstance(stmt, ast.Assign)
            ]
            return (
                bool(values)
                and len(values) == len(stores)
                and all(
                    not isinstance(value, ast.Name) and is_bare(module, value) for value in values
                )
            )
    return False


def past_findings(module: Module, call: ast.Call, word: ast.keyword) -> Iterator[Finding]:
    """A cache that is passed as ``past=``, which models ignore."""
    if not is_model(call.func):
        return
    text = module.text(word.value)
    edits: tuple[Edit, ...] = (Rewrite(word, f"past_key_values={text}"),)
    if is_bare(module, word.value):
        edits = (Rewrite(word, f"past_key_values=DynamicCache({text})"), CACHE_IMPORT)
    because = "past= is ignored: each step sees its own token alone"
    yield Finding(module, word, because, edits, Safety.UNSAFE, Severity.DEGRADED)


def is_model(func: ast.expr) -> bool:
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return name.endswith(("model", "decoder", "encoder", "generator"))


KEYWORD_CHECKS = {
    "attention_mask": mask_findings,
    "past_key_values": cache_findings,
    "past": past_findings,
}
