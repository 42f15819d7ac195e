"""`stty size` answers as in a terminal, which no rank has."""

import io
import os

ask = os.popen


def popen(command, *rest):
    """What a command prints."""
    return io.StringIO("24 80\n") if command == "stty size" else ask(command, *rest)


os.popen = popen
