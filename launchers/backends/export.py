"""Write a command as a file: a bash script, a config for accelerate, a batch job for Slurm.

Each file has the argv and the environment variables of the command that would run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from ... import __version__
from ...errors import InputError
from ..planning.plan import Plan
from ..script.secret_flags import masked_variables
from .command import STALE_PREFIXES, STALE_VARIABLES, Command, quote_word, script_word
from .exported_secrets import secret_variables, words_without_secrets
from .nodes import Nodes

SAVE_SECONDS = 120
"""Seconds before its time limit at which a batch job is told to save; it is then requeued."""

ELSEWHERE = (
    "# Planned on another machine: start it in the folder of the command, with its environment on."
)

PORTS = (20000, 12768)
"""The first port of a batch job's rendezvous, and the number of ports from it on. Linux gives those
above to outgoing connections (net.ipv4.ip_local_port_range)."""


@attrs.frozen
class FileFormat:
    """A kind of file, and the back end that its command needs; None for any."""

    write: Callable[[Launch], str]
    backend: str | None = None


@attrs.frozen
class Launch:
    """What a file contains: a command, its script and plan, and the folder it runs in.

    `cards` are indices as in nvidia-smi: empty for the CPU, None for those that a job will get.
    `name` is the name of the batch job. `folder` is None for a command of another machine, where
    the file is started in the folder that the command is meant for.
    """

    name: str
    command: Command
    script: Path
    plan: Plan
    cards: tuple[int, ...] | None
    folder: Path | None
    nodes: Nodes = attrs.field(factory=Nodes)


def backend_for(form: str | None, requested: str | None) -> str | None:
    """The back end for a file of this form, if the user requested for `requested`.

    Raises:
        InputError: the form needs another back end.

    """
    needed = FILE_FORMATS[form].backend if form else None
    shown = "torchrun" if needed == "slurm" else needed
    if shown and requested not in (None, shown):
        raise InputError(f"--emit {form} is for {shown}: leave out --launcher {requested}")
    return needed or requested


def export_launch(form: str, launch: Launch) -> str:
    """The text of a file of this form, with a final newline."""
    return FILE_FORMATS[form].write(launch)


def _bash(launch: Launch) -> str:
    lines = [*_opening(launch), *_environment(launch.command), "", *_command_lines("exec", launch)]
    return "\n".join(lines) + "\n"


def _accelerate_config(launch: Launch) -> str:
    """Settings as JSON values, which are valid YAML; a bare `no` would be false."""
    several = launch.plan.world > 1
    variables = dict(launch.command.env)
    if launch.cards:
        del variables["CUDA_VISIBLE_DEVICES"]  # gpu_ids has them; it has no value for the CPU
    settings = {
        "compute_environment": "LOCAL_MACHINE",
        # On the CPU as well: see registry.py.
        "distributed_type": "MULTI_GPU" if several else "NO",
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": launch.plan.world,
        "gpu_ids": ",".join(map(str, launch.cards or ())) or "all",
        "main_process_port": 0,
        "rdzv_backend": "static",
        "same_network": True,
        "mixed_precision": "no",
        "dynamo_config": {"dynamo_backend": "NO"},
        "downcast_bf16": "no",
        "main_training_function": "main",
        "enable_cpu_affinity": False,
        "use_cpu": launch.cards == () and not several,
        "debug": False,
    }
    exports = " ".join(
        quote_word(f"{name}={value}") for name, value in masked_variables(variables).items()
    )
    lines = [
        f"# {_title(launch)}",
        "# Beside it accelerate needs variables, and the script the arguments of --emit bash:",
        f"# {exports} accelerate launch --config_file THIS_FILE SCRIPT ARGUMENTS",
        *(f"{name}: {json.dumps(value)}" for name, value in settings.items()),
    ]
    return "\n".join(lines) + "\n"


def _sbatch(launch: Launch) -> str:
    """One task per node: Slurm starts torchrun, and torchrun the ranks of its node."""
    command, world = launch.command, launch.nodes.processes_per_node(launch.plan)
    cpus = world * int(command.env["OMP_NUM_THREADS"])
    first, count = PORTS
    options = {
        "job-name": re.sub(r"[^\w.-]+", "_", launch.name),
        "nodes": launch.nodes.count,
        "ntasks-per-node": 1,
        "cpus-per-task": cpus,
        **({} if launch.cards == () else {"gpus-per-node": world}),
        "signal": f"B:USR1@{SAVE_SECONDS}",
        "open-mode": "append",
    }
    opening, *rest = _opening(launch)
    lines = [
        opening,
        *(f"#SBATCH --{name}={value}" for name, value in options.items()),
        "#SBATCH --requeue",
        *rest,
        *_environment(command),
        "",
        "# Where the nodes meet: on the first of them, at a port that no other job of it has.",
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        f"port=$(({first} + SLURM_JOB_ID % {count}))",
        "",
        "# Short of the time limit the ranks get the signal too; one that knows it saves. Others",
        "# ignore it, and the job goes on from the last checkpoint when it runs again.",
        "again() {",
        "    trap '' USR1",
        '    kill -USR1 "$ranks" || true',
        f"    for ((second = 0; second < {SAVE_SECONDS - 30}; second++)); do",
        '        kill -0 "$ranks" 2>/dev/null || break',
        "        sleep 1",
        "    done",
        '    scontrol requeue "$SLURM_JOB_ID"',
        "}",
        "trap again USR1",
        "",
        *_command_lines(
            f"srun --kill-on-bad-exit=1 --cpus-per-task={cpus} "
            """bash -c 'trap "" USR1; exec "$@"' ranks""",
            launch,
        ),
    ]
    lines[-1] += " &"
    lines += ["ranks=$!", 'wait "$ranks"']
    return "\n".join(lines) + "\n"


def _opening(launch: Launch) -> list[str]:
    head = ["#!/usr/bin/env bash", f"# {_title(launch)}"]
    if launch.folder is None:
        return [*head, ELSEWHERE, "set -euo pipefail"]
    programs = Path(sys.executable).parent
    return [
        *head,
        "set -euo pipefail",
        f"cd -- {quote_word(str(launch.folder))}",
        f'export PATH={quote_word(str(programs))}:"$PATH"',
    ]


def _title(launch: Launch) -> str:
    # On one line, even if the name of the recipe's file has a newline in it.
    name = "".join(letter if letter.isprintable() else "?" for letter in launch.name)
    return f"{name}: {launch.plan.why}. Written by ddpfix {__version__}."


def _environment(command: Command) -> Iterator[str]:
    # Which of them are set is only known when the file runs.
    prefixes = " ".join(f'"${{!{prefix}@}}"' for prefix in STALE_PREFIXES)
    yield f"unset {' '.join(STALE_VARIABLES)} {prefixes}"
    secrets = secret_variables(command)
    for name, value in command.env.items():
        if name not in secrets:
            yield f"export {name}={quote_word(value)}"
    for name in secrets:
        yield f': "${{{name}:?holds a secret that this file does not: set it}}"'
    if exported := [name for name in secrets if name in command.env]:
        yield f"export {' '.join(exported)}"


def _command_lines(start: str, launch: Launch) -> list[str]:
    """The command on several lines: one for the script, and one for each flag with its values."""
    lines = [start]
    for word in words_without_secrets(launch.command):
        if (word.startswith("--") and word != "--") or word == script_word(launch.script):
            lines[-1] += " \\"
            lines.append(f"    {quote_word(word)}")
        else:
            lines[-1] += f" {quote_word(word)}"
    return lines


FILE_FORMATS = {
    "bash": FileFormat(_bash),
    "accelerate-config": FileFormat(_accelerate_config, "accelerate"),
    "torchrun": FileFormat(_bash, "torchrun"),
    "sbatch": FileFormat(_sbatch, "slurm"),
}
