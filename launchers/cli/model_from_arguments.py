"""The network of a script without a recipe, from its arguments and a config.json.

What decides memory has to be known: the class, the length of a sequence, the optimizer, the
precision. Where one of them is not, nothing is predicted, and a probe can measure it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...patcher.api import FlagRole, Program, UnknownModel, added_lengths, pretrained_model
from ...recipes.from_command import values_of
from ...recipes.network import Network
from ...record import record
from ..script.model_folder import find_config

PROBE = "--probe N measures it"
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
LONGEST = 1 << 20
BEHIND = {"own": "", "none": "", "read": " in the script's own class"}
SWITCHES: dict[str, str | bool] = {
    "always": True,
    "never": False,
    "": "--gradient_checkpointing",  # that of `ddpfix patch --with checkpointing`
}


@record
class ModelFromArguments:
    """The network and in words what it was read from; or why there is none."""

    network: Network | None
    words: str


def model_from_arguments(
    program: Program, roles: Mapping[str, FlagRole], arguments: Sequence[str]
) -> ModelFromArguments:
    """The model that the program trains with these arguments."""
    values = values_of(arguments, program.options)
    found = pretrained_model(program, values)
    if isinstance(found, UnknownModel):
        return ModelFromArguments(None, f"{found.because}; {PROBE}")
    path = find_config(found.config, values.get("cache_dir", ""))
    if path is None:
        flag = f"{found.flag} " if found.flag else ""
        return ModelFromArguments(
            None,
            f"{flag}{found.config}: neither a folder with a config.json nor in the hub's local "
            f"cache; name a folder, or {PROBE}",
        )
    length = _length(program, roles, values)
    if isinstance(length, str):
        return ModelFromArguments(None, f"{length}; {PROBE}")
    try:
        sizes = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        return ModelFromArguments(None, f"{path}: {error}")
    if not isinstance(sizes, dict):
        return ModelFromArguments(None, f"{path}: no JSON object")
    sizes.pop("_name_or_path", None)  # it tells no size, and is another one in each copy
    targets = 0
    if sizes.get("is_encoder_decoder") and found.head == "own":
        targets = _targets(program, values)
        if not targets:
            because = "which option is the length of a target cannot be told"
            return ModelFromArguments(None, f"{because}; {PROBE}")
    settings = found.settings
    network = Network(
        architecture=str(sizes.get("model_type", "")),
        head=found.head,
        vocabulary=0,
        hidden=0,
        layers=_layers(sizes),
        heads=0,
        intermediate=0,
        positions=0,
        length=(length,),
        config=json.dumps(sizes, sort_keys=True),
        model_class=found.model_class,
        optimizer=found.optimizer,
        sequences=found.sequences,
        targets=targets,
        source=found.source,
        weights=settings.weights,
        precision=settings.precision,
        checkpointing=SWITCHES.get(settings.checkpointing, settings.checkpointing),
        lora="--lora_r" if settings.lora_rank is None else settings.lora_rank,
        lora_targets=" ".join(settings.lora_targets),
        lora_dropout=settings.lora_dropout,
    )
    behind = BEHIND.get(found.head, f" with a head for {found.head}")
    learned = f" and {targets} of the target" if targets else ""
    times = f"{found.sequences} x " if found.sequences > 1 else ""
    words = (
        f"{path}: {found.model_class}{behind}, {times}{length} tokens{learned}, {found.optimizer}"
    )
    return ModelFromArguments(network, words)


def _length(
    program: Program, roles: Mapping[str, FlagRole], values: Mapping[str, str]
) -> int | str:
    """The tokens of a sequence, or why they are not known."""
    role = roles.get("sequence_length")
    if role is None:
        return "which option is the length of a sequence cannot be told"
    dest = next(
        name for name, option in program.options.items() if option.spellings == role.spellings
    )
    sums = added_lengths(program, dest) or {frozenset([dest])}
    if len(sums) > 1:
        return f"to which sum of {role.flag} and others sequences are padded cannot be told"
    lengths = {each: _number(program, each, values) for each in sorted(*sums)}
    unknown = next((each for each, value in lengths.items() if not value), "")
    if unknown:
        flag = role.flag if unknown == dest else program.options[unknown].spellings[0]
        return f"the length of a sequence is not known: pass {flag}"
    return sum(lengths.values())


def _number(program: Program, dest: str, values: Mapping[str, str]) -> int:
    """The length that an option gives; 0 where it is none."""
    value = str(values.get(dest, program.options[dest].default))
    return int(value) if value.isdigit() and int(value) <= LONGEST else 0


def _targets(program: Program, values: Mapping[str, str]) -> int:
    """The tokens of a target, of the one option whose name says so; 0 where it is not known."""
    named = [one for one in program.options if "target" in one and "len" in one]
    training = [one for one in named if "val" not in one and "test" not in one]
    if len(training) != 1:
        return 0
    return _number(program, training[0], values)


def _layers(sizes: Mapping[str, object]) -> int:
    """The number of layers where all that depends on it is that number; else 0."""
    counts = {name: sizes[name] for name in LAYERS if name in sizes}
    if sizes.get("is_encoder_decoder"):
        return 0
    per_layer = any(isinstance(value, list) and len(value) > 1 for value in sizes.values())
    value = next(iter(counts.values()), 0)
    return value if len(counts) == 1 and isinstance(value, int) and not per_layer else 0
