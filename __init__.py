"""Make legacy PyTorch training scripts train correctly on every GPU the machine has."""

__version__ = "0.1.0"
