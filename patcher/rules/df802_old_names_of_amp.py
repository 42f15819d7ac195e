"""Mixed precision is asked for by names that PyTorch has deprecated.

What         torch.cuda.amp.autocast and GradScaler, torch.cpu.amp.autocast.
At run time  A FutureWarning at each construction, on every rank, until a release drops the names.
Example      with torch.cuda.amp.autocast(enabled=args.fp16): loss = model(batch)
Fix          torch.amp.autocast('cuda', …) and torch.amp.GradScaler('cuda', …), what the old names
             call. Decorators and names that are handed on are left.
Fix safety   Safe: the old names are subclasses that pass that first argument to the new ones.
Source       torch.amp; https://docs.pytorch.org/docs/stable/amp.html
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.statements import arguments_in_order
from ..source.module import Module
from ..source.tree import Function, argument

CODE, SEVERITY, SAFETY = "DF802", Severity.NOTE, Safety.SAFE

OLD_NAMES = (
    "torch.cuda.amp.autocast",
    "torch.cuda.amp.autocast_mode.autocast",
    "torch.cuda.amp.GradScaler",
    "torch.cuda.amp.grad_scaler.GradScaler",
    "torch.cpu.amp.autocast",
)
AUTOCAST_PARAMETERS = ("enabled", "dtype", "cache_enabled")  # of the old class, in order


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        calls = [
            call
            for call in module.calls_to("autocast", "GradScaler")
            if module.dotted(call.func) in OLD_NAMES
        ]
        if calls and not any(map(names_device, calls)):
            because = f"{module.dotted(calls[0].func)} is deprecated"
            yield Finding(module, calls[0], because, tuple(rename_calls(module, calls)))


def rename_calls(module: Module, calls: list[ast.Call]) -> Iterator[Edit]:
    """Edits that rename all calls of a module, or none where one of them cannot be renamed."""
    imports = [
        (stmt, alias)
        for stmt in module.nodes(ast.ImportFrom)
        for alias in stmt.names
        if f"{stmt.module}.{alias.name}" in OLD_NAMES
    ]
    statements = {stmt for stmt, _ in imports}
    imports_others = any(
        len(stmt.names) != sum(s is stmt for s, _ in imports) for stmt in statements
    )
    called = {call.func for call in calls}
    other_uses = [
        name
        for name in module.nodes(ast.Name)
        if module.aliases.get(name.id) in OLD_NAMES and name not in called
    ]
    if imports_others or other_uses or any(is_unsupported(module, call) for call in calls):
        return
    for call in calls:
        yield from rename_call(module, call)
    for stmt in statements:
        names = ", ".join(module.text(alias) for alias in stmt.names)
        yield Replace(stmt, f"from torch.amp import {names}")


def rename_call(module: Module, call: ast.Call) -> Iterator[Edit]:
    """Edits that call the new name, with the device as the first argument."""
    old = module.dotted(call.func)
    name, device = old.rpartition(".")[2], f"'{old.split('.')[1]}'"
    if not isinstance(call.func, ast.Name):
        yield Rewrite(call.func, f"torch.amp.{name}")
        yield Import("torch")
    arguments = arguments_in_order(call)
    if not arguments:
        yield Rewrite(call.func, f"({device})", call, after=True)
    for index, each in enumerate(arguments):
        text = module.text(each)
        if name == "autocast" and each in call.args:
            text = f"{AUTOCAST_PARAMETERS[index]}={text}"
        text = text if index else f"{device}, {text}"
        if text != module.text(each):
            yield Rewrite(each, text)


def names_device(call: ast.Call) -> bool:
    """Whether a call tells the device as the new names take it: an old one is imported in need."""
    device = argument(call, 0, "device_type") or argument(call, 0, "device")
    return isinstance(device, ast.Constant) and isinstance(device.value, str)


def is_unsupported(module: Module, call: ast.Call) -> bool:
    """Whether the call is a decorator, or unpacks its arguments."""
    up = module.parents[call]
    return (isinstance(up, Function) and call in up.decorator_list) or any(
        isinstance(arg, ast.Starred) for arg in call.args
    )
