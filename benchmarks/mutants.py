"""Break the product in one point at a time, and see which tests notice.

    pip install -c constraints.txt -e '.[train,dev,benchmarks]'
    python benchmarks/mutants.py FOLDER --measure                   # once: who runs which line
    python benchmarks/mutants.py FOLDER --count 100 --seed 7        # tried, quickest tests first
    python benchmarks/mutants.py FOLDER --only patcher --insertions 50

FOLDER gets a copy of the checkout, in which everything happens, and what was measured. --measure
takes as long as the tests that it names, all of them unless --tests says which; --only restricts
what is broken. The draw depends on the seed and the sources alone.

A mutant changes an expression or a statement of one file (KINDS of mutations.py). A share of them
(--insertions) is about the place of what is put into a script: before or after, first or last, in
which order. Those tests are run that run its line: single ones where they do it in their own
process, a whole file where another process does, or an import. Killed: a test fails. Timeout:
tests that run for longer than --limit seconds. Survived: no test sees a difference, or none runs
the line.

What cannot make a difference is listed in mutants_equivalent.toml, with the reason, and not tried:
a file, the stripped text of a line, and the mutation as it is printed. The exit status is 1 if any
mutant survives.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mutations import Mutant, Source, mutants  # type: ignore[import-not-found]

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).with_name("mutants_equivalent.toml")
NO_PRODUCT = {"tests", "fixtures", "benchmarks", "docs", "build", "dist"}
FIRST = 5  # tests that are tried by themselves: to collect them all takes long
NO_TESTS = 5  # pytest's status
SETTINGS = """\
[run]
data_file = {data}
parallel = true
context = {context}
dynamic_context = test_function
patch = _exit
include = {root}/*
omit = {root}/tests/*
"""


def product(root: Path, only: Sequence[str]) -> list[str]:
    """The files of the product, relative to its root."""
    names = [path.relative_to(root).as_posix() for path in root.rglob("*.py")]
    inside = [n for n in names if not any(p in NO_PRODUCT or p[0] == "." for p in n.split("/"))]
    return sorted(n for n in inside if not only or n.startswith(tuple(only)))


def drawn(
    every: dict[str, list[Mutant]], count: int, share: int, seed: int, allowed: Callable[..., bool]
) -> list[Mutant]:
    """So many mutants, ``share`` of a hundred about insertions, the others of any kind alike."""
    draw = random.Random(seed)
    pools = {kind: [m for m in found if allowed(m)] for kind, found in sorted(every.items())}
    chosen: list[Mutant] = []
    for place in range(count):
        about = place * share // 100 != (place + 1) * share // 100
        kinds = [kind for kind in pools if pools[kind] and (kind == "insertion") is about]
        if kinds:
            pool = pools[draw.choice(kinds)]
            chosen.append(pool.pop(draw.randrange(len(pool))))
    return chosen


def copied(folder: Path) -> Path:
    """A copy of the checkout, under the name that it is imported by."""
    copy = folder / "copy" / "ddpfix"
    shutil.rmtree(copy.parent, ignore_errors=True)
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
    return copy


def run(copy: Path, words: Sequence[str], limit: float | None, **variables: str) -> int | None:
    """The status of pytest in the copy; none where it takes longer than the limit."""
    environment = os.environ | {"PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=copy,
        env=environment | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def measure(folder: Path, tests: Sequence[str]) -> None:
    """Write down which tests of these files run which line, and how long each takes."""
    copy, results = copied(folder), folder / "measured.json"
    measured = json.loads(results.read_text()) if results.exists() else {}
    every = sorted(path.relative_to(copy).as_posix() for path in copy.glob("tests/test_*.py"))
    for test in tests or every:
        for old in folder.glob("coverage*"):
            old.unlink()
        settings, report = folder / "settings.ini", folder / "report.xml"
        data = folder / "coverage"
        settings.write_text(SETTINGS.format(data=data, context=test, root=copy))
        words = [test, f"--junitxml={report}"]
        status = run(copy, words, None, COVERAGE_PROCESS_START=str(settings))
        print(f"{test}: status {status}", file=sys.stderr, flush=True)
        times: dict[str, float] = defaultdict(float)
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            for name in (test, f"{test}::{case.get('name', '').partition('[')[0]}"):
                times[name] += float(case.get("time", 0))
        measured[test] = {"times": times, "lines": lines_run(copy, folder.glob("coverage.*"), test)}
        results.write_text(json.dumps(measured))


def lines_run(copy: Path, parts: Iterable[Path], test: str) -> dict[str, dict[int, list[str]]]:
    """Which tests run which line of which file."""
    import coverage

    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in parts:
        part = coverage.CoverageData(str(path))
        with contextlib.suppress(coverage.exceptions.DataError):  # of a process that was killed
            part.read()
            for file in part.measured_files():
                name = Path(file).relative_to(copy).as_posix()
                for line, some in part.contexts_by_lineno(file).items():
                    found[name][line] |= {who(test, context) for context in some}
    return {name: {n: sorted(by) for n, by in rows.items()} for name, rows in found.items()}


def who(test: str, context: str) -> str:
    """The test of a context, or its whole file."""
    name = context.partition("|")[2].rpartition(".")[2]
    return f"{test}::{name}" if name.startswith("test_") else test


def tests_of(measured: dict[str, Any], mutant: Mutant) -> list[str]:
    """The tests that run the line, the quickest first, whole files behind them."""
    found: dict[str, float] = {}
    for one in measured.values():
        lines = {int(number): names for number, names in one["lines"].get(mutant.file, {}).items()}
        first = max((n for n in lines if n <= mutant.line), default=0)  # of its statement
        found |= {name: one["times"].get(name, 0.0) for name in lines.get(first, ())}
    return sorted(found, key=lambda name: ("::" not in name, found[name]))


def stale(measured: dict[str, Any], copy: Path) -> list[str]:
    """Tests that were measured and are there no more: their files are to be measured again."""
    names = [name for one in measured.values() for name in one["times"] if "::" in name]
    texts = {name.partition("::")[0]: "" for name in names} | {
        test: (copy / test).read_text() for test in measured if (copy / test).exists()
    }
    split = [name.partition("::") for name in names]
    return ["".join(parts) for parts in split if f"def {parts[2]}(" not in texts[parts[0]]]


def tried(measured: dict[str, Any], copy: Path, mutant: Mutant, limit: float) -> tuple[str, float]:
    """What becomes of a mutant, and after how many seconds."""
    tests = tests_of(measured, mutant)
    source, path, began = Source(copy, mutant.file), copy / mutant.file, time.monotonic()
    if not tests:
        return "survived: no test runs it", 0.0
    status: int | None = 0
    try:
        path.write_bytes(source.applied(mutant))
        for some in (tests[:FIRST], tests[FIRST:]):
            status = run(copy, ["-x", *some], limit) if some else status
            if status not in (0, NO_TESTS):
                break
    finally:
        path.write_bytes(source.content)
    what = {None: "timeout", 0: "survived", NO_TESTS: "survived"}.get(status, "killed")
    return what, time.monotonic() - began


def diff(copy: Path, mutant: Mutant) -> str:
    source = Source(copy, mutant.file)
    before, after = (
        text.decode().splitlines() for text in (source.content, source.applied(mutant))
    )
    return "\n".join([*difflib.unified_diff(before, after, lineterm="", n=1)][2:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--tests", nargs="+", default=[], help="files that --measure runs")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--insertions", type=int, default=20, help="of a hundred")
    parser.add_argument("--only", nargs="+", default=[], help="beginnings of files' names")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one mutant")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that tests end, too
    folder: Path = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if asked.measure:
        measure(folder, asked.tests)
        return 0
    copy = copied(folder)
    listed = tomllib.loads(EQUIVALENT.read_text())["equivalent"]
    known = {(one["file"], one["line"], one["mutation"]) for one in listed}
    texts = {file: Source(copy, file).content.splitlines() for file in product(copy, asked.only)}

    def allowed(mutant: Mutant) -> bool:
        line = texts[mutant.file][mutant.line - 1].decode().strip()
        return (mutant.file, line, mutant.mutation) not in known

    measured = json.loads((folder / "measured.json").read_text())
    if stale(measured, copy):
        parser.error(f"measure again: there is no more {', '.join(stale(measured, copy))}")
    every = mutants(copy, [*texts])
    counts: dict[str, int] = defaultdict(int)
    for mutant in drawn(every, asked.count, asked.insertions, asked.seed, allowed):
        what, seconds = tried(measured, copy, mutant, asked.limit)
        counts[what.partition(":")[0]] += 1
        print(f"{what:9} {seconds:5.1f} s  {mutant.file}:{mutant.line}  {mutant.kind}", flush=True)
        if what != "killed":
            print(f"    {mutant.mutation}\n{diff(copy, mutant)}\n", flush=True)
    print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    return 1 if counts["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
