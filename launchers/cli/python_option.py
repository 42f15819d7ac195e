"""The option for the Python that runs the ranks, as `launch`, `plan` and `verify` have it."""

from __future__ import annotations

import click

with_python = click.option(
    "--python",
    metavar="PATH",
    help="Python that runs the ranks: 3.8 or newer, with torch 1.13 or newer (default: that of the "
    "active environment, if it has torch, else ddpfix's own).",
)
