"""The commands of the launchers, in click alone. May import everything else here."""
