"""A measurement as it is stored, with validation: another program may have written the file."""

from __future__ import annotations

import attrs

from ..state_validators import positive


@attrs.frozen
class StoredBatch:
    """The fields of `ProbedBatch`, each with its limits."""

    per_device: int = attrs.field(validator=positive)
    bytes: int = attrs.field(validator=positive)
    seconds: float = attrs.field(validator=positive)


@attrs.frozen
class StoredThroughput:
    """The fields of `Throughput`, each with its limits."""

    when: str
    world: int = attrs.field(validator=positive)
    per_device: int = attrs.field(validator=positive)
    accumulation: int = attrs.field(validator=positive)
    seconds: float = attrs.field(validator=positive)
    time: float | None = attrs.field(default=None, validator=positive)
    memory: float | None = attrs.field(default=None, validator=positive)
    power: float | None = attrs.field(default=None, validator=positive)
    probed: list[StoredBatch] = attrs.field(factory=list)
