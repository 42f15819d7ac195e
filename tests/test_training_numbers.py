"""Names of numbers in logs, by which those of training are told."""

from __future__ import annotations

import pytest
from ddpfix.launchers.verify.training_numbers import label_of


@pytest.mark.parametrize(
    ("text", "number", "label"),
    [
        ('{"train_loss": 0.5, "valid": 0.25}', "0.5", "train_loss"),
        ('{"train": [0.5, 0.25],\n "valid": [0.75]}', "0.25", "train"),
        ('{\n  "train": [\n    0.5,\n    0.25\n  ]}', "0.25", "train"),
        ("epoch 1: train 0.5 valid 0.25", "0.25", "valid"),
        ("epoch,train,valid\n1,0.5,0.25\n2,0.125,0.75\n", "0.125", "train"),
        ("epoch\ttrain\tvalid\n1\t0.5\t0.25\n", "0.25", "valid"),
        ("0.5 0.25\n0.75 1.5\n", "1.5", ""),
        ("0.5", "0.5", ""),
    ],
)
def test_the_name_of_a_number(text: str, number: str, label: str) -> None:
    assert label_of(text, text.index(number)) == label
