"""Mutants of scripts in another spelling, and what ddpfix makes of them beside the original."""

from __future__ import annotations

import ast
import difflib
import functools
import random
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import spellings
import spellings_text
from checkout import ROOT
from ddpfix.errors import InputError
from ddpfix.patcher.api import patch
from spellings_undone import one_spelling

Files = dict[str, str]  # text by path beside the script, whose own path is empty
Rewriting = Callable[[str, random.Random], tuple[Files, int]]


def of_tree(kind: spellings.Kind) -> Rewriting:
    """A kind that changes a tree, as one that takes text and gives files."""

    def rewriting(text: str, rng: random.Random) -> tuple[Files, int]:
        tree = ast.parse(text)
        count = kind(tree, rng)
        return {"": ast.unparse(ast.fix_missing_locations(tree)) + "\n"}, count

    return rewriting


def of_text(kind: Callable[[str, random.Random], tuple[str, int]]) -> Rewriting:
    """A kind that changes lines, as one that gives files."""

    def rewriting(text: str, rng: random.Random) -> tuple[Files, int]:
        new, count = kind(text, rng)
        return {"": new}, count

    return rewriting


KINDS: dict[str, Rewriting] = {
    "keywords": of_tree(spellings.pass_by_keyword),
    "positions": of_tree(spellings.pass_by_position),
    "annotations": of_tree(spellings.annotate),
    "walrus statement": of_tree(spellings.bind_in_parentheses),
    "walrus in a head": of_tree(spellings.bind_where_read),
    "if inverted": of_tree(spellings.invert_if),
    "if not pass": of_tree(spellings.pass_unless),
    "test in a name": of_tree(spellings.name_test),
    "value in a name": of_tree(spellings.name_value),
    "x = x + 1": of_tree(spellings.add_in_full),
    "docstrings": of_tree(spellings.describe_bodies),
    "else with if": of_tree(spellings.nest_elif),
    "comparison turned": of_tree(spellings.turn_comparison),
    "arguments in an object": of_tree(spellings_text.keep_arguments_in_object),
    "arguments in self": of_tree(spellings_text.keep_arguments_in_self),
    "semicolons": of_text(spellings_text.join_lines),
    "backslashes": of_text(spellings_text.break_lines),
    "helpers in a module": spellings_text.move("module"),
    "helpers in a package": spellings_text.move("package"),
    "helpers re-exported": spellings_text.move("export"),
    "helpers by attribute": spellings_text.move("attribute"),
    "helpers by star": spellings_text.move("star"),
}


@dataclass
class Mutant:
    """A script in another spelling."""

    script: Path
    kind: str
    seed: int
    files: Files


@dataclass
class Outcome:
    """What patch says and does, apart from lines and spelling."""

    findings: Counter[str]
    refused: bool
    parts: dict[str, str]
    refusal: str


def fixture_scripts() -> list[Path]:
    """The training scripts of fixtures/."""
    every = sorted((ROOT / "fixtures").rglob("*.py"))
    texts = {path: path.read_text() for path in every}
    return [path for path in every if "__main__" in texts[path] or ".backward()" in texts[path]]


@functools.cache
def plain(script: Path) -> str:
    """The text of a script as ast writes it, without comments."""
    return ast.unparse(ast.parse(script.read_text())) + "\n"


def mutants(
    scripts: Sequence[Path], kinds: Sequence[str], count: int, seed: int
) -> Iterator[Mutant]:
    """Up to ``count`` different mutants, kinds and scripts in turn."""
    seen: set[str] = set()
    places = [(kind, script) for script in scripts for kind in kinds]
    random.Random(seed).shuffle(places)
    made, turn = 0, 0
    while made < count and turn < 20:
        for kind, script in places:
            number = seed * 1000 + turn
            text = plain(script)
            files, changes = KINDS[kind](text, random.Random(f"{number} {kind} {script.name}"))
            key = f"{kind} {script} {files}"
            if not changes or key in seen:
                continue
            seen.add(key)
            for new in files.values():
                ast.parse(new)
            yield Mutant(script, kind, number, files)
            made += 1
            if made == count:
                return
        turn += 1


class Baselines:
    """Folders for scripts and mutants, and the outcomes of the scripts as they are."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.outcomes = folder, dict[Path, Outcome]()

    def outcome(self, script: Path) -> Outcome:
        """The outcome of a script in ast's own spelling."""
        if script not in self.outcomes:
            self.outcomes[script] = self.examine(script, {"": plain(script)})
        return self.outcomes[script]

    def examine(self, script: Path, files: Files) -> Outcome:
        """Patch a program, twice. Raises AssertionError where the second patch changes it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(script.parent, self.folder)
        path = self.folder / script.name
        names = {name: self.folder / name if name else path for name in files}
        for name, text in files.items():
            names[name].parent.mkdir(exist_ok=True)
            names[name].write_text(text)
        result = patch(path)
        findings = Counter(f"{f.code} {bool(f.edits)}" for f in result.findings_before)
        findings += Counter(f"after {f.code}" for f in result.findings_after)
        if not result.refusal:
            result.write()
            again = patch(path)
            assert not again.changes, again.diff()
        after = {name: file.read_text() for name, file in names.items()}
        return Outcome(findings, bool(result.refusal), one_spelling(after), result.refusal)


def judge(bases: Baselines, mutant: Mutant) -> tuple[str, str]:
    """A verdict (same, findings, patch, traceback or unstable), and what differs."""
    base = bases.outcome(mutant.script)
    try:
        outcome = bases.examine(mutant.script, mutant.files)
    except AssertionError as error:
        return "unstable", str(error)
    except InputError as error:
        return "findings", str(error)
    except Exception:
        return "traceback", traceback.format_exc()
    if outcome.findings != base.findings or outcome.refused != base.refused:
        lost, gained = base.findings - outcome.findings, outcome.findings - base.findings
        return "findings", f"lost {dict(lost)}\ngained {dict(gained)}\n{outcome.refusal}\n"
    pairs = [(base.parts.get(n, ""), outcome.parts.get(n, "")) for n in base.parts | outcome.parts]
    if differing := [pair for pair in pairs if pair[0] != pair[1]]:
        lines = (difflib.unified_diff(a.split("\n"), b.split("\n"), n=1) for a, b in differing)
        return "patch", "\n".join(line for each in lines for line in each)
    return "same", ""
