"""Start the ranks of one machine.

    python -P -m ddpfix.launchers.running.direct_launcher --processes 2 run.py

It does what torchrun does on one machine, without the second that importing torch takes: it sets
the same variables for each rank, and when one rank fails it stops the others. ``-m MODULE`` may
take the place of the script, and ``--python PATH`` before it names another Python for the ranks.
The exit status is that of the rank that failed first, 128 + n when signal n ended it.

A first SIGINT, SIGTERM or SIGHUP is passed on to the ranks, which may end in their own time; a
second one kills them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from ..parent_death import die_with_parent

_GRACE = 5  # seconds to end after SIGTERM once another rank has failed
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_USAGE = (
    "usage: python -P -m ddpfix.launchers.running.direct_launcher --processes N [--python PATH] "
    "[-m] SCRIPT [ARGUMENTS ...]"
)


def main(words: Sequence[str]) -> int:
    """Run the ranks to their end; the exit status."""
    match words:
        case ["--processes", count, script, *_] if count.isdigit() and int(count) and script:
            python, rest = sys.executable, list(words[2:])
            if script == "--python" and len(rest) > 2:
                python, rest = rest[1], rest[2:]
            with hold_port() as holder:
                ranks = _RankGroup(int(count), [python, "-u", *rest], holder.getsockname()[1])
                return ranks.watch()
    print(_USAGE, file=sys.stderr)
    return 2


def hold_port() -> socket.socket:
    """A socket bound to a free port, which rank 0 can listen on and no other process gets.

    Linux lets two sockets bind one port when both set SO_REUSEADDR and none listens yet; torch's
    store sets it. A free port that is merely looked up could be taken before rank 0 listens.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    holder = socket.socket(family)
    if family == socket.AF_INET6:
        holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", 0))
    return holder


def rank_variables(rank: int, world: int, port: int, base: Mapping[str, str]) -> dict[str, str]:
    """The variables that torchrun adds to the environment `base` of a rank on one machine."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": str(world),
        "TORCHELASTIC_RUN_ID": "none",  # how torch and others see that there was a launcher
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 serves the store itself
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": base.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


class _RankGroup:
    """The ranks, from their start to the end of the last one."""

    def __init__(self, world: int, words: Sequence[str], port: int) -> None:
        self._ranks: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}
        self._signalled = False
        # Signals are blocked until every rank has been started.
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        for number in _FORWARDED:
            # Ignored stays ignored: that is how nohup and `&` in a script ask for it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._forward)
        signal.signal(signal.SIGALRM, lambda *_: self._send(signal.SIGKILL))
        set_parent_death_signal = die_with_parent(signal.SIGKILL)

        def before_exec() -> None:
            if set_parent_death_signal:
                set_parent_death_signal()
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)

        for rank in range(world):
            child = subprocess.Popen(
                words,
                env=os.environ | rank_variables(rank, world, port, os.environ),
                start_new_session=True,  # Ctrl-C in a terminal reaches them only through us
                preexec_fn=before_exec,
            )
            self._ranks[child.pid] = rank, child
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)

    def watch(self) -> int:
        """Wait for all ranks, and stop them when one fails; the exit status."""
        status = 0
        while self._ranks:
            # WNOWAIT: it stays a zombie until it is removed from the table, so its process id
            # cannot pass to another process that would then get our signals.
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            assert ended is not None
            if (
                ended.si_pid not in self._ranks
            ):  # a child of the program that this process was before exec
                os.waitpid(ended.si_pid, 0)
                continue
            rank, child = self._ranks.pop(ended.si_pid)
            if ended.si_status:
                _kill_group(child.pid)
            code = child.wait()
            if code and not status:
                status = code if code > 0 else 128 - code
                self._stop_others(rank, code)
        signal.alarm(0)
        return status

    def _stop_others(self, rank: int, code: int) -> None:
        if self._signalled:
            return  # the others have the signal too, and may need time to end
        how = f"exit status {code}" if code > 0 else signal.Signals(-code).name
        others = "; the other ranks are stopped" if self._ranks else ""
        print(f"ddpfix: rank {rank} ended with {how}{others}", file=sys.stderr, flush=True)
        self._send(signal.SIGTERM)
        signal.alarm(_GRACE)

    def _forward(self, number: int, _: FrameType | None) -> None:
        self._send(signal.SIGKILL if self._signalled else number)
        self._signalled = True

    def _send(self, number: int) -> None:
        for pid in list(self._ranks):
            if number == signal.SIGKILL:
                _kill_group(pid)
            else:
                os.kill(pid, number)


def _kill_group(pid: int) -> None:
    """Kill a rank with its own processes, such as DataLoader workers, also after its end."""
    os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
