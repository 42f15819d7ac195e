"""The documentation's links lead somewhere, and it names the options that commands have."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from checkout import ROOT
from ddpfix.cli import ddpfix

COMMANDS = ROOT / "docs" / "commands"
PAGES = [
    *(page for name in ("README", "CONTRIBUTING", "CHANGELOG") for page in ROOT.glob(f"{name}.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SHARED = {
    "attach": "runs",
    "status": "runs",
    "stop": "runs",
    "capabilities": "rules",
}
"""Pages of commands that share one; any other has a page of its own name."""

LINK = re.compile(r"(?<!!)\[[^]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<![\w=-])--[a-z][a-z-]*")
DEFAULT = re.compile(r"\(default: ([^)]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    found: set[str] = set()
    dropped = str.maketrans("", "", string.punctuation.replace("-", "").replace("_", "") + "…")
    for heading in re.findall(r"^#+ +(.+?)\s*$", prose(page), re.MULTILINE):
        words = LINK.sub(lambda link: link[0][1:].partition("]")[0], heading)
        name = words.lower().translate(dropped).replace(" ", "-")
        count = 0
        while (numbered := f"{name}-{count}" if count else name) in found:
            count += 1
        found.add(numbered)
    return found


def broken_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(SPAN.sub("", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, heading = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (heading and heading not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_to_a_file_or_heading(page: Path) -> None:
    assert not list(broken_links(page))


def test_links_and_headings_are_read_as_github_reads_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `patch --exact`, in short\n## Twice\n## Twice\n```\n# no heading [x](gone.md)\n```\n"
        "[a](#a-patch---exact-in-short) [b](#twice-1) [c](https://example.org/gone) [d](page.md)\n"
        "`[e](gone.md)` [f](gone.md) [g](#no-heading)\n"
    )
    assert list(broken_links(page)) == ["gone.md", "#no-heading"]


def command_lines(text: str) -> Iterator[str]:
    """What begins with ddpfix: spans, and lines of blocks, without arguments for scripts."""
    fenced = [line for block in FENCE.finditer(text) for line in block[0].splitlines()]
    indented = re.findall(r"^    (.*)$", text, re.MULTILINE)
    lines = [line.strip().removeprefix("$ ") for line in (*fenced, *indented)]
    for line in (*lines, *SPAN.findall(text)):
        if line.startswith("ddpfix "):
            yield re.split(r" -- | # |`", line)[0]


def unknown_options(line: str) -> list[str]:
    """The options of a command line that its command does not have, or the unknown command."""
    command: click.Command = ddpfix
    context = click.Context(ddpfix, info_name="ddpfix")
    for word in line.replace(",", "").split()[1:]:
        if not isinstance(command, click.Group):
            break
        if not re.fullmatch(r"[a-z]+", word):
            break
        under = command.get_command(context, word)
        if under is None:
            return [word]
        command, context = under, click.Context(under, info_name=word, parent=context)
    known = {
        name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)
    }
    return [option for option in OPTION.findall(line) if option not in known]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_have_the_options_that_a_page_gives_them(page: Path) -> None:
    lines = command_lines(page.read_text("utf-8"))
    unknown = {line: found for line in lines if (found := unknown_options(line))}
    assert not unknown


def test_unknown_commands_and_options_are_seen() -> None:
    text = (
        "ddpfix says `ddpfix check --nots x`, or\n"
        "```\n$ ddpfix plan --cpu -- --fp16  # --faster\n```\n"
        "    ddpfix launhc\n    ddpfix recipes show --toml x --sbatch=--time=1\n"
    )
    found = [unknown_options(line) for line in command_lines(text)]
    assert found == [[], ["launhc"], ["--sbatch"], ["--nots"]]


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with the name of its page, a group's own commands included."""
    context = click.Context(ddpfix)
    for name in ddpfix.list_commands(context):
        command = ddpfix.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((name, under) for under in command.commands.values())


def default_of(option: click.Option) -> str:
    """An option's default in the words of its help text, or else as click has it."""
    if told := DEFAULT.search(option.help or ""):
        return told[1]
    if option.required:
        return "required"
    default = option.default
    if option.is_flag:
        on, off = option.opts[0], option.secondary_opts[0] if option.secondary_opts else "off"
        return on if default is True else off
    if isinstance(default, int | float):
        return f"{default:g}"
    return default if isinstance(default, str) else "none"


def rows(page: Path) -> dict[str, set[str]]:
    """Which defaults a page gives to each option, in the rows of its tables."""
    found: dict[str, set[str]] = {}
    for line in page.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `--") and len(cells) == 3:
            for name in OPTION.findall(cells[0]):
                found.setdefault(name, set()).add(cells[1])
    return found


@pytest.mark.parametrize(
    ("name", "command"),
    [pytest.param(name, each, id=f"{name} {each.name}") for name, each in all_commands()],
)
def test_a_command_s_page_has_its_options_and_their_defaults(
    name: str, command: click.Command
) -> None:
    page = COMMANDS / f"{SHARED.get(name, name)}.md"
    assert page.exists(), f"write {name_of(page)}, or say in SHARED which page tells of {name}"
    told = rows(page)
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            for spelling in (*option.opts, *option.secondary_opts):
                assert default_of(option) in told.get(spelling, ()), spelling
