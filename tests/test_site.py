"""The site of docs/: it builds without a warning, and each page is in its list."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT

pytest.importorskip("material", reason="mkdocs-material, of the extra dev, is not installed")


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config)]
    return subprocess.run(
        [*words, "-d", str(folder)],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_builds_and_all_pages_links_and_headings_are_there(tmp_path: Path) -> None:
    done = build(ROOT / "docs" / "site" / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    built = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*.html")}
    pages = {
        page.relative_to(ROOT / "docs").with_suffix(".html")
        for page in (ROOT / "docs").rglob("*.md")
    }
    assert built == {*pages, *map(Path, ("404.html", "contributing.html", "changelog.html"))}
    assert not list((tmp_path / "site").rglob("*.py"))
    for page in built:  # can be read without a network
        text = (tmp_path / "site" / page).read_text("utf-8")
        assert not re.search(r"<(script|img|link)[^>]+(src|href)=\"?https?:", text), page


def test_a_page_that_leads_nowhere_or_is_not_in_the_list_breaks_it(tmp_path: Path) -> None:
    for name in ("docs/site/mkdocs.yml", "docs/site/outside.py", "CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    config = tmp_path / "docs" / "site" / "mkdocs.yml"
    config.write_text(config.read_text().partition("nav:\n  - Start")[0] + "nav: [index.md]\n")
    (tmp_path / "docs" / "index.md").write_text("# A\n[a](gone.md) [b](other.md#gone)\n")
    (tmp_path / "docs" / "other.md").write_text("# B\n")
    done = build(config, tmp_path / "site")
    assert done.returncode == 1
    assert "link 'gone.md'" in done.stderr
    assert "does not contain an anchor '#gone'" in done.stderr
    assert "other.md" in done.stderr.partition('not included in the "nav"')[2]
