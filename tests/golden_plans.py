"""Plan and command of each recipe on many inventories, as text: what ``tests/golden`` holds.

To write the files anew after plans have changed, and look at what that changes::

    python tests/golden_plans.py && git diff tests/golden
"""

from __future__ import annotations

import difflib
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

from click.testing import CliRunner
from ddpfix.cli import ddpfix
from ddpfix.launchers.backends import command
from ddpfix.launchers.backends.registry import NEUTRAL_CONFIG
from ddpfix.patcher.capabilities import all_capabilities
from ddpfix.recipes.load import load, recipe_names
from ddpfix.recipes.model import Recipe

FOLDER = Path(__file__).parent / "golden"
KINDS = ("RTX 6000 Ada", "A100 40GB", "A100 80GB", "H100", "H200", "RTX 4090", "T4")
MIXED = (
    "1x RTX 6000 Ada,1x RTX 4090",
    "1x A100 80GB,2x T4",
    "1x H200,1x H100,1x A100 40GB",
    "4x A100 80GB,4x A100 40GB",
)
ONE, TWO = "1x RTX 6000 Ada", "2x RTX 6000 Ada"
SINGLE = [f"1x {kind}" for kind in KINDS]
SHARDED = [f"{count}x RTX 6000 Ada" for count in range(1, 9)]
TOO_LARGE = {"anchor-xlmr-xxl": (["--lora-rank", "0"], ["--lora-rank", "0", "--fsdp"])}
INVENTORIES = (*(f"{count}x {kind}" for kind in KINDS for count in range(1, 9)), *MIXED)
CORES = 32
LINES = 10_000  # of the training file
Said = Mapping[str, tuple[list[str], list[str]]]


def golden_text(name: str) -> str:
    """Of one recipe: plan and command on one card and on two, and what is other elsewhere.

    The commands of several cards are held against that of two, sentences against those of one.
    """
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.sched_getaffinity", _cores):
        said = {kinds: _launched(load(name), kinds, Path(folder)) for kinds in INVENTORIES}
    sentences = said[ONE][1]
    blocks = [f"ddpfix launch --recipe {name} --dry-run --gpus ..."]
    for kinds in (ONE, TWO):
        words, plan = said[kinds]
        blocks.append("\n".join([f"{kinds}:", *plan, "", *_by_flag(words)]))
    for kinds, (words, plan) in said.items():
        like = said[ONE if kinds in SINGLE else TWO]
        new = [plan[0], *(one for one in plan[1:] if one not in sentences)]
        changes = list(_changes(like[0], words)) if words else []
        lines = [f"{kinds}: {'; '.join(new)}", *filter(None, ["; ".join(changes)])]
        blocks.append("\n    ".join(lines))
    for words in (["--fsdp"], *TOO_LARGE.get(name, ())):
        blocks += sharded_blocks(load(name), words, said)
    return "\n\n".join(blocks) + "\n"


def sharded_blocks(recipe: Recipe, words: Sequence[str], without: Said) -> Iterator[str]:
    """What the plans of SHARDED say with these words for the script, and did not say without."""
    yield f"With -- {shlex.join(words)}:"
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.sched_getaffinity", _cores):
        for kinds in SHARDED:
            _, plan = _launched(recipe, kinds, Path(folder), words)
            before = without[kinds][1] if kinds in without else []
            new = [line for line in plan if line not in before]
            yield f"{kinds}: {'; '.join(new) or 'as without'}"


def path_of(name: str) -> Path:
    """Where the text is kept."""
    return FOLDER / f"{name}.txt"


def _cores(pid: int) -> set[int]:
    return set(range(CORES))


def _launched(
    recipe: Recipe, inventory: str, folder: Path, more: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The command's words and the plan's sentences, or no words and why there is no plan."""
    script = laid_out(recipe, folder)
    options = ["--script", script, "--gpus", inventory, "--output", folder / "run", "--no-learned"]
    unset = dict.fromkeys(("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", *command.STALE_VARIABLES))
    done = CliRunner().invoke(
        ddpfix,
        ["launch", "--recipe", recipe.name, "--dry-run", *map(str, options), "--", *more],
        env={**unset, "XDG_STATE_HOME": str(folder)},
    )
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code:
        return [], [f"status {done.exit_code}: {line}" for line in done.stderr.splitlines()]
    [plan] = [line for line in done.stderr.splitlines() if line.startswith("Plan: ")]
    return _neutral(shlex.split(done.stdout), folder), plan.removeprefix("Plan: ").split("; ")


def laid_out(recipe: Recipe, folder: Path) -> Path:
    """The script, with all that patching can add, and its data where the recipe expects them."""
    script = folder / "code" / recipe.script
    if not script.exists():
        script.parent.mkdir(parents=True)
        flags = [f"--{flag.name}" for one in all_capabilities() for flag in one.flags]
        flags += [*recipe.if_declared, *recipe.out_of_memory]
        script.write_text("\n".join(f'parser.add_argument("{flag}")' for flag in flags))
        for place, name in enumerate([*recipe.data.files.values(), *recipe.data.beside]):
            path = script.parent / recipe.data.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x\n" * (LINES if not place else 1))
    return script


def _neutral(words: Sequence[str], folder: Path) -> list[str]:
    """The words without what is this machine's."""
    python = Path(sys.executable)
    places = {str(NEUTRAL_CONFIG): "accelerate.yaml", str(folder): "FOLDER", str(python): "python"}
    places[str(python.with_name("accelerate"))] = "accelerate"
    for place, name in places.items():
        words = [word.replace(place, name) for word in words]
    return list(words)


def _by_flag(words: Sequence[str]) -> list[str]:
    """The words in lines: each flag with its value, each variable and each other word alone."""
    lines: list[str] = []
    for word in words:
        if lines and lines[-1].startswith("--") and " " not in lines[-1] and word[:2] != "--":
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _changes(first: Sequence[str], words: Sequence[str]) -> Iterator[str]:
    """What is other in the words than in the first ones, in lines as they are printed."""
    one, other = _by_flag(first), _by_flag(words)
    for tag, i, k, m, n in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag in ("replace", "insert"):
            yield " ".join(other[m:n])
        elif tag == "delete":
            yield f"without {' '.join(one[i:k])}"


def main() -> None:
    """Write all files anew."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for name in recipe_names():
        path_of(name).write_text(golden_text(name))


if __name__ == "__main__":
    main()
