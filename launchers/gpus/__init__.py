"""Find the cards of this machine and those a run may use. May import root modules only."""
