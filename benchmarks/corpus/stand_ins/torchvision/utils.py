"""Pictures in files: the mean of their values stands for them."""

import pathlib


def save_image(pictures, path, **_):
    pathlib.Path(path).write_text(f"{float(pictures.double().mean()):.3f}\n")


def make_grid(pictures, **_):
    return pictures[0]
