"""The exception whose message is printed for the user."""


class InputError(Exception):
    """Input that cannot be used: the command line prints it on one line and exits with 2.

    The message names the file, the line where there is one, and what to do.
    """
