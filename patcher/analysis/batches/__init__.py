"""What a training step makes of batches that differ between ranks: losses, sums, draws."""
