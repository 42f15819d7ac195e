"""Bring CONTRIBUTING.md and CHANGELOG.md, which lie above docs/, into the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the two pages."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to these pages, and theirs into docs/, lead to places of the site."""
    if page.file.src_uri in PAGES.values():
        return markdown.replace("](docs/", "](")
    for name, moved in PAGES.items():
        markdown = re.sub(rf"\]\(((?:\.\./)*)\.\./{re.escape(name)}", rf"](\g<1>{moved}", markdown)
    return markdown
