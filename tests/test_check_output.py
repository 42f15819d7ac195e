"""What check says, in every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import LEGACY, run
from ddpfix.patcher.codes import all_codes
from ddpfix.patcher.frontend.output import command
from pydantic import ValidationError

# Generated from the official JSON schema of SARIF 2.1.0.
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as SarifLog


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.py"
    path.write_text(LEGACY)
    return path


COMMANDS = [
    pytest.param({}, "all went well", "::error::all went well", id="no properties"),
    pytest.param({"line": 3}, "a: b, c", "::error line=3::a: b, c", id="message keeps its colons"),
    pytest.param({}, "100%\r\nb", "::error::100%25%0D%0Ab", id="message of two lines"),
    pytest.param({"file": "C:\\a,b.py"}, "x", "::error file=C%3A\\a%2Cb.py::x", id="odd path"),
    pytest.param({"title": "5%:\n"}, "x", "::error title=5%25%3A%0A::x", id="odd title"),
]


@pytest.mark.parametrize(("properties", "message", "expected"), COMMANDS)
def test_workflow_commands_escape_what_would_end_a_part(
    properties: dict[str, object], message: str, expected: str
) -> None:
    assert command("error", properties, message).replace("::error::", "::error::") == expected


def test_github_names_file_line_and_column(script: Path) -> None:
    result = run("check", "--output-format", "github", script)
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(
        f"::error file={script},line=3,col=5,endLine=3,endColumn=24,title=ddpfix (DF203)::"
    )


def test_github_tells_of_unreadable_files_too(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import torch\nprint 'Python 2'\n")
    result = run("check", "--output-format", "github", tmp_path)
    assert result.exit_code == 2
    place = f"file={tmp_path / 'bad.py'},line=2"
    assert result.stdout.startswith(f"::error {place},title=ddpfix::")
    assert "bad.py:2: not valid Python" in result.stdout


def sarif(*arguments: object) -> Any:
    return json.loads(run("check", "--output-format", "sarif", *arguments).stdout)


def test_sarif_fits_the_schema_and_names_place_rule_and_level(tmp_path: Path) -> None:
    script = tmp_path / "a b.py"
    script.write_text(LEGACY)
    (tmp_path / "bad.py").write_text("import torch\nprint 'Python 2'\n")
    log = sarif(tmp_path)
    SarifLog.model_validate(log)
    (one,) = log["runs"]
    (result,) = one["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == f"file://{tmp_path}/a%20b.py"
    assert (place["region"]["startLine"], place["region"]["startColumn"]) == (3, 5)
    assert result["level"] == "error"
    rules = one["tool"]["driver"]["rules"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "DF203"
    assert [rule["id"] for rule in rules] == all_codes()
    assert all("Fix safety" in rule["help"]["text"] for rule in rules)
    (invocation,) = one["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "bad.py:2" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_the_schema_would_refuse_another_level(script: Path) -> None:
    log = sarif(script)
    log["runs"][0]["results"][0]["level"] = "degraded"
    with pytest.raises(ValidationError, match="level"):
        SarifLog.model_validate(log)


def test_sarif_of_nothing_is_a_whole_log(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("import torch\n")
    log = sarif(tmp_path)
    SarifLog.model_validate(log)
    assert log["runs"][0]["results"] == []


def test_columns_count_characters(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(LEGACY.replace("x =", "größe, x = 0,"), encoding="utf-8")
    (row,) = json.loads(run("check", "--output-format", "json", script).stdout)
    assert row["column"] == LEGACY.splitlines()[2].index("batch") + len("größe,  0,") + 1


def test_statistics_count_per_code(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LEGACY + "y = batch // args.n_gpu\n")
    (tmp_path / "b.py").write_text(LEGACY.replace("bs:", "list(bs):"))
    result = run("check", "--statistics", tmp_path)
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.split(maxsplit=4)[:4] == ["3", "DF203", "3", "fixable"]
    rows = json.loads(run("check", "--statistics", "--output-format", "json", tmp_path).stdout)
    assert [(row["code"], row["count"], row["fixable"]) for row in rows] == [("DF203", 3, 3)]


def test_exit_zero_hides_findings_and_not_failures(tmp_path: Path, script: Path) -> None:
    result = run("check", "--exit-zero", script)
    assert (result.exit_code, "DF203" in result.stdout) == (0, True)
    (tmp_path / "bad.py").write_text("import torch\nprint 'Python 2'\n")
    assert run("check", "--exit-zero", tmp_path).exit_code == 2
