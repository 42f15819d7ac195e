"""Titles over the options of commands that have many, and examples of every command."""

from __future__ import annotations

BATCH: dict[str, tuple[str, ...]] = {
    "Batch and precision": (
        "--global-batch",
        "--per-device",
        "--exact",
        "--precision",
        "--probe",
    ),
    "Cards and processes": ("--gpus", "--min-free", "--busy-above", "--cpu", "--processes"),
    "The script": ("--recipe", "--script", "--batch-flag", "--accumulation-flag", "--python"),
}
FILES = ("--select", "--ignore", "--exclude", "--stdin-filename")

GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "check": {
        "Files and rules": FILES,
        "Output": ("--output-format", "--notes", "--statistics", "--edits", "--exit-zero"),
        "How it runs": ("--jobs", "--no-cache", "--watch"),
    },
    "patch": {
        "Files and rules": FILES,
        "What is repaired": ("--unsafe-fixes", "--exact"),
        "What is added": ("--with", "--without", "--mark"),
        "Output": ("--dry-run", "--diff", "--json"),
    },
    "plan": BATCH,
    "launch": {
        **BATCH,
        "Instead of running it here": ("--dry-run", "--emit", "--detach", "--submit", "--sbatch"),
        "The run": ("--output", "--runs", "--launcher", "--wait", "--unchecked", "--no-live"),
        "When something goes wrong": (
            "--grace",
            "--hang-after",
            "--no-retry",
            "--no-learned",
            "--max-restarts",
            "--rank-logs",
        ),
        "Several machines": ("--nnodes", "--node-rank", "--rdzv"),
    },
    "verify": {
        "What is compared": (
            "--original",
            "--rev",
            "--as-is",
            "--exact",
            "--unsafe-fixes",
            "--with",
            "--against-naive",
        ),
        "Runs": (
            "--world-sizes",
            "--accumulation",
            "--all-splits",
            "--global-batch",
            "--seed",
            "--keep-dropout",
            "--recipe",
            "--python",
        ),
        "How long": ("--max-steps", "--max-epochs", "--max-eval-batches", "--timeout"),
        "Your files": ("--isolation", "--in-place", "--keep"),
        "Output": ("--verdict", "--json"),
    },
    "report": {
        "What is shown": ("--verdict", "--original"),
        "Output": ("--html", "--json", "--prometheus", "--tensorboard", "--wandb"),
    },
}

# What it is for, and what is typed.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("what goes wrong on several GPUs", "ddpfix check train.py"),
        ("the repair, as a diff first", "ddpfix patch --dry-run train.py"),
        ("on all cards", "ddpfix launch train.py -- --batch_size 32"),
    ),
    "check": (
        ("one script, or all below a folder", "ddpfix check train.py src/"),
        ("only what is wrong with ranks and process groups", "ddpfix check --select DF1 train.py"),
        ("in a GitHub workflow", "ddpfix check --output-format github ."),
    ),
    "patch": (
        ("see the diff, then write it", "ddpfix patch --dry-run train.py"),
        ("with mixed precision behind a new flag", "ddpfix patch --with amp train.py"),
    ),
    "server": (("what an editor starts", "ddpfix server"),),
    "audit": (("a script that was patched by hand", "ddpfix audit train.py"),),
    "explain": (
        ("a rule", "ddpfix explain DF402"),
        ("what stopped a training", "ddpfix explain --log train.log"),
        ("the same, as it ends", "python train.py 2>&1 | ddpfix explain --log -"),
    ),
    "rules": (("all manuals", "ddpfix rules --markdown"),),
    "capabilities": (("all manuals", "ddpfix capabilities --markdown"),),
    "facts": (("what the options of a script mean", "ddpfix facts train.py"),),
    "recipes": (
        ("all of them", "ddpfix recipes"),
        ("one with its sources", "ddpfix recipes show codegpt-bigclonebench"),
    ),
    "recipes show": (("as a template", "ddpfix recipes show --toml codegpt-bigclonebench"),),
    "recipes new": (
        ("from today's shell file", "ddpfix recipes new --from run.sh --output mine.toml"),
    ),
    "gpus": (
        ("which cards are free", "ddpfix gpus"),
        ("follow their memory", "ddpfix gpus --watch --every 5"),
    ),
    "plan": (
        ("a script and its arguments", "ddpfix plan train.py -- --batch_size 32"),
        ("for cards that are elsewhere", "ddpfix plan --gpus '4x A100-80' train.py"),
        ("measured with 5 steps", "ddpfix plan --probe 5 train.py -- --batch_size 32"),
    ),
    "launch": (
        ("a script and its arguments", "ddpfix launch train.py -- --batch_size 32"),
        ("the command that starts it today", "ddpfix launch -- python train.py --lr 1e-4"),
        ("show the command only", "ddpfix launch --dry-run train.py -- --batch_size 32"),
        ("two cards, in the background", "ddpfix launch --gpus 0,2 --detach train.py"),
        ("a job file for Slurm", "ddpfix launch --emit sbatch --gpus '4x A100-80' train.py"),
    ),
    "attach": (("the latest run", "ddpfix attach"),),
    "stop": (("the latest run, at once", "ddpfix stop --now"),),
    "status": (("all runs", "ddpfix status"), ("for a program", "ddpfix status --json")),
    "report": (
        ("the latest run, here", "ddpfix report"),
        ("before and after, as a page", "ddpfix report before.log RUN --html new.html"),
    ),
    "verify": (
        ("repair a copy and compare", "ddpfix verify train.py -- --output_dir out --epochs 1"),
        ("a repair that is committed", "ddpfix verify --rev HEAD~1 train.py -- --output_dir out"),
    ),
    "demo": (("what it does, on a tiny model", "ddpfix demo"),),
}
