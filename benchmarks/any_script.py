"""`ddpfix launch -- COMMAND` with READMEs' own commands: python benchmarks/any_script.py DIR.

DIR holds clones of the repositories that any_script_cases.py names; nothing in them runs or is
changed. Each command is planned on 1, 2, 4 and 8 simulated cards, and its global batch compared
with that of the README's command; the options' roles are compared with those worked out by hand.
Prints a table in Markdown; the exit status is 1 where something differs.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path

from any_script_cases import COMMANDS, ReadmeCommand
from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.patcher.api import flag_roles, read_program

WORLDS = (1, 2, 4, 8)
ROLES = (
    *("train_batch", "eval_batch", "accumulation", "learning_rate", "epochs", "max_steps"),
    *("sequence_length", "output", "seed"),
)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    root = parser.parse_args().folder.resolve()
    print("| script | its batch | on 1, 2, 4, 8 cards | roles right | differs |")
    print("|---|---|---|---|---|")
    right = total = batches = 0
    for case in COMMANDS:
        os.chdir(root / case.folder)
        planned = [global_batch(case, root, world) for world in WORLDS]
        wrong = differing_roles(case)
        right, total = right + len(ROLES) - len(wrong), total + len(ROLES)
        batches += planned == [str(case.total)] * len(WORLDS)
        figures = planned[0] if len(set(planned)) == 1 else ", ".join(planned)
        cells = (case.path, case.total, figures, f"{len(ROLES) - len(wrong)} of {len(ROLES)}")
        print(f"| {' | '.join(map(str, cells))} | {'; '.join(wrong)} |")
    print(
        f"\n{batches} of {len(COMMANDS)} commands keep their batch; {right} of {total} roles right"
    )
    sys.exit(batches < len(COMMANDS) or right < 0.95 * total)


def command_text(case: ReadmeCommand, root: Path) -> str:
    """The command as the file has it, with its variables filled and without what it is piped to."""
    lines = (root / case.folder / case.source).read_text("utf-8", errors="replace").splitlines()
    start = next(i for i, line in enumerate(lines) if case.begins in line and "python" in line)
    words = [lines[start].strip().lstrip("$ ")]
    while words[-1].endswith("\\") and start + 1 < len(lines):
        start += 1
        words.append(lines[start].strip())
    text = " ".join(word.removesuffix("\\") for word in words)
    text = re.sub(r"[|>`].*", "", text)
    return re.sub(r"\$\{?(\w+)\}?", lambda match: case.filled.get(match[1], match[1]), text)


def global_batch(case: ReadmeCommand, root: Path, world: int) -> str:
    """Batch x accumulation x ranks of the command that would run; the refusal where there is none.

    A script that divides its batch by the accumulation gets that of the whole step.
    """
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    words = ["launch", "--dry-run", "--gpus", f"{world}x A100 80GB", "--", command_text(case, root)]
    done = CliRunner().invoke(ddpfix, words)
    if done.exit_code:
        return done.stderr.strip().splitlines()[-1]
    numbers = dict(re.findall(r"(--?\w+)[ =](\d+)(?= |$)", " ".join(shlex.split(done.stdout))))
    roles = flag_roles(read_program(case.script))
    batch = int(numbers[roles["train_batch"].flag])
    plan = re.search(r"(\d+) per device x (\d+) accumulated x (\d+)", done.stderr)
    assert plan is not None
    per_device, accumulation, ranks = map(int, plan.groups())
    if batch not in (per_device, per_device * accumulation):
        return f"{batch} passed, {per_device} planned"
    if "accumulation" in roles and int(numbers[roles["accumulation"].flag]) != accumulation:
        return "another accumulation"
    return str(per_device * accumulation * ranks)


def differing_roles(case: ReadmeCommand) -> list[str]:
    """The roles whose option is not the right one."""
    found = {role: one.flag for role, one in flag_roles(read_program(case.script)).items()}
    wrong = []
    for role in ROLES:
        allowed = case.either.get(role) or (case.roles.get(role, ""),)
        if found.get(role, "") not in allowed:
            wrong.append(f"{role} is {allowed[0] or 'none'}, not {found.get(role, 'none')}")
    return wrong


if __name__ == "__main__":
    main()
