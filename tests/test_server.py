"""``ddpfix server``, driven by a real client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from command_line import LEGACY, run
from ddpfix.patcher.api import manual
from lsprotocol import types
from pytest_lsp import LanguageClient, make_test_lsp_client

SHAPES = Path(__file__).parent.parent / "fixtures" / "shapes"
SCRIPT = (SHAPES / "dataparallel_module_level.py").read_text()


SETTINGS = '[tool.ddpfix]\nignore = ["DF601"]\nexclude = ["left*"]\n'
WIDE = LEGACY.replace("x =", "größe, x = '\N{GRINNING FACE}',")  # é is one unit, 😀 are two
LONG = LEGACY + "x = batch // args.n_gpu\n" * 1000


async def session(folder: Path) -> None:
    client = make_test_lsp_client()
    path = folder / "run.py"
    uri = path.as_uri()
    await client.start_io(sys.executable, "-P", "-m", "ddpfix", "server")
    await client.initialize_session(types.InitializeParams(types.ClientCapabilities()))
    found = await opened(client, uri, SCRIPT)
    assert {str(one.code) for one in found} == codes_that_check_finds(SCRIPT, path)
    for one in found:
        assert one.code_description is not None
        page = Path(one.code_description.href.removeprefix("file://")).read_text()
        assert page.startswith('"""' + one.message.partition(":")[0])
        assert f'CODE, SEVERITY, SAFETY = "{one.code}"' in page
    here = types.TextDocumentIdentifier(uri)
    shown = await client.text_document_hover_async(types.HoverParams(here, found[0].range.start))
    assert shown is not None
    assert isinstance(shown.contents, types.MarkupContent)
    assert manual(str(found[0].code)) in shown.contents.value
    (wrapped,) = (one for one in found if one.code == "DF201")  # needs all the others
    (inner,) = (one for one in found if one.code == "DF504")
    (everything,) = await actions(client, uri, wrapped)
    first, second = await actions(client, uri, inner)
    assert first.title == "ddpfix: Repair DF504 in this file"
    assert everything.title == second.title == "ddpfix: Repair everything in this file"
    left = await typed(client, uri, 2, made(first, uri, SCRIPT))
    assert {one.code for one in left} == {one.code for one in found} - {"DF504"}
    assert await typed(client, uri, 3, made(everything, uri, SCRIPT)) == []
    (broken,) = await typed(client, uri, 4, "import torch\nx = (\n")
    assert broken.range.start.line == 1
    (doubted,) = await typed(client, uri, 5, LEGACY)
    assert doubted.code == "DF203"
    assert await actions(client, uri, doubted) == []  # it reads names that nothing binds
    for version in (6, 7):  # of which the editor wants no findings
        change(client, uri, version, SCRIPT)
    (wide,) = await typed(client, uri, 8, WIDE)
    line = WIDE.splitlines()[2]
    units = len(line[: line.index("batch")].encode("utf-16-le")) // 2
    assert wide.range.start == types.Position(2, units)
    assert units == line.index("batch") + 1
    long_uri = (folder / "long.py").as_uri()
    open_document(client, long_uri, LONG)
    assert await actions(client, long_uri, None) == []
    assert long_uri not in client.diagnostics  # the answer did not wait for the check
    assert len(await published(client, long_uri)) == 1001
    (folder / "pyproject.toml").write_text(SETTINGS)
    assert await opened(client, (folder / "left.py").as_uri(), SCRIPT) == []
    under_settings = await opened(client, (folder / "checked.py").as_uri(), SCRIPT)
    assert {one.code for one in found} - {one.code for one in under_settings} == {"DF601"}
    await client.shutdown_session()
    await client.stop()


def open_document(client: LanguageClient, uri: str, text: str) -> None:
    document = types.TextDocumentItem(uri, "python", 1, text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(document))


async def opened(client: LanguageClient, uri: str, text: str) -> list[types.Diagnostic]:
    open_document(client, uri, text)
    return await published(client, uri)


def codes_that_check_finds(text: str, path: Path) -> set[str]:
    result = run(
        "check", "--stdin-filename", path, "--output-format", "json", "-", stdin=text.encode()
    )
    return {one["code"] for one in json.loads(result.stdout)}


async def actions(
    client: LanguageClient, uri: str, found: types.Diagnostic | None
) -> list[types.CodeAction]:
    start = types.Position(0, 0)
    given = await client.text_document_code_action_async(
        types.CodeActionParams(
            types.TextDocumentIdentifier(uri),
            found.range if found else types.Range(start, start),
            types.CodeActionContext([found] if found else []),
        )
    )
    return [one for one in given or () if isinstance(one, types.CodeAction)]


def made(action: types.CodeAction, uri: str, text: str) -> str:
    """The text after an action's edits, which are those of whole lines."""
    assert action.edit is not None
    assert action.edit.changes is not None
    lines = text.splitlines(keepends=True)
    for edit in reversed(action.edit.changes[uri]):
        assert isinstance(edit, types.TextEdit)
        assert edit.range.start.character == edit.range.end.character == 0
        lines[edit.range.start.line : edit.range.end.line] = [edit.new_text]
    return "".join(lines)


async def published(client: LanguageClient, uri: str) -> list[types.Diagnostic]:
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    return list(client.diagnostics[uri])


async def typed(
    client: LanguageClient, uri: str, version: int, text: str
) -> list[types.Diagnostic]:
    change(client, uri, version, text)
    return await published(client, uri)


def change(client: LanguageClient, uri: str, version: int, text: str) -> None:
    whole = types.TextDocumentContentChangeWholeDocument(text)
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(
            types.VersionedTextDocumentIdentifier(version, uri), [whole]
        )
    )


def test_findings_hover_and_repair_follow_the_unsaved_text(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text("saved otherwise = (")
    asyncio.run(session(tmp_path))
    assert path.read_text() == "saved otherwise = ("


def test_without_the_extra_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['lsprotocol'] = None; sys.argv = ['ddpfix', 'server']; "
        "from ddpfix.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    advice = "ddpfix: lsprotocol is not installed here: pip install 'ddpfix[lsp]'\n"
    assert (result.returncode, result.stderr) == (2, advice)
