"""Check a script before it is launched: unpatched, it may train as many models as processes."""

from __future__ import annotations

from pathlib import Path

from ...patcher.api import (
    Diagnostic,
    all_rules,
    check,
    concise,
    diagnose,
    joins_processes,
    read_config,
    read_program,
    select_rules,
)

MAKE_A_GROUP = ("DF201", "DF204")


def script_errors(script: Path) -> list[str]:
    """What stands against several processes in a script and its modules, and what to do, in lines.

    These are the errors of `ddpfix check`, under the project's settings, and that nothing joins the
    processes. Empty where there is nothing, or no script.

    Raises InputError where the script cannot be read as Python.
    """
    if not script.is_file():
        return []  # which the launch itself says
    config = read_config(str(script.absolute().parent))
    rules = select_rules(all_rules(), config.select, config.ignore)
    program = read_program(str(script))
    found = [diagnose(finding) for finding in check(program, rules)]
    errors = [each for each in found if each.severity == "E"]
    lines = [concise(each) for each in errors]
    fixable = [each for each in errors if each.is_fixable]
    if program.train_loops and not joins_processes(program):
        loop = program.train_loops[0]
        lines.append(
            f"{loop.module.source.name}:{loop.steps.lineno}: each process trains a model of its "
            "own on all of the data: nothing in the script makes a process group"
        )
        fixable += [each for each in found if each.code in MAKE_A_GROUP and each.is_fixable][:1]
    return [*lines, _way_out(script, fixable, len(lines))] if lines else []


def _way_out(script: Path, fixable: list[Diagnostic], count: int) -> str:
    unsafe = " --unsafe-fixes" if any(each.safety == "unsafe" for each in fixable) else ""
    way = f"`ddpfix patch{unsafe} {script}` has edits for {len(fixable)}; " if fixable else ""
    number = f"{count} error{'s' * (count > 1)}"
    return f"ddpfix: {script}: {number} on several processes; {way}--unchecked launches it as it is"
