"""The pictures in docs/pictures: check, the live view of a launch, and the report of two runs.

``python docs/pictures.py`` runs the commands on fixtures, on a terminal of 80 and of 160 columns,
and draws what they print, light and dark; the report's page is drawn by Chromium, by way of
playwright. It takes some minutes. Names after it, such as ``check``, make these pictures only.
``--check`` ends with 1 where the pictures of check are not what check prints now; those of runs are
of the day they were made.
"""

from __future__ import annotations

import argparse
import fcntl
import html
import io
import os
import platform
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Sequence
from pathlib import Path

from ddpfix.fixtures.tiny import build_clone_data, build_model, clone_arguments, copy_family
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
FIXTURE = ROOT / "fixtures" / "shapes" / "dataparallel_module_level.py"
WIDTHS = (80, 160)
THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": DIMMED_MONOKAI}
PIXELS = {80: 800, 160: 1600}  # of a page
MOST = 200_000  # bytes of a page's picture
ABOVE = 6  # lines of output above the live view
HOME = "~/clones"  # what stands for the folder that all runs in

_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # would be fetched from a network
_TEXT = re.compile(r'<text [^>]*clip-path="url\(#[\w-]+-line-(\d+)\)">(.*?)</text>')
_MARK = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


def on_terminal(command: Sequence[str], folder: Path, columns: int) -> str:
    """All that a command of ddpfix writes to a terminal of so many columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    inherited = {
        name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ
    }
    own = {
        "TERM": "xterm-256color",
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": "1",
        "XDG_STATE_HOME": str(folder / "state"),
    }
    words = [sys.executable, "-P", "-m", "ddpfix", *command]
    running = subprocess.Popen(
        words,
        cwd=folder,
        env={**inherited, **own},
        stdin=follower,
        stdout=follower,
        stderr=follower,
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(1, termios.TIOCSCTTY, 0)),
    )
    os.close(follower)
    written = b""
    while True:
        try:
            chunk = os.read(leader, 1 << 16)
        except OSError:  # the other end is closed
            break
        written += chunk
    os.close(leader)
    if running.wait() > 1:
        sys.exit(f"{' '.join(command)}: status {running.returncode}\n{written.decode()}")
    return written.decode().replace("\r\n", "\n")


def frames(written: str) -> list[list[str]]:
    """The screen before each erasing: its lines, with their colours."""
    lines, row, erased = [""], 0, False
    found: list[list[str]] = []
    for number, move, end, text in _MARK.findall(written):
        if text or move == "m":
            lines[row] += text or f"\x1b[{number}m"
            erased = False
        elif end == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif move == "K":
            if not erased:
                found.append(lines[: row + 1])
            erased = True
            lines[row] = ""
        elif move == "A":
            row -= int(number or 1)
    return [*found, lines[: row + 1]]


def draw(name: str, lines: Sequence[str], title: str, columns: int) -> None:
    """Draw lines with their colours as an SVG, light and dark."""
    for theme, colours in THEMES.items():
        console = Console(record=True, width=columns, file=io.StringIO(), color_system="truecolor")
        for line in lines:
            text = Text.from_ansi(line)
            for part in text.divide(range(columns, len(text), columns)):
                console.print(part, no_wrap=True, overflow="crop", highlight=False)
        stem = f"{name}-{columns}-{theme}"
        drawn = console.export_svg(title=title, theme=colours, unique_id=stem)
        drawn = "\n".join(line.rstrip() for line in _FONTS.sub("", drawn).splitlines())
        refuse_private(stem, html.unescape(drawn))
        (FOLDER / f"{stem}.svg").write_text(drawn + "\n", "utf-8")


def text_of(picture: str) -> list[str]:
    """The lines of a picture, without their spaces, which it draws as places."""
    rows: dict[int, str] = {}
    for number, text in _TEXT.findall(picture):
        rows[int(number)] = rows.get(int(number), "") + html.unescape(text)
    return [without_spaces(rows[number]) for number in sorted(rows) if without_spaces(rows[number])]


def without_spaces(text: str) -> str:
    """A text without spaces."""
    return "".join(text.split())


def refuse_private(name: str, text: str) -> None:
    """End if a text names something of this machine."""
    private = {str(ROOT), sys.prefix, str(Path.home()), platform.node(), tempfile.gettempdir()}
    for word in private:
        if len(word) > 4 and word in text:
            sys.exit(f"{name}: {word} is in it")


def checked(columns: int) -> list[str]:
    """The lines of check."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(FIXTURE, Path(folder, "train.py"))
        return on_terminal(["check", "train.py"], Path(folder), columns).rstrip().split("\n")


def draw_check(_: Path) -> None:
    """Draw check."""
    for columns in WIDTHS:
        draw("check", checked(columns), "ddpfix check train.py", columns)


def launched(work: Path, name: str, processes: int, columns: int) -> str:
    """What a launch of the fixture that fine-tunes a tiny model writes to a terminal."""
    if not (work / "run.py").exists():
        copy_family("bigclonebench", work)
        (work / "original.py").write_bytes((work / "run.py").read_bytes())
        build_model(work / "model", "gpt2")
        build_clone_data(work / "data", train=960, valid=64, test=64)
        patch = [sys.executable, "-P", "-m", "ddpfix", "patch", "run.py"]
        subprocess.run(patch, cwd=work, check=False, capture_output=True)
    arguments = clone_arguments(
        Path("model"), Path("data"), Path("unused"), "gpt2", batch=4, epochs=3, learning_rate=1e-3
    )
    where = [place for place, word in enumerate(arguments) if "unused" in word or "_batch" in word]
    own = [word for place, word in enumerate(arguments) if place not in where]
    options = ["--cpu", "--processes", str(processes), "--global-batch", "8", "--output", name]
    recipe = ["--recipe", "codegpt-bigclonebench", "--script", "run.py"]
    return on_terminal(["launch", *recipe, *options, "--", *own], work, columns)


def draw_live(work: Path) -> None:
    """Draw the live view in the second of three passes."""
    for columns in WIDTHS:
        seen = frames(launched(work, f"two-{columns}", 2, columns))
        in_second = [one for one in seen if "pass 2 of 3" in "".join(one[-8:])]
        lines = in_second[len(in_second) // 2]
        top = max(place for place, line in enumerate(lines) if "── two" in line)
        shown = [line.replace(str(work), HOME) for line in lines[max(0, top - ABOVE) :]]
        title = "ddpfix launch --recipe codegpt-bigclonebench --cpu --processes 2"
        draw("live", shown, title, columns)


def draw_report(work: Path) -> None:
    """Draw the report of a run on one process and one on two, in the terminal and as a page."""
    for name, processes in (("one-process", 1), ("two-processes", 2)):
        launched(work, name, processes, 80)
    words = ["report", "one-process", "two-processes"]
    for columns in WIDTHS:
        lines = on_terminal(words, work, columns).rstrip().split("\n")
        draw("report", lines, f"ddpfix {' '.join(words)}", columns)
    page = work / "page.html"
    on_terminal([*words, "--original", "original.py", "--html", page.name], work, 80)
    text = page.read_text("utf-8").replace(str(work), HOME)
    text = text.replace(f"{Path(sys.executable).parent}/", "")
    text = text.replace(str(ROOT), "ddpfix").replace(sys.prefix, "~/.venv")
    refuse_private("the page", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    page.write_text(text, "utf-8")
    photograph(page)


def photograph(page: Path) -> None:
    """Draw the top of a page, as wide as a narrow and as a wide window, light and dark."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for columns, pixels in PIXELS.items():
            for theme in THEMES:
                size = {"width": pixels, "height": 1300}
                tab = browser.new_page(viewport=size, color_scheme=theme)
                tab.goto(page.as_uri())
                tab.wait_for_selector(".plot .main-svg")
                picture = FOLDER / f"page-{columns}-{theme}.png"
                tab.screenshot(path=picture)
                tab.close()
                if picture.stat().st_size > MOST:
                    sys.exit(f"{picture.name}: more than {MOST} bytes")
        browser.close()


PICTURES: dict[str, Callable[[Path], None]] = {
    "check": draw_check,
    "live": draw_live,
    "report": draw_report,
}


def stale() -> list[str]:
    """The pictures of check that are not what check prints now."""
    found = []
    for columns in WIDTHS:
        now = [Text.from_ansi(line).plain for line in checked(columns)]
        expected = [without_spaces(line) for line in now if line.strip()]
        for theme in THEMES:
            name = f"check-{columns}-{theme}.svg"
            path = FOLDER / name
            drawn = text_of(path.read_text("utf-8")) if path.exists() else []
            if drawn != expected:
                found.append(name)
    return found


def main() -> None:
    """Draw the pictures, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pictures", nargs="*", metavar="NAME", help=f"one of {', '.join(PICTURES)}")
    parser.add_argument("--check", action="store_true", help="compare the pictures of check")
    asked = parser.parse_args()
    if asked.check:
        found = stale()
        print("stale:", ", ".join(found) or "none")
        sys.exit(1 if found else 0)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for name in asked.pictures or PICTURES:
            PICTURES[name](Path(work).resolve())


if __name__ == "__main__":
    main()
