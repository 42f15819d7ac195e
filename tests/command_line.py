"""The command line, run in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result
from ddpfix.cli import ddpfix

# One finding in line 3: DF203, an error with a safe fix.
LEGACY = "import torch\nfor b in bs: b.backward()\nx = batch // args.n_gpu\n"


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    """Run ``ddpfix`` with these arguments."""
    return CliRunner().invoke(ddpfix, [str(argument) for argument in arguments], input=stdin)
