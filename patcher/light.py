"""Those parts of collections and functools that a check needs, without the rest of them.

To import the two takes a twentieth of what a check of one script takes: they bring reprlib,
keyword and types. What is here is C, or is loaded before any program starts.
"""

from __future__ import annotations

__all__ = ["Callable", "Iterable", "Iterator", "Sequence", "Set"]
__all__ += ["cache", "cached_property", "defaultdict"]

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Callable, Iterable, Iterator, Sequence, Set
    from functools import cache, cached_property
else:
    from _collections import defaultdict
    from _collections_abc import Callable, Iterable, Iterator, Sequence, Set

    class cached_property:  # noqa: N801 - as in functools
        """A property that is computed once; it is kept among the object's own attributes."""

        def __init__(self, compute):
            self.compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, item, owner=None):
            if item is None:
                return self
            value = item.__dict__[self.name] = self.compute(item)
            return value

    def cache(function):
        """Ask a function once for the same arguments."""
        known = {}

        def asked(*arguments):
            if arguments not in known:
                known[arguments] = function(*arguments)
            return known[arguments]

        return asked
