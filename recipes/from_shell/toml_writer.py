"""A drafted recipe as the text of a TOML file, with what is open or supposed as comments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.items import KeyType, SingleKey, Table

from .draft import Draft
from .expansion import on_one_line


def toml_text(draft: Draft, origin: str, family: str) -> str:
    """Write a draft as a recipe's file; `origin` is the shell file with the command's line."""
    document = tomlkit.document()
    where = "of that file" if draft.start == "." else f"{draft.start}, seen from that file"
    for line in (
        f"Read from {origin}. What the fields mean: `ddpfix recipes --help`.",
        f"Launch it in the folder {where}: relative paths among the arguments count from there.",
    ):
        document.add(tomlkit.comment(on_one_line(line)))
    document.add("description", tomlkit.string(f"{draft.script}, as {origin} starts it"))
    document.add("family", tomlkit.string(family))
    document.add("script", tomlkit.string(draft.script))
    document.add("task", tomlkit.string("not told"))
    if draft.joined:
        document.add("joined", tomlkit.item(True))
    tables: Mapping[str, Mapping[str, Any]] = {
        "flags": draft.flags,
        "batch": draft.batch,
        "data": {"folder": draft.folder, "files": draft.files, "train": draft.train},
        "output": {"folder": draft.output},
        "arguments": draft.arguments,
        "sources": draft.sources,
    }
    for name, fields in tables.items():
        document.add(name, _table(name, fields, draft))
    return tomlkit.dumps(document)


def _table(name: str, fields: Mapping[str, Any], draft: Draft) -> Table:
    table = tomlkit.table()
    for key, value in fields.items():
        if value is None:
            continue
        item = _item(value)
        if remark := draft.remarks.get(f"{name}.{key}"):
            item.comment(on_one_line(remark))
        table.append(_key(key), item)
    for one in draft.omissions if name == "arguments" else []:
        table.add(tomlkit.comment(on_one_line(f"left out: {one}")))
    return table


def _item(value: Any) -> Any:
    if isinstance(value, dict):
        files = tomlkit.inline_table()
        for key, one in value.items():
            files.append(_key(key), one)
        return files
    return tomlkit.item(value)


def _key(name: str) -> SingleKey:
    """Quoted where it is a flag, as in the recipes that come with ddpfix."""
    return SingleKey(name, None if name.isidentifier() else KeyType.Basic)
