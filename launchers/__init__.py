"""Everything that runs: inventory, plan, command, run, trace."""
