"""A language server: findings while a script is typed, and their repair, of one rule or of all."""

from __future__ import annotations

import asyncio
import io
import re
import tokenize
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

import click
from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from ... import __version__
from ...command_help import HelpfulCommand
from ...errors import InputError
from ...patcher.api import (
    Config,
    Diagnostic,
    FileChange,
    RuleFixes,
    Safety,
    all_rules,
    check,
    diagnose,
    is_left_out,
    manual,
    patch,
    read_config,
    read_program,
    select_rules,
    text_edits,
)

PAUSE = 0.3  # seconds without typing before the text is checked
LEVELS = {
    "E": types.DiagnosticSeverity.Error,
    "W": types.DiagnosticSeverity.Warning,
    "N": types.DiagnosticSeverity.Information,
}

editor = LanguageServer("ddpfix", __version__)
checker = ThreadPoolExecutor(1, "check")  # one: a check is computation, and shares its caches
Result = TypeVar("Result")


@click.command(cls=HelpfulCommand)
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


async def apart(work: Callable[[TextDocument], Result], uri: str) -> Result:
    """Do something with a document as it is now, while the editor is answered otherwise."""
    now = editor.workspace.get_text_document(uri)
    document = TextDocument(uri, now.source, now.version)
    return await asyncio.get_running_loop().run_in_executor(checker, work, document)


def settings(document: TextDocument) -> Config | None:
    """The settings of a document's folder; None where they leave the document out.

    Raises InputError where they cannot be used.
    """
    path = Path(document.path).resolve()
    config = read_config(str(path.parent))
    root = Path(config.file).parent if config.file else path.parent
    return None if is_left_out(str(path), config.exclude, str(root)) else config


def diagnostics(document: TextDocument) -> list[types.Diagnostic]:
    """What `ddpfix check` finds in a document, or why the text cannot be checked."""
    path = document.path
    try:
        config = settings(document)
        if config is None:
            return []
        program = read_program(path, encoded(document.source))
        rules = select_rules(all_rules(), config.select, config.ignore)
        found = [diagnose(one) for one in check(program, rules) if one.module is program.script]
    except (InputError, RecursionError) as error:
        return [unreadable(document, str(error).removeprefix(path))]
    return [shown(document, one) for one in found if config.notes or not one.is_note]


def shown(document: TextDocument, item: Diagnostic) -> types.Diagnostic:
    """A finding as an editor underlines it."""
    return types.Diagnostic(
        span(document, (item.line, item.column), (item.end_line, item.end_column)),
        f"{item.title}: {item.because}\n{item.consequence}",
        severity=LEVELS[item.severity],
        code=item.code,
        code_description=types.CodeDescription(manuals()[item.code]),
        source="ddpfix",
    )


@cache
def manuals() -> dict[str, str]:
    """The file that begins with the manual of a rule, by the rule's code."""
    return {rule.code: Path(rule.file).as_uri() for rule in all_rules()}


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


async def publish(uri: str) -> None:
    """Send the editor the findings of a document, unless its text has changed meanwhile."""
    version = editor.workspace.get_text_document(uri).version
    found = await apart(diagnostics, uri)
    if is_current(uri, version):
        editor.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri, found, version)
        )


def is_current(uri: str, version: int | None) -> bool:
    """Whether a document is open, and its text is still this version."""
    document = editor.workspace.text_documents.get(uri)
    return document is not None and document.version == version


@editor.feature(types.TEXT_DOCUMENT_DID_OPEN)
async def opened(params: types.DidOpenTextDocumentParams) -> None:
    """Check what was opened."""
    await publish(params.text_document.uri)


@editor.feature(types.TEXT_DOCUMENT_DID_SAVE)
async def saved(params: types.DidSaveTextDocumentParams) -> None:
    """Check what was saved."""
    await publish(params.text_document.uri)


@editor.feature(types.TEXT_DOCUMENT_DID_CHANGE)
async def changed(params: types.DidChangeTextDocumentParams) -> None:
    """Check what was typed, once no more of it follows."""
    uri, version = params.text_document.uri, params.text_document.version
    await asyncio.sleep(PAUSE)
    if is_current(uri, version):
        await publish(uri)


@editor.feature(types.TEXT_DOCUMENT_DID_CLOSE)
def closed(params: types.DidCloseTextDocumentParams) -> None:
    """Take the findings of a closed document away."""
    editor.text_document_publish_diagnostics(
        types.PublishDiagnosticsParams(params.text_document.uri, [])
    )


@editor.feature(types.TEXT_DOCUMENT_HOVER)
async def hover(params: types.HoverParams) -> types.Hover | None:
    """The manuals of the rules that find something where the pointer is."""
    at = params.position
    found = await apart(diagnostics, params.text_document.uri)
    here = [one for one in found if one.range.start <= at <= one.range.end]
    codes = dict.fromkeys(str(one.code) for one in here if one.code)
    texts = [f"```text\n{manual(code)}\n```" for code in codes]
    if not texts:
        return None
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(texts)))


@editor.feature(
    types.TEXT_DOCUMENT_CODE_ACTION,
    types.CodeActionOptions([types.CodeActionKind.QuickFix]),
)
async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
    """The repairs where findings are: what each rule finds, and all that `ddpfix patch` makes."""
    found = [one for one in params.context.diagnostics if one.source == "ddpfix" and one.code]
    if not found:
        return []
    codes = list(dict.fromkeys(str(one.code) for one in found))
    edits = await apart(lambda document: repairs(document, codes), params.text_document.uri)
    return [
        types.CodeAction(
            f"ddpfix: Repair {code or 'everything'} in this file",
            types.CodeActionKind.QuickFix,
            [one for one in found if code in ("", one.code)],
            edit=types.WorkspaceEdit(changes={params.text_document.uri: edits[code]}),
        )
        for code in edits
    ]


def repairs(document: TextDocument, codes: Iterable[str]) -> dict[str, list[types.TextEdit]]:
    """The edits that repair all that each rule finds, by its code, and everything, as "".

    Those of a rule are left out where they do not stand alone, all where patch refuses or the
    audit has a doubt, and any where other files would change.
    """
    try:
        config = settings(document)
        if config is None:
            return {}
        result = patch(
            Path(document.path),
            select=config.select,
            ignore=config.ignore,
            data=encoded(document.source),
        )
    except (InputError, RecursionError):
        return {}
    if result.refusal or result.audit:
        return {}
    fixes = RuleFixes(result.original, frozenset({Safety.SAFE}))
    changes = {code: fixes.changes(code) for code in codes} | {"": result.changes}
    script = result.original.script.source
    return {
        code: edited(document, files[0])
        for code, files in changes.items()
        if len(files) == 1 and files[0].source is script
    }


def edited(document: TextDocument, change: FileChange) -> list[types.TextEdit]:
    """A change as the edits of an editor."""
    return [
        types.TextEdit(
            span(document, (one.line, one.column), (one.end_line, one.end_column)), one.content
        )
        for one in text_edits(document.source, change.text)
    ]
