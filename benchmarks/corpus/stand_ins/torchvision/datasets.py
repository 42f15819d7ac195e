"""Small picture sets of the names and shapes of the real ones."""

import torch
from torch.utils.data import Dataset

COUNTS = {True: 60, False: 22}


class Pictures(Dataset):
    """Pairs of a picture, three channels of bytes, and the number of its class."""

    classes_in_all, channels, size = 10, 3, 32

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        count = COUNTS[train]
        draw = torch.Generator().manual_seed(int(train))
        self.targets = torch.randint(self.classes_in_all, (count,), generator=draw).tolist()
        noise = torch.rand(count, self.channels, self.size, self.size, generator=draw) * 60
        levels = torch.tensor(self.targets) * 190 / self.classes_in_all
        self.data = (noise + levels[:, None, None, None]).to(torch.uint8)
        self.transform, self.target_transform = transform, target_transform
        self.classes = [f"class {number}" for number in range(self.classes_in_all)]
        self.train, self.root = train, root

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, number):
        picture, target = self.data[number], self.targets[number]
        if self.transform is not None:
            picture = self.transform(picture)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return picture, target


class CIFAR10(Pictures):
    pass


class CIFAR100(Pictures):
    classes_in_all = 100


class MNIST(Pictures):
    channels, size = 1, 28


class FashionMNIST(MNIST):
    pass


class ImageFolder(Pictures):
    """The folder's name tells which part it is."""

    def __init__(self, root, transform=None, target_transform=None, **_):
        super().__init__(
            root, "val" not in str(root).rpartition("/")[2], transform, target_transform
        )
