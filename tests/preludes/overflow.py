"""As precision.py, with gradients that overflow in the third step."""

import os
import runpy
from pathlib import Path

os.environ["SCALED_TO_NOTHING"] = "1"
runpy.run_path(str(Path(__file__).with_name("precision.py")))
