"""Fixtures as ``patch --exact`` is proven on them: 157 examples in batches of 16, no dropout."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy
from attrs import evolve, frozen
from ddpfix.fixtures.tiny import Kind, build_clone_data, build_model, clone_arguments
from ddpfix.launchers.trace.events import Parameters
from ddpfix.patcher.engine.patch import patch
from forked import Job, Run
from lone_copies import lone_copy
from test_shapes import DATA, SHAPES, Shape, copies

EXAMPLES, BATCH = 157, 16  # 9 batches of 16 and one of 13: neither 2 nor 3 ranks divide both
MADE = "    model=Model(encoder,config,tokenizer,args)\n"  # where the family has its model
IMPORTED = "import torch\n"
REFUSED = {"two_encoders": "line 97: the loss compares each example with its whole batch"}


@frozen
class Pair:
    """An untouched script and its patched copy.

    ``words`` are the arguments for an output folder, a batch of all ranks and an accumulation;
    ``shims`` options of the tracer with which today's libraries run the untouched script.
    """

    folder: Path
    untouched: Path
    patched: Path
    words: Callable[[Path, int, int], list[str]]
    accumulates: bool = True
    shims: tuple[str, ...] = ()

    def alone(self, script: Path) -> Job:
        """A run of either script outside any process group."""
        shims = self.shims if script == self.untouched else ()
        return self._job(f"{script.parent.name} alone", script, None, 1, shims)

    def group(self, world: int, accumulation: int) -> Job:
        """A run of the patched script with the steps of batch 16."""
        return self._job(f"x{world}, {accumulation}", self.patched, world, accumulation)

    def _job(
        self,
        name: str,
        script: Path,
        world: int | None,
        accumulation: int,
        shims: tuple[str, ...] = (),
    ) -> Job:
        here = self.folder / name
        words = self.words(here / "out", BATCH // accumulation, accumulation)
        return Job(here, script, words, world, ["--no-dropout", "--keep-parameters", *shims])


def shape(which: Shape, folder: Path, *, double: bool = False) -> Pair:
    """A shape with more examples than it has by itself; ``double``: it computes in fp64."""
    data = folder / "data"
    shutil.copytree(DATA, data)
    lines = (data / "train.txt").read_text().splitlines(keepends=True)
    (data / "train.txt").write_text("".join((lines * EXAMPLES)[:EXAMPLES]))
    larger = evolve(
        which,
        data={flag: str(data / file) for flag, file in which.data.items()},
        words=which.words.replace(str(DATA), str(data)),
    )
    untouched, patched = copies(which.name, folder)
    for script in (untouched, patched):
        text = script.read_text()
        text = re.sub(r"(?<![.(]Linear\()\b48\b", str(EXAMPLES), text)
        if double:
            assert IMPORTED in text
            default = f"{IMPORTED}torch.set_default_dtype(torch.float64)\n"
            text = text.replace(IMPORTED, default, 1).replace("float32", "float64")
        script.write_text(text)
    patch_exactly(patched)
    return Pair(folder, untouched, patched, larger.arguments, bool(which.accumulation))


def family(kind: Kind, folder: Path, *, epochs: int = 2, double: bool = False) -> Pair:
    """A variant of family A with a tiny model; ``double``: it computes in fp64."""
    untouched, patched = (lone_copy(folder / name) for name in ("original", "patched"))
    for script in (untouched, patched) if double else ():
        text = script.read_text("utf-8")
        assert MADE in text
        script.write_text(text.replace(MADE, f"{MADE}    model.double()\n"), "utf-8")
    patch_exactly(patched)
    model = build_model(folder / "model", kind)
    data = build_clone_data(folder / "data", train=EXAMPLES, valid=13, test=11)

    def words(out: Path, batch: int, accumulation: int) -> list[str]:
        # At the family's usual rate the last gradients are differences of which fp32 keeps 1.5e-5,
        # and losses differ by up to 1.1e-6: rounding, as in fp64 it is 1.3e-15.
        return clone_arguments(
            model,
            data,
            out,
            kind,
            batch=batch,
            accumulation=accumulation,
            epochs=epochs,
            learning_rate=2e-3,
        )

    return Pair(folder, untouched, patched, words, shims=("--shim-legacy",))


def patch_exactly(script: Path) -> None:
    result = patch(script, exact=True)
    assert result.refusal == ""
    result.write()


FIXTURES: dict[str, Callable[..., Pair]] = {
    "CodeGPT": partial(family, "gpt2"),
    "CodeBERT": partial(family, "roberta"),
    **{each.name: partial(shape, each) for each in SHAPES if each.name not in REFUSED},
}


def parameters_apart(one: Run, other: Run) -> float:
    """|a - b| / |a| of the last parameters that two runs kept."""
    last = []
    for run in (one, other):
        names = [event.file for event in run.ranks[0].events_of(Parameters) if event.file]
        last.append(numpy.load(run.folder / "trace" / names[-1]))
    first, second = (numpy.concatenate([a[name].ravel() for name in a.files]) for a in last)
    return float(numpy.linalg.norm(first - second) / numpy.linalg.norm(first))
