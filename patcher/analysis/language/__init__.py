"""What the Python of a program means: its modules, names, objects, calls and conditions."""
