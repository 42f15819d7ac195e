"""A plan as the command of the engine that starts its processes. May import planning and below."""
