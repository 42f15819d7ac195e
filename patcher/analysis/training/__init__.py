"""The program as a training run: its loaders, training loops, evaluations and libraries."""
