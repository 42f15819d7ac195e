"""A recipe: what the launcher must know of a family of scripts, one TOML file each. Its fields::

description, task     for people
aliases               other names that it answers to
family, script        the family of scripts and the script's usual file name
[flags]               how the script names what the launcher sets: the batch per process in
                      training and evaluation, the accumulation, the output folder, and more;
                      `max_steps` only where it ends the training, as many scripts overwrite it
[batch]               global batch (examples per optimizer step over all processes), the most
                      a device takes at once, and the evaluation batch per process;
                      `cap_memory` is the size in GB of the card that the most is known from
[data]                flag = file, relative to `folder`, which is relative to the script;
                      `beside` names files the script expects next to the first of them;
                      `train` is the flag of the training file, with an example a line, and
                      `train_share` the part of its lines that the script trains on
[output]              the folder the script writes to, relative to the run folder
joined                true for a script that reads "--flag=value" only, and no "--flag value"
batch_is_shared       true for a script that divides its batch flag by the number of ranks
[arguments]           the script's other arguments, in order; true stands for a bare switch
[if_declared]         arguments for a script that declares the flag, and for no other
[out_of_memory]       flags whose numbers may be halved, in this order, when nothing else helps
                      a run that is out of memory, and the least of each, which it gets instead
                      where the half is less
[model]               the model that is trained, in numbers: network.py beside this file
[sources]             where a figure comes from: "batch.global_batch" or a flag = words
"""

from __future__ import annotations

from ..record import fields_of, record
from .network import Network, numbers_of

Value = str | int | float | bool


@record
class Flags:
    """The script's names of the flags that the launcher sets; None where it has none."""

    train_batch: str
    eval_batch: str | None = None
    accumulation: str | None = None
    output: str | None = None
    learning_rate: str | None = None
    epochs: str | None = None
    max_steps: str | None = None
    sequence_length: str | None = None
    seed: str | None = None


@record
class Batch:
    """Batch sizes in examples: per optimizer step over all processes, and at most per device.

    The cap was measured on a GPU with `cap_memory` GB. On larger ones a prediction may exceed it.
    """

    global_batch: int
    per_device_cap: int
    eval_per_device: int
    cap_memory: int = 48


@record
class Data:
    """Where the script expects its data."""

    folder: str
    files: dict[str, str]
    beside: tuple[str, ...] = ()
    train: str | None = None
    train_share: float = 1.0


@record
class Output:
    """Where the script writes, relative to the run folder."""

    folder: str


@record
class Recipe:
    """One family of scripts, ready to be launched."""

    description: str
    family: str
    script: str
    task: str
    flags: Flags
    batch: Batch
    data: Data
    output: Output
    arguments: dict[str, Value]
    if_declared: dict[str, Value]
    out_of_memory: dict[str, int]
    sources: dict[str, str]
    model: Network | None = None
    aliases: tuple[str, ...] = ()
    joined: bool = False
    batch_is_shared: bool = False
    name: str = ""


SUBTABLES = {"flags": Flags, "batch": Batch, "data": Data, "output": Output, "model": Network}
OPTIONAL_TABLES = ("arguments", "if_declared", "out_of_memory", "sources")
"""Tables that may be left out, and are empty then."""


def figures_of(recipe: Recipe) -> list[str]:
    """The figures that may have a source: sizes of batch and model, and all arguments.

    `cap_memory` needs none of its own: the source of the cap names the GPU.
    """
    sizes = [f"batch.{name}" for name in fields_of(Batch) if name != "cap_memory"]
    sizes += [f"model.{name}" for name in numbers_of(recipe.model)] if recipe.model else []
    return [*sizes, "data.train_share", *recipe.arguments, *recipe.if_declared]
