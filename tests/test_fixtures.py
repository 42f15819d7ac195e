"""Fixture family A: it really trains, really fails as legacy scripts do, and keeps its habits."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ddpfix.fixtures import tiny
from ddpfix.fixtures.tiny import Kind
from forked import Forge, Job, Run

FAMILY = Path(tiny.__file__).parent / "bigclonebench"
KINDS: tuple[Kind, ...] = ("gpt2", "roberta")
SIZES: dict[str, Any] = {"train": 48, "valid": 13, "test": 13}

# What the script found on the machine it was written for.
PERIOD = {
    "AdamW in transformers": """
import functools, sys, torch, transformers
transformers.GPT2Config  # a first lazy access, which may replace the module
for module in (transformers, sys.modules["transformers"]):
    module.AdamW = functools.partial(torch.optim.AdamW, weight_decay=0.0)
""",
    "one GPU": """
import torch
torch.cuda.device_count = lambda: 1
""",
}

Start = Callable[..., tuple[Run, Path]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build_clone_data(tmp_path_factory.mktemp("data"), **SIZES)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Path]:
    return {kind: tiny.build_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


@pytest.fixture
def run(tmp_path: Path, data: Path, models: dict[Kind, Path], forge: Forge) -> Start:
    """Run the untouched script in one process, without a GPU."""

    def start(kind: Kind, period: Sequence[str], **settings: int) -> tuple[Run, Path]:
        script = tiny.copy_family("bigclonebench", tmp_path / "scripts")
        output = tmp_path / "output"
        arguments = tiny.clone_arguments(
            models[kind], data, output, kind, **({"batch": 4} | settings)
        )
        prelude = tmp_path / "period.py"
        prelude.write_text("".join(PERIOD[each] for each in period))
        job = Job(tmp_path / "run", script, arguments, prelude=prelude, cwd=tmp_path)
        (done,) = forge.run([job])
        return done, output

    return start


def labels(path: Path) -> list[str]:
    return [line.split("\t")[2] for line in path.read_text().splitlines()]


def pairs(path: Path) -> list[list[str]]:
    return [line.split("\t")[:2] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_in_its_own_period_the_script_trains_and_predicts_both_classes(
    kind: Kind, run: Start, data: Path
) -> None:
    done, output = run(kind, PERIOD)

    assert done.statuses == (0,), done.log[-2000:]
    predictions = output / "predictions.txt"
    assert pairs(predictions) == pairs(data / "test.txt")
    assert set(labels(predictions)) == {"0", "1"}
    both = list(zip(labels(predictions), labels(data / "test.txt"), strict=True))
    assert ("1", "1") in both, "no clone was found"
    assert any(guess != truth for guess, truth in both), "F1 of 1 cannot get worse unseen"
    scores = [float(text) for text in re.findall(r"eval_f1 = ([\d.]+)", done.log)]
    assert len(scores) == 3, "two validations in training and one after it"
    assert all(0 < score <= 1 for score in scores)
    assert f"Pairs = {SIZES['train']}" in done.log
    assert done.log.count(f"Pairs = {SIZES['valid']}") == 4, "three validations and the test"
    assert sorted(path.relative_to(output).as_posix() for path in output.rglob("*.*")) == [
        "checkpoint-best-f1/model.bin",
        "predictions.txt",
    ]


@pytest.mark.parametrize(
    ("period", "error"),
    [
        pytest.param([], "ImportError: cannot import name 'AdamW'", id="AdamW is gone"),
        pytest.param(
            ["AdamW in transformers"], "ZeroDivisionError", id="with AdamW it divides by zero GPUs"
        ),
    ],
)
def test_today_the_script_fails_because(period: list[str], error: str, run: Start) -> None:
    done, output = run("gpt2", period)

    assert done.statuses == (1,)
    assert error in done.log.splitlines()[-1]
    assert not output.exists()


def test_with_accumulation_the_script_never_validates_and_then_misses_its_checkpoint(
    run: Start,
) -> None:
    done, output = run("gpt2", PERIOD, accumulation=4)

    assert done.statuses == (1,)
    last = done.log.splitlines()[-1]
    assert last.startswith("FileNotFoundError")
    assert "checkpoint-best-f1/model.bin" in last
    assert not output.exists()


# ---- the models


def load_model_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("clone_model", FAMILY / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(kind: Kind, folder: Path, block: int) -> tuple[Any, Any]:
    """The script's model in evaluation mode, and its tokenizer."""
    import transformers

    name = {"gpt2": "GPT2", "roberta": "Roberta"}[kind]
    config = getattr(transformers, f"{name}Config").from_pretrained(folder)
    encoder = getattr(transformers, f"{name}Model").from_pretrained(folder)
    tokenizer = getattr(transformers, f"{name}Tokenizer").from_pretrained(folder)
    args = SimpleNamespace(model_type=kind, block_size=block)
    model = load_model_module().Model(encoder, config, tokenizer, args)
    return model.eval(), tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_padding_does_not_change_what_the_model_says(kind: Kind, models: dict[Kind, Path]) -> None:
    import torch

    model, tokenizer = load(kind, models[kind], block=8)
    left, right = torch.tensor([[0, 40, 41, 42, 2]]), torch.tensor([[0, 50, 2]])

    def ask(block: int) -> torch.Tensor:
        model.args.block_size = block
        pad = partial(torch.nn.functional.pad, value=tokenizer.pad_token_id)
        row = [pad(ids, (0, block - ids.shape[1])) for ids in (left, right)]
        with torch.no_grad():
            answer: torch.Tensor = model(torch.cat(row, dim=1))
        return answer

    torch.testing.assert_close(ask(8), ask(20))
    assert not torch.equal(ask(8), torch.full((1, 2), 0.5))


def test_every_weight_but_the_pooler_of_roberta_gets_a_gradient(models: dict[Kind, Path]) -> None:
    import torch

    idle = {}
    for kind in KINDS:
        model, _ = load(kind, models[kind], block=4)
        ids = torch.tensor([[0, 40, 41, 2, 0, 50, 51, 2]])
        loss, _ = model(ids, torch.tensor([1]))
        loss.backward()
        idle[kind] = [name for name, weight in model.named_parameters() if weight.grad is None]

    assert idle == {
        "gpt2": [],
        "roberta": ["encoder.pooler.dense.weight", "encoder.pooler.dense.bias"],
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokenizer_splits_code_into_known_tokens_and_puts_it_together_again(
    kind: Kind, models: dict[Kind, Path], data: Path
) -> None:
    _, tokenizer = load(kind, models[kind], block=64)
    code = "int run7(int[] data) { int total = 0; for (int x : data) total += x; return total; }"
    ids = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(code))

    assert tokenizer.decode(ids) == code
    assert len(ids) < len(code) / 2, "merges were learnt"
    assert (tokenizer.cls_token_id, tokenizer.pad_token_id, tokenizer.sep_token_id) == (0, 1, 2)
    assert tokenizer.max_len_single_sentence >= 64


def test_models_and_data_are_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    import torch

    state = torch.random.get_rng_state()
    for kind in KINDS:
        tiny.build_model(tmp_path / "here" / kind, kind, seed=3)
    tiny.build_clone_data(tmp_path / "here" / "data", train=3, valid=2, test=5, seed=3)
    assert torch.equal(state, torch.random.get_rng_state()), "a builder moved torch's generator"

    program = f"""
from pathlib import Path
from ddpfix.fixtures import tiny
there = Path({str(tmp_path / "there")!r})
for kind in {KINDS!r}:
    tiny.build_model(there / kind, kind, seed=3)
tiny.build_clone_data(there / "data", train=3, valid=2, test=5, seed=3)
"""
    env = os.environ | {"PYTHONHASHSEED": "12345"}
    subprocess.run([sys.executable, "-c", program], env=env, check=True, cwd=tmp_path)

    def content(folder: Path) -> dict[str, bytes]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    here = content(tmp_path / "here")
    assert here == content(tmp_path / "there")
    assert len(here) == 14
    other = tiny.build_model(tmp_path / "other", "gpt2", seed=4)
    assert (other / "model.safetensors").read_bytes() != here["gpt2/model.safetensors"]


# ---- data, scripts, arguments


def test_a_tenth_of_the_lines_written_is_the_size_asked_for(tmp_path: Path) -> None:
    folder = tiny.build_clone_data(tmp_path, train=7, valid=3, test=12)

    counts = {name: labels(folder / f"{name}.txt") for name in SIZES}
    assert {name: len(found) for name, found in counts.items()} == {
        "train": 70,
        "valid": 30,
        "test": 12,
    }
    assert {name: found.count("1") for name, found in counts.items()} == {
        "train": 35,
        "valid": 15,
        "test": 6,
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda folder: tiny.build_clone_data(folder, train=0, valid=1, test=1),
            "train=0",
            id="an empty training set",
        ),
        pytest.param(
            lambda folder: tiny.build_model(folder, "bert"),  # type: ignore[arg-type]
            "gpt2, roberta",
            id="an unknown kind",
        ),
        pytest.param(
            lambda folder: tiny.build_model(folder, "gpt2", hidden=33),
            "hidden=33",
            id="a width that heads cannot share",
        ),
        pytest.param(
            lambda folder: tiny.copy_family("clones", folder),
            "bigclonebench",
            id="an unknown family",
        ),
    ],
)
def test_a_builder_refuses_and_writes_nothing_for(
    call: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        call(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_copied_family_is_the_scripts_and_nothing_else(tmp_path: Path) -> None:
    script = tiny.copy_family("bigclonebench", tmp_path / "new")

    assert script == tmp_path / "new" / "run.py"
    copies = sorted(script.parent.iterdir())
    names = ["model.py", "run.py", "run_codebert.sh", "run_codegpt.sh"]
    assert [path.name for path in copies] == names
    assert all(path.read_bytes() == (FAMILY / path.name).read_bytes() for path in copies)


def test_importing_the_builders_imports_nothing_heavy() -> None:
    program = (
        "import sys, ddpfix.fixtures.tiny;"
        "sys.exit(bool({'torch', 'transformers', 'tokenizers', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


# ---- the habits, so that nobody tidies them away

TEXT = (FAMILY / "run.py").read_text(encoding="utf-8")
MODULE = ast.parse(TEXT)
#: Each function's code (and all of it under "") as ast writes it: blind to spacing and comments.
CODE = {"": ast.unparse(MODULE)} | {
    node.name: ast.unparse(node) for node in MODULE.body if isinstance(node, ast.FunctionDef)
}
IN_0 = "args.local_rank in [-1, 0]"
LOADER = (
    "DataLoader(eval_dataset, sampler=eval_sampler, batch_size=args.eval_batch_size, "
    "num_workers=4, pin_memory=True)"
)
EVAL_SAMPLER = (
    "eval_sampler = SequentialSampler(eval_dataset) if args.local_rank == -1 "
    "else DistributedSampler(eval_dataset)"
)
EVAL_BATCH = "args.eval_batch_size = args.per_gpu_eval_batch_size * max(1, args.n_gpu)"
BATCHES = ("logits.append(prob.cpu().numpy())", "y_trues.append(labels.cpu().numpy())")
MEANS = ("eval_loss += lm_loss.mean().item()", "nb_eval_steps += 1")
RELOAD = "model.load_state_dict(torch.load(output_dir))"

HABITS = [
    (
        "the pool comes before the arguments",
        "main",
        "pool = multiprocessing.Pool(cpu_cont)\n    args = parser.parse_args()",
    ),
    ("the pool has 16 workers", "", "cpu_cont = 16"),
    ("the local rank is an option", "main", "'--local_rank', type=int, default=-1"),
    (
        "GPUs are counted where there is no rank",
        "main",
        "if args.local_rank == -1 or args.no_cuda:",
    ),
    ("all GPUs are one process's", "main", "args.n_gpu = torch.cuda.device_count()"),
    ("the device is the local rank", "main", "torch.cuda.set_device(args.local_rank)"),
    (
        "nccl is the only backend",
        "main",
        "torch.distributed.init_process_group(backend='nccl')\n        args.n_gpu = 1",
    ),
    (
        "batches are divided by GPUs",
        "main",
        "args.per_gpu_train_batch_size = args.train_batch_size // args.n_gpu",
    ),
    (
        "evaluation batches are divided by GPUs",
        "main",
        "args.per_gpu_eval_batch_size = args.eval_batch_size // args.n_gpu",
    ),
    (
        "others wait for the first",
        "main",
        "if args.local_rank not in [-1, 0]:\n        torch.distributed.barrier()",
    ),
    (
        "the first lets the others go",
        "main",
        "if args.local_rank == 0:\n        torch.distributed.barrier()",
    ),
    (
        "data is behind barriers too",
        "main",
        "if args.local_rank not in [-1, 0]:\n            torch.distributed.barrier()",
    ),
    (
        "it resumes from a file where a folder is wanted",
        "main",
        "args.model_name_or_path = os.path.join(checkpoint_last, 'pytorch_model.bin')",
    ),
    (
        "it resumes the epoch from a file never written",
        "main",
        "idx_file = os.path.join(checkpoint_last, 'idx_file.txt')",
    ),
    (
        "it resumes the step from a file never written",
        "main",
        "step_file = os.path.join(checkpoint_last, 'step_file.txt')",
    ),
    ("only the first process evaluates", "main", f"if args.do_eval and {IN_0}:"),
    ("only the first process tests", "main", f"if args.do_test and {IN_0}:"),
    ("weights are reloaded onto where they were saved", "main", RELOAD),
    ("the seed is set once in main", "main", "set_seed(args.seed)"),
    ("a tenth of the data is drawn", "TextDataset", "random.sample(data, int(len(data) * 0.1))"),
    ("examples come from the pool", "TextDataset", "pool.map("),
    (
        "the batch is multiplied by GPUs again",
        "train",
        "args.train_batch_size = args.per_gpu_train_batch_size * max(1, args.n_gpu)",
    ),
    (
        "the sampler is a conditional expression",
        "train",
        "train_sampler = RandomSampler(train_dataset) if args.local_rank == -1 else "
        "DistributedSampler(train_dataset)",
    ),
    ("the horizon counts batches", "train", "args.max_steps = args.epoch * len(train_dataloader)"),
    ("--save_steps is overwritten", "train", "args.save_steps = len(train_dataloader)"),
    ("--warmup_steps is overwritten", "train", "args.warmup_steps = len(train_dataloader)"),
    ("--logging_steps is overwritten", "train", "args.logging_steps = len(train_dataloader)"),
    ("--num_train_epochs is overwritten", "train", "args.num_train_epochs = args.epoch"),
    (
        "weight decay is left to the library",
        "train",
        "AdamW(groups, lr=args.learning_rate, eps=args.adam_epsilon)",
    ),
    ("apex is imported in train", "train", "from apex import amp"),
    (
        "apex wraps the model",
        "train",
        "amp.initialize(model, optimizer, opt_level=args.fp16_opt_level)",
    ),
    ("apex scales the loss", "train", "with amp.scale_loss(loss, optimizer) as scaled_loss:"),
    (
        "apex gradients are clipped every batch",
        "train",
        "scaled_loss.backward()\n                "
        "torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), args.max_grad_norm)",
    ),
    (
        "gradients are clipped every batch",
        "train",
        "loss.backward()\n                "
        "torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)",
    ),
    (
        "several GPUs mean DataParallel",
        "train",
        "if args.n_gpu > 1:\n        model = torch.nn.DataParallel(model)",
    ),
    (
        "a rank means DDP",
        "train",
        "DistributedDataParallel(model, device_ids=[args.local_rank], "
        "output_device=args.local_rank, find_unused_parameters=True)",
    ),
    (
        "the schedule is resumed unmapped",
        "train",
        "scheduler.load_state_dict(torch.load(saved_schedule))",
    ),
    (
        "the optimizer is resumed unmapped",
        "train",
        "optimizer.load_state_dict(torch.load(saved_optimizer))",
    ),
    ("the seed is set again", "train", "set_seed(args.seed)"),
    (
        "DataParallel's losses are averaged",
        "train",
        "if args.n_gpu > 1:\n                loss = loss.mean()",
    ),
    (
        "the loss is divided by the accumulation",
        "train",
        "if args.gradient_accumulation_steps > 1:\n                loss = loss / "
        "args.gradient_accumulation_steps",
    ),
    (
        "left-over batches leak",
        "train",
        "if (step + 1) % args.gradient_accumulation_steps == 0:\n                optimizer.step()",
    ),
    (
        "only the first process logs",
        "train",
        f"if {IN_0} and args.logging_steps > 0 and (global_step % args.logging_steps == 0):",
    ),
    (
        "only the first process saves",
        "train",
        f"if {IN_0} and args.save_steps > 0 and (global_step % args.save_steps == 0):",
    ),
    (
        "only a single process validates",
        "train",
        "if args.local_rank == -1 and args.evaluate_during_training:\n               "
        "         results = evaluate(",
    ),
    (
        "scores are read where nobody may have set them",
        "train",
        "\n                    if results['eval_f1'] > best_f1:",
    ),
    (
        "folders are made after a look",
        "train",
        "if not os.path.exists(output_dir):\n                            os.makedirs(output_dir)",
    ),
    (
        "the wrapper is taken off to save",
        "train",
        "model_to_save = model.module if hasattr(model, 'module') else model",
    ),
    ("weights are saved in place", "train", "torch.save(model_to_save.state_dict(), output_dir)"),
    (
        "an undefined iterator is closed",
        "train",
        "if args.max_steps > 0 and global_step > args.max_steps:\n            "
        "train_iterator.close()\n            break",
    ),
    (
        "every validation draws its data anew",
        "evaluate",
        "load_and_cache_examples(args, tokenizer, evaluate=True, pool=pool)",
    ),
    (
        "the output folder is made after a look",
        "evaluate",
        f"if not os.path.exists(args.output_dir) and {IN_0}:\n        os.makedirs(args.output_dir)",
    ),
    (
        "validation is wrapped outside of training",
        "evaluate",
        "if args.n_gpu > 1 and eval_when_training is False:\n        model = "
        "torch.nn.DataParallel(model)",
    ),
    *[
        ("validation is sharded and not gathered", "evaluate", code)
        for code in (EVAL_BATCH, EVAL_SAMPLER, LOADER, *BATCHES, *MEANS)
    ],
    ("validation batches are joined", "evaluate", "y_trues = np.concatenate(y_trues, 0)"),
    ("the threshold is searched", "evaluate", "for percent in range(1, 100):"),
    (
        "metrics are imported inside",
        "evaluate",
        "from sklearn.metrics import f1_score, precision_score, recall_score",
    ),
    ("the threshold is a score", "evaluate", "'eval_threshold': best_threshold"),
    *[
        ("the test is sharded and not gathered", "test", code)
        for code in (EVAL_BATCH, EVAL_SAMPLER, LOADER, *BATCHES, *MEANS)
    ],
    (
        "the test is wrapped",
        "test",
        "if args.n_gpu > 1:\n        model = torch.nn.DataParallel(model)",
    ),
    (
        "predictions are zipped with the file's order",
        "test",
        "for example, pred in zip(eval_dataset.examples, y_preds):",
    ),
]

ABSENT = [
    ("nobody sets the sampler's epoch", "set_epoch"),
    ("nobody destroys the process group", "destroy_process_group"),
    ("nobody reads the launcher's rank", "LOCAL_RANK"),
    ("nobody sets a time-out", "timeout"),
    ("nobody maps loaded weights", "map_location"),
    ("nobody defines the iterator that is closed", "train_iterator ="),
    ("nobody skips an all-reduce", "no_sync"),
    ("nobody gathers", "gather"),
]

SPELLED = [
    (
        "an import over several lines",
        "from transformers import (WEIGHTS_NAME, AdamW, get_linear_schedule_with_warmup,\n",
    ),
    ("no space around =", "args.save_steps=len( train_dataloader)"),
    ("a comment behind a gate", "args.evaluate_during_training:  # "),
    ("two blank lines in a loop", "\n\n\n            if (step + 1)"),
    ("double quotes", 'parser.add_argument("--train_batch_size", type=int'),
    ("single quotes", "parser.add_argument('--save_steps', type=int"),
]


def first(rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [row[0] for row in rows]


def code_of(where: str) -> str:
    if where in CODE:
        return CODE[where]
    classes = {node.name: node for node in MODULE.body if isinstance(node, ast.ClassDef)}
    return ast.unparse(classes[where])


@pytest.mark.parametrize(("where", "code"), [row[1:] for row in HABITS], ids=first(HABITS))
def test_the_script_keeps_the_habit(where: str, code: str) -> None:
    assert code in code_of(where)


@pytest.mark.parametrize("code", [row[1] for row in ABSENT], ids=first(ABSENT))
def test_the_script_keeps_the_lack(code: str) -> None:
    assert code not in CODE[""]


@pytest.mark.parametrize("text", [row[1] for row in SPELLED], ids=first(SPELLED))
def test_the_script_keeps_the_spelling(text: str) -> None:
    assert text in TEXT
