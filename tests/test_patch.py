"""The engine: bytes in, bytes out, all or nothing."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import libcst as cst
import pytest
from cases import module
from ddpfix.errors import InputError
from ddpfix.fixtures.tiny import copy_family
from ddpfix.patcher.editing.apply import apply_edits
from ddpfix.patcher.editing.edits import Edit, Guard, Insert, RefusedError, Replace, Rewrite, Unwrap
from ddpfix.patcher.editing.helpers import helper_code, helper_names
from ddpfix.patcher.editing.node_pairs import pair_statements
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Severity
from ddpfix.patcher.source.comments import comments
from ddpfix.patcher.source.files import decode
from ddpfix.patcher.source.module import Module
from ddpfix.patcher.source.replacement import replace_all

# What makes a file a training program.
START = b"import torch\nfor b in bs: b.backward()\n"
LEGACY = START + b"x = b // args.n_gpu  # a comment\n"
PATCHED = START + b"x = b // max(1, args.n_gpu)  # a comment\n"


@pytest.fixture
def family(tmp_path: Path) -> Path:
    return copy_family("bigclonebench", tmp_path / "code")


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(LEGACY, PATCHED, id="plain"),
        pytest.param(
            LEGACY.replace(b"\n", b"\r\n"), PATCHED.replace(b"\n", b"\r\n"), id="Windows newlines"
        ),
        pytest.param(LEGACY.rstrip(b"\n"), PATCHED.rstrip(b"\n"), id="no newline at the end"),
        pytest.param(b"\xef\xbb\xbf" + LEGACY, b"\xef\xbb\xbf" + PATCHED, id="byte-order mark"),
        pytest.param(
            b"# coding: latin-1\n# \xe9\n" + LEGACY,
            b"# coding: latin-1\n# \xe9\n" + PATCHED,
            id="latin-1 cookie",
        ),
        pytest.param(
            "s = 'ü'; y = 'ü'  # ü\n".encode() + LEGACY,
            "s = 'ü'; y = 'ü'  # ü\n".encode() + PATCHED,
            id="wide characters",
        ),
        pytest.param(
            START + b"if a:\n\tx = b // n_gpu\n",
            START + b"if a:\n\tx = b // max(1, n_gpu)\n",
            id="tabs",
        ),
        pytest.param(
            START + b"\x0c\ny = 1\x0c\nx = b // n_gpu\n",
            START + b"\x0c\ny = 1\x0c\nx = b // max(1, n_gpu)\n",
            id="form feeds",
        ),
        pytest.param(
            START + b"y = 1; x = (b //\n  n_gpu) ; z = 2\n",
            START + b"y = 1; x = (b //\n  max(1, n_gpu)) ; z = 2\n",
            id="several statements on a line, one over two lines",
        ),
        pytest.param(
            START + b"if (a and\n    b // n_gpu):  # c\n    pass\n",
            START + b"if (a and\n    b // max(1, n_gpu)):  # c\n    pass\n",
            id="inside a test in parentheses",
        ),
    ],
)
def test_only_the_announced_words_change(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = write(tmp_path / "run.py", before)
    result = patch(path)
    assert not result.refusal
    result.write()
    assert path.read_bytes() == after
    assert patch(path).changes == ()


def test_mode_and_links_survive(tmp_path: Path) -> None:
    target = write(tmp_path / "real.py", LEGACY)
    target.chmod(0o750)
    link = tmp_path / "run.py"
    link.symlink_to(target)
    patch(link).write()
    assert link.is_symlink()
    assert target.read_bytes() == PATCHED
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert sorted(p.name for p in tmp_path.iterdir()) == ["real.py", "run.py"]


def test_several_files_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    first = decode(str(write(tmp_path / "a.py", b"a = 1\n")), b"a = 1\n")
    cookie = b"# coding: ascii\nb = 1\n"
    second = decode(str(write(tmp_path / "b.py", cookie)), cookie)
    with pytest.raises(InputError, match="encoding"):
        replace_all([(first, "a = 2\n"), (second, "b = 'ü'\n")])
    assert first.path.read_bytes() == b"a = 1\n"
    assert second.path.read_bytes() == cookie
    assert len(list(tmp_path.iterdir())) == 2


def test_family_a_is_patched_clean_stable_and_self_contained(family: Path) -> None:
    result = patch(family)
    assert result.refusal == ""
    assert result.remaining == []
    result.write()
    text = family.read_text()
    assert "ddpfix" not in text
    assert {finding.severity for finding in patch(family).findings_before} == {Severity.NOTE}
    assert patch(family).changes == ()
    assert compile(text, "run.py", "exec")


# Lines that a rewrite of the whole file would tidy up; they stand between functions.
UNTIDY = (b"x = 1   \n", b"\t\n", b"   \n", b"y = {'a':1 ,'b' : 2}\n", b"# \xc3\xbc \n")


def test_lines_that_no_hunk_announces_are_the_same_bytes(family: Path) -> None:
    before = family.read_bytes()
    for odd, place in zip(UNTIDY, (4, 3, 2, 1, 0), strict=True):
        functions = before.split(b"\ndef ")
        functions[place] += b"\n" + odd
        before = b"\ndef ".join(functions)
    family.write_bytes(before)
    result = patch(family)
    diff = result.diff()
    result.write()
    after = family.read_bytes()
    assert applied(before.decode(), diff).encode() == after
    assert [after.count(odd) for odd in UNTIDY] == [before.count(odd) for odd in UNTIDY]
    removed = [line for line in diff.splitlines()[2:] if line.startswith("-")]
    assert 0 < len(removed) < 0.12 * len(before.splitlines())


def applied(text: str, diff: str) -> str:
    """A text after a unified diff, read by the numbers of its hunks."""
    lines, found, place = text.split("\n"), [], 0
    for line in diff.rstrip("\n").split("\n")[2:]:
        if line.startswith("@@"):
            start = -int(line.split()[1].split(",")[0]) - 1
            assert start >= place
            found += lines[place:start]
            place = start
        elif line.startswith("+"):
            found.append(line[1:])
        else:
            assert lines[place] == line[1:], "what a hunk shows is there"
            found += [line[1:]] if line[0] == " " else []
            place += 1
    return "\n".join(found + lines[place:])


OLD = """
import torch
from transformers import glue_processors
model = torch.nn.DataParallel(torch.nn.Linear(2, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader(data, batch_size=2, shuffle=True):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
glue_processors["mnli"]()
"""


@pytest.mark.parametrize("ignored", ["DF901", "df9", "DF901,DF601"])
def test_errors_of_ignored_rules_are_left_to_the_user(ignored: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(OLD)
    assert patch(script).refusal.endswith(
        "if you keep an older library, `--ignore DF901` leaves it as it is"
    )
    result = patch(script, ignore=ignored.split(","))
    assert result.refusal == ""
    assert "DistributedDataParallel(" in result.diff()
    assert [each.code for each in result.remaining].count("DF901") == 1


@pytest.mark.parametrize(("ignored", "obligation"), [("DF401", "O4"), ("DF301", "O2")])
def test_the_audit_judges_what_is_ignored(ignored: str, obligation: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(OLD.replace("glue_processors", "models"))
    assert patch(script).refusal == ""
    assert f"would not keep {obligation} " in patch(script, ignore=[ignored]).refusal


def test_windows_newlines_stay_in_the_whole_family(family: Path) -> None:
    unix = patch(family).changes[0].text
    family.write_bytes(family.read_bytes().replace(b"\n", b"\r\n"))
    assert patch(family).changes[0].text == unix.replace("\n", "\r\n")


@pytest.mark.parametrize("code", ["DF101", "DF501", "DF503"])
def test_a_part_of_the_set_that_would_leave_a_live_hazard_is_refused(
    family: Path, code: str
) -> None:
    before = family.read_bytes()
    result = patch(family, select=[code])
    assert "errors would be left" in result.refusal
    assert result.changes == ()
    with pytest.raises(InputError, match="not patched"):
        result.write()
    assert family.read_bytes() == before


def test_a_script_that_cannot_be_repaired_whole_is_left_alone(tmp_path: Path) -> None:
    text = LEGACY + b"def f():\n  if args.local_rank == 0:\n    torch.distributed.all_reduce(x)\n"
    path = write(tmp_path / "run.py", text)
    assert "DF506 line 6" in patch(path).refusal


def test_dead_set_up_code_says_nothing_of_the_device(tmp_path: Path) -> None:
    text = (
        b"import argparse, torch\n"
        b"def unused(args):\n    args.device = torch.device('cpu')\n"
        b"def main():\n    args = argparse.ArgumentParser().parse_args()\n"
        b"    torch.distributed.init_process_group('gloo')\n"
        b"    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[0])\n"
        b"if __name__ == '__main__':\n    main()\n"
    )
    path = write(tmp_path / "run.py", text)
    assert "[0] if torch.cuda.is_available() else None" in patch(path, select=["DF202"]).diff()
    live = text.replace(b"    torch.dist", b"    unused(args)\n    torch.dist")
    assert (
        "[0] if args.device.type == 'cuda' else None"
        in patch(write(path, live), select=["DF202"]).diff()
    )


def test_code_that_nothing_comes_to_is_left_alone(tmp_path: Path) -> None:
    text = (
        b"import torch\n"
        b"def old(args):\n    torch.distributed.init_process_group(backend='nccl')\n"
        b"def main(model):\n    for batch in batches:\n        model(batch).backward()\n"
        b"    torch.distributed.init_process_group(backend='gloo')\n"
        b"if __name__ == '__main__':\n    main(net)\n"
    )
    path = write(tmp_path / "run.py", text)
    assert "line 3" not in " ".join(
        f"line {finding.line}" for finding in patch(path).findings_before
    )
    started_elsewhere = text[: text.index(b"if __name__")] + b"if __name__ == '__main__': go()\n"
    assert 3 in [finding.line for finding in patch(write(path, started_elsewhere)).findings_before]


def test_a_helper_of_the_same_name_is_kept(family: Path) -> None:
    text = family.read_text()
    own = "def is_main_process():\n    return torch.distributed.get_rank() == 0\n\n\n"
    family.write_text(text.replace("def set_seed", own + "def set_seed", 1))
    assert patch(family).changes[0].text.count("def is_main_process") == 1


def statements(text: str) -> Module:
    return module(text)


def test_edits_at_one_statement_stack_in_order() -> None:
    script = statements("""
        # above
        a = 1  # beside
        if a:
            b = 2
        c = 3
        """)
    first, gate, last = script.tree.body
    assert isinstance(first, ast.Assign)
    assert isinstance(gate, ast.If)
    text = apply_edits(
        script,
        [
            Insert(first, "before = 0"),
            Insert(first, "after = 0", "after"),
            Rewrite(first.value, "10"),
            Insert(gate, "first = 0", "first"),
            Insert(gate, "last = 0", "last"),
            Unwrap(gate),
            Guard(last, "a"),
        ],
    )
    assert text == (
        "# above\nbefore = 0\na = 10  # beside\nafter = 0\n"
        "first = 0\nb = 2\nlast = 0\nif a:\n    c = 3\n"
    )


def test_removing_the_only_statement_of_a_block_leaves_a_pass() -> None:
    script = statements("if a:\n    b()\nc()\n")
    gate = script.tree.body[0]
    assert isinstance(gate, ast.If)
    assert apply_edits(script, [Replace(gate.body[0], "")]) == "if a:\n    pass\nc()\n"


def test_a_place_that_takes_no_statement_is_refused() -> None:
    script = statements("a = 1\n")
    with pytest.raises(RefusedError, match="line 1"):
        apply_edits(script, [Insert(script.tree.body[0], "c = 3", "first")])


def library_files() -> list[Path]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    return sorted(folder.glob("*.py"))[::4]


@pytest.mark.parametrize("path", library_files(), ids=lambda path: path.name)
def test_statements_of_both_trees_are_paired_rightly(path: Path) -> None:
    data = path.read_bytes()
    source = decode(str(path), data)
    tree = cst.parse_module(source.text)
    script = Module(source)
    paired = dict(pair_statements(script.tree.body, tree.body))
    every = [node for node in ast.walk(script.tree) if isinstance(node, ast.stmt)]
    assert set(paired) == set(every)
    for stmt, node in paired.items():
        if not isinstance(stmt, ast.FunctionDef | ast.ClassDef | ast.If | ast.AsyncFunctionDef):
            assert tree.code_for_node(node).strip().startswith(first_word(script, stmt, node))


def first_word(script: Module, stmt: ast.stmt, node: cst.CSTNode) -> str:
    code = script.text(stmt).split("\n")[0].split(" ")[0]
    leading = getattr(node, "leading_lines", ())
    return "" if any(line.comment for line in leading) else code


def rows(body: list[ast.stmt]) -> list[list[ast.stmt]]:
    """Statements by the lines that they stand on: ``a; b`` together."""
    groups: list[list[ast.stmt]] = []
    for stmt in body:
        if groups and stmt.lineno == groups[-1][-1].end_lineno:
            groups[-1].append(stmt)
        else:
            groups.append([stmt])
    return groups


class Edited(ast.NodeTransformer):
    """Does to a tree what edits at all of its statements do to its text."""

    def __init__(self, whole: list[ast.stmt], guarded: list[ast.stmt]) -> None:
        self.whole, self.guarded = set(map(place, whole)), set(map(place, guarded))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                new = [part for stmt in block for part in self.around(stmt)]
                setattr(node, name, new)
        if isinstance(node, ast.stmt) and place(node) in self.whole:
            vars(node)["body"] = [*marks("first"), *vars(node)["body"], *marks("last")]
        return node

    def around(self, stmt: ast.stmt) -> list[ast.stmt]:
        if place(stmt) in self.guarded:
            gate = ast.If(ast.Name("gate", ast.Load()), [stmt], [])
            return [*marks("before"), gate, *marks("after")]
        return [stmt]


def place(node: ast.AST) -> tuple[int, int, int, int]:
    ends = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    line, column, last, end = (getattr(node, name, 0) for name in ends)
    return line, column, last, end


def marks(name: str) -> list[ast.stmt]:
    return ast.parse(mark(name)).body


def mark(name: str) -> str:
    return f"if {name}:\n    '''a\nb'''"


@pytest.mark.parametrize("step", [1, 13], ids=["every statement", "few statements"])
@pytest.mark.parametrize("path", library_files(), ids=lambda path: path.name)
def test_edits_do_what_they_say(path: Path, step: int) -> None:
    script = Module(decode(str(path), path.read_bytes()))
    lines = script.source.text.encode().splitlines()
    alone, whole = [], []
    for node in ast.walk(script.tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for group in rows(block) if isinstance(block, list) else []:
                first = group[0]
                head = lines[first.lineno - 1][: first.col_offset]
                is_elif = isinstance(first, ast.If) and name == "orelse" and block == [first]
                if len(group) > 1 or head.strip() or (is_elif and isinstance(node, ast.If)):
                    continue
                if isinstance(first, ast.ImportFrom) and first.module == "__future__":
                    continue
                alone.append(first)
                inner = getattr(first, "body", [])
                if inner and not lines[inner[0].lineno - 1][: inner[0].col_offset].strip():
                    whole.append(first)
    alone, whole = alone[::step], whole[::step]
    edits: list[Edit] = [Insert(s, mark(w), w) for s in alone for w in ("before", "after")]
    edits += [Insert(s, mark(w), w) for s in whole for w in ("first", "last")]
    edits += [Guard(stmt, "gate") for stmt in alone]
    text = apply_edits(script, edits)
    expected = Edited(whole, alone).visit(ast.parse(script.source.text))
    assert ast.dump(ast.parse(text)) == ast.dump(expected)
    assert all(text.count(comment.text) >= 1 for comment in comments(script.source.text))


def test_helpers_are_named_and_cut_out_whole() -> None:
    assert helper_names() >= {"is_main_process", "save_on_main", "gathered", "loss_share"}
    for name in helper_names():
        (stmt,) = ast.parse(helper_code(name)).body
        assert getattr(stmt, "name", None) == name
    assert helper_code("staging_folder").startswith("@contextlib.contextmanager\ndef ")


def test_check_needs_neither_torch_nor_libcst(family: Path) -> None:
    code = (
        "import sys; from ddpfix.cli import ddpfix\n"
        f"try: ddpfix(['check', {str(family)!r}])\n"
        "except SystemExit as e: assert e.code == 1, e.code\n"
        "bad = {'torch', 'libcst', 'transformers', 'rich', 'attrs'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_library_is_left_to_those_who_call_it(tmp_path: Path) -> None:
    text = b"import torch\ndef save(model, path):\n    torch.save(model, path)\n"
    assert patch(write(tmp_path / "library.py", text)).findings_before == ()
    group = b"torch.distributed.init_process_group('gloo')\n"
    script = START + group + b"from library import save\nsave(1, 'x')\n"
    result = patch(write(tmp_path / "run.py", script))
    (finding,) = [each for each in result.findings_before if each.code == "DF601"]
    assert finding.module.source.path.name == "library.py"
    assert finding.edits


def test_the_script_is_never_run(tmp_path: Path) -> None:
    trap = b"import torch, os\nos.mkdir('ran')\nfor b in bs: b.backward()\nx = a // args.n_gpu\n"
    path = write(tmp_path / "run.py", trap)
    old = Path.cwd()
    os.chdir(tmp_path)
    try:
        patch(path).write()
    finally:
        os.chdir(old)
    assert not (tmp_path / "ran").exists()


def test_edits_that_come_back_are_refused_with_a_way_out(
    family: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddpfix.patcher.engine.patch.MAX_ROUNDS", 1)
    result = patch(family)
    assert result.changes == ()
    assert "comes back in the next round" in result.refusal
    assert "--ignore DF" in result.refusal


def test_a_refusal_names_the_manual_of_what_is_left(family: Path) -> None:
    refusal = patch(family, select=["DF101"]).refusal
    assert "repair by hand what `ddpfix explain` says of DF" in refusal
