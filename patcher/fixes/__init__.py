"""Edits that several rules share. May import analysis and all below it."""
