"""A language server: findings while a script is typed, and the repair of all of them."""

from __future__ import annotations

import asyncio
import io
import re
import tokenize
from pathlib import Path

import click
from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from ... import __version__
from ...errors import InputError
from ...patcher.api import (
    Diagnostic,
    all_rules,
    check,
    diagnose,
    manual,
    patch,
    read_config,
    read_program,
    select_rules,
)

PAUSE = 0.3  # seconds without typing before the text is checked
LEVELS = {
    "E": types.DiagnosticSeverity.Error,
    "W": types.DiagnosticSeverity.Warning,
    "N": types.DiagnosticSeverity.Information,
}

editor = LanguageServer("ddpfix", __version__)


@click.command()
def server() -> None:
    """Serve an editor over standard input and output (Language Server Protocol).

    It reads the text as it is typed, saved or not, and runs none of it.

    Exit status: 0 once the editor has shut it down.
    """
    editor.start_io()


def encoded(text: str) -> bytes:
    """A document's text in the encoding that its own first lines declare.

    Raises InputError where that is none, or cannot hold the text.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode()).readline)
        return text.encode(encoding)
    except (SyntaxError, UnicodeError) as error:
        raise InputError(f": {error}") from error


def diagnostics(document: TextDocument) -> list[types.Diagnostic]:
    """What `ddpfix check` finds in a document, or why the text cannot be checked."""
    path = document.path
    try:
        config = read_config(str(Path(path).parent))
        program = read_program(path, encoded(document.source))
        rules = select_rules(all_rules(), config.select, config.ignore)
        found = [diagnose(one) for one in check(program, rules) if one.module is program.script]
    except (InputError, RecursionError) as error:
        return [unreadable(document, str(error).removeprefix(path))]
    return [shown(document, one) for one in found if not one.is_note]


def shown(document: TextDocument, item: Diagnostic) -> types.Diagnostic:
    """A finding as an editor underlines it."""
    return types.Diagnostic(
        span(document, (item.line, item.column), (item.end_line, item.end_column)),
        f"{item.title}: {item.because}\n{item.consequence}",
        severity=LEVELS[item.severity],
        code=item.code,
        source="ddpfix",
    )


def unreadable(document: TextDocument, text: str) -> types.Diagnostic:
    """A text that is no Python, at the line that says so."""
    place = re.match(r":(\d+): ", text)
    line = int(place[1]) if place else 1
    return types.Diagnostic(
        span(document, (line, 1), (line, len(lines_of(document)[line - 1]) + 1)),
        text[place.end() :] if place else text.lstrip(": "),
        severity=types.DiagnosticSeverity.Error,
        source="ddpfix",
    )


def lines_of(document: TextDocument) -> list[str]:
    """The lines as Python and the protocol count them, which end at no form feed."""
    return re.split(r"\r\n|\r|\n", document.source)


def span(document: TextDocument, start: tuple[int, int], end: tuple[int, int]) -> types.Range:
    """A range of 1-based lines and characters, in the units of the editor."""
    (line, column), (end_line, end_column) = start, end
    return editor.workspace.position_codec.range_to_client_units(
        lines_of(document),
        types.Range(
            types.Position(line - 1, column - 1), types.Position(end_line - 1, end_column - 1)
        ),
    )


def publish(uri: str) -> None:
    """Send the editor the findings of a document as its text is now."""
    document = editor.workspace.get_text_document(uri)
    editor.text_document_publish_diagnostics(
        types.PublishDiagnosticsParams(uri, diagnostics(document), document.version)
    )


@editor.feature(types.TEXT_DOCUMENT_DID_OPEN)
def opened(params: types.DidOpenTextDocumentParams) -> None:
    """Check what was opened."""
    publish(params.text_document.uri)


@editor.feature(types.TEXT_DOCUMENT_DID_SAVE)
def saved(params: types.DidSaveTextDocumentParams) -> None:
    """Check what was saved."""
    publish(params.text_document.uri)


@editor.feature(types.TEXT_DOCUMENT_DID_CHANGE)
async def changed(params: types.DidChangeTextDocumentParams) -> None:
    """Check what was typed, once no more of it follows."""
    uri, version = params.text_document.uri, params.text_document.version
    await asyncio.sleep(PAUSE)
    open_document = editor.workspace.text_documents.get(uri)
    if open_document is not None and open_document.version == version:
        publish(uri)


@editor.feature(types.TEXT_DOCUMENT_DID_CLOSE)
def closed(params: types.DidCloseTextDocumentParams) -> None:
    """Take the findings of a closed document away."""
    editor.text_document_publish_diagnostics(
        types.PublishDiagnosticsParams(params.text_document.uri, [])
    )


@editor.feature(types.TEXT_DOCUMENT_HOVER)
def hover(params: types.HoverParams) -> types.Hover | None:
    """The manuals of the rules that find something where the pointer is."""
    document = editor.workspace.get_text_document(params.text_document.uri)
    at = params.position
    here = [one for one in diagnostics(document) if one.range.start <= at <= one.range.end]
    codes = dict.fromkeys(str(one.code) for one in here if one.code)
    texts = [f"```text\n{manual(code)}\n```" for code in codes]
    if not texts:
        return None
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(texts)))


@editor.feature(
    types.TEXT_DOCUMENT_CODE_ACTION,
    types.CodeActionOptions([types.CodeActionKind.QuickFix]),
)
def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
    """What `ddpfix patch` makes of the document, where a finding is and patch is certain."""
    found = [one for one in params.context.diagnostics if one.source == "ddpfix"]
    document = editor.workspace.get_text_document(params.text_document.uri)
    text = repaired(document) if found else None
    if text is None:
        return []
    lines = lines_of(document)
    whole = span(document, (1, 1), (len(lines), len(lines[-1]) + 1))
    edit = types.WorkspaceEdit(changes={document.uri: [types.TextEdit(whole, text)]})
    title = "ddpfix: Repair everything in this file"
    return [types.CodeAction(title, types.CodeActionKind.QuickFix, found, edit=edit)]


def repaired(document: TextDocument) -> str | None:
    """The text with all safe repairs.

    None where there are none, patch refuses, the audit has a doubt, or other files would change.
    """
    try:
        config = read_config(str(Path(document.path).parent))
        result = patch(
            Path(document.path),
            select=config.select,
            ignore=config.ignore,
            data=encoded(document.source),
        )
    except (InputError, RecursionError):
        return None
    if result.refusal or result.audit or len(result.changes) != 1:
        return None
    (change,) = result.changes
    return change.text if change.source is result.original.script.source else None
