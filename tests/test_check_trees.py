"""Trees that a check is done with are let go, and those that the next script needs are not."""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpfix.patcher import module, project, trees
from ddpfix.patcher.cache import Cache, Record
from ddpfix.patcher.check_files import examine
from ddpfix.patcher.places import real, real_folder
from ddpfix.patcher.rules import all_rules

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
def nothing_kept() -> Iterator[None]:
    for kept in (module.SHARED, project.MODULES):
        kept.clear()
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts that are parsed, in order."""
    texts: list[str] = []
    parse = trees.ast.parse

    def recorded(text: str) -> ast.Module:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr(trees.ast, "parse", recorded)
    return texts


def checked(path: Path) -> Record:
    return examine(str(path), CODES, Cache(None, ""))


def nodes() -> int:
    return sum(issubclass(type(each), ast.AST) for each in gc.get_objects())


def test_a_checked_program_leaves_no_nodes(tmp_path: Path) -> None:
    first = tmp_path / "first.py"
    first.write_text(PROGRAM.format(name="steps"))
    before = nodes()
    assert checked(first).found
    assert nodes() == before


def test_a_module_that_two_scripts_import_is_parsed_once(tmp_path: Path, parsed: list[str]) -> None:
    (tmp_path / "steps.py").write_text(MODULE)
    scripts = [tmp_path / "a.py", tmp_path / "b.py"]
    for script in scripts:
        script.write_text(f"# {script.name}\n" + PROGRAM.format(name="steps"))
    found = [checked(tmp_path / name).found for name in ("steps.py", "a.py", "b.py")]
    assert parsed.count(MODULE) == 1
    assert len(parsed) == 3
    assert "steps.py" in {row[0] for row in found[1]}
    assert found[1] == found[2]


def test_a_module_is_read_once_for_all_scripts_beside_it(tmp_path: Path) -> None:
    module_file, known = tmp_path / "steps.py", Cache(None, "")
    module_file.write_text(MODULE)
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(PROGRAM.format(name="steps"))
    first = examine(str(tmp_path / "a.py"), CODES, known)
    module_file.write_text("")  # a check sees the file as it found it
    assert known.source(str(module_file)).text == MODULE
    assert examine(str(tmp_path / "b.py"), CODES, known).found == first.found


def test_a_program_that_others_import_is_whole_for_all_of_them(tmp_path: Path) -> None:
    """Checked alone it is let go; it has to be read again, or the same tree is two scripts'."""
    base, user = tmp_path / "base.py", tmp_path / "user.py"
    base.write_text(PROGRAM.format(name="steps"))
    user.write_text(PROGRAM.format(name="base"))
    copy = tmp_path / "copy" / "base.py"
    copy.parent.mkdir()
    copy.write_text(base.read_text())
    paths = [base, user, copy, base, user, copy]
    found = [checked(path).found for path in paths]
    assert found[:3] == found[3:]
    assert "base.py" in {row[0] for row in found[1]}
    assert found[0] == found[2]


def test_only_so_many_modules_are_kept(tmp_path: Path, parsed: list[str]) -> None:
    most = module.MOST_RECENT
    paths = [tmp_path / f"m{number}.py" for number in range(most + 1)]
    for path in paths:
        path.write_text(f"import torch\n# {path.name}\n")
        checked(path)
    assert len(project.MODULES) == most
    assert len(module.SHARED) == most
    checked(paths[-1])
    assert len(parsed) == most + 1
    checked(paths[0])
    assert len(parsed) == most + 2


def test_real_places_are_those_of_the_operating_system(tmp_path: Path) -> None:
    here = tmp_path / "here" / "deep"
    here.mkdir(parents=True)
    (here / "a.py").touch()
    (tmp_path / "there").symlink_to(tmp_path / "here")
    (here / "self").symlink_to(here)
    (here / "b.py").symlink_to("a.py")
    (here / "gone.py").symlink_to("nothing.py")
    folders = ["here/deep", "there", "there/deep", "there/deep/self", "there/deep/self/self"]
    for folder in ["", ".", *folders, "not/there", "there/../here"]:
        path = str(tmp_path / folder)
        assert real_folder(path) == os.path.realpath(path)
        for name in ("a.py", "b.py", "gone.py"):
            assert real(f"{path}/{name}") == os.path.realpath(f"{path}/{name}")
    assert real_folder("/") == "/"
