"""Functions and classes that a script with capabilities may carry; see ``patcher/inserts.py``."""

from __future__ import annotations
