"""A rank of a storm: it behaves as --behave says, and notes in --here how far it is."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

BEHAVIOUR = sys.argv[sys.argv.index("--behave") + 1]
HERE = sys.argv[sys.argv.index("--here") + 1]
RANK = os.environ.get("RANK", "0")
DEAF = "for number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)"
STAY = f"""
import signal, time
{DEAF if "deaf" in BEHAVIOUR else ""}
while True:
    time.sleep(1)
"""


def stay(environment: dict[str, str]) -> NoReturn:
    """Become a process that never ends by itself."""
    os.execve(sys.executable, [sys.executable, "-c", STAY], environment)


def say(what: str) -> None:
    """Leave a file that says how far this rank is."""
    Path(HERE, what + RANK).touch()


if "deaf" in BEHAVIOUR:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
if BEHAVIOUR == "fork" and not os.fork():
    stay(dict(os.environ))
if "double fork" in BEHAVIOUR or BEHAVIOUR == "empty environment":
    if not os.fork():
        os.setsid()
        if os.fork():
            sys.exit(0)
        stay({} if BEHAVIOUR == "empty environment" else dict(os.environ))
    os.wait()
if BEHAVIOUR == "closed stdout":
    os.close(1)
say("begun")
while BEHAVIOUR in ("hang", "deaf"):
    time.sleep(0.1)
for _ in range(20):
    if BEHAVIOUR == "prints":
        print("x" * 10000, flush=True)
    time.sleep(0.05)
if RANK == "0" and BEHAVIOUR == "exit 3":
    sys.exit(3)
if RANK == "0" and BEHAVIOUR == "segv":
    os.kill(os.getpid(), signal.SIGSEGV)
say("done")
