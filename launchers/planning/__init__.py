"""The batch, memory and time of a run before it starts. May import memory, gpus and script."""
