"""The network of a script's own class around a pretrained model, as its source says.

What the batch holds is found by trying: each argument of `forward` is one number, one row of tokens
or one square of tokens for each example, and the smallest that the class can work with are taken. A
mask of tokens by tokens is one of bytes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its name everywhere
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from .read_values import Misfit, Options, Part, Unread, method_of
from .source_reader import Reader
from .step import TrainingStep

KINDS = ("number", "row", "square")
"""What an argument of `forward` holds of each example, smallest first."""
MOST_TRIES = 800
SHAPE_ERRORS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)
"""What torch raises where shapes do not fit, Unread included."""
EXAMPLES = 5  # of a try: a number that no size is a multiple of by mistake
TEMPERATURE = 0.07
SQUARE_MASK = 3  # dimensions of a mask of tokens by tokens

Build = Callable[[str, int, dict[str, Any]], PreTrainedModel]
"""Makes a model from a class's name, a number of layers (0: as the config says) and keywords."""


class EncoderReader(Reader):
    """A reader that checks what models of transformers are called with."""

    def __init__(self, text: str, encoder: Callable[[str, dict[str, Any]], nn.Module]) -> None:
        super().__init__(text, encoder)
        self.length = 0
        self.passes = 0
        self.is_trying = False

    def module(self, target: nn.Module, arguments: list[Any], named: dict[str, Any]) -> Any:
        if isinstance(target, PreTrainedModel):
            self.passes += 1
            names = ("input_ids", "attention_mask")
            named = {**dict(zip(names, arguments, strict=False)), **named}
            arguments = []
            rows = self._rows(named)
            mask = named.get("attention_mask")
            if mask is not None:
                named["attention_mask"] = self._mask(mask, rows)
                if self.is_trying:  # on torch's meta device, where no mask has values to look at
                    del named["attention_mask"]
            for name in ("token_type_ids", "position_ids"):
                if named.get(name) is not None and named[name].shape != (rows, self.length):
                    raise Misfit(f"{name} of another shape than its tokens")
        return super().module(target, arguments, named)

    def _rows(self, named: dict[str, Any]) -> int:
        """The sequences that an encoder gets, which have to be as long as they are told to be."""
        ids, vectors = named.get("input_ids"), named.get("inputs_embeds")
        inputs = vectors if ids is None else ids
        if inputs is None or inputs.dim() != (3 if ids is None else 2):
            raise Misfit("its encoder gets no rows of tokens")
        if inputs.shape[1] != self.length:
            raise Misfit("its encoder gets sequences of another length")
        return int(inputs.shape[0])

    def _mask(self, mask: Tensor, rows: int) -> Tensor:
        if mask.dim() == SQUARE_MASK:
            mask = mask[:, None]  # as transformers made of it when scripts passed it so
        if mask.dim() > SQUARE_MASK:
            if mask.shape[-2:] != (self.length, self.length):
                raise Misfit("an attention mask of another shape than its tokens")
            return mask if mask.is_floating_point() else mask.bool()
        if mask.shape != (rows, self.length):
            raise Misfit("an attention mask of another shape than its tokens")
        return mask


class ReadModel(nn.Module):
    """A script's own class with what it makes of a batch, and a loss where it returns none."""

    def __init__(self, step: TrainingStep, build: Build, config: Any, layers: int = 0) -> None:
        super().__init__()
        told = json.loads(step.network.source)
        self.length, self.contrast = step.length, bool(told["contrast"])
        made: list[PreTrainedModel] = []

        def encoder(name: str, named: dict[str, Any]) -> PreTrainedModel:
            if made:
                raise Unread("it makes several encoders")
            made.append(build(name, layers, named))
            return made[0]

        self.reader = EncoderReader(told["text"], encoder)
        self.reader.length = step.length
        names = {name: Options(told["options"]) for name in told["arguments"]}
        if told["encoder"]:
            outside = encoder(step.network.model_class, {})
            names |= dict.fromkeys(told["encoder"], outside)
        names |= dict.fromkeys(told["config"], made[0].config if made else config)
        model = self.reader.value(told["call"], names)
        if not isinstance(model, Part) or not made:
            raise Unread("its encoder is not seen")
        self.model = model
        self.names, self.by_name = self._inputs(told.get("inputs"))
        self.kinds: tuple[str, ...] = ()

    def _inputs(self, inputs: Sequence[Any] | None) -> tuple[list[str], list[str]]:
        """The arguments of `forward` by position and by name; a step may leave some out."""
        forward = method_of(self.model.class_read, "forward")
        if forward is None:
            raise Unread(f"{self.model.class_read.name} has no forward")
        names = [arg.arg for arg in forward.args.args[1:]]
        if inputs is None:
            return names, []
        count, named = inputs
        unknown = {*named} - {*names[count:]}
        if count > len(names) or unknown:
            raise Unread("its steps give forward other arguments than it has")
        return names[:count], [*named]

    def forward(self, numbers: Tensor) -> Tensor:
        batch = self.inputs(len(numbers))
        first = len(self.names)
        self.reader.inputs, self.reader.turns, self.reader.passes = batch, 0, 0
        try:
            named = dict(zip(self.by_name, batch[first:], strict=True))
            result = self.reader.call_method(self.model, "forward", batch[:first], named)
        finally:
            self.reader.inputs = []
        return self.loss([*_tensors(result)])

    def inputs(self, batch: int) -> list[Tensor]:
        """The arguments of `forward`."""
        n = self.length
        shapes = {"number": (batch,), "row": (batch, n), "square": (batch, n, n)}
        return [
            torch.zeros(shapes[kind], dtype=torch.bool if kind == "square" else torch.long)
            for kind in self.kinds
        ]

    def loss(self, results: list[Tensor]) -> Tensor:
        """The loss that `forward` returns first, or one of the vectors that it returns."""
        vectors = [each for each in results if each.requires_grad]
        if not vectors:
            raise Unread("forward returns nothing that is trained")
        if vectors[0].dim() == 0:
            return vectors[0]
        if any(each.dim() > 2 for each in vectors):
            raise Unread("its loss is taken elsewhere, of more than a vector for each example")
        widest = max(each.shape[-1] for each in vectors)
        losses = []
        if self.contrast:
            wide = [F.normalize(v.float(), dim=-1) for v in vectors if v.shape[-1] == widest]
            scores = wide[0] @ wide[-1].T / TEMPERATURE
            places = torch.arange(len(scores))
            losses += [F.cross_entropy(scores, places), F.cross_entropy(scores.T, places)]
            vectors = [each for each in vectors if each.shape[-1] != widest]
        losses += [-F.log_softmax(each.float(), -1).mean() for each in vectors]
        return torch.stack(losses).sum()


def read_network(step: TrainingStep, build: Build, config: Any) -> ReadModel:
    """The network of a step with a source. Raises ValueError where it is not followed."""
    few = ReadModel(step, build, config, layers=1 if step.network.layers else 0)
    kinds = _fitting_kinds(few)
    model = ReadModel(step, build, config)
    model.kinds = kinds
    return model


def _fitting_kinds(model: ReadModel) -> tuple[str, ...]:
    """The smallest arguments of `forward` that it works with."""
    names = [*model.names, *model.by_name]
    problem, furthest = "no shape of its batch fits", (-1, False)
    model.float().reader.is_trying = True
    for kinds in itertools.islice(_assignments(names), MOST_TRIES):
        model.kinds = kinds
        try:
            model(torch.zeros(EXAMPLES))
        except SHAPE_ERRORS as error:
            reached = (model.reader.passes, type(error) is Unread)
            if reached > furthest:
                problem, furthest = str(error).partition("\n")[0], reached
        else:
            if not model.reader.passes:
                raise Unread("forward does not call its encoder")
            return kinds
    raise Unread(problem)


def _assignments(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What the arguments may hold, smallest first; those that differ in a number are alike."""
    stems = [re.sub(r"_?\d+$", "", name) for name in names]
    groups = [*dict.fromkeys(stems)]
    every = itertools.product(range(len(KINDS)), repeat=len(groups))
    for ranks in sorted(every, key=lambda ranks: (ranks.count(2), sum(ranks))):
        chosen = dict(zip(groups, ranks, strict=True))
        yield tuple(KINDS[chosen[stem]] for stem in stems)


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, ModelOutput):
        yield from _tensors(result.to_tuple())
    elif isinstance(result, list | tuple):
        for each in result:
            yield from _tensors(each)
