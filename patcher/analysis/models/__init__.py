"""The models that a program builds, wraps and trains, and where their gradients come from."""
