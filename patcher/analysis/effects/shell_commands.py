"""Commands of the shell that a script runs, as far as they change files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import argument

#: What runs a command, with the keyword of the command, its first argument.
RUNNERS = {
    "os.system": "command",
    "os.popen": "cmd",
    "subprocess.run": "args",
    "subprocess.call": "args",
    "subprocess.check_call": "args",
    "subprocess.check_output": "args",
    "subprocess.getoutput": "cmd",
    "subprocess.Popen": "args",
}
REMOVING = {"rm", "rmdir"}
# `mkdir -p` and `touch` do no harm on several ranks.
WRITING = {
    *("cp", "mv", "ln", "rsync", "tee", "dd", "install", "split"),
    *("tar", "zip", "unzip", "gzip", "gunzip", "bzip2", "bunzip2", "xz", "7z"),
    *("wget", "curl", "gdown", "gsutil", "aws", "scp"),
    *("convert", "magick", "montage", "mogrify", "ffmpeg", "gifsicle"),
}
WRITING_PAIRS = {("git", "clone"), ("git", "commit"), ("git", "add"), ("sed", "-i")}
PACKERS = {"gzip", "gunzip", "bzip2", "bunzip2", "xz"}
SAVING = {"--output", "--remote-name", "--remote-name-all"}  # options of curl
TO_READER = re.compile(r"(-[a-zA-Z]*O ?|--output-document=)-( |$)")
PIECES = re.compile(r"&&|\|\||[;|\n]")
INTO_FILE = re.compile(r"(?<![0-9&=<-])>>?(?!\s*(?:&|/dev/null))")


def command_uses(module: Module) -> Iterator[tuple[str, ast.Call, ast.expr]]:
    """``write`` or ``remove``, the call and the command, of each that changes files."""
    lasts = {name.rpartition(".")[2] for name in RUNNERS}
    for call in module.calls_to(*lasts):
        keyword = RUNNERS.get(module.dotted(call.func))
        command = argument(call, 0, keyword) if keyword else None
        if command is None:
            continue
        value = module.definition(command, command) or command
        what = change_of(value)
        if what:
            yield what, call, command


def is_command(module: Module, call: ast.Call) -> bool:
    """Whether a call runs a command of the shell."""
    return module.dotted(call.func) in RUNNERS


def change_of(command: ast.expr) -> str:
    """``write``, ``remove``, or nothing where no word of a command is known to change files."""
    if isinstance(command, ast.List | ast.Tuple):
        words = [each.value for each in command.elts if isinstance(each, ast.Constant)]
        text = " ".join(word for word in words if isinstance(word, str))
        if not (command.elts and isinstance(command.elts[0], ast.Constant)):
            return ""
    else:
        text = text_of(command)
    changes = {change_of_piece(piece.split()) for piece in PIECES.split(text)}
    if "write" in changes or (not isinstance(command, ast.List) and INTO_FILE.search(text)):
        return "write"
    return "remove" if "remove" in changes else ""


def change_of_piece(words: list[str]) -> str:
    """What a command does whose words these are, without its redirections."""
    while words and (words[0] == "sudo" or re.fullmatch(r"[A-Z_]+=\S*", words[0])):
        words = words[1:]
    if not words:
        return ""
    name = words[0].rpartition("/")[2]
    if name in REMOVING:
        return "remove"
    second = words[1] if len(words) > 1 else ""
    if prints(name, words[1:]):
        return ""
    return "write" if name in WRITING or (name, second) in WRITING_PAIRS else ""


def prints(name: str, words: list[str]) -> bool:
    """Whether a command gives what it makes to its reader: ``wget -qO-``, ``ffmpeg … -f wav -``."""
    options = [word for word in words if word.startswith("-") and word != "-"]
    letters = "".join(word[1:] for word in options if not word.startswith("--"))
    if name == "wget":
        return TO_READER.search(" ".join(words)) is not None
    if name == "curl":
        return not set(options) & SAVING and not set(letters) & {"o", "O"}
    if name in PACKERS:
        return "c" in letters or "--stdout" in options
    return bool(words) and words[-1] in ("-", "pipe:", "pipe:1")


def text_of(command: ast.expr) -> str:
    """A command's text, with ``{}`` for what is put in: f-strings, ``+``, ``%`` and format()."""
    match command:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return text_of(left)
        case ast.Call(func=ast.Attribute(value=text, attr="format" | "join")):
            return text_of(text)
    return "{}"
