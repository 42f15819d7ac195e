"""What a training script and its command line declare. Imports nothing else of the launchers."""
