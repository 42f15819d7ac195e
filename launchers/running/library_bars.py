"""Progress bars that transformers and datasets draw, which count no step of a training.

One is drawn for each model that is loaded or saved: "Loading weights: 100%|###| 39/39 [00:00<…".
"""

from __future__ import annotations

import re

_DRAWN = (
    r"Loading (?:weights|checkpoint shards|pipeline components[.]*)|Writing model shards|"
    r"Fetching \d+ files|Downloading [^:|]*|Generating [\w-]+ split|Creating \w+ from Arrow format|"
    r"(?:Map|Filter|Flattening the indices|Casting the dataset|Saving the dataset)(?: \([^)|]*\))?"
)
LIBRARY_BAR = re.compile(rf"(?:^|\s)(?:{_DRAWN}): +\d+%\|")
LIBRARY_BAR_BYTES = re.compile(LIBRARY_BAR.pattern.encode())
