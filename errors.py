"""The one exception a user is meant to read."""


class InputError(Exception):
    """Input that cannot be used: the command line prints it on one line and exits with 2.

    The message names the file, the line where there is one, and the way out.
    """
