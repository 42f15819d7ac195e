"""BatchNorm2d is a norm of each example, so that DF311 does not hide all else in C3."""

import torch


class PerExample(torch.nn.GroupNorm):
    """One group of all channels."""

    def __init__(self, channels, *_, **__):
        super().__init__(1, channels)


torch.nn.BatchNorm2d = PerExample
