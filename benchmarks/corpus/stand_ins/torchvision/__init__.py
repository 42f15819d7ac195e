"""What the vision scripts of the corpus use of torchvision, on images that are tensors.

There is no wheel of it beside every torch that is tested, and nothing of it is what is tested.
Pictures are drawn by a fixed seed: a few of each class, which has a brightness of its own.
"""

from . import datasets, transforms

__all__ = ["datasets", "transforms"]
__version__ = "0.0"
