"""github.com/microsoft/ANCE."""

from __future__ import annotations

from .case import Case, nothing

REPOSITORY, COMMIT = "microsoft/ANCE", "c8439dfc9ab178457dd359d2ed7c403f2f3d7b6f"
CASES = (
    Case("ANCE/drivers/run_warmup.py", nothing, root="ANCE"),
    Case("ANCE/drivers/run_ann.py", nothing, root="ANCE"),
)
