"""github.com/L1aoXingyu/pytorch-beginner."""

from __future__ import annotations

from .case import Case, nothing

REPOSITORY = "L1aoXingyu/pytorch-beginner"
COMMIT = "a57dd7ea35c9965a41f4963dee62d38884f92a65"

CASES = (
    Case(
        "pytorch-beginner/08-AutoEncoder/Variational_autoencoder.py",
        nothing,
        capabilities=("flags",),
        shims=("vision_stand_ins", "cuda_is_the_cpu"),
        # Without its noise, of which ranks draw another; and as torch reads a loss since 0.4.
        edits=(
            ("num_epochs = 100", "num_epochs = 2"),
            ("batch_size = 128", "batch_size = 12"),
            ("mul(std)", "mul(std * 0)"),
            ("loss.data[0]", "loss.item()"),
        ),
        names_output=False,
        seed=3,
    ),
)
