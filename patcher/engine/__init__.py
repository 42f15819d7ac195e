"""Run rules over a program and apply their edits in rounds, or refuse the patch.

May import all but frontend.
"""
