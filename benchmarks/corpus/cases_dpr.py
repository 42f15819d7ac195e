"""github.com/facebookresearch/DPR."""

from __future__ import annotations

from .case import Case, nothing

REPOSITORY, COMMIT = "facebookresearch/DPR", "a31212dc0a54dfa85d8bfa01e1669f149ac832b7"
CASES = (Case("DPR/train_dense_encoder.py", nothing, root="DPR"),)
