"""The peak memory of one training step on a card, predicted without a card, weights or a hub.

`step` says what is asked, `peak` what is answered, `predict` answers. Only `worker`, a process of
its own, and what it alone imports (`networks`, `trace`, `cuda`) need torch.
"""
