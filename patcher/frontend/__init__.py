"""The commands: files, settings, the cache and what is printed. May import everything else here."""
