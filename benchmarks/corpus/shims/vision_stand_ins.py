"""torchvision and tensorboard_logger are our own: drawn pictures, transforms of tensors, a log."""

import importlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "stand_ins"))
for name in ("torchvision", "tensorboard_logger"):
    importlib.import_module(name)
