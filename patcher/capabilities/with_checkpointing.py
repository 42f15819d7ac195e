"""Gradient checkpointing: activations are computed again in the backward pass, not kept.

What         The transformers model that is trained, or that the trained module keeps as an encoder
             or decoder, gets its own gradient_checkpointing_enable().
Flags        --gradient_checkpointing
Without      Activations of all layers stay in memory from the forward to the backward pass: the
             batch that fits is several times smaller.
Fix safety   Safe: off, the call is not reached. On, the losses are the same; a step takes about a
             third longer. use_reentrant is off: DDP counts gradients by hooks that a reentrant
             backward fires twice.
Source       https://docs.pytorch.org/docs/stable/checkpoint.html;
             transformers.PreTrainedModel.gradient_checkpointing_enable
"""

import ast
from collections.abc import Iterator

from ..edits import Insert
from ..facts import Unit
from ..findings import Finding
from .flags import Flag, arguments_at, lacking
from .models import Made, made, parts, transformer

ORDER = 20
FLAGS = (
    Flag(
        "--gradient_checkpointing",
        "bool",
        "False",
        "Compute activations again in the backward pass: less memory, slower steps.",
    ),
)
METHOD = "gradient_checkpointing_enable"


def findings(unit: Unit) -> Iterator[Finding]:
    models = made(unit)
    where, first = unit.script, unit.script.tree.body[0]
    if not models:
        yield Finding(where, first, "nothing shows where the trained model is made")
        return
    places = [(one, target) for one in models for target in targets(unit, one)]
    if not places:
        one = models[0]
        because = f"{one.module.text(one.call.func)}() keeps no transformers model that it is given"
        yield Finding(one.module, one.stmt, because)
        return
    flags = lacking(unit, FLAGS)
    nameless = [one for one, _ in places if not arguments_at(unit, one.module, one.stmt)]
    if flags is None or nameless:
        yield Finding(where, first, "no command line whose arguments reach the model")
        return
    yield from flags
    for one, target in places:
        if not is_enabled(one, target):
            args = arguments_at(unit, one.module, one.stmt)
            code = (
                f"if {args}.{FLAGS[0].name}:\n"
                f"    {target}.{METHOD}(gradient_checkpointing_kwargs={{'use_reentrant': False}})"
            )
            because = f"{target} keeps all activations"
            yield Finding(one.module, one.stmt, because, (Insert(one.stmt, code, "after"),))


def targets(unit: Unit, one: Made) -> list[str]:
    """How the transformers models of what a statement makes are named behind it."""
    if transformer(unit, one.module, one.call, one.stmt):
        return [one.name]
    return [f"{one.name}.{part}" for part in parts(unit, one)]


def is_enabled(one: Made, target: str) -> bool:
    module = one.module
    return any(
        isinstance(call.func, ast.Attribute)
        and module.text(call.func.value) == target
        and module.function(call) is module.function(one.stmt)
        and call.lineno > one.stmt.lineno
        for call in module.calls_to(METHOD)
    )
