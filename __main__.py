"""``python -m ddpfix``."""

from .cli import main

if __name__ == "__main__":
    main()
