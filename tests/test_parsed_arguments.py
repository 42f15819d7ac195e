"""Where the parsed arguments are kept: in a name, in an object, bound by a test, passed on."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import changes, fixed, found, module
from ddpfix.patcher.analysis.settings.parsed_arguments import arguments_at
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.fixes.process_group import lone_process_test, on_cuda_test

PARSER = """\
import argparse, os, torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)
"""
READ = """\
+if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
+    {}.local_rank = int(os.environ['LOCAL_RANK'])
"""


@pytest.mark.parametrize(
    ("head", "plain"),
    [
        ("if (args := parser.parse_args()).local_rank == -1:", "if args.local_rank == -1:"),
        ("if ( args := parser.parse_args() ) and True:", "if args and True:"),
        ("if not (args := parser.parse_args()).debug:", "if not args.debug:"),
        ("for _ in (args := parser.parse_args()).files:", "for _ in args.files:"),
        ("with (args := parser.parse_args()).lock as _:", "with args.lock as _:"),
    ],
)
def test_a_binding_in_a_head_gets_a_statement_of_its_own(head: str, plain: str) -> None:
    before = f"{PARSER}{head}\n    print(args.local_rank)\n"
    new = f"+args = parser.parse_args()\n{READ.format('args')}+{plain}\n"
    assert f"-{head}\n{new}" in changes(before, fixed("DF101", before))


@pytest.mark.parametrize(
    "line", ["args, rest = parser.parse_known_args()", "args = parser.parse_known_args()[0]"]
)
def test_known_arguments_are_parsed_ones(line: str) -> None:
    before = f"{PARSER}{line}\nprint(args.local_rank)\n"
    assert READ.format("args") in changes(before, fixed("DF101", before))


@pytest.mark.parametrize(
    ("required", "is_told"),
    [("True", True), ("int", True), ("False", False), ("'LOCAL_RANK' not in os.environ", False)],
)
def test_an_option_that_launchers_do_not_give_is_required_of_no_rank(
    required: str, is_told: bool
) -> None:
    parser = PARSER.replace("default=-1", "required={}")
    before = parser.format(required) + "args = parser.parse_args()\nprint(args.local_rank)\n"
    assert any("has to be given" in each.because for each in found("DF101", before)) is is_told
    after = fixed("DF101", before)
    left = "'LOCAL_RANK' not in os.environ" if is_told else required
    assert f"required={left})" in after
    assert found("DF101", after) == []


def test_what_is_parsed_first_for_the_parser_is_not_what_the_script_goes_by() -> None:
    first = "known, rest = parser.parse_known_args()\n"
    before = f"{PARSER}{first}args = parser.parse_args(rest)\nprint(args.local_rank)\n"
    after = fixed("DF101", before)
    assert READ.format("args") in changes(before, after)
    assert "known.local_rank" not in after


@pytest.mark.parametrize(
    "lines",
    [
        "if flag:\n    pass\nelif (args := parser.parse_args()).debug:\n    pass",
        "while (args := parser.parse_args()).debug:\n    pass",
        "if flag and (args := parser.parse_args()).debug:\n    pass",
        "if use((args := parser.parse_args()).debug):\n    pass",
    ],
)
def test_a_binding_that_may_not_come_first_stays_where_it_is(lines: str) -> None:
    program = Program(module(PARSER + lines))
    assert not program.parse_sites


def test_an_object_keeps_the_arguments() -> None:
    before = f"{PARSER}settings.args = parser.parse_args()\nprint(settings.args.local_rank)\n"
    after = changes(before, fixed("DF101", before))
    assert f" settings.args = parser.parse_args()\n{READ.format('settings.args')}" in after


def test_an_attribute_of_self_is_another_one_in_each_class() -> None:
    text = f"{PARSER}class A:\n    def f(self):\n        self.args = parser.parse_args()\n"
    assert not Program(module(text)).parse_sites


PASSED_ON = (
    PARSER
    + """
def train(options):
    at_train
def other(settings):
    at_other
def unlike(options):
    at_unlike
def main():
    settings = make()
    settings.args = parser.parse_args()
    settings.args.device = torch.device("cpu")
    settings.args.max_steps = 3
    at_main
    train(settings.args)
    other(5)
    unlike(settings.args)
    unlike(7)
"""
)


@pytest.mark.parametrize(
    ("place", "lone", "cuda"),
    [
        (
            "at_main",
            "settings.args.local_rank == -1",
            "settings.args.device.type == 'cuda'",
        ),
        ("at_train", "options.local_rank == -1", "options.device.type == 'cuda'"),
        ("at_other", "not torch.distributed.is_initialized()", "torch.cuda.is_available()"),
        ("at_unlike", "not torch.distributed.is_initialized()", "torch.cuda.is_available()"),
    ],
)
def test_a_parameter_holds_the_arguments_where_each_call_passes_them(
    place: str, lone: str, cuda: str
) -> None:
    parsed = module(PASSED_ON)
    program = Program(parsed)
    (node,) = parsed.occurrences(place)
    assert lone_process_test(program, parsed, node) == lone
    assert on_cuda_test(program, (parsed, node)) == cuda


COUNTED = """\
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
args.n_gpu = torch.cuda.device_count()
model = torch.nn.DataParallel(torch.nn.Linear(2, 2).to(device))
for batch in torch.utils.data.DataLoader(data):
    model(batch).backward()
"""


@pytest.mark.parametrize(
    ("default", "lone"),
    [
        ("-1", "args.local_rank == -1"),
        ("0", "not torch.distributed.is_initialized()"),
        ("None", "not torch.distributed.is_initialized()"),
        ("int(os.environ['X'])", "not torch.distributed.is_initialized()"),
    ],
)
def test_a_default_marks_a_lone_process_or_does_not(default: str, lone: str) -> None:
    parser = PARSER.replace("default=-1", f"default={default}")
    before = f"{parser}args = parser.parse_args()\n{COUNTED}"
    program = Program(module(before))
    (loop,) = program.train_loops
    assert lone_process_test(program, loop.module, loop.steps) == lone
    assert ("if args.local_rank != -1:\n" in fixed("DF201", before)) is (default == "-1")


def test_a_flag_is_overwritten_in_a_function_that_gets_the_arguments() -> None:
    option = 'parser.add_argument("--max_steps", type=int)'
    text = PASSED_ON.replace("at_train", "options.max_steps = 3")
    text = text.replace("settings.args.max_steps = 3", option)
    text = text.replace("at_unlike", "options.max_steps = 4")
    assert [finding.line for finding in found("DF704", text)] == [6]


def test_what_a_head_binds_may_be_a_configuration() -> None:
    text = "if (cfg := load()).local_rank == -1:\n    print(cfg.local_rank)\n"
    after = fixed("DF101", text)
    assert "cfg = load()\nif 'LOCAL_RANK'" in after
    assert "\nif cfg.local_rank == -1:\n" in after


def test_an_object_made_of_its_own_attribute_is_no_endless_question() -> None:
    text = """
        class Node:
            def __init__(self, settings):
                self.settings = settings
            def child(self):
                return Node(self.settings)
        def main():
            args = parser.parse_args()
            return args.epochs
        """
    assert arguments_at(Program(script := module(text)), script, script.calls_to("Node")[0]) == ""


SCORER = """\
import argparse

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--makedirs")
    args = parser.parse_args()
"""
IMPORTS_IT = """\
import argparse
import scorer

def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    return args

def main():
    args = parse_args()

if __name__ == "__main__":
    main()
"""


def test_arguments_are_parsed_once_and_not_by_what_is_imported(tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text(SCORER)
    (tmp_path / "run.py").write_text(IMPORTS_IT)
    program = read_program(str(tmp_path / "run.py"))
    assert {Path(module.source.name).name for module in program.modules} == {"run.py", "scorer.py"}
    assert [stmt.lineno for _, stmt, _ in program.parse_sites] == [7]
    (alone,) = read_program(str(tmp_path / "scorer.py")).parse_sites
    assert alone[1].lineno == 6


@pytest.mark.parametrize(
    ("line", "edits"), [("cfg = set_up(cfg)", 0), ("cfg = read('settings.yaml')", 2)]
)
def test_what_is_handed_through_a_function_was_made_before_it(line: str, edits: int) -> None:
    text = f"import os, torch\n{line}\nif cfg.local_rank == -1:\n    print(cfg)\n"
    (finding,) = found("DF101", text)
    assert len(finding.edits) == edits
