"""The processes of a run, from their start to its record. May import backends and below."""
