"""What became of runs: their logs, records and samples, as figures in a page or a terminal."""
