"""Models that an optimizer of their own steps, though no step calls them by their name.

As the centres of a loss that a closure calls: ``loss_of = make_loss(centres)``,
``centre_optimizer = SGD(centres.parameters())``, and ``centre_optimizer.step()`` in each step.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set

from ...source.module import Module
from ...source.tree import argument_values, everywhere
from ..language.name_flow import names_in, spread
from ..training.frameworks import OPTIMIZERS
from ..training.program import Program
from .optimized_parameters import is_element_of_parameter, models_in, parameter_calls

NamesOf = Callable[[Program, Module, ast.expr], Set[str]]


def stepped_alone(program: Program, wrapped: Set[str], stepped: Set[str], names_of: NamesOf) -> str:
    """A model none of whose names is ``wrapped``, of an optimizer that is ``stepped``; or "".

    Names are compared by their last parts. Not where an optimizer gets anything else, or the model
    may be a part of another one, or made of it.
    """
    for module, made in program.calls_to(*OPTIMIZERS):
        stmt = module.statement(made)
        targets = stmt.targets if isinstance(stmt, ast.Assign) and stmt.value is made else []
        if not {module.text(each).rpartition(".")[2] for each in targets} & stepped:
            continue
        if not program.is_live(module, made):
            continue
        owners = [
            (home, method.value)
            for value in argument_values(made)
            for home, method in parameter_calls(program, module, value)
        ]
        related = {
            part
            for home, owner in owners
            for each in related_to(home, owner)
            for name in names_of(program, home, each)
            for part in name.split(".")
        }
        if any(becomes(home, owner) & wrapped for home, owner in owners):
            continue  # a part of a wrapped one
        if owners and not related & wrapped and all(map(is_named, owners)):
            home, owner = owners[0]
            return home.text(owner)
    return ""


def becomes(module: Module, owner: ast.expr) -> set[str]:
    """The last parts of names that get a model, as ``model`` of ``Sequential(net, head)``."""
    body = module.scope_statements(owner)
    return {name.rpartition(".")[2] for name in spread(body, names_in(owner)).names}


def is_named(owner: tuple[Module, ast.expr]) -> bool:
    return isinstance(owner[1], ast.Name | ast.Attribute) and not is_element_of_parameter(*owner)


def related_to(module: Module, owner: ast.expr) -> Iterator[ast.expr]:
    """A model, and the names and attributes of what it is bound to: ``head = model.head``.

    Of ``bare.head`` also those of what ``bare`` is bound to.
    """
    for each in models_in(module, owner):
        yield each
        for name in everywhere(each, ast.Name):
            yield name
            for value in module.alternatives(name, name):
                yield from everywhere(value, ast.Name)
                yield from everywhere(value, ast.Attribute)
