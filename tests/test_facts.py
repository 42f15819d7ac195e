"""``ddpfix facts``: what it says of fixtures, looked up in them by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from command_line import run

SHAPES = ROOT / "fixtures" / "shapes"

SMALL = """\
dataparallel_module_level.py: a script that trains

Modules
  dataparallel_module_level.py

Options
  dataparallel_module_level.py:11  --output_dir  sets output_dir
  dataparallel_module_level.py:12  --train_batch_size  sets train_batch_size
  dataparallel_module_level.py:13  --epochs  sets epochs
  dataparallel_module_level.py:14  --lr  sets lr

What options mean
  --train_batch_size is the training batch: it reaches dataparallel_module_level.py:25
  --output_dir is the output folder: it reaches dataparallel_module_level.py:19
  --lr is the learning rate: it reaches dataparallel_module_level.py:32
  --epochs is the number of epochs: it reaches dataparallel_module_level.py:36

Constants in place of options
  none

Pretrained model
  none

Arguments come from
  dataparallel_module_level.py:15  opt = parser.parse_args()

Process group
  none

Wraps
  dataparallel_module_level.py:30  net = nn.DataParallel(net)

Loaders
  dataparallel_module_level.py:25  train_loader
      data                train_set
      batch size          opt.train_batch_size
      sampler             none
      shuffle             True
      dealt by rank       no
  dataparallel_module_level.py:26  test_loader
      data                test_set
      batch size          4
      sampler             none
      shuffle             none
      dealt by rank       no

Train loops
  dataparallel_module_level.py:38  for x, y in train_loader:
      function            module level
      epoch loop          for epoch in range(opt.epochs): (line 36)
      loader              train_loader (dataparallel_module_level.py:25)
      models              net
      backward            loss.backward() (line 42)
      clip                none
      step                optimizer.step() (line 43)
      accumulation        none
      accumulation test   none
      counts steps in     none

Evaluations
  dataparallel_module_level.py:49  for x, y in test_loader:
      function            inline
      model               net
      loader              test_loader (dataparallel_module_level.py:26)
      accumulates         correct, total, guesses

Rank tests
  none

Functions that nothing comes to
  none
"""
KEYS = {
    *(
        "script",
        "trains",
        "modules",
        "options",
        "roles",
        "constants",
        "arguments",
        "process_groups",
        "wraps",
    ),
    *("constants", "pretrained_model"),
    *("loaders", "train_loops", "evaluations", "rank_gates", "unreached"),
}


def known(script: str) -> dict[str, Any]:
    result = run("facts", "--json", script)
    assert (result.exit_code, result.stderr) == (0, "")
    facts: dict[str, Any] = json.loads(result.stdout)
    assert facts.keys() == KEYS
    return facts


def place(path: str, line: int, text: str) -> dict[str, object]:
    return {"path": path, "line": line, "text": text}


@pytest.fixture(autouse=True)
def in_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SHAPES)


def test_a_small_script_in_words() -> None:
    result = run("facts", "dataparallel_module_level.py")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == SMALL


def test_functions_in_several_modules() -> None:
    script, configs = "sibling_args/run.py", "sibling_args/configs.py"
    facts = known(script)
    assert facts["script"] == script
    assert facts["trains"] is True
    assert facts["modules"] == [script, configs, "sibling_args/utils.py"]
    assert len(facts["options"]) == 15
    assert facts["options"][-2] == {
        "path": configs,
        "line": 25,
        "spellings": ["--local_rank"],
        "dest": "local_rank",
    }
    assert facts["arguments"] == [place(configs, 27, "args = parser.parse_args()")]
    assert facts["process_groups"] == [
        place(configs, 40, "torch.distributed.init_process_group(backend='nccl')")
    ]
    assert facts["wraps"] == [place(script, 69, "model = torch.nn.DataParallel(model)")]
    evaluated, trained = facts["loaders"]
    assert (evaluated["line"], evaluated["name"]) == (38, "eval_dataloader")
    assert trained == {
        "path": script,
        "line": 82,
        "name": "train_dataloader",
        "dataset": "train_data",
        "batch_size": "args.train_batch_size",
        "shuffle": None,
        "samplers": ["RandomSampler(train_data)", "DistributedSampler(train_data)"],
        "drop_last": False,
        "distributed": True,
    }
    assert facts["train_loops"] == [
        {
            **place(script, 107, "for step, batch in enumerate(train_dataloader):"),
            "function": "main",
            "epochs": place(
                script,
                104,
                "for cur_epoch in range(args.start_epoch, int(args.num_train_epochs)):",
            ),
            "loader": trained,
            "models": ["model"],
            "backward": [place(script, 120, "loss.backward()")],
            "clip": [],
            "step": [
                place(script, 124, "optimizer.step()"),
                place(script, 126, "scheduler.step()"),
            ],
            "accumulation_test": place(
                script, 122, "if nb_tr_steps % args.gradient_accumulation_steps == 0:"
            ),
            "accumulation": "args.gradient_accumulation_steps",
            "counters": ["global_step"],
        }
    ]
    assert facts["evaluations"] == [
        {
            **place(script, 44, "for batch in eval_dataloader:"),
            "function": "eval_ppl_epoch",
            "model": "model",
            "loader": evaluated,
            "accumulators": ["eval_loss", "batch_num"],
            "entered": [place(script, 130, "eval_ppl_epoch(args, dev_data, model)")],
        }
    ]
    alone, main, others = ["the only process"], ["rank 0"], ["the other ranks"]
    writes = "args.local_rank in [-1, 0] and args.data_num == -1"
    assert [tuple(gate.values()) for gate in facts["rank_gates"]] == [
        (script, 67, "args.n_gpu > 1", alone, None),
        (script, 73, writes, alone + main, None),
        (script, 78, "args.local_rank == -1", alone, main + others),
        (script, 112, "args.n_gpu > 1", alone, None),
        (script, 132, writes, alone + main, None),
        (script, 159, writes, alone + main, None),
        # A lone process has local_rank -1; a rank passes where no_cuda is given.
        (
            configs,
            33,
            "args.local_rank == -1 or args.no_cuda",
            alone + main + others,
            main + others,
        ),
    ]
    assert facts["unreached"] == []


def test_methods_of_a_class() -> None:
    script = "trainer_class.py"
    facts = known(script)
    (loop,) = facts["train_loops"]
    assert (loop["line"], loop["function"], loop["epochs"]["line"]) == (66, "train", 63)
    assert (loop["loader"]["line"], loop["loader"]["name"]) == (145, "self.train_dataloader")
    assert loop["models"] == ["self.model"]
    assert [each["line"] for each in loop["backward"]] == [73]
    assert [each["line"] for each in loop["clip"]] == [76]
    assert [each["line"] for each in loop["step"]] == [77, 78]
    assert loop["accumulation_test"]["line"] == 75
    assert loop["counters"] == []  # it counts in an attribute
    (evaluation,) = facts["evaluations"]
    assert (evaluation["function"], evaluation["line"]) == ("evaluate", 93)
    assert evaluation["loader"]["name"] == "self.dev_dataloader"
    assert evaluation["accumulators"] == ["eval_loss", "nb_eval_steps", "preds", "out_label_ids"]
    assert evaluation["entered"] == [place(script, 81, "self.evaluate()")]
    assert [gate["line"] for gate in facts["rank_gates"]] == [56, 69, 130, 144]


def test_what_is_unknown_is_said(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "def unused():\n    pass\n\n"
        "def main():\n    for batch in batches:\n        model(batch).backward()\n\n"
        "main()\n"
    )
    facts = known(str(script))
    assert facts["train_loops"][0]["loader"] is None
    assert facts["train_loops"][0]["epochs"] is None
    assert facts["unreached"] == [place(str(script), 1, "unused")]
    assert "loader              not found\n" in run("facts", script).stdout


def test_a_file_that_does_not_train(tmp_path: Path) -> None:
    script = tmp_path / "empty.py"
    script.write_text("")
    result = run("facts", script)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{script}: nothing in it trains\n")
    assert result.stdout.count("\n  none\n") == 12


def test_nothing_of_the_script_is_run(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(f"from beside import x\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "beside.py").write_text("raise SystemExit(3)\n")
    assert run("facts", script).exit_code == 0
    assert not (tmp_path / "ran").exists()


BAD = [
    pytest.param("gone.py", None, "gone.py: no such file or folder", id="a missing file"),
    pytest.param("bad.py", b"import torch\nprint 'x'\n", "bad.py:2: not valid Python", id="syntax"),
    pytest.param("cookie.py", b"# coding: nonsense\n", "cannot be decoded", id="encoding"),
    pytest.param(".", None, "Is a directory", id="a folder"),
]


@pytest.mark.parametrize(("name", "data", "message"), BAD)
def test_what_cannot_be_read_is_one_line_and_exit_2(
    tmp_path: Path, name: str, data: bytes | None, message: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    for options in ([], ["--json"]):
        result = run("facts", *options, tmp_path / name)
        assert result.exit_code == 2
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""


MODEL = """
import argparse
import torch
from transformers import AutoModelForTokenClassification

parser = argparse.ArgumentParser()
parser.add_argument("--start")
args = parser.parse_args()
model = AutoModelForTokenClassification.from_pretrained(args.start)
optimizer = torch.optim.AdamW(model.parameters())
"""


def test_the_pretrained_model_is_told(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(MODEL)
    assert known(str(script))["pretrained_model"] == {
        "path": str(script),
        "line": 9,
        "flag": "--start",
        "model_class": "AutoModelForTokenClassification",
        "head": "own",
        "optimizer": "adamw",
        "unknown": "",
    }
    said = f"  {script}:9  AutoModelForTokenClassification, which --start names\n      head"
    assert said in run("facts", script).stdout
    script.write_text(MODEL.replace("AdamW", "Rprop"))
    line = "  cannot be told: what its optimizer (none was found) keeps is not known\n"
    assert line in run("facts", script).stdout


def test_shuffling_by_position_is_told(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from torch.utils.data import DataLoader\nloader = DataLoader(data, 4, True)\n"
    )
    done = run("facts", "--json", script)
    (loader,) = json.loads(done.stdout)["loaders"]
    assert (loader["batch_size"], loader["shuffle"]) == ("4", "True")
