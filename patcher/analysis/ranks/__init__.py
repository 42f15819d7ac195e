"""Which ranks come to a place, what values they have there, and which examples each gets."""
