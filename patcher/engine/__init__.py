"""Runs rules over a program, applies their edits in rounds, or refuses.

May import all but frontend.
"""
