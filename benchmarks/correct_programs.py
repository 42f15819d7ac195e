"""Count what `ddpfix check` says of public multi-GPU scripts that are right.

    python benchmarks/correct_programs.py FOLDER [--list docs/correct_programs.md] [--verbose]

FOLDER holds clones of the repositories that the list names, each under its own name; clone them
yourself, nothing is downloaded. Each row of the list is a repository and a path in it. A table on
stdout: errors and other findings per row, and how many there are of each code. The exit status is 1
if any script has an error, 2 if nothing of the list is there.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| `?(?P<repository>[\w.-]+/[\w.-]+)`? \| `(?P<path>[^`]+)` \|", re.MULTILINE)


def rows(text: str) -> list[tuple[str, str]]:
    """The repositories and paths of a list."""
    return [(match["repository"], match["path"]) for match in ROW.finditer(text)]


def findings(path: Path) -> list[dict[str, object]]:
    """What check finds in a script and the modules that it imports."""
    command = [sys.executable, "-m", "ddpfix", "check", "--no-cache", "--output-format", "json"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{path}: {done.stderr.strip()}")
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def main() -> None:
    """Check every script of the list that is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", type=Path, default=ROOT / "docs" / "correct_programs.md")
    parser.add_argument("--verbose", action="store_true", help="print every finding")
    options = parser.parse_args()
    codes: Counter[str] = Counter()
    checked = errors = 0
    for repository, name in rows(options.list.read_text()):
        path = options.folder / repository.partition("/")[2] / name
        if not path.exists():
            print(f"    -      - {repository} {name}: not there")
            continue
        found = findings(path)
        wrong = [each for each in found if str(each["severity"]).startswith(("e", "E"))]
        checked, errors = checked + 1, errors + len(wrong)
        codes.update(f"{each['code']} {each['severity']}" for each in found)
        print(f"{len(wrong):5} {len(found) - len(wrong):6} {repository} {name}")
        for each in found if options.verbose else ():
            print(f"        {each['path']}:{each['line']} {each['code']} {each['because']}")
    print(f"{errors} errors in {checked} programs")
    for code, count in codes.most_common():
        print(f"{count:5} {code}")
    sys.exit(2 if not checked else bool(errors))


if __name__ == "__main__":
    main()
