"""The recipe of scripts that tests of a launch make themselves."""

from __future__ import annotations

RECIPE = """
description = "for tests"
family = "test"
script = "run.py"
task = "to be launched"
[flags]
train_batch = "--batch"
eval_batch = "--eval_batch"
accumulation = "--accumulation"
output = "--out"
[batch]
global_batch = 16
per_device_cap = 8
eval_per_device = 4
[data]
folder = "."
files = {}
[output]
folder = "made"
"""
