"""``check --edits``: the repairs as data, which another program can apply."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from command_line import LEGACY, run
from ddpfix.patcher.api import patch
from ddpfix.patcher.editing.text_edits import text_edits
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as SarifLog

SHAPES = ROOT / "fixtures" / "shapes"
WITH_EDITS = ("check", "--edits", "--output-format")


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    """The text after edits, found by counting lines and characters as any editor would."""
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:row]) for row in range(len(lines))]

    def offset(place: dict[str, int]) -> int:
        return starts[place["row"] - 1] + place["column"] - 1

    for edit in sorted(edits, key=lambda one: -offset(one["location"])):
        start, end = offset(edit["location"]), offset(edit["end_location"])
        text = text[:start] + edit["content"] + text[end:]
    return text


def contents(path: Path) -> str:
    return path.read_bytes().decode()


def checked(*arguments: object, stdin: bytes | None = None) -> Any:
    return json.loads(run(*WITH_EDITS, "json", *arguments, stdin=stdin).stdout)


SCRIPTS = [
    "dataparallel_module_level.py",  # the wrapper alone is wrong without the sampler
    "dataparallel_in_train.py",
    "argparse_in_function.py",
    "token_means.py",
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_edits_make_what_patch_writes(tmp_path: Path, name: str) -> None:
    script = tmp_path / "größe.py"
    script.write_bytes((SHAPES / name).read_bytes())
    before = contents(script)
    found = checked(script)
    (whole,) = found["fixes"]
    (file,) = whole["files"]
    assert file["path"] == str(script)
    text = applied(before, file["edits"])
    (change,) = patch(script).changes
    assert text == change.text != before
    assert contents(script) == before
    parts = [one for one in found["findings"] if one["fix"]]
    assert parts
    counts = Counter(one["code"] for one in found["findings"])
    for code in {one["code"] for one in parts}:
        (edits,) = {json.dumps(one["fix"]["edits"]) for one in parts if one["code"] == code}
        left = Counter(codes(applied(before, json.loads(edits)), script))
        assert left[code] == 0
        assert left <= counts


def codes(text: str, script: Path) -> list[str]:
    words = "check", "--output-format", "json", "--stdin-filename", script, "-"
    return [one["code"] for one in json.loads(run(*words, stdin=text.encode()).stdout)]


def test_a_finding_whose_repair_needs_the_others_has_no_fix_of_its_own(tmp_path: Path) -> None:
    found = checked(SHAPES / "dataparallel_module_level.py")
    alone = {one["code"]: one["fix"] is not None for one in found["findings"]}
    assert alone["DF602"]
    assert not alone["DF201"]  # ranks that train on the same data


def test_several_files_are_one_repair(tmp_path: Path) -> None:
    folder = shutil.copytree(SHAPES / "sibling_args", tmp_path / "code")
    (folder / "again.py").write_bytes((folder / "run.py").read_bytes())
    before = {str(path): contents(path) for path in folder.glob("*.py")}
    found = checked(folder)
    edits = {file["path"]: file["edits"] for whole in found["fixes"] for file in whole["files"]}
    run("patch", folder)
    after = {str(path): contents(path) for path in folder.glob("*.py")}
    changed = {path for path in before if after[path] != before[path]}
    assert edits.keys() == changed
    assert len(changed) > 2
    assert {path: applied(before[path], edits[path]) for path in changed} == {
        path: after[path] for path in changed
    }


def test_what_patch_refuses_has_no_edits(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    text = (SHAPES / "results_by_queue.py").read_text()
    script.write_text(text.replace("    if rank == 0:\n", "    if rank >= 0:\n"))
    assert patch(script).refusal
    found = checked(script)
    assert found["findings"]
    assert found["fixes"] == []
    assert all(one["fix"] is None for one in found["findings"])


def test_sarif_carries_the_same_edits(tmp_path: Path) -> None:
    script = tmp_path / "a b.py"
    script.write_bytes((SHAPES / "dataparallel_in_train.py").read_bytes())
    log = json.loads(run(*WITH_EDITS, "sarif", script).stdout)
    SarifLog.model_validate(log)
    fixes = [fix for one in log["runs"][0]["results"] for fix in one.get("fixes", ())]
    (whole,) = (fix for fix in fixes if fix["description"]["text"].startswith(f"Repair {script}"))
    (change,) = whole["artifactChanges"]
    assert change["artifactLocation"]["uri"] == f"file://{tmp_path}/a%20b.py"
    edits = [
        {
            "content": one["insertedContent"]["text"],
            "location": {
                "row": one["deletedRegion"]["startLine"],
                "column": one["deletedRegion"]["startColumn"],
            },
            "end_location": {
                "row": one["deletedRegion"]["endLine"],
                "column": one["deletedRegion"]["endColumn"],
            },
        }
        for one in change["replacements"]
    ]
    run("patch", script)
    assert applied((SHAPES / "dataparallel_in_train.py").read_text(), edits) == contents(script)
    assert len(fixes) > 1


def test_standard_input_has_edits_too() -> None:
    text = (SHAPES / "dataparallel_module_level.py").read_text()
    (whole,) = checked("-", stdin=text.encode())["fixes"]
    after = run("patch", "-", stdin=text.encode()).stdout
    assert applied(text, whole["files"][0]["edits"]) == after


@pytest.mark.parametrize("words", [[], ["--output-format=full"], ["--statistics"]])
def test_other_formats_have_no_edits(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "run.py").write_text(LEGACY)
    result = run("check", "--edits", *words, tmp_path)
    assert (result.exit_code, "--output-format json or sarif" in result.stderr) == (2, True)


TEXTS = [
    ("a\nb\n", "a\nb"),
    ("a\nb", "a\nc\nd"),
    ("", "a\n"),
    ("a\n", ""),
    ("a\r\nb\r\n", "a\r\nx\r\nb\r\n"),
    ("a\fb\u2028c\nd\n", "a\fb\u2028c\ne\n"),
    ("a\n", "b\na\nc\n"),
]


@pytest.mark.parametrize(("before", "after"), TEXTS)
def test_edits_of_any_ending(before: str, after: str) -> None:
    edits = [
        {
            "content": one.content,
            "location": {"row": one.line, "column": one.column},
            "end_location": {"row": one.end_line, "column": one.end_column},
        }
        for one in text_edits(before, after)
    ]
    assert applied(before, edits) == after
