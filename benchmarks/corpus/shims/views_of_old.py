"""`Tensor.view` copies what has no such view, as `correct[:k]` had before torch 1.7."""

import torch

strict = torch.Tensor.view


def view(self, *shape):
    """A view, or else a copy."""
    try:
        return strict(self, *shape)
    except RuntimeError:
        return self.reshape(*shape)


torch.Tensor.view = view
