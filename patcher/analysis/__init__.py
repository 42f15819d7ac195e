"""What a program is and does, over all its modules. May import source, editing and findings."""
