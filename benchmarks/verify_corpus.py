"""`ddpfix verify` on public scripts: PYTHONPATH=tests python benchmarks/verify_corpus.py FOLDER.

FOLDER holds the repositories of docs/corpus.md beside each other, of which nothing is changed:
scripts run from copies, on tiny models and data, offline. Each is patched and judged with 1 and 2
processes, and with accumulation 2 where it has a flag for it. Further words choose scripts whose
paths they are a part of. With ``--keep FILE`` verdicts are written to FILE as they come, and
scripts of which it has one are not run again.

Some import what has to be installed beside ddpfix: tensorboardX, fuzzywuzzy, seqeval, pandas, and
for GraphCodeBERT tree-sitter-python, -ruby, -go, -php, -javascript and -c-sharp.

A line for each script, and for each row of its verdict that does not hold; JSON on stdout, or with
``--markdown`` the page docs/corpus.md. The exit status is 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from corpus import CASES
from corpus.case import Case
from corpus.table import SHIMS, page
from ddpfix.errors import InputError
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.verify.evidence import Row
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.traced_run import TracedRun, run_traced
from ddpfix.launchers.verify.verifier import verify
from forked import Forge

WORLDS, ACCUMULATIONS = (1, 2), (1, 2)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"  # a name that is no folder would be asked for, and again
    chosen = [case for case in CASES if not args.parts or any(p in case.script for p in args.parts)]
    found: dict[str, list[list[str]]] = {}
    if args.keep and args.keep.exists():
        found = json.loads(args.keep.read_text("utf-8"))
    with tempfile.TemporaryDirectory(prefix="ddpfix-corpus-") as name, Forge() as forge:
        for number, case in enumerate(chosen):
            if case.script in found:
                continue
            rows = judged(forge, args.folder, Path(name) / str(number), case)
            found[case.script] = [[row.code, row.status, row.evidence] for row in rows]
            left = [row for row in rows if row.status != "holds"]
            print(f"{case.script}: {len(rows) - len(left)} of 9 rows hold", file=sys.stderr)
            for row in left:
                print(f"  {row.code} {row.status}: {row.evidence}", file=sys.stderr, flush=True)
            if args.keep:
                args.keep.write_text(json.dumps(found, indent=1), "utf-8")
    print(page(chosen, found) if args.markdown else json.dumps(found, indent=1), end="")
    sys.exit(any(status == "broken" for rows in found.values() for _, status, _ in rows))


def judged(forge: Forge, folder: Path, home: Path, case: Case) -> tuple[Row, ...]:
    """The rows of a script's verdict, or one that tells why there is none."""
    root = Path(case.root) if case.root else Path(case.script).parent
    shutil.copytree(folder / root, home / "code")
    script = home / "code" / Path(case.script).relative_to(root)
    text = script.read_text("utf-8")
    for before, after in case.edits:
        assert before in text, before
        text = text.replace(before, after)
    script.write_text(text, "utf-8")
    prelude = shims(home, case)

    def start(what: Command, into: Path) -> TracedRun:
        return forge.trace(what, into, prelude)

    request = VerifyRequest(
        script,
        case.build(home),
        unsafe=case.unsafe,
        capabilities=case.capabilities,
        world_sizes=WORLDS,
        accumulations=ACCUMULATIONS,
        max_steps=case.max_steps,
        timeout=120,
        seed=case.seed,
        # It runs from a copy, in processes that are forked, unless it writes where it runs.
        isolation="none" if case.names_output else "auto",
    )
    try:
        if case.names_output:
            verdict = verify(request, start=start)
        else:
            with run_in(home / "code", prelude):
                verdict = verify(request, start=run_traced)
    except InputError as error:
        reason = str(error).replace(f"{home / 'code'}/", "")
        return (Row("--", "not judged", reason),)
    return verdict.rows


@contextlib.contextmanager
def run_in(folder: Path, prelude: Path | None) -> Iterator[None]:
    """Make ``folder`` the current one, and ``prelude`` what each Python begins with."""
    before = os.environ.get("PYTHONPATH")
    site = folder.parent / "site"
    site.mkdir()
    if prelude is not None:
        shutil.copyfile(prelude, site / "sitecustomize.py")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), before]))
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def shims(home: Path, case: Case) -> Path | None:
    """One Python file that runs a case's shims in their order."""
    if not case.shims:
        return None
    path = home / "shims.py"
    runs = (f"runpy.run_path({str(SHIMS / name)!r} + '.py')\n" for name in case.shims)
    path.write_text("import runpy\n\n" + "".join(runs))
    return path


if __name__ == "__main__":
    main()
