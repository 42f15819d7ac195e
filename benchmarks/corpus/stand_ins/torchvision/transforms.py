"""Transforms of pictures that are tensors; chance is torch's, as it is in the real ones."""

import torch
from torch.nn.functional import interpolate, pad


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, picture):
        for each in self.transforms:
            picture = each(picture)
        return picture


class RandomApply(Compose):
    def __init__(self, transforms, p=0.5):
        super().__init__(transforms)
        self.p = p

    def __call__(self, picture):
        return super().__call__(picture) if torch.rand(1) < self.p else picture


class Fixed:
    """Leaves a picture of the right size alone; what it is given is kept for nobody."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, picture):
        return picture


class CenterCrop(Fixed):
    pass


class RandomRotation(Fixed):
    pass


class ColorJitter(Fixed):
    def __call__(self, picture):
        return (picture * (0.8 + 0.2 * torch.rand(1))).to(picture.dtype)


class RandomGrayscale(Fixed):
    def __init__(self, p=0.1):
        self.p = p

    def __call__(self, picture):
        return picture if torch.rand(1) >= self.p else picture[:1].expand_as(picture).clone()


class RandomHorizontalFlip:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, picture):
        return picture.flip(-1) if torch.rand(1) < self.p else picture


class RandomCrop:
    def __init__(self, size, padding=0, **_):
        self.size, self.padding = size, padding

    def __call__(self, picture):
        wide = pad(picture, [self.padding] * 4)
        top, left = (int(torch.randint(2 * self.padding + 1, (1,))) for _ in range(2))
        return wide[:, top : top + self.size, left : left + self.size]


class Resize:
    def __init__(self, size, *_, **__):
        self.size = (size, size) if isinstance(size, int) else tuple(size)

    def __call__(self, picture):
        return interpolate(picture[None].float(), self.size)[0].to(picture.dtype)


class RandomResizedCrop(Resize):
    def __init__(self, size, scale=(0.08, 1.0), *_, **__):
        super().__init__(size)
        self.scale = scale

    def __call__(self, picture):
        low, high = self.scale
        share = (low + (high - low) * float(torch.rand(1))) ** 0.5
        side = max(1, int(picture.shape[-1] * share))
        top, left = (int(torch.randint(picture.shape[-1] - side + 1, (1,))) for _ in range(2))
        return super().__call__(picture[:, top : top + side, left : left + side])


class ToTensor:
    def __call__(self, picture):
        return picture.float() / 255


class Normalize:
    def __init__(self, mean, std, **_):
        self.mean, self.std = (torch.tensor(each).view(-1, 1, 1) for each in (mean, std))

    def __call__(self, picture):
        return (picture - self.mean) / self.std
