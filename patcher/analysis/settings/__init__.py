"""What the options and constants of a program set, and what a training step takes of them."""
