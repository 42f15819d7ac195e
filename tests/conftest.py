"""Fixtures that several test files share."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddpfix.launchers.verify import verifier
from forked import Forge

# Whoever runs the tests in the background may have these ignored, and children inherit that.
for _name in ("SIGINT", "SIGHUP"):
    if signal.getsignal(getattr(signal, _name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, _name), signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# Runs of verify write to a test's own files, except where a test is about what keeps them.
os.environ["DDPFIX_ISOLATION"] = "none"

# Twenty seconds and more each, the longest first: what is begun last leaves a worker idle if it
# takes long.
LONG = (
    *("test_verify", "test_faults_family", "test_verify_isolation", "test_probe_memory"),
    *("test_interpreter", "test_main_job", "test_nodes", "test_trace", "test_first_hour"),
    *("test_verify_working_folder", "test_memory_config", "test_exact", "test_shapes"),
    *("test_capabilities", "test_memory_cpu", "test_guardian", "test_verify_sabotage"),
    *("test_capability_resume", "test_patch", "test_capability_flags", "test_report"),
    *("test_spellings", "test_capability_compile", "test_any_script", "test_faults"),
    *("test_capability_amp", "test_probe", "test_capability_fsdp", "test_launch", "test_stop"),
    *("test_slurm", "test_memory_card", "test_detector_compiled", "test_emit", "test_memory_read"),
    *("test_single_card_runs", "test_memory_sharded_trace", "test_direct", "test_graphcodebert"),
    *("test_emit_elsewhere", "test_capability_loader", "test_packaging", "test_fixtures"),
    *("test_pre_commit", "test_verify_verdicts", "test_card_locks", "test_capability_lora"),
    *("test_capability_checkpointing", "test_contributing", "test_new_rule"),
)
NVML_SOURCE = Path(__file__).parent / "nvml" / "nvml.c"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long; pytest-xdist keeps the order, where told so."""
    rank = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(LONG)))


def build_nvml(folder: Path, *flags: str) -> Path:
    """Compile the test libnvidia-ml into `folder` and return the folder."""
    library = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags]
    subprocess.run([*command, "-o", str(library), str(NVML_SOURCE)], check=True)
    return folder


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A launch that has ended ignores signals, which in a test's own process would stay so."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What check remembers of files, away from the user's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DDPFIX_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge]:
    """What traced runs come from; it imports once for all tests of a worker."""
    with Forge() as running:
        yield running


@pytest.fixture
def forged_verify(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command `verify` makes its runs without the time of their imports."""
    monkeypatch.setattr(verifier, "verify", functools.partial(verifier.verify, start=forge.trace))


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml-old"), "-DOLD_DRIVER")


@pytest.fixture(scope="session")
def new_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml(tmp_path_factory.mktemp("nvml-new"), "-DNEW_DRIVER")


@pytest.fixture
def machine(nvml_library: Path, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """An environment in which pynvml sees the cards that the given text describes.

    The text's format is told at the top of nvml/nvml.c; `machine.txt` in the test's folder can be
    rewritten while a program runs.
    """

    def environment(
        cards: str, *, library: Path = nvml_library, **variables: str
    ) -> dict[str, str]:
        description = tmp_path / "machine.txt"
        description.write_text(cards)
        inherited = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        paths = [str(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        added = {"TEST_NVML": str(description), "LD_LIBRARY_PATH": os.pathsep.join(paths)}
        return inherited | added | variables

    return environment
