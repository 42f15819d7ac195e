"""Reads a shell file that starts a training and drafts the recipe of it, running nothing.

It may import `errors`, and of `recipes` the modules `model`, `roles` and `declared_flags`; of the
rest of ddpfix nothing.
"""
