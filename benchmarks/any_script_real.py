"""READMEs' own commands, launched: python benchmarks/any_script_real.py DIR [WORD...].

DIR holds clones of the repositories that any_script_cases.py names; nothing in them is changed.
Of those commands, the ones whose script has a tiny model and data in `corpus` run for real: the
script is copied and patched, and `ddpfix launch -- COMMAND` starts it in two processes on the CPU,
without a recipe. The command is the README's, and so are its batch and accumulation; paths, lengths
and epochs are those of the tiny case. Further words choose scripts whose paths they are a part of.
Prints a table in Markdown; the exit status is 1 where one fails.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from any_script import command_text
from any_script_cases import COMMANDS, ReadmeCommand
from corpus import CASES
from corpus.case import Case
from ddpfix.launchers.script.arguments import parse_flags

OWN_ROLES = ("train_batch", "eval_batch", "accumulation", "seed")
"""Roles whose options stay the README's."""
SECONDS = 300


def main() -> None:
    """Print everything."""
    root, parts = Path(sys.argv[1]).resolve(), sys.argv[2:]
    tiny = {os.path.normpath(case.script): case for case in CASES if not case.shims}
    print("| script | its batch | planned | two processes |")
    print("|---|---|---|---|")
    failed = []
    for readme in COMMANDS:
        case = tiny.get(os.path.normpath(readme.path))
        if case is None or (parts and not any(part in readme.path for part in parts)):
            continue
        with tempfile.TemporaryDirectory(prefix="ddpfix-any-script-") as name:
            planned, result, log = launched(readme, case, root, Path(name))
        if planned != str(readme.total) or not result.startswith("finished"):
            failed.append(f"{readme.path}:\n{log}")
        print(f"| {readme.path} | {readme.total} | {planned} | {result} |", flush=True)
    print("\n".join(failed), file=sys.stderr)
    sys.exit(bool(failed))


def launched(readme: ReadmeCommand, case: Case, root: Path, home: Path) -> tuple[str, str, str]:
    """The global batch of the plan, how the run ended, and the end of what was printed."""
    below = Path(case.root) if case.root else Path(case.script).parent
    shutil.copytree(root / below, home / "code")
    script = home / "code" / Path(case.script).relative_to(below)
    unsafe = ["--unsafe-fixes"] if case.unsafe else []
    patched = run(home, "patch", *unsafe, str(script))
    if patched.returncode not in (0, 1):
        return "", "not patched", patched.stdout + patched.stderr
    words = command_words(readme, case, root, script, home)
    begin = time.monotonic()
    try:
        done = run(script.parent, "launch", "--cpu", "--processes", "2", "--", *words)
    except subprocess.TimeoutExpired as error:
        return "", f"not done after {SECONDS} s", str(error.stderr)
    seconds = time.monotonic() - begin
    plan = re.search(r"global batch (\d+)", done.stderr)
    ended = f"finished after {seconds:.0f} s" if done.returncode == 0 else f"{done.returncode}"
    tail = (done.stdout + done.stderr)[-3000:]
    return plan[1] if plan else "", ended, f"{shlex.join(words)}\n{tail}"


def command_words(
    readme: ReadmeCommand, case: Case, root: Path, script: Path, home: Path
) -> list[str]:
    """The README's command, with the script's copy and the tiny case's paths, lengths, epochs."""
    words = shlex.split(command_text(readme, root))
    at = next(i for i, word in enumerate(words) if word.endswith(".py"))
    own, mine = parse_flags(words[at + 1 :]), parse_flags(case.build(home))
    own_flags = {readme.roles[role] for role in OWN_ROLES if role in readme.roles}
    values = {**own, **{flag: value for flag, value in mine.items() if flag not in own_flags}}
    result = [*words[:at], script.name]
    for flag, value in values.items():
        result += [flag] if value is None else [flag, value]
    return result


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ddpfix in a folder, offline, with its state there."""
    variables = {"XDG_STATE_HOME": str(folder / "state"), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "ddpfix", *words],
        cwd=folder,
        env={**os.environ, **variables, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


if __name__ == "__main__":
    main()
