"""docs/api.md: its example runs, and it names what the patcher's interface has."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from checkout import ROOT
from ddpfix.patcher import api

PAGE = (ROOT / "docs" / "api.md").read_text()
FIXTURE = ROOT / "fixtures" / "shapes" / "dataparallel_module_level.py"


def test_the_example_finds_repairs_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_bytes(FIXTURE.read_bytes())
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(example, "example", "exec"), {})
    assert re.search(r"^train\.py:\d+:\d+ DF201 ", printed.getvalue(), re.MULTILINE)
    assert "+++ " in printed.getvalue()
    assert "DistributedDataParallel" in script.read_text()


def test_it_names_all_that_is_public() -> None:
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    named = set(re.findall(r"\b[A-Za-z_]+\b", " ".join(re.findall(r"`[^`]+`", text))))
    assert set(api.__all__) <= named
    assert (ROOT / "py.typed").exists()
