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


async def session(path: Path) -> None:
    client = make_test_lsp_client()
    uri = path.as_uri()
    await client.start_io(sys.executable, "-P", "-m", "ddpfix", "server")
    await client.initialize_session(types.InitializeParams(types.ClientCapabilities()))
    document = types.TextDocumentItem(uri, "python", 1, SCRIPT)
    client.text_document_did_open(types.DidOpenTextDocumentParams(document))
    found = await published(client, uri)
    assert {str(one.code) for one in found} == codes_that_check_finds(SCRIPT, path)
    here = types.TextDocumentIdentifier(uri)
    shown = await client.text_document_hover_async(types.HoverParams(here, found[0].range.start))
    assert shown is not None
    assert isinstance(shown.contents, types.MarkupContent)
    assert manual(str(found[0].code)) in shown.contents.value
    assert await typed(client, uri, 2, await repair(client, uri, found[0])) == []
    (broken,) = await typed(client, uri, 3, "import torch\nx = (\n")
    assert broken.range.start.line == 1
    (doubted,) = await typed(client, uri, 4, LEGACY)
    assert doubted.code == "DF203"
    assert await actions(client, uri, doubted) == []  # it reads names that nothing binds
    await client.shutdown_session()
    await client.stop()


def codes_that_check_finds(text: str, path: Path) -> set[str]:
    result = run(
        "check", "--stdin-filename", path, "--output-format", "json", "-", stdin=text.encode()
    )
    return {one["code"] for one in json.loads(result.stdout)}


async def actions(
    client: LanguageClient, uri: str, found: types.Diagnostic
) -> list[types.CodeAction]:
    given = await client.text_document_code_action_async(
        types.CodeActionParams(
            types.TextDocumentIdentifier(uri), found.range, types.CodeActionContext([found])
        )
    )
    return [one for one in given or () if isinstance(one, types.CodeAction)]


async def repair(client: LanguageClient, uri: str, found: types.Diagnostic) -> str:
    (action,) = await actions(client, uri, found)
    assert action.edit is not None
    assert action.edit.changes is not None
    (edit,) = action.edit.changes[uri]
    assert isinstance(edit, types.TextEdit)
    assert edit.range == types.Range(types.Position(0, 0), types.Position(SCRIPT.count("\n"), 0))
    return edit.new_text


async def published(client: LanguageClient, uri: str) -> list[types.Diagnostic]:
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    return list(client.diagnostics[uri])


async def typed(
    client: LanguageClient, uri: str, version: int, text: str
) -> list[types.Diagnostic]:
    whole = types.TextDocumentContentChangeWholeDocument(text)
    client.text_document_did_change(
        types.DidChangeTextDocumentParams(
            types.VersionedTextDocumentIdentifier(version, uri), [whole]
        )
    )
    return await published(client, uri)


def test_findings_hover_and_repair_follow_the_unsaved_text(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text("saved otherwise = (")
    asyncio.run(session(path))
    assert path.read_text() == "saved otherwise = ("


def test_without_the_extra_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['lsprotocol'] = None; sys.argv = ['ddpfix', 'server']; "
        "from ddpfix.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    advice = "ddpfix: lsprotocol is not installed here: pip install 'ddpfix[lsp]'\n"
    assert (result.returncode, result.stderr) == (2, advice)
