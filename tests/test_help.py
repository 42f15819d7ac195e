"""The help of every command: its width, its examples, its groups; and what Tab offers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from ddpfix.cli import COMMANDS, ddpfix
from ddpfix.help_texts import EXAMPLES, GROUPS
from ddpfix.patcher.codes import all_codes
from ddpfix.recipes.load import recipe_names


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    yield path, group
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, inner)
        else:
            yield inner, command


EVERY = dict(commands(ddpfix))


def options(command: click.Command) -> set[str]:
    return {
        name
        for param in command.get_params(click.Context(command, help_option_names=["-h", "--help"]))
        if isinstance(param, click.Option) and not param.hidden
        for name in (*param.opts, *param.secondary_opts)
    }


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path or "ddpfix")
def test_a_help_page_fits_80_columns_and_shows_every_option_and_an_example(path: str) -> None:
    page = CliRunner().invoke(ddpfix, [*path.split(), "--help"], prog_name="ddpfix").stdout
    assert max(map(len, page.splitlines())) <= 80
    names, _, examples = page.partition("\nExamples:\n")
    assert examples
    missing = [name for name in options(EVERY[path]) if name not in names]
    assert missing == []
    assert all(f"  {words}\n" in examples for _, words in EXAMPLES[path])


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path or "ddpfix")
def test_what_an_example_types_exists(path: str) -> None:
    for _, line in EXAMPLES[path]:
        words = shlex.split(line.rpartition("| ")[2] if "| ddpfix" in line else line)
        words = words[1:]
        assert words[: len(path.split())] == path.split()
        name = path or words[0]
        command = EVERY[name]
        ours = words[len(name.split()) :]
        ours = ours[: ours.index("--")] if "--" in ours else ours
        assert {word for word in ours if word.startswith("--")} <= options(command)
        with command.make_context(name, list(ours), resilient_parsing=True):
            pass


@pytest.mark.parametrize("path", GROUPS)
def test_an_option_is_in_one_group(path: str) -> None:
    grouped = [name for names in GROUPS[path].values() for name in names]
    assert len(grouped) == len({*grouped})
    assert {*grouped} <= options(EVERY[path])
    ungrouped = [
        param.opts
        for param in EVERY[path].params
        if isinstance(param, click.Option) and not param.hidden and not {*param.opts} & {*grouped}
    ]
    assert len(ungrouped) <= 1, ungrouped


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("lanch", "launch"), ("chekc", "check"), ("run", "launch"), ("lint", "check"), ("qqq", None)],
)
def test_a_mistyped_command_is_answered_with_the_likely_one(typed: str, meant: str | None) -> None:
    result = CliRunner().invoke(ddpfix, [typed])
    assert result.exit_code == 2
    hint = f" Did you mean '{meant}'?" if meant else ""
    assert result.stderr.endswith(f"Error: No such command '{typed}'.{hint}\n")


def test_a_mistyped_option_is_answered_with_the_likely_one() -> None:
    result = CliRunner().invoke(ddpfix, ["check", "--selct", "DF1", "."])
    assert (result.exit_code, "'--select'" in result.stderr) == (2, True)


def offered(line: str) -> list[str]:
    """What Tab offers at the end of a line, by the protocol of bash."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    environment = {
        "_DDPFIX_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    result = CliRunner().invoke(ddpfix, env=environment, prog_name="ddpfix")
    return [one.partition(",")[2] for one in result.stdout.splitlines()]


def test_tab_offers_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered("ddpfix ") == list(COMMANDS)
    assert offered("ddpfix la") == ["launch"]
    assert offered("ddpfix launch --recipe ") == recipe_names()
    assert offered("ddpfix recipes show codeg") == [
        "codegpt-bigclonebench",
        "codegpt-bigclonebench-legacy",
    ]
    assert offered("ddpfix check --select ") == all_codes()
    assert offered("ddpfix check --select DF101,DF10") == [
        f"DF101,{code}" for code in all_codes() if code.startswith("DF10") and code != "DF101"
    ]
    assert offered("ddpfix explain O1") == ["O1", "O10", "O11", "O12"]
    assert offered("ddpfix explain am") == ["amp"]
    assert offered("ddpfix patch --with amp,co") == ["amp,compile"]
    assert offered("ddpfix check ru") == ["ru"]  # of type file: the shell lists them
    assert "--min-free" in offered("ddpfix plan --m")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = tmp_path / ".ddpfix" / "runs" / "20260101-run"
    run.mkdir(parents=True)
    assert offered("ddpfix attach 2") == ["2"]  # claimed, and not begun: any folder


def test_tab_offers_the_cards_with_their_names(
    machine: Callable[..., dict[str, str]],
) -> None:
    environment = machine("count = 2\n1.name = NVIDIA L40S\n1.used_mib = 9000\n") | {
        "_DDPFIX_COMPLETE": "zsh_complete",
        "COMP_WORDS": "ddpfix launch --gpus ",
        "COMP_CWORD": "3",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", START], env=environment, capture_output=True, text=True
    )
    kind, word, card, *second = done.stdout.splitlines()
    assert (kind, word, card) == ("plain", "0", "NVIDIA Test Card")
    assert second[:2] == ["plain", "1"]
    assert second[2].startswith("NVIDIA L40S: ")


def test_bash_completes(tmp_path: Path) -> None:
    program = tmp_path / "ddpfix"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -c "{START}" "$@"\n')
    program.chmod(0o755)
    line = (
        'eval "$(_DDPFIX_COMPLETE=bash_source ddpfix)"; COMP_WORDS=(ddpfix explain DF40); '
        'COMP_CWORD=2; _ddpfix_completion ddpfix; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", line],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [code for code in all_codes() if code.startswith("DF40")]


START = "import sys; sys.argv[0] = 'ddpfix'; from ddpfix.cli import main; main()"


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--nproc-per-node", "4"], "processes", 4),
        (["--nproc_per_node=4"], "processes", 4),
        (["--num_processes", "4"], "processes", 4),
        (["--nproc-per-node", "gpu"], "processes", None),
        (["--nproc-per-node", "auto"], "processes", None),
        (["--mixed-precision", "no"], "precision", "fp32"),
        (["--mixed_precision", "bf16"], "precision", "bf16"),
        (["--rdzv-endpoint", "a:1"], "rdzv", "a:1"),
        (["--rdzv_endpoint", "a:1"], "rdzv", "a:1"),
        (["--num_machines", "2"], "nnodes", 2),
        (["--machine_rank", "1"], "node_rank", 1),
        (["--gpu_ids", "0,2"], "gpus", ("0", "2")),
        (["--backend", "direct"], "backend", "direct"),
        (["--launcher", "direct"], "launcher", "direct"),
    ],
    ids=str,
)
def test_options_have_the_names_of_torchrun_and_accelerate(
    words: list[str], name: str, value: object
) -> None:
    above = ddpfix.make_context("ddpfix", ["launch"], resilient_parsing=True)
    with EVERY["launch"].make_context("launch", [*words], parent=above) as context:
        assert context.params[name] == value


def test_a_script_keeps_its_underscores() -> None:
    above = ddpfix.make_context("ddpfix", ["launch"], resilient_parsing=True)
    words = ["train_it.py", "--", "--batch_size", "8_0"]
    with EVERY["launch"].make_context("launch", words, parent=above) as context:
        assert context.params["extra"] == ("train_it.py", "--batch_size", "8_0")


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path or "ddpfix")
def test_json_is_a_switch(path: str) -> None:
    found = [param for param in EVERY[path].params if "--json" in param.opts]
    assert all(isinstance(param, click.Option) and param.is_flag for param in found)


def test_nccl_is_no_launcher() -> None:
    result = CliRunner().invoke(ddpfix, ["launch", "--backend", "nccl", "train.py"])
    assert (result.exit_code, "what starts the processes is --launcher" in result.stderr) == (2, 1)
