"""Add capabilities of transformers models, after the statement that constructs the model."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ...record import record
from ..analysis.settings.parsed_arguments import arguments_at
from ..analysis.training.program import Program
from ..editing.edits import Edit, Insert
from ..findings import Finding
from ..source.tree import (
    argument_values,
    precedes,
)
from .flags import Flag, missing_flag_findings
from .models import ModelConstruction, model_constructions, transformer_class, transformer_parts


@record
class ModelSite:
    """A statement that constructs a model, and the names that code after it can use."""

    construction: ModelConstruction
    names: tuple[str, ...]  # of the transformers models
    args: str  # of the parsed arguments

    def calls_after(self, name: str) -> list[ast.Call]:
        """The calls of ``name`` after the statement."""
        module = self.construction.module
        return [
            call
            for call in module.calls_to(name)
            if module.function(call) is module.function(self.construction.stmt)
            and precedes(self.construction.stmt, call)
        ]


@record
class ModelEdit:
    """Code to insert after a model's construction, the reason, and further edits it needs."""

    because: str
    code: str
    needs: tuple[Edit, ...] = ()


def add_after_models(
    program: Program, flags: tuple[Flag, ...], missing: Callable[[ModelSite], ModelEdit | None]
) -> Iterator[Finding]:
    """Findings that add the missing flags and code; or one that says why that is impossible."""
    where, first = program.script, program.script.tree.body[0]
    models = model_constructions(program)
    if not models:
        yield Finding(where, first, "nothing shows where the trained model is made")
        return
    sites = model_sites(program, models)
    if not sites:
        one = models[0]
        because = f"{one.module.text(one.call.func)}() keeps no transformers model that it is given"
        yield Finding(one.module, one.stmt, because)
        return
    flag_findings = missing_flag_findings(program, flags)
    if flag_findings is None or not all(site.args for site in sites):
        yield Finding(where, first, "no command line whose arguments reach the model")
        return
    yield from flag_findings
    for site in sites:
        edit = missing(site)
        if edit is not None:
            stmt = site.construction.stmt
            edits = (Insert(stmt, edit.code, "after"), *edit.needs)
            yield Finding(site.construction.module, stmt, edit.because, edits)


def model_sites(program: Program, models: list[ModelConstruction]) -> list[ModelSite]:
    """The constructions of models that are, or contain, transformers models.

    A model that is passed to the constructor of another is left out: it is part of that one.
    """
    return [
        ModelSite(one, tuple(names), arguments_at(program, one.module, one.stmt))
        for one in models
        for names in [targets(program, one)]
        if names and not any(is_given(other, one) and targets(program, other) for other in models)
    ]


def targets(program: Program, one: ModelConstruction) -> list[str]:
    """The expressions for the transformers models in a constructed model."""
    if transformer_class(program, one.module, one.call, one.stmt):
        return [one.name]
    return [f"{one.name}.{part}" for part in transformer_parts(program, one)]


def is_given(outer: ModelConstruction, inner: ModelConstruction) -> bool:
    """Whether ``inner`` is an argument of ``outer``: ``model = Model(encoder, config)``."""
    module = outer.module
    arguments = argument_values(outer.call)
    return (
        outer.stmt is not inner.stmt
        and module is inner.module
        and module.function(outer.stmt) is module.function(inner.stmt)
        and any(module.text(value) == inner.name for value in arguments)
    )
