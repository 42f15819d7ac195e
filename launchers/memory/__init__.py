"""Predict the peak memory of a training step without a card, weights or a model hub.

`predict` takes the records of `step` and returns those of `peak`. Only `worker`, which runs in its
own process, and the modules that it alone imports (`networks`, `trace`, `cuda`, `storages`,
`curves`) need torch.
"""
