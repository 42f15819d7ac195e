"""A configuration is read as the model's own after the vocabulary was resized.

What         Tokens are added, the model is resized, and then the script reads the object that it
             passed to from_pretrained as config.
At run time  transformers of today gives the model a copy: the object still has the old vocab_size.
             A head made by it does not fit the embeddings; RuntimeError in the first step.
Example      model = RobertaModel.from_pretrained(path, config=config)
             model.resize_token_embeddings(len(tokenizer))
             model = Model(model, config)
Fix          config = model.config behind the line that resizes.
Fix safety   Safe: where both are the same object, nothing changes.
Source       transformers.PreTrainedModel.from_pretrained, which copies config
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..editing.edits import Insert
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import keyword, locate, number_of, within

CODE, SEVERITY, SAFETY = "DF907", Severity.DEGRADED, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        for call in module.calls_to("resize_token_embeddings"):
            stmt = module.parents[call]
            model = call.func.value if isinstance(call.func, ast.Attribute) else None
            if not isinstance(stmt, ast.Expr) or not isinstance(model, ast.Name):
                continue
            config = config_argument(module, model)
            if config is not None and is_read_later(module, stmt, config):
                yield Finding(
                    module,
                    call,
                    f"{config} is not {model.id}.config",
                    (Insert(stmt, f"{config} = {model.id}.config", "after"),),
                )


def config_argument(module: Module, model: ast.Name) -> str | None:
    """The name of the configuration that a model was loaded with."""
    loading = module.definition(model, model)
    if not isinstance(loading, ast.Call) or module.last_name(loading.func) != "from_pretrained":
        return None
    config = keyword(loading, "config")
    value = config.value if config else None
    return value.id if isinstance(value, ast.Name) else None


def is_read_later(module: Module, stmt: ast.stmt, config: str) -> bool:
    """Whether the function reads the name after ``stmt`` before it binds it again."""
    table, number = locate(stmt)
    later = [
        name
        for name in within(module.scope_statements(stmt), ast.Name)
        if name.id == config and number_of(name) >= table.ends[number]
    ]
    if not later:
        return False
    next_stmt = module.statement(later[0])
    # The value of an assignment is read before its target is bound.
    return any(
        isinstance(name.ctx, ast.Load) for name in later if module.statement(name) is next_stmt
    )
