"""Check by traced runs that a patched script keeps the promises of the contract.

May import running and below, and patcher.api.
"""
