"""The flags that a training script declares and its command line passes.

Imports nothing else of the launchers.
"""
