"""What others can read of a run: folders and files, secrets among flags and variables."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ddpfix.launchers.backends.command import Command, ProcessOptions, ScriptCall, build
from ddpfix.launchers.backends.export import Launch, export_launch
from ddpfix.launchers.planning.plan import solve
from ddpfix.launchers.running.slurm import submit
from ddpfix.launchers.script.secret_flags import MASK, is_secret, masked_words
from ddpfix.launchers.state import state_folder, write_atomically
from ddpfix.recipes.parse import parse
from test_emit import RECIPE

SECRET = "s3cr3t-x 'y\" $HOME $$"  # awkward for every shell and launcher on the way

SECRETS = [
    *(("--hf_token", "hf_abc"), ("--token", "abc"), ("--api-key", "abc"), ("--wandb_key", "k1")),
    *(("--key", "abc"), ("--secret", "abc"), ("--client_secret", "abc"), ("--password", "1234")),
    *(("--db-password", "abc"), ("--hubToken", "abc"), ("--api_keys", "a,b"), ("--apikey", "abc")),
    *(("WANDB_API_KEY", "abc"), ("AWS_SECRET_ACCESS_KEY", "abc"), ("HF_TOKEN", "abc")),
    *(("--api_key", "12345678"), ("--access_token", "null-and-void"), ("--credentials", "abc")),
]
NO_SECRETS = [
    *(("--tokenizer_name", "roberta"), ("--pad_token_id", "1"), ("--num_tokens", "4096")),
    *(("--max_tokens", "12"), ("--pad_token", "PAD"), ("--mask_token", "<mask>"), ("--token", "7")),
    *(("--text_key", "text"), ("--label_key", "label"), ("--key_dim", "64"), ("--monkey", "abc")),
    *(("--key_file", "/a/b"), ("--token_type", "bert"), ("--use_auth_token", "True")),
    *(("--hf_token", None), ("--hf_token", ""), ("TOKENIZERS_PARALLELISM", "false")),
    *(("--secret_rounds", "5"), ("--keyword", "abc"), ("--sort_keys", "yes"), ("--lr", "1e-3")),
]


@pytest.mark.parametrize(("name", "value"), SECRETS)
def test_names_and_values_of_secrets(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(("name", "value"), NO_SECRETS)
def test_tokenizers_counts_and_columns_are_no_secrets(name: str, value: str | None) -> None:
    assert not is_secret(name, value)


def test_a_mask_takes_the_place_of_the_value_alone() -> None:
    words = ["run.py", "--hf_token", "abc", "--lr", "1", "--key=abc", "--token", "--epochs", "2"]
    assert masked_words(words) == [
        *("run.py", "--hf_token", MASK, "--lr", "1", f"--key={MASK}", "--token", "--epochs", "2")
    ]


# A training as far as the launcher knows; it writes down what it was given.
SCRIPT = """
import argparse, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("--train_batch_size")
parser.add_argument("--hf_token")
args = parser.parse_args()
with open(os.environ["HEARD"], "w") as file:
    file.write(args.hf_token + "|" + os.environ["WANDB_API_KEY"])
"""


def modes(folder: Path) -> dict[str, int]:
    """The modes of a folder and of everything below it."""
    return {
        str(path.relative_to(folder.parent)): stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.rglob("*"))
    }


def test_a_run_is_for_its_user_alone_and_tells_no_secret(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(SCRIPT)
    state = tmp_path / "state"
    (state / "ddpfix").mkdir(parents=True, mode=0o755)  # of an earlier version
    heard = tmp_path / "heard"
    secret = SECRET.partition(" $")[0]  # a variable in a command would be refused
    words = [f"WANDB_API_KEY={secret}2", "python", "run.py"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ddpfix", "launch", "--cpu", "--processes", "1", "--unchecked"),
            *("--", *words, "--train_batch_size", "8", "--hf_token", secret),
        ],
        cwd=tmp_path,
        env=os.environ | {"XDG_STATE_HOME": str(state), "HEARD": str(heard)},
        capture_output=True,
        text=True,
        umask=0o022,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert heard.read_text() == f"{secret}|{secret}2"
    assert stat.S_IMODE(heard.stat().st_mode) == 0o644, "the script's own files are as ever"
    assert "--hf_token '***'" in done.stderr
    assert "WANDB_API_KEY=***" in done.stderr or "'WANDB_API_KEY=***'" in done.stderr
    assert "s3cr3t" not in done.stdout + done.stderr
    found = modes(state / "ddpfix")
    assert {name.rpartition("/")[2] for name in found} >= {"ddpfix", "run.json", "log.txt"}
    for path in (state / "ddpfix").rglob("*"):
        assert found[str(path.relative_to(state))] & 0o077 == 0, path
        assert path.is_dir() or b"s3cr3t" not in path.read_bytes(), path
    assert found["ddpfix"] == 0o700


def test_state_is_closed_to_others_when_something_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state_folder().mkdir(mode=0o755)
    state_folder().chmod(0o755)
    write_atomically(state_folder() / "pace" / "one.json", "{}")
    assert modes(state_folder()) == {
        "ddpfix": 0o700,
        "ddpfix/pace": 0o700,
        "ddpfix/pace/one.json": 0o600,
    }


DUMP = """
import os, sys
with open(os.environ["HEARD"], "w") as file:
    file.write(sys.argv[sys.argv.index("--hf_token") + 1])
"""


def exported(folder: Path, command: Command) -> str:
    launch = Launch("own", command, Path("run.py"), solve(1, 8, 8), (), folder)
    return export_launch("bash", launch)


def own_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(folder)
    (folder / "run.py").write_text(DUMP)
    call = ScriptCall(
        parse(RECIPE, source="own.toml", name="own"),
        Path("run.py"),
        solve(1, 8, 8),
        folder / "out",
        extra=("--hf_token", SECRET),
    )
    return build(call, ProcessOptions(environment={"WANDB_API_KEY": f"{SECRET}2"}), environ={})


def test_an_emitted_file_takes_secrets_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = own_command(tmp_path, monkeypatch)
    assert SECRET in command.argv
    assert "s3cr3t" not in command.line
    text = exported(tmp_path, command)
    assert "s3cr3t" not in text
    heard = tmp_path / "heard"
    environment = os.environ | {"HEARD": str(heard)}
    without = subprocess.run(
        ["bash", "-c", text], env=environment, capture_output=True, text=True, check=False
    )
    assert without.returncode != 0
    assert "WANDB_API_KEY: holds a secret that this file does not: set it" in without.stderr
    assert not heard.exists()
    secrets = {"HF_TOKEN": SECRET, "WANDB_API_KEY": "x"}
    subprocess.run(["bash", "-c", text], env=environment | secrets, check=True)
    assert heard.read_text() == SECRET


def test_what_torchrun_would_expand_is_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = own_command(tmp_path, monkeypatch)
    words = [word.replace("$", "$$") for word in ("run.py", "--hf_token", SECRET)]
    command = Command(("printf", "%s|", *words), plain.env, expands=True)
    text = exported(tmp_path, command)
    assert "s3cr3t" not in text
    secrets = {"HF_TOKEN": SECRET, "WANDB_API_KEY": "x"}
    done = subprocess.run(
        ["bash", "-c", text.replace("exec ", "")],
        env=os.environ | secrets,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("|") == ["run.py", "--hf_token", SECRET.replace("$", "$$"), ""]


def test_sbatch_hands_secrets_on_and_the_job_is_for_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    sbatch = programs / "sbatch"
    heard = tmp_path / "heard"
    sbatch.write_text(
        f"#!{shutil.which('sh')}\nprintf '%s' \"$HF_TOKEN\" >{shlex.quote(str(heard))}\necho 7\n"
    )
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    folder = tmp_path / "runs" / "one"
    assert submit("#!/bin/sh\n", folder, secrets={"HF_TOKEN": SECRET}) == "7"
    assert heard.read_text() == SECRET
    assert modes(folder) == {"one": 0o700, "one/job.sh": 0o700}
