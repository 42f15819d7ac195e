"""Edits as data, and their application to a file's text. May import source."""
