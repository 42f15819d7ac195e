"""Whether a patched script keeps its promises, judged by running it.

May import running and below, and patcher.api.
"""
