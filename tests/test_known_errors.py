"""What the messages of torch and others mean: the table, and `ddpfix explain --log`."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from command_line import run
from ddpfix.launchers.running.known_errors import KnownError, known_errors, recognize, sightings
from ddpfix.patcher.api import all_rules

ERRORS = known_errors()
NAMES = [error.name for error in ERRORS]
BINARY = re.compile(r"binary: (\S+) \(.+\)")


def source_text(error: KnownError) -> str | None:
    """The text of the file that the message comes from; None where it is not installed here."""
    if error.source.startswith("elsewhere: "):
        return None
    packages = Path(sysconfig.get_path("purelib"))
    binary = BINARY.fullmatch(error.source)
    if binary:
        torch = importlib.util.find_spec("torch")
        assert torch is not None
        assert torch.origin is not None
        data = (Path(torch.origin).parent / "lib" / binary[1]).read_bytes()
        return data.decode("latin-1")
    if error.source.startswith("python: "):
        return Path(sysconfig.get_path("stdlib"), error.source.removeprefix("python: ")).read_text()
    return (packages / error.source).read_text()


def test_the_table_has_every_message_once() -> None:
    assert len(ERRORS) >= 40
    assert len(set(NAMES)) == len(NAMES)
    codes = {rule.code for rule in all_rules()}
    for error in ERRORS:
        assert set(error.codes) <= codes, error.name
        assert error.cause.endswith("."), error.name
        assert error.remedy.endswith("."), error.name


@pytest.mark.parametrize("error", ERRORS, ids=NAMES)
def test_a_message_is_recognized_by_its_own_example(error: KnownError) -> None:
    assert recognize(error.example) is error
    (seen,) = sightings([f"[rank3]: {error.example}\n"])
    assert seen.error is error


def test_the_messages_stand_in_what_is_installed() -> None:
    """Those whose source is here: a new version that says something else is noticed."""
    looked_up, gone = 0, []
    for error in ERRORS:
        text = source_text(error)
        if text is None:
            continue
        looked_up += 1
        # A source may break a line, or put a value in, within the words.
        joined = re.sub(r'"\s*f?"', "", text) if "\0" not in text else text
        parts = [part.strip() for part in re.split(r"['`\"]", error.words[0])]
        gone += [(error.name, part) for part in parts if part not in joined]
    assert looked_up >= 30
    assert gone == []


def test_another_option_that_begins_alike_is_no_local_rank() -> None:
    known = recognize("torchrun: error: unrecognized arguments: --local_addr")
    assert known is not None
    assert known.name == "unknown-arguments"


def test_what_names_an_error_in_passing_is_none() -> None:
    lines = [
        "INFO retry on ConnectionError: True",
        "raise ValueError('no')",
        "loss 0.5, 3 errors",
        "except KeyError: pass",
    ]
    assert sightings(lines) == []


LOG = """\
epoch 0 loss 0.5
[rank0]: Traceback (most recent call last):
[rank0]:   File "run.py", line 3, in <module>
[rank0]:     raise ValueError("trying to initialize the default process group twice!")
[rank0]: ValueError: trying to initialize the default process group twice!
[rank1]: ValueError: trying to initialize the default process group twice!
run.data.NoSuchError: 7
"""


def test_a_log_is_explained_line_by_line(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(LOG)
    result = run("explain", "--log", log)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f'{log}:4: raise ValueError("trying to initialize the default process group twice!") '
        "(3 times)",
        "  cause: init_process_group is called twice: by the script and by accelerate, deepspeed "
        "or a second set-up.",
        "  what mends it: Keep one of the calls, or test torch.distributed.is_initialized() first.",
        "  more: ddpfix explain DF202",
        "",
        f"{log}:7: run.data.NoSuchError: 7",
        "  not a message that ddpfix knows",
    ]
    told = json.loads(run("explain", "--log", log, "--json").stdout)
    assert [(one["line"], one["name"], one["count"]) for one in told] == [
        (4, "group-twice", 3),
        (7, None, 1),
    ]
    assert run("explain", "--log", "-", stdin=LOG.encode()).exit_code == 1


def test_a_log_without_an_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("epoch 0 loss 0.5\n")
    result = run("explain", "--log", tmp_path / "train.log")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no error is found" in result.stderr


@pytest.mark.parametrize(
    "words", [[], ["DF402", "--log", "x"], ["--log", "none.log"]], ids=["none", "both", "no file"]
)
def test_bad_input_is_refused(words: list[str]) -> None:
    assert run("explain", *words).exit_code == 2


def test_the_real_messages_of_this_python_are_known(tmp_path: Path) -> None:
    """Those that need no card: raised here, by the real library."""
    script = tmp_path / "raise.py"
    script.write_text(
        "import sys, traceback\n"
        "import torch\n"
        "import torch.distributed as dist\n"
        "from torch.utils.data import DataLoader, DistributedSampler\n"
        "model = torch.nn.Linear(2, 2)\n"
        "loss = model(torch.ones(1, 2)).sum()\n"
        "loss.backward()\n"
        "cases = {\n"
        "    'no-process-group': lambda: dist.get_rank(dist.group.WORLD) and dist.barrier(),\n"
        "    'no-rank': lambda: dist.init_process_group('gloo'),\n"
        "    'cpu-torch': lambda: model.cuda(),\n"
        "    'backward-twice': lambda: loss.backward(),\n"
        "    'no-graph': lambda: torch.ones(1).backward(),\n"
        "    'index-out-of-range': lambda: torch.nn.Embedding(2, 2)(torch.tensor([5])),\n"
        "    'unequal-examples': lambda: torch.stack([torch.ones(1), torch.ones(2)]),\n"
        "    'other-keys': lambda: model.load_state_dict({'weight': torch.ones(2, 2)}),\n"
        "    'wrapped-keys': lambda: model.load_state_dict(\n"
        "        {**model.state_dict(), 'module.weight': torch.ones(2, 2)}),\n"
        "    'parallel-attribute': lambda: torch.nn.DataParallel(model).config,\n"
        "    'sampler-and-shuffle': lambda: DataLoader([1], shuffle=True, sampler=[0]),\n"
        "}\n"
        "for name, case in cases.items():\n"
        "    try:\n"
        "        case()\n"
        "    except Exception as error:\n"
        "        print('==', name)\n"
        "        print(traceback.format_exc())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    seen = {}
    for part in done.stdout.split("== ")[1:]:
        name, _, text = part.partition("\n")
        seen[name] = [one.error.name for one in sightings(text.splitlines()) if one.error]
    assert len(seen) >= 10
    assert {name: found for name, found in seen.items() if name not in found} == {}


def test_a_run_that_fails_says_what_mends_it(tmp_path: Path) -> None:
    """Here the error of argparse, which prints no traceback."""
    (tmp_path / "train.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--train_batch_size', type=int)\n"
        "parser.parse_args()\n"
    )
    words = ["launch", "--cpu", "--unchecked", "--processes=2", "--backend=direct", "--output=out"]
    done = subprocess.run(
        [sys.executable, "-m", "ddpfix", *words, "train.py", "--", "--train_batch_size=4", "--no"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    *_, first, cause, remedy, end = done.stderr.splitlines()
    assert re.fullmatch(
        r"ddpfix: Rank \d failed first: train.py: error: unrecognized arguments: --no", first
    )
    assert cause.startswith("ddpfix: cause: The command has options that")
    assert remedy.startswith("ddpfix: what mends it: `ddpfix facts SCRIPT`")
    assert "failed with exit status 2" in end
