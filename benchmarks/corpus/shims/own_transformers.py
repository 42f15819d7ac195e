"""The script's local copy of transformers is imported, not the library that is loaded already."""

import sys

for _name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
    del sys.modules[_name]
