"""``ddpfix verify``: what holds is said to hold, and what cannot be proven is never passed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from ddpfix import fixtures
from ddpfix.cli import ddpfix
from ddpfix.errors import InputError
from ddpfix.fixtures.tiny import build_clone_data, build_model, clone_arguments, copy_family
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.running.runner import RunOutcome
from ddpfix.launchers.script import flags as script_flags
from ddpfix.launchers.verify import scripts as subject
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.launchers.verify.compare_training import pairs_to_compare
from ddpfix.launchers.verify.evidence import Evidence, Row, RunTrace
from ddpfix.launchers.verify.matrix import plan_splits
from ddpfix.launchers.verify.output_files import different_files
from ddpfix.launchers.verify.prediction_order import only_label
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.traced_run import TracedRun, run_traced, traced_command
from ddpfix.launchers.verify.verifier import Verdict, verify
from ddpfix.patcher.engine.patch import patch
from forked import Forge
from lone_copies import lone_copy
from sabotage import SABOTAGES, spoil, write

SHAPES = Path(fixtures.__file__).parent / "shapes"
PROVEN = {f"C{number}" for number in range(1, 10)}


def statuses(verdict: Verdict) -> dict[str, str]:
    return {row.code: row.status for row in verdict.rows}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, forge: Forge) -> Verdict:
    """The verdict on the small script, unpatched as it is, for 20 examples in batches of 8."""
    folder = tmp_path_factory.mktemp("small")
    script, arguments = write(folder)
    before = script.read_bytes()
    verdict = verify(VerifyRequest(script, arguments), folder=folder / "runs", start=forge.trace)
    assert script.read_bytes() == before, "verify changed the user's script"
    assert not (folder / "out").exists(), "a run wrote to the user's output folder"
    return verdict


def test_a_correct_patch_holds_in_every_row(small: Verdict) -> None:
    assert {c for c, status in statuses(small).items() if status == "holds"} == PROVEN
    assert "flags passed is overwritten" in small.row("C8").evidence
    assert small.exit_status == 0
    assert small.holds
    assert [run.name for run in small.runs] == [
        *("original", "patched", "x1", "x2"),
        "x2, accumulation 2",
    ]


def test_original_and_patched_run_with_dropout_and_groups_without(small: Verdict) -> None:
    first, second, *groups = small.runs
    assert compare.steps(first.ranks) == compare.steps(second.ranks)
    options = [run.ranks[0].start.options["no_dropout"] for run in (first, second, *groups)]
    assert options == [False, False, True, True, True]
    assert [run.world_size for run in small.runs] == [None, None, 1, 2, 2]


def test_every_global_batch_is_shared_out_and_stepped_on_whole(small: Verdict) -> None:
    one, two, accumulated = (compare.global_batches(run.ranks) for run in small.evidence.groups)
    assert one == two == accumulated
    assert [len(draw.indices) for draw in one] == [8, 8, 4] * 2
    assert [draw.ends_epoch for draw in one] == [False, False, True] * 2
    assert [draw.epochs for draw in one] == [(0,)] * 3 + [(1,)] * 3


@pytest.mark.parametrize(
    ("where", "status"),
    [
        pytest.param("len(labels) == 8", "holds", id="in any whole batch, as a product's rounding"),
        pytest.param("distributed.is_initialized()", "holds", id="in every group alike"),
        pytest.param("distributed.get_world_size() == 2", "broken", id="in two ranks alone"),
    ],
)
def test_norms_a_little_off_are_rounding_where_one_process_has_them_in_smaller_batches(
    tmp_path: Path, forge: Forge, where: str, status: str
) -> None:
    script, arguments = write(tmp_path)
    plant(script, where)
    verdict = verify(
        VerifyRequest(script, arguments, as_is=True, accumulations=(1,)), start=forge.trace
    )
    row = verdict.row("C3")
    assert row.status == status, row.evidence
    if where.startswith("len"):
        assert "x2: the norm is 3.0e-05 off x1 by rounding" in row.evidence
        assert "x1, accumulation 2 has as small ones" in row.evidence
    if status == "broken":
        assert "x2: the gradient norm of step 1 is 3.0e-05 off x1 (" in row.evidence


@pytest.mark.parametrize(
    ("where", "status"),
    [
        pytest.param("len(labels) == 8", "holds", id="in any whole batch"),
        pytest.param(
            "distributed.get_world_size() == 1 and len(labels) == 4",
            "broken",
            id="in one process that accumulates",
        ),
    ],
)
def test_no_run_speaks_for_its_own_rounding(
    tmp_path: Path, forge: Forge, where: str, status: str
) -> None:
    script, arguments = write(tmp_path, train=16)
    plant(script, where)
    verdict = verify(
        VerifyRequest(script, arguments, as_is=True, all_splits=True), start=forge.trace
    )
    row = verdict.row("C3")
    assert row.status == status, row.evidence
    if status == "holds":
        assert "x2: the norm is 3.0e-05 off x1 by rounding" in row.evidence
        assert "x1, accumulation 2: the norm is 3.0e-05 off x1 by rounding" in row.evidence
        assert "x2 has as small ones" in row.evidence
    else:
        assert "x1, accumulation 2: the gradient norm of step 1 is 3.0e-05 off x1 (" in row.evidence


def plant(script: Path, where: str) -> None:
    """Patch a script, whose gradients are then a little too large in groups, where that holds."""
    patch(script).write()
    text = script.read_text()
    old = "return nn.functional.cross_entropy(logits, labels), logits"
    assert old in text
    script.write_text(
        text.replace(
            old,
            "from torch import distributed\n"
            "        loss = nn.functional.cross_entropy(logits, labels)\n"
            f"        far = 3e-5 if distributed.is_initialized() and {where} else 0.0\n"
            "        return loss + far * (loss - loss.detach()), logits",  # the gradient alone
        )
    )


def test_padding_is_named_and_scores_are_compared_at_equal_weights(
    tmp_path: Path, forge: Forge
) -> None:
    script, arguments = write(tmp_path, train=19)  # 19 is odd: 2 ranks repeat one example
    verdict = verify(VerifyRequest(script, arguments), start=forge.trace)
    row = verdict.row("C3")
    assert row.status == "holds", verdict.rows
    assert "step 3 (last of its epoch) repeats 1 example as padding" in row.evidence
    assert verdict.row("C4").status in ("holds", "unproven")
    assert verdict.broken == ()


def test_a_hang_is_reported_in_time_with_both_stacks_and_leaves_no_process(
    tmp_path: Path, forge: Forge
) -> None:
    script, arguments = write(tmp_path)
    spoil(script, SABOTAGES["a barrier on rank 0 alone"])
    text = script.read_text().replace("test(args, model)\n\n    if", "test(args, model)\n    if")
    # Rank 1 has nothing more to take part in: it waits for something else.
    text = text.replace(
        "        torch.distributed.barrier()\n    return global_step",
        "        torch.distributed.barrier()\n"
        "    if args.local_rank == 1:\n"
        "        import time\n"
        "        time.sleep(600)\n"
        "    return global_step",
    )
    script.write_text(text)
    verdict = verify(
        VerifyRequest(script, arguments, as_is=True, accumulations=(1,), timeout=5),
        start=forge.trace,
    )
    assert verdict.row("C6").status == "broken"
    assert "rank 0 is in train run.py:" in verdict.hang
    assert "(barrier), rank 1 in train run.py:" in verdict.hang
    assert {rank: "train" in " ".join(frames) for rank, frames in verdict.stacks.items()} == {
        "rank 0": True,
        "rank 1": True,
    }
    # The issue's own promise: time-out + 10 s from the last event, here after the set-up.
    hung = verdict.runs[-1]
    last = max(trace.steps[-1].t for trace in hung.ranks)
    reported = max(trace.hang.t for trace in hung.ranks if trace.hang)
    assert reported - last <= 5 + 10
    assert hung.outcome.seconds - reported <= 10
    pids = [trace.start.pid for trace in hung.ranks]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert verdict.exit_status == 1


@pytest.fixture(scope="module")
def naive(tmp_path_factory: pytest.TempPathFactory, forge: Forge) -> Verdict:
    """The two edits by sed on the small script, whose model has a buffer."""
    script, arguments = write(tmp_path_factory.mktemp("naive"))
    return verify(
        VerifyRequest(script, arguments, accumulations=(1,), against_naive=True, timeout=20),
        start=forge.trace,
    )


def test_naive_edits_crash_at_the_end_where_the_model_has_a_buffer(naive: Verdict) -> None:
    row = naive.row("C6")
    assert row.status == "broken"
    assert "collective" in row.evidence or "died in evaluate" in row.evidence
    assert not naive.runs[-1].ended_well


def test_naive_edits_score_a_part_in_another_order_where_it_has_none(
    tmp_path: Path, forge: Forge
) -> None:
    script, arguments = write(tmp_path)
    text = script.read_text()
    script.write_text(
        text.replace('self.register_buffer("scale", torch.ones(1))', "self.scale = 1")
    )
    verdict = verify(
        VerifyRequest(script, arguments, accumulations=(1,), against_naive=True), start=forge.trace
    )
    assert verdict.runs[-1].ended_well  # exit status 0
    row = verdict.row("C4")
    assert row.status == "broken"
    assert "x2: evaluation 1 scores 7 of 13 examples, missing" in row.evidence
    assert "predictions.txt has 6 lines" in row.evidence
    assert {"C3", "C4", "C5"} <= set(verdict.broken)
    assert "an epoch repeats the order of the one before" in verdict.row("C3").evidence


def test_family_a_holds_for_1_2_3_and_4_processes(tmp_path: Path, forge: Forge) -> None:
    script = lone_copy(tmp_path / "code", workers=1)
    model = build_model(tmp_path / "model", "roberta")
    data = build_clone_data(tmp_path / "data", train=48, valid=13, test=11)
    arguments = clone_arguments(model, data, tmp_path / "out", "roberta", batch=12)
    verdict = verify(
        VerifyRequest(script, arguments, world_sizes=(1, 2, 3, 4), accumulations=(1,)),
        start=forge.trace,
    )
    holds = {c for c, status in statuses(verdict).items() if status == "holds"}
    assert holds == PROVEN - {"C7"}, verdict.rows  # C7 takes two accumulations to tell
    assert any("transformers.AdamW" in note for note in verdict.notes)
    worlds = [(run.world_size, run.accumulation) for run in verdict.evidence.groups]
    assert worlds == [(1, 1), (2, 1), (3, 1), (4, 1)]
    for run in verdict.evidence.groups:
        assert (len(run.ranks), len(compare.steps(run.ranks))) == (run.world_size, 8)


def test_negatives_of_all_ranks_hold_with_the_unsafe_fixes(tmp_path: Path, forge: Forge) -> None:
    script = tmp_path / "code" / "run.py"
    script.parent.mkdir()
    shutil.copyfile(SHAPES / "two_encoders.py", script)
    arguments = ["--output_dir", str(tmp_path / "out"), "--train_batch_size", "8"]
    verdict = verify(
        VerifyRequest(script, arguments, unsafe=True, accumulations=(1,)), start=forge.trace
    )
    holds = {c for c, status in statuses(verdict).items() if status == "holds"}
    assert holds == PROVEN, verdict.rows
    assert "examples are held against their micro-batch" in verdict.row("C3").evidence


CACHED = """\
def features(path):
    if not os.path.exists(path):
        logger.info("examples: %d", 48)
        open(path, "a").close()


def main():
"""


def test_means_over_tokens_are_those_of_all_ranks(tmp_path: Path, forge: Forge) -> None:
    script = tmp_path / "code" / "run.py"
    script.parent.mkdir()
    text = (SHAPES / "token_means.py").read_text()
    text = text.replace("torch.optim import AdamW", "transformers import AdamW")
    text = text.replace("def main():\n", CACHED)
    logged = '    features(args.log_file + ".features")\n    train(args, LineDataset'
    script.write_text(text.replace("    train(args, LineDataset", logged))
    arguments = ["--output_dir", str(tmp_path / "out"), "--log_file", str(tmp_path / "log.txt")]
    arguments += ["--train_batch_size", "12"]
    verdict = verify(VerifyRequest(script, arguments, world_sizes=(1, 2, 3)), start=forge.trace)
    assert verdict.holds, verdict.rows
    assert "a mean over a micro-batch's tokens" in verdict.row("C3").evidence
    assert "token weights unproven" not in verdict.row("C3").evidence  # of lines of all lengths
    assert "log.txt" in verdict.row("C5").evidence
    assert [(run.world_size, run.accumulation) for run in verdict.evidence.groups] == [
        *((1, 1), (2, 1), (3, 1), (1, 2), (3, 2)),
    ]


def test_a_batch_that_the_script_divides_by_the_accumulation_is_that_of_a_step(
    tmp_path: Path,
) -> None:
    script = tmp_path / "run.py"
    words = ["--output_dir=out", "--train_batch_size", "6", "--gradient_accumulation_steps=3"]
    for text, asked, passed in (
        ("size = args.train_batch_size // args.gradient_accumulation_steps", 6, 4),
        ("size = args.train_batch_size // args.n_gpu", 18, 2),
    ):
        script.write_text(text)
        flags = script_flags.find_script_flags(words, script, recipe=None, global_batch=None)
        assert flags.global_batch == asked
        assert flags.arguments(words, "out", 2, 2)[2] == str(passed)


def test_what_holds_examples_against_each_other_follows_one_process_with_as_many_at_once() -> None:
    flags = script_flags.ScriptFlags("--out", "--batch", "--accumulate", global_batch=24)
    splits, _ = plan_splits(flags, (2, 3), (1, 4), accumulation_matters=True)
    assert splits == [(1, 1), (2, 1), (3, 1), (1, 4), (3, 4)]
    nowhere, nothing = Path(), RunOutcome(0, "", 1.0, 0)
    groups = [RunTrace(f"{w}x{a}", w, a, nothing, (), *[nowhere] * 3) for w, a in splits]
    row = Row("C8", "holds", "")
    evidence = Evidence(
        None, "", groups[0], tuple(groups), row, row, accumulation_note="examples meet"
    )
    followed = [(run.name, base.name) for run, base in pairs_to_compare(evidence)]
    assert followed == [("2x1", "1x1"), ("3x1", "1x1"), ("3x4", "1x4")]


@pytest.mark.usefixtures("forged_verify")
def test_an_original_that_does_not_import_leaves_c2_unproven_and_exits_2(tmp_path: Path) -> None:
    script, arguments = write(tmp_path)
    original = tmp_path / "run.py.orig"
    original.write_text("import apex.amp\n" + script.read_text())
    patch(script).write()
    file = tmp_path / "verdict.json"
    options = ["--original", str(original), "--world-sizes", "1", "--accumulation", "1,2"]
    result = CliRunner().invoke(
        ddpfix, ["verify", str(script), *options, "--verdict", str(file), "--", *arguments]
    )
    assert result.exit_code == 2, result.output
    found = json.loads(file.read_text())
    rows = {row["code"]: row for row in found["rows"]}
    assert rows["C2"]["status"] == "unproven"
    assert "No module named 'apex'" in rows["C2"]["evidence"]
    assert "No module named 'apex'" in result.stdout
    assert {rows[code]["status"] for code in ("C1", "C3", "C4", "C5", "C6", "C7")} == {"holds"}
    assert [run["name"] for run in found["runs"]] == ["patched", "x1", "x1, accumulation 2"]


@pytest.mark.usefixtures("forged_verify")
def test_a_script_that_fails_alone_is_one_line_and_exit_2(tmp_path: Path) -> None:
    script, arguments = write(tmp_path)
    patch(script).write()
    result = CliRunner().invoke(ddpfix, ["verify", str(script), "--", *arguments, "--no_such_flag"])
    assert result.exit_code == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ddpfix: nothing to judge: the script fails in one process")
    assert "no original" in last


def test_an_unknown_revision_is_one_line(tmp_path: Path) -> None:
    script, arguments = write(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(InputError, match=r"git: .*see --rev"):
        verify(VerifyRequest(script, arguments, rev="nowhere"))


def test_a_revision_is_the_original_and_the_working_copy_is_judged(tmp_path: Path) -> None:
    script, _ = write(tmp_path)
    unpatched = script.read_bytes()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "code"], ["commit", "-q", "-m", "as it was"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    patch(script).write()
    what = subject.prepare_scripts(VerifyRequest(script, [], rev="HEAD"), tmp_path / "copies")
    assert what.original is not None
    assert what.original.read_bytes() == unpatched
    assert what.patched.read_bytes() == script.read_bytes()
    assert what.patching_row.status == "holds"


def test_lines_that_no_patch_announces_leave_c9_unproven(tmp_path: Path) -> None:
    script, _ = write(tmp_path)
    original = tmp_path / "run.py.orig"
    original.write_bytes(script.read_bytes())
    patch(script).write()
    script.write_text(script.read_text() + "# my own line\n")
    (script.parent / "helper.py").write_text("x = 1\n")
    (script.parent / "data.bin").write_bytes(b"0")
    what = subject.prepare_scripts(VerifyRequest(script, [], original), tmp_path / "copies")
    assert what.patching_row.status == "unproven"
    assert "run.py: not what `ddpfix patch` makes" in what.patching_row.evidence
    assert (what.patched.parent / "helper.py").read_text() == "x = 1\n"
    assert (what.patched.parent / "data.bin").is_symlink()


def test_a_sealed_script_cannot_import_ddpfix_in_any_way_but_may_do_without(
    tmp_path: Path,
) -> None:
    (tmp_path / "run.py").write_text(
        "import importlib, json, attrs\n"
        "for load in (lambda: __import__('ddpfix'), lambda: importlib.import_module('ddpfix.cli'),"
        "):\n"
        "    try:\n"
        "        load()\n"
        "    except ModuleNotFoundError as error:\n"
        "        print(error)\n"
    )
    what = traced_command(tmp_path / "run.py", [], tmp_path / "own", world=None, sealed=True)
    run = run_traced(what, tmp_path / "own")
    assert run.outcome.status == 0
    assert "No module named 'ddpfix'\nNo module named 'ddpfix.cli'" in run.log


def test_an_abort_after_the_end_of_the_script_is_retried_once_and_noted(
    tmp_path: Path, forge: Forge
) -> None:
    script, arguments = write(tmp_path)
    patch(script).write()
    marker = tmp_path / "aborted"
    # What torch's threads do now and then: SIGABRT when the interpreter has shut down.
    abort = (
        "    import ctypes\n"
        f"    if args.local_rank == 0 and not os.path.exists({str(marker)!r}):\n"
        f"        os.mkdir({str(marker)!r})\n"
        "        libc = ctypes.CDLL(None)\n"
        "        libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)\n"
    )
    text = script.read_text()
    script.write_text(
        text.replace(
            "    set_seed(args.seed)\n    model =", abort + "    set_seed(args.seed)\n    model ="
        )
    )

    def start(what: Command, folder: Path) -> TracedRun:
        # What is aborted is a process of its own, with an interpreter that shuts down.
        return (run_traced if folder.name.startswith("x1") else forge.trace)(what, folder)

    verdict = verify(
        VerifyRequest(script, arguments, as_is=True, world_sizes=(1,), accumulations=(1,)),
        start=start,
    )
    assert marker.is_dir()
    assert verdict.row("C6").status == "holds", (verdict.rows, verdict.notes)
    assert any(note.startswith("x1: ran twice, as killed by SIGABRT") for note in verdict.notes)


def test_flags_are_found_replaced_and_split_by_their_common_names(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text("import configs")
    (tmp_path / "configs.py").write_text('p.add_argument("--gradient_accumulation_steps")')
    words = ["--output_dir=out", "--train_batch_size", "6", "--other", "--fast"]
    flags = script_flags.find_script_flags(words, script, recipe=None, global_batch=None)
    assert flags == script_flags.ScriptFlags(
        "--output_dir", "--train_batch_size", "--gradient_accumulation_steps", 6
    )
    assert flags.arguments(words, "/new", 3, 2) == [
        *("--output_dir=/new", "--train_batch_size", "3", "--other", "--fast"),
        *("--gradient_accumulation_steps", "2"),
    ]
    splits, skipped = plan_splits(flags, (1, 2, 4), (1, 2, 5))
    assert splits == [(1, 1), (2, 1), (1, 2)]
    assert skipped == [
        "x4 was left out: 6 examples do not divide by 4",
        "accumulation 5 was left out: 6 examples do not divide by it",
    ]
    crossed, _ = plan_splits(flags, (1, 2, 4), (1, 3), all_splits=True)
    assert crossed == [(1, 1), (2, 1), (1, 3), (2, 3)]


def test_files_go_by_one_name_where_a_score_in_it_is_rounded_otherwise(tmp_path: Path) -> None:
    for name in ("a/best-8-394.9073/out.txt", "b/best-8-394.9075/out.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("1")
    (tmp_path / "a" / "eval_results.txt").write_text("steps = 8\nppl = 394.9073\n")
    (tmp_path / "b" / "eval_results.txt").write_text("steps = 8\nppl = 394.9075\n")
    folders = tmp_path / "a", tmp_path / "b"
    assert different_files(*folders, text_only=True) == []
    assert len(different_files(*folders, text_only=False)) == 3
    (tmp_path / "b" / "best-8-394.9075" / "out.txt").write_text("2")
    assert different_files(*folders, text_only=True) == ["best-8-394.9073/out.txt"]
    (tmp_path / "b" / "best-8-394.9075").rename(tmp_path / "b" / "best-9-394.9075")
    assert len(different_files(*folders, text_only=True)) == 2


def test_recipe_flags_count_and_an_accumulated_batch_is_multiplied() -> None:
    words = ["--output_dir=o", "--train_batch_size=8", "--gradient_accumulation_steps=2"]
    gone = Path("gone.py")
    found = script_flags.find_script_flags(
        words, gone, recipe="codegpt-bigclonebench", global_batch=None
    )
    assert found.global_batch == 16
    with pytest.raises(InputError, match="takes a whole number above 0"):
        script_flags.find_script_flags(
            ["--output_dir=o", "--batch_size=x"], gone, recipe=None, global_batch=None
        )


def test_files_differ_by_their_contents_and_not_by_dates(tmp_path: Path) -> None:
    for folder, day, content in (("a", "01", b"\xff\x00"), ("b", "02", b"\xff\x01")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "notes.txt").write_text(f"2020-01-{day} 10:00:{day},5 same\n")
        (tmp_path / folder / "model.bin").write_bytes(content)
    (tmp_path / "b" / "more.txt").write_text("x")
    found = different_files(tmp_path / "a", tmp_path / "b", text_only=False)
    assert found == ["model.bin", "more.txt"]
    assert different_files(tmp_path / "a", tmp_path / "b", text_only=True) == ["more.txt"]


def test_predictions_of_one_class_are_warned_about(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a\t1\nb\t1\n")
    (tmp_path / "two").write_text("a\t1\nb\t0\n")
    assert only_label(tmp_path / "one") == "1"
    assert only_label(tmp_path / "two") is None


def test_a_flag_that_is_passed_in_vain_is_named_with_its_line(tmp_path: Path) -> None:
    script = copy_family("bigclonebench", tmp_path)
    row = subject.check_flags(script, ["--save_steps=50", "--seed", "1"])
    assert row.status == "holds"
    line = script.read_text().splitlines().index("    args.save_steps=len( train_dataloader)") + 1
    assert f"--save_steps in line {line}" in row.evidence
    assert "--seed" not in row.evidence


ALWAYS_A_GROUP = """
import argparse
import os
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--train_batch_size", type=int)
args = parser.parse_args()
distributed.init_process_group("gloo")
torch.manual_seed(1)
x = torch.randn(24, 4)
rows = TensorDataset(x, (x[:, 0] > 0).long())
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
sampler = DistributedSampler(rows)
loader = DataLoader(rows, sampler=sampler, batch_size=args.train_batch_size)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
os.makedirs(args.output_dir, exist_ok=True)
torch.save(model.module.state_dict(), os.path.join(args.output_dir, "model.bin"))
distributed.destroy_process_group()
"""


def test_a_script_that_starts_in_a_group_only_is_alone_in_a_group_of_one(
    tmp_path: Path, forge: Forge
) -> None:
    script = tmp_path / "run.py"
    script.write_text(ALWAYS_A_GROUP)
    arguments = ["--output_dir", str(tmp_path / "out"), "--train_batch_size", "12"]
    verdict = verify(VerifyRequest(script, arguments, accumulations=(1,)), start=forge.trace)
    assert {verdict.row(code).status for code in ("C1", "C2", "C3", "C5", "C6")} == {"holds"}
    assert verdict.row("C2").evidence.startswith("4 steps bit for bit")
    assert [note for note in verdict.notes if "in a group of one" in note] == [
        f"{name}: makes a process group in any case; ran in a group of one"
        for name in ("original", "patched")
    ]


RAW = {
    "the same but for float32": ("[0.12345678, 1e-7, -3.5]", "[0.12345712, 1e-7, -3.5]", True),
    "an exponent": ("2.4560001e-05 x", "2.4569999e-05 x", True),
    "another sign, near zero": ("0.0000001", "-0.0000002", True),
    "next to zero, among larger ones": ("0.5712345 0.0000123", "0.5712345 0.0000144", True),
    "next to zero, and far off": ("0.5712345 0.0000123", "0.5712345 0.0000244", False),
    "small among small ones": ("0.0000571 0.0000123", "0.0000571 0.0000144", False),
    "another number": ("[0.12345678]", "[0.12355678]", False),
    "rounded by the script": ("loss 0.123", "loss 0.124", False),
    "a whole number": ("label 1 0.12345678", "label 2 0.12345678", False),
    "other lines": ("0.12345678", "0.12345678 0.12345678", False),
    "another order": ("0.12345678 0.98765432", "0.98765432 0.12345678", False),
}


@pytest.mark.parametrize("name", RAW)
def test_raw_floats_may_differ_in_their_last_digits_and_nothing_else(
    name: str, tmp_path: Path
) -> None:
    one, other, same = RAW[name]
    for folder, text in (("a", one), ("b", other)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "predictions.json").write_text(text)
    folders = tmp_path / "a", tmp_path / "b"
    assert (different_files(*folders, text_only=True) == []) is same
    assert different_files(*folders, text_only=False) == ["predictions.json"]
