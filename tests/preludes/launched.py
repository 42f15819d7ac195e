"""As accelerate launch --mixed_precision bf16 starts a script; otherwise as precision.py."""

import os
import runpy
from pathlib import Path

os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16"
runpy.run_path(str(Path(__file__).with_name("precision.py")))
