"""Record the seeds that a script sets and the metrics that it logs."""

from __future__ import annotations

import functools
import logging
import random
import re
from collections.abc import Callable
from typing import Any

from .events import Metric, Seed
from .imports import AfterImport
from .recorder import Recorder
from .sites import Sites

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b"
# A key alone on its line may have spaces ("Num examples = 12"); several are words ("a: 1, b: 2").
_WHOLE = re.compile(rf"\W*([A-Za-z][\w @./%()-]*?)\s*[=:]\s*({_NUMBER})\W*")
_PAIR = re.compile(
    rf"(?<![\w.])([A-Za-z][\w@./-]*)\s*[=:]\s*({_NUMBER})"
    r"(?=\s*(?:$|[,;|)\]}]|[A-Za-z][\w@./-]*\s*[=:]))"
)
_MAX_LENGTH = 2000


class Seeds:
    """Records calls that seed a generator. Those by workers and libraries have no site."""

    def __init__(self, recorder: Recorder, sites: Sites) -> None:
        self._recorder = recorder
        self._sites = sites
        self._depth = 0

    def install(self, after_import: AfterImport) -> None:
        """Wrap ``random`` now, numpy and torch when they are imported."""
        setattr(random, "seed", self._wrap("random", random.seed))  # noqa: B010
        after_import.call("numpy", self._numpy)
        after_import.call("torch", self._torch)

    def _numpy(self, numpy: Any) -> None:
        numpy.random.seed = self._wrap("numpy", numpy.random.seed)

    def _torch(self, torch: Any) -> None:
        wrapped = self._wrap("torch", torch.manual_seed)
        torch.manual_seed = torch.random.manual_seed = wrapped
        for name in ("manual_seed", "manual_seed_all"):
            setattr(torch.cuda, name, self._wrap("cuda", getattr(torch.cuda, name)))

    def _wrap(self, generator: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def seed(*args: Any, **kwargs: Any) -> Any:
            # torch.manual_seed seeds CUDA as well: only the outermost call is the script's.
            if not self._depth:
                value = next(iter((*args, *kwargs.values())), None)
                self._recorder.emit(
                    Seed(generator=generator, value=str(value)[:200], site=self._sites.here())
                )
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1

        return seed


class Metrics:
    """Records numbers that the script logs, also on a rank whose logger is silenced."""

    def __init__(self, recorder: Recorder, sites: Sites) -> None:
        self._recorder = recorder
        self._sites = sites

    def install(self) -> None:
        """Wrap the methods of Logger. A handler would make basicConfig do nothing."""
        for level in ("info", "warning"):
            number = getattr(logging, level.upper())
            setattr(logging.Logger, level, self._wrap(getattr(logging.Logger, level), number))
        setattr(logging.Logger, "log", self._wrap(logging.Logger.log, None))  # noqa: B010

    def _wrap(self, original: Callable[..., None], fixed: int | None) -> Callable[..., None]:
        @functools.wraps(original)
        def log(logger: logging.Logger, *args: Any, **kwargs: Any) -> None:
            level, *message = args if fixed is None else (fixed, *args)
            shown = logger.isEnabledFor(level) if isinstance(level, int) else True
            if message and isinstance(level, int) and level >= logging.INFO:
                self._record_metrics(logger.name, shown, message[0], tuple(message[1:]))
            if shown:
                # Skip our frame: %(filename)s and %(lineno)d must stay the script's.
                kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
                original(logger, *args, **kwargs)

        return log

    def _record_metrics(
        self, logger: str, shown: bool, message: Any, args: tuple[Any, ...]
    ) -> None:
        if not isinstance(message, str) or not ("=" in message or ":" in message or args):
            return
        plain = (str, int, float)
        if not all(isinstance(each, plain) or hasattr(each, "dtype") for each in args):
            return
        try:
            text = message % args if args else message
        except (TypeError, ValueError):
            return
        site = self._sites.here()
        for key, value in parse_metrics(text) if site is not None else ():
            self._recorder.emit(Metric(key=key, value=value, logger=logger, shown=shown, site=site))


def parse_metrics(text: str) -> list[tuple[str, float]]:
    """The ``key = number`` and ``key: number`` pairs in a message; none if it is very long."""
    if len(text) > _MAX_LENGTH:
        return []
    whole = _WHOLE.fullmatch(text)
    found = [whole.groups()] if whole else _PAIR.findall(text)
    return [(key.strip(), float(value)) for key, value in found]
