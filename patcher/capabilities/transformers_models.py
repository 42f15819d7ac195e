"""Where capabilities of transformers models are added: behind what makes the trained model."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ...record import record
from ..analysis.program import Program
from ..editing.edits import Edit, Insert
from ..findings import Finding
from .flags import Flag, arguments_at, lacking
from .models import ModelConstruction, made, parts, transformer


@record
class ModelSite:
    """A statement that makes a model, and what is known behind it.

    ``names`` are those of the transformers models, ``args`` is that of the parsed arguments.
    """

    made: ModelConstruction
    names: tuple[str, ...]
    args: str

    def calls(self, name: str) -> list[ast.Call]:
        """Calls of this name behind the statement."""
        module = self.made.module
        return [
            call
            for call in module.calls_to(name)
            if module.function(call) is module.function(self.made.stmt)
            and call.lineno > self.made.stmt.lineno
        ]


@record
class ModelEdit:
    """Code that belongs behind a place, why, and what it needs."""

    because: str
    code: str
    needs: tuple[Edit, ...] = ()


def behind_models(
    program: Program, flags: tuple[Flag, ...], missing: Callable[[ModelSite], ModelEdit | None]
) -> Iterator[Finding]:
    """The flags that are missing, and the step that each place lacks; or why there is no way."""
    where, first = program.script, program.script.tree.body[0]
    models = made(program)
    if not models:
        yield Finding(where, first, "nothing shows where the trained model is made")
        return
    found = places(program, models)
    if not found:
        one = models[0]
        because = f"{one.module.text(one.call.func)}() keeps no transformers model that it is given"
        yield Finding(one.module, one.stmt, because)
        return
    lacked = lacking(program, flags)
    if lacked is None or not all(place.args for place in found):
        yield Finding(where, first, "no command line whose arguments reach the model")
        return
    yield from lacked
    for place in found:
        step = missing(place)
        if step is not None:
            stmt = place.made.stmt
            edits = (Insert(stmt, step.code, "after"), *step.needs)
            yield Finding(place.made.module, stmt, step.because, edits)


def places(program: Program, models: list[ModelConstruction]) -> list[ModelSite]:
    """Where models are made that are transformers models, or keep some.

    A model that another of them is given is left out: it is one of the other's.
    """
    return [
        ModelSite(one, tuple(names), arguments_at(program, one.module, one.stmt))
        for one in models
        for names in [targets(program, one)]
        if names and not any(is_given(other, one) and targets(program, other) for other in models)
    ]


def targets(program: Program, one: ModelConstruction) -> list[str]:
    """How the transformers models of what a statement makes are named behind it, each once."""
    if transformer(program, one.module, one.call, one.stmt):
        return [one.name]
    return [f"{one.name}.{part}" for part in parts(program, one)]


def is_given(outer: ModelConstruction, inner: ModelConstruction) -> bool:
    """Whether a model is made of another one: ``model = Model(encoder, config)``."""
    module = outer.module
    arguments = [*outer.call.args, *(word.value for word in outer.call.keywords)]
    return (
        outer.stmt is not inner.stmt
        and module is inner.module
        and module.function(outer.stmt) is module.function(inner.stmt)
        and any(module.text(value) == inner.name for value in arguments)
    )
