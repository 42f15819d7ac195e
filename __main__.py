"""``python -m ddpfix``."""

from .start import main

if __name__ == "__main__":
    main()
