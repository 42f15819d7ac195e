"""Files that several scripts import are read and parsed once, and only so many stay in memory."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from ddpfix.patcher.frontend.cache import Cache, CacheEntry
from ddpfix.patcher.frontend.checker import check_script
from ddpfix.patcher.rules import all_rules
from ddpfix.patcher.source import module

CODES = tuple(rule.code for rule in all_rules())
PROGRAM = """\
import torch, {name}
for batch in loader:
    batch.backward()
x = 8 // args.n_gpu
if __name__ == "__main__":
    main()
"""
MODULE = "import torch\ndef f(args):\n    return 8 // args.n_gpu\n"


@pytest.fixture(autouse=True)
def nothing_cached() -> None:
    module.parse_and_number.cache_clear()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts that are parsed, in order."""
    texts: list[str] = []
    parse = ast.parse

    def recorded(text: str) -> ast.Module:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr(ast, "parse", recorded)
    return texts


def checked(path: Path) -> CacheEntry:
    return check_script(str(path), CODES, Cache(None, ""))


def test_a_module_that_two_scripts_import_is_parsed_once(tmp_path: Path, parsed: list[str]) -> None:
    (tmp_path / "steps.py").write_text(MODULE)
    scripts = [tmp_path / "a.py", tmp_path / "b.py"]
    for script in scripts:
        script.write_text(f"# {script.name}\n" + PROGRAM.format(name="steps"))
    found = [checked(tmp_path / name).diagnostics for name in ("steps.py", "a.py", "b.py")]
    assert parsed.count(MODULE) == 1
    assert len(parsed) == 3
    assert "steps.py" in {item.path for item in found[1]}
    assert found[1] == found[2]


def test_a_module_is_read_once_for_all_scripts_beside_it(tmp_path: Path) -> None:
    module_file, known = tmp_path / "steps.py", Cache(None, "")
    module_file.write_text(MODULE)
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(PROGRAM.format(name="steps"))
    first = check_script(str(tmp_path / "a.py"), CODES, known)
    module_file.write_text("")  # a check sees the file as it found it
    assert known.source(str(module_file)).text == MODULE
    assert check_script(str(tmp_path / "b.py"), CODES, known).diagnostics == first.diagnostics


def test_a_program_that_others_import_is_whole_for_all_of_them(tmp_path: Path) -> None:
    base, user = tmp_path / "base.py", tmp_path / "user.py"
    base.write_text(PROGRAM.format(name="steps"))
    user.write_text(PROGRAM.format(name="base"))
    copy = tmp_path / "copy" / "base.py"
    copy.parent.mkdir()
    copy.write_text(base.read_text())
    paths = [base, user, copy, base, user, copy]
    found = [checked(path).diagnostics for path in paths]
    assert found[:3] == found[3:]
    assert "base.py" in {item.path for item in found[1]}
    assert found[0] == found[2]


def test_only_so_many_modules_are_kept(tmp_path: Path, parsed: list[str]) -> None:
    most = module.MAX_CACHED_FILES
    paths = [tmp_path / f"m{number}.py" for number in range(most + 1)]
    for path in paths:
        path.write_text(f"import torch\n# {path.name}\n")
        checked(path)
    assert module.parse_and_number.cache_info().currsize == most
    checked(paths[-1])
    assert len(parsed) == most + 1
    checked(paths[0])
    assert len(parsed) == most + 2
