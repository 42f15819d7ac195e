"""The pages in docs/families: what scripts of a family get wrong, the repair, its proof, the plans.

python docs/family_pages.py writes them; with ``--check`` it ends with 1 and names those that would
change. What is in verified.json beside them is measured by benchmarks/verify_families.py, all else
is computed here.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from ddpfix.fixtures.families import VARIANTS, Variant
from ddpfix.fixtures.tiny import copy_family
from ddpfix.launchers.planning.plan import solve, solve_shared
from ddpfix.patcher.engine.patch import Patch, patch
from ddpfix.patcher.frontend.diagnostics import diagnose
from ddpfix.recipes.load import load

FOLDER = Path(__file__).resolve().parent / "families"
FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
VERIFIED = json.loads((FOLDER / "verified.json").read_text("utf-8"))
CARDS = range(1, 9)


@frozen
class Page:
    """A page: its file's name, what the family is, its shell scripts and recipes."""

    name: str
    family: str
    about: str
    before: tuple[str, ...]
    recipes: tuple[str, ...]

    @property
    def variants(self) -> list[Variant]:
        """The legacy scripts, or models for the one script, that the page is about."""
        return [variant for variant in VARIANTS.values() if variant.family == self.family]


PAGES = (
    Page(
        "codegpt",
        "bigclonebench",
        "One script that fine-tunes CodeGPT or CodeBERT to decide whether two Java functions do "
        "the same. It uses DataParallel, a `--local_rank` that half works, apex, and a pool of "
        "worker processes.",
        ("run_codegpt.sh",),
        ("codegpt-bigclonebench", "codegpt-bigclonebench-legacy", "codebert-bigclonebench"),
    ),
    Page(
        "graphcodebert",
        "graphcodebert",
        "Two scripts that fine-tune GraphCodeBERT to decide whether two Java functions do the "
        "same, from their code and its data flow. `run.py` has DataParallel only; "
        "`run_local_rank.py` got `--local_rank` later. Masks define which token or node attends "
        "to which.",
        ("run.sh", "run_local_rank.sh"),
        ("graphcodebert-clonedetection",),
    ),
    Page(
        "anchors",
        "anchor",
        "A script that trains XLM-R to embed a sentence close to its English anchor: one process, "
        "DataParallel at most, bf16, LoRA. Every other pair of the micro-batch is a negative, so "
        "with `--unsafe-fixes` (DF307) the ranks share theirs. Runs are equal if per-device batch "
        "x processes is equal: with accumulation, a group is compared with one process that has "
        "the same accumulation.",
        ("run.sh",),
        ("anchor-xlmr-large", "anchor-xlmr-xl", "anchor-xlmr-xxl"),
    ),
    Page(
        "detector",
        "detector",
        "A script without argparse, all in one class, that trains CodeBERT to decide whether a "
        "person or a model wrote a function. Its encoder is frozen at first, and "
        "DistributedDataParallel must not treat it as frozen for good (DF308). The model is "
        "compiled around the DDP wrapper, because the script unwraps them in that order "
        "(any other order would be DF309). A contrastive loss pulls functions of one author "
        "together, over all ranks with `--unsafe-fixes` (DF307): with accumulation, a group is "
        "compared with one process that has the same accumulation.",
        ("run.sh",),
        ("code-detector",),
    ),
)


def main() -> None:
    """Write the pages, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for page in PAGES:
        path, text = FOLDER / f"{page.name}.md", "\n".join(lines(page)) + "\n"
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(path.name)
            if not check:
                path.write_text(text, "utf-8")
    print(f"{'stale' if check else 'written'}: {', '.join(stale) or 'none'}")
    sys.exit(1 if check and stale else 0)


def lines(page: Page) -> Iterator[str]:
    """A page, line by line."""
    home = f"fixtures/{page.family}"
    yield f"# Family {page.name}"
    yield ""
    yield f"{page.about} The code in `{home}` was written for this project, in the style of public"
    yield "scripts. `docs/family_pages.py` generates this page."
    yield from ("", "## Before", "")
    for name in page.before:
        yield from fenced("sh", (FIXTURES / page.family / name).read_text("utf-8"))
        yield ""
    variants = {variant.script: variant for variant in page.variants}
    patches = {script: patched(variant) for script, variant in variants.items()}
    yield from ("## What the original gets wrong", "")
    for script, change in patches.items():
        yield from (f"`ddpfix check {script}` finds:", "")
        shown = wrongs(change, notes=variants[script].unsafe)
        yield from table(("rule", "places", "what", "example"), shown)
        yield ""
    yield from ("## The repair", "")
    for script, change in patches.items():
        how = "patch --unsafe-fixes" if variants[script].unsafe else "patch"
        yield f"<details><summary><code>ddpfix {how} {script}</code></summary>"
        yield ""
        yield from fenced("diff", diff(change))
        yield "</details>"
        yield ""
    yield from ("## The proof", "")
    yield from proofs(page.variants)
    yield from ("## After: plans for 1 to 8 cards", "")
    for name in page.recipes:
        yield from plans(name, contrasts=any(variant.unsafe for variant in page.variants))


def patched(variant: Variant) -> Patch:
    """What patching does to a copy, which is thrown away: nothing is written."""
    with tempfile.TemporaryDirectory() as place:
        script = copy_family(variant.family, Path(place), variant.script)
        return patch(script, unsafe=variant.unsafe)


def wrongs(change: Patch, *, notes: bool) -> Iterator[tuple[str, ...]]:
    """Each rule that finds something, how often, what happens, a place.

    What is but a note is left out, or with ``notes`` left in where it is repaired.
    """
    sources = [
        each
        for each in change.findings_before
        if not diagnose(each).is_note or (notes and each.edits)
    ]
    found = [diagnose(each) for each in sources]
    counts = collections.Counter(item.code for item in found)
    for code in sorted(counts):
        first = next(item for item in found if item.code == code)
        where = f"{Path(first.path).name}:{first.line}: {first.because}"
        yield code, str(counts[code]), f"{first.title}. {first.consequence}", where


def diff(change: Patch) -> str:
    """The diff, with the names that files have in the family's folder."""
    text = change.diff()
    for each in change.changes:
        folder = f"{each.source.path.parent}/"
        text = text.replace(folder.lstrip("/"), "").replace(folder, "")
    return text


def proofs(variants: Iterable[Variant]) -> Iterator[str]:
    """The verdicts, and what the process groups of each one computed."""
    low = any("bf16" in variant.precisions for variant in variants)
    yield "`ddpfix verify --all-splits` on a tiny model, on the CPU, with 192 examples in global"
    yield "batches of 48 and no dropout in the process groups: 1, 2, 3 and 4 processes, each with"
    yield "accumulation 1 and 4" + (LOW if low else ".")
    yield "Differences are relative to one process. Measured by `benchmarks/verify_families.py`."
    yield ""
    for variant in variants:
        for precision in variant.precisions:
            found = VERIFIED[f"{variant.title}, {precision}"]
            used = " and ".join(f"{name} {version}" for name, version in found["versions"].items())
            yield from (f"### {variant.title} in {precision}", "", f"With {used}.", "")
            yield from table(("promise", "verdict", "evidence"), promises(found["rows"]))
            yield ""
            yield from table(GROUP, map(group, found["runs"]), numbers=True)
            yield ""


LOW = "; in bf16 with `--with amp -- … --amp bf16`."
GROUP = (
    *("processes", "accumulation", "steps", "first loss", "last loss"),
    *("loss difference", "norm difference", "F1"),
)


def promises(rows: Iterable[Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The rows of a verdict."""
    for code, title, status, evidence in rows:
        yield f"{code} {title}", status, evidence


def group(run: dict[str, Any]) -> tuple[str, ...]:
    """The numbers of one process group; how far it is off is relative to the group of one."""
    first, last = (f"{loss:.7f}" for loss in run["losses"])
    off = (f"{run['off'][what]:.1e}" for what in ("loss", "norm"))
    f1 = ", ".join(f"{value:.4f}" for value in run["f1"])
    return (*(str(run[what]) for what in ("world", "accumulation", "steps")), first, last, *off, f1)


def plans(name: str, *, contrasts: bool) -> Iterator[str]:
    """How a recipe's global batch is shared out among 1 to 8 cards."""
    recipe = load(name)
    target, cap = recipe.batch.global_batch, recipe.batch.per_device_cap
    yield f"### `ddpfix launch --recipe {name}`"
    yield ""
    yield f"Global batch {target}, at most {cap} per device. Shell scripts usually accumulate"
    yield f"`{target} // ({cap} * cards)` times, which drops the remainder and ends at 0."
    if contrasts:
        yield "Each example is compared with the others of its micro-batch, over all cards. Their"
        yield "number is part of the training, so `patch --exact` refuses the script. A smaller"
        yield "batch per device, with more accumulation, keeps it as small on several cards as"
        yield "on one."
    else:
        yield "A script patched with `--exact` splits every batch among the ranks, and has the"
        yield "global batch on any number of cards."
    yield f"The exact commands are in `tests/golden/{name}.txt`."
    yield ""
    last = "at once" if contrasts else "exact"
    columns = ("cards", "per device", "accumulation", "global batch", "nearest", "shell", last)
    rows = (plan_row(cards, target, cap, contrasts=contrasts) for cards in CARDS)
    yield from table(columns, rows, numbers=True)
    yield ""


def plan_row(cards: int, target: int, cap: int, *, contrasts: bool) -> tuple[str, ...]:
    """The plan for some cards, what the shell's arithmetic gives, and shares for --exact.

    For a loss that ``contrasts`` the last is how many examples are held against each other.
    """
    plan, shared = solve(cards, target, cap), solve_shared(cards, target, cap)
    nearest = " or ".join(str(each.global_batch) for each in plan.neighbours) or "exact"
    naive = target // (cap * cards)
    parts = "+".join(str(share.examples) for share in shared.shares)
    return (
        str(cards),
        str(plan.per_device),
        str(plan.accumulation),
        str(plan.global_batch),
        nearest,
        str(cap * naive * cards) if naive else "accumulates 0",
        str(plan.per_device * cards) if contrasts else f"({parts}) x {shared.accumulation}",
    )


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False
) -> Iterator[str]:
    """A table in Markdown; ``numbers`` are flush right."""
    yield row(head)
    yield row(["--:" if numbers else "---"] * len(head))
    yield from map(row, rows)


def row(cells: Iterable[str]) -> str:
    """One row; a pipe in a cell would end it."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def fenced(language: str, text: str) -> Iterator[str]:
    """A block of code."""
    yield from (f"```{language}", *text.rstrip("\n").split("\n"), "```")


if __name__ == "__main__":
    main()
