"""``python -m ddpfix``, which like ``ddpfix`` imports nothing from the current folder."""

import os
import sys

if __name__ == "__main__":
    # With -m, Python looks there first: a random.py beside a script would run in place of its own.
    if not sys.flags.safe_path and sys.path[:1] in ([os.getcwd()], [""]):  # noqa: PTH109
        del sys.path[0]
    from .cli import main

    main()
