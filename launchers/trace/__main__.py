"""``python -m ddpfix.launchers.trace --out DIR [options] SCRIPT ARGS…``: run a traced script."""

from __future__ import annotations

import argparse
import atexit
import os
import platform
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from . import determinism, legacy
from .collectives import Collectives
from .double import compute_in_double
from .events import SCHEMA, Closed, Exit, ScriptException, Start
from .example_draws import seed_examples
from .files import FileAudit
from .gradients import GradientObserver
from .imports import AfterImport
from .limits import Limits
from .loaders import Loaders
from .main_module import run_as_main
from .recorder import Recorder
from .seeds_and_metrics import Metrics, Seeds
from .sites import Sites
from .training import TrainingObserver
from .watchdog import HangReporter
from .written_files import WrittenFiles

_TRACEBACK_LINES = 30


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"ddpfix trace: {message}; see --help\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the tracer's own options; those after SCRIPT are the script's."""
    result = _Parser(
        prog="python -m ddpfix.launchers.trace",
        description="Run a training script as python would, and write down what it does.",
        allow_abbrev=False,
    )
    add = result.add_argument
    add("--out", required=True, metavar="DIR", help="folder for rank{RANK}.jsonl")
    add("--no-dropout", action="store_true", help="every dropout is the identity")
    add("--seed-examples", action="store_true", help="draws of an example depend on it alone")
    add("--shim-legacy", action="store_true", help="what scripts of 2020 need today")
    add("--double", action="store_true", help="fp32 is fp64")
    add("--threads", type=_positive, metavar="N", help="threads of BLAS and torch")
    add("--seed", type=int, metavar="N", help="seed random, numpy and torch before the script does")
    add(
        "--seed-apart",
        action="store_true",
        help="add the rank to N, as without a seed ranks differ",
    )
    add("--max-steps", type=_positive, metavar="N", help="no training after N optimizer steps")
    add("--max-epochs", type=_positive, metavar="K", help="no training after K passes")
    add("--max-eval-batches", type=_positive, metavar="M", help="M batches of each evaluation")
    add("--phase-timeout", type=_seconds, metavar="S", help="S seconds without event are a hang")
    add(
        "--checksum-every",
        type=_natural,
        default=1,
        metavar="N",
        help="parameter checksum every N steps; 0: only at the end (default 1)",
    )
    add("--keep-parameters", action="store_true", help="keep the trained parameters as .npz")
    add("--keep-written", metavar="DIR", help="copy what the script writes where it runs to DIR")
    add("script", metavar="SCRIPT")
    add("arguments", metavar="ARGS", nargs=argparse.REMAINDER)
    return result


def main(argv: Sequence[str]) -> NoReturn:
    """Trace one script and exit with its status."""
    options = parser().parse_args(argv)
    if not Path(options.script).is_file():
        print(f"ddpfix trace: {options.script}: no such script", file=sys.stderr)
        raise SystemExit(2)
    try:
        recorder = Recorder(Path(options.out).absolute(), int(os.environ.get("RANK", "0")))
    except OSError as error:
        print(f"ddpfix trace: {options.out}: {error.strerror}; give --out DIR", file=sys.stderr)
        raise SystemExit(2) from None
    trace = TracedProcess(options, recorder)
    trace.install()
    trace.run(options.script, options.arguments)


class TracedProcess:
    """A traced process: installs the hooks, runs the script, and records how it ends."""

    def __init__(self, options: argparse.Namespace, recorder: Recorder) -> None:
        self._options = options
        self._recorder = recorder
        self._world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self._sites = Sites(options.script)
        self._limits = Limits(
            recorder, options.max_steps, options.max_epochs, options.max_eval_batches
        )
        self._collectives = Collectives(recorder, self._sites)
        self._loaders = Loaders(recorder, self._sites, self._limits)
        self._training = TrainingObserver(
            recorder,
            self._sites,
            self._limits,
            self._loaders,
            self._collectives,
            checksum_every=options.checksum_every,
            keep_parameters=options.keep_parameters,
        )
        self._gradients = GradientObserver(recorder)
        self._watchdog: HangReporter | None = None
        self._written: WrittenFiles | None = None
        if options.keep_written is not None:
            folders = Path.cwd(), Path(options.script).absolute().parent
            self._written = WrittenFiles(Path(options.keep_written).absolute(), folders)

    def install(self) -> None:
        """Install every hook, some of them once the library that they wrap is imported."""
        options = self._options
        self._recorder.emit(self._start())
        after_import = AfterImport(self._recorder)
        sys.meta_path.insert(0, after_import)
        if options.threads is not None:
            determinism.set_threads(options.threads, after_import)
        if options.seed is not None:
            rank = int(os.environ.get("RANK", "0")) if options.seed_apart else 0
            determinism.set_seed(options.seed + rank, after_import)
        if options.double:
            after_import.call("torch", compute_in_double)
        if options.no_dropout:
            after_import.call("torch", determinism.disable_dropout)
        if options.seed_examples:
            after_import.call("torch", seed_examples)
        if options.shim_legacy:
            legacy.install(after_import, self._sites)
        Seeds(self._recorder, self._sites).install(after_import)
        Metrics(self._recorder, self._sites).install()
        for part in (self._collectives, self._loaders, self._training, self._gradients):
            after_import.call("torch", part.install)
        after_import.call("torch._dynamo", self._collectives.hide)
        FileAudit(self._recorder, self._sites, self._written).install(after_import)
        # Registered first, so it runs after the script's own exit handlers.
        atexit.register(self._close)
        if options.phase_timeout is not None:
            self._watchdog = HangReporter(
                self._recorder, self._sites, options.phase_timeout, self._world_size
            )
            self._watchdog.start()

    def run(self, script: str, arguments: list[str]) -> NoReturn:
        """Run the script as ``__main__`` and exit as it does."""
        sys.argv = [script, *arguments]
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = str(Path(script).resolve().parent)
        try:
            run_as_main(script)
        except SystemExit as end:
            self._end(_status(end.code), None)
            raise
        except KeyboardInterrupt as error:
            self._end(130, error)
            raise
        except BaseException as error:
            if self._is_starved(error):
                self._limits.force()
                self._end(0, None)
                raise SystemExit(0) from None
            self._end(1, error)
            # As python would print it, without the frames of the tracer.
            error = error.with_traceback(self._user_part(error.__traceback__))
            sys.excepthook(type(error), error, error.__traceback__)
            raise SystemExit(1) from None
        self._end(0, None)
        raise SystemExit(0)

    def _start(self) -> Start:
        options = self._options
        return Start(
            schema=SCHEMA,
            rank=self._recorder.rank,
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            world_size=self._world_size,
            pid=os.getpid(),
            host=socket.gethostname(),
            started=time.time(),
            script=str(Path(options.script).absolute()),
            argv=options.arguments,
            cwd=str(Path.cwd()),
            python=platform.python_version(),
            hash_seed=os.environ.get("PYTHONHASHSEED"),
            options={k: v for k, v in vars(options).items() if k not in ("script", "arguments")},
        )

    def _is_starved(self, error: BaseException) -> bool:
        """Whether the script ended because ``next`` found no batch after a limit was reached."""
        starved = isinstance(error, StopIteration) or isinstance(error.__cause__, StopIteration)
        return starved and self._limits.training_over is not None

    def _end(self, status: int, error: BaseException | None) -> None:
        if self._recorder.is_child:
            return
        if self._watchdog is not None:
            self._watchdog.hold()
        self._loaders.close()
        self._training.close(failed=error is not None)
        self._gradients.close()
        failure = None
        if error is not None:
            own = self._user_part(error.__traceback__)
            lines = "".join(traceback.format_exception(type(error), error, own)).splitlines()
            failure = ScriptException(
                type=type(error).__name__,
                message=str(error),
                traceback=lines[-_TRACEBACK_LINES:],
                site=self._sites.of_traceback(error.__traceback__),
            )
        self._recorder.emit(
            Exit(status=status, failure=failure, group_alive=self._collectives.group_alive())
        )

    def _close(self) -> None:
        if self._recorder.is_child:
            return
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._written is not None:
            with self._recorder.quiet():
                self._written.copy()
        self._recorder.emit(Closed(group_alive=self._collectives.group_alive()))

    def _user_part(self, tb: TracebackType | None) -> TracebackType | None:
        """The traceback from the first frame of the user's code on."""
        begin = tb
        while begin is not None and not self._sites.is_user(begin.tb_frame.f_code.co_filename):
            begin = begin.tb_next
        return begin


def _status(code: object) -> int:
    if code is None:
        return 0
    return code if isinstance(code, int) else 1


def _number(convert: Callable[[str], Any], least: float, what: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = convert(text)
        except ValueError:
            value = None
        if value is None or not value >= least:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return parse


_positive = _number(int, 1, "a whole number above 0")
_natural = _number(int, 0, "a whole number, 0 or more")
_seconds = _number(float, 0.1, "a number of seconds, 0.1 or more")

if __name__ == "__main__":
    main(sys.argv[1:])
