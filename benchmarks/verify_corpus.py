"""`ddpfix verify` on public scripts: PYTHONPATH=tests python benchmarks/verify_corpus.py FOLDER.

FOLDER holds clones of github.com/microsoft/CodeXGLUE and github.com/microsoft/CodeBERT, of which
nothing is changed: scripts run from copies, on tiny models and data, offline. Each is patched and
judged with 1 and 2 processes, and with accumulation 2 where it has a flag for it. Further words
choose scripts whose paths they are a part of.

Some import what has to be installed beside ddpfix: tensorboardX, fuzzywuzzy, and for GraphCodeBERT
tree-sitter-python, -ruby, -go, -php, -javascript and -c-sharp.

A line for each script, and for each row of its verdict that does not hold; JSON on stdout. The exit
status is 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from corpus_cases import CASES, Case
from ddpfix.errors import InputError
from ddpfix.launchers.verify.evidence import Row
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.verifier import verify
from forked import Forge

WORLDS, ACCUMULATIONS = (1, 2), (1, 2)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder would be asked for, and again
    chosen = [case for case in CASES if not args.parts or any(p in case.script for p in args.parts)]
    found: dict[str, list[list[str]]] = {}
    with tempfile.TemporaryDirectory(prefix="ddpfix-corpus-") as name, Forge() as forge:
        for number, case in enumerate(chosen):
            rows = judged(forge, args.folder / case.script, Path(name) / str(number), case)
            found[case.script] = [[row.code, row.status, row.evidence] for row in rows]
            left = [row for row in rows if row.status != "holds"]
            print(f"{case.script}: {len(rows) - len(left)} of 9 rows hold", file=sys.stderr)
            for row in left:
                print(f"  {row.code} {row.status}: {row.evidence}", file=sys.stderr, flush=True)
    print(json.dumps(found, indent=1))
    sys.exit(any(status == "broken" for rows in found.values() for _, status, _ in rows))


def judged(forge: Forge, script: Path, home: Path, case: Case) -> tuple[Row, ...]:
    """The rows of a script's verdict, or one that tells why there is none."""
    shutil.copytree(script.parent, home / "code")
    try:
        verdict = verify(
            VerifyRequest(
                home / "code" / script.name,
                case.build(home),
                unsafe=case.unsafe,
                world_sizes=WORLDS,
                accumulations=ACCUMULATIONS,
                timeout=120,
            ),
            start=forge.trace,
        )
    except InputError as error:
        return (Row("--", "broken", str(error)),)
    return verdict.rows


if __name__ == "__main__":
    main()
