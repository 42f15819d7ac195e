"""Data classes whose fields are given by name only, on every Python that ranks may have.

``dataclass(kw_only=True)`` needs Python 3.10, and attrs may be missing where the ranks run.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing import dataclass_transform
else:

    def dataclass_transform(**_):
        """Python 3.11 has it for type checkers; at run time it does nothing."""
        return lambda function: function


Class = TypeVar("Class", bound=type)

# For those who read the fields, such as cattrs.
_NAMED: dict[str, Any] = {"kw_only": True} if sys.version_info >= (3, 10) else {}


@dataclass_transform(kw_only_default=True)
def keyword_dataclass(cls: Class) -> Class:
    """Make a class a dataclass that takes its fields by name, with or without defaults."""
    made: Any = cls
    made.__init__ = _construct
    dataclasses.dataclass(init=False, **_NAMED)(made)
    return cls


def _construct(self: Any, **values: Any) -> None:
    for field in dataclasses.fields(self):
        if field.name in values:
            value = values.pop(field.name)
        elif field.default is not dataclasses.MISSING:
            value = field.default
        else:
            raise TypeError(f"{type(self).__name__}: no {field.name}")
        setattr(self, field.name, value)
    if values:
        raise TypeError(f"{type(self).__name__}: no field is called {', '.join(values)}")
