"""Configurations of logging that open log files: ``logging.config.dictConfig(config)``."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ...source.module import Module

DICT_CONFIG = "logging.config.dictConfig"
OF_FILE_HANDLERS = {"handlers", "filename"}  # keys of the dictionary, wherever it is made


def log_configurations(modules: Iterable[Module], module: Module) -> list[ast.Call]:
    """The statements of a module that configure logging, in a program that names log files."""
    calls = [
        call
        for call in module.calls_to("dictConfig")
        if isinstance(module.parents[call], ast.Expr) and module.dotted(call.func) == DICT_CONFIG
    ]
    if calls and any(
        {each.value for each in where.nodes(ast.Constant)} >= OF_FILE_HANDLERS for where in modules
    ):
        return calls
    return []
