"""Commands as users paste them: what is read of each, by words and in quotes."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from ddpfix.errors import InputError
from ddpfix.recipes.pasted_command import PastedCommand, read_command

ARGUMENTS = ("--lr", "0.1", "--name", "a b")
TAIL = "train.py --lr 0.1 --name 'a b'"

# What follows `launch --`, and what it says beside the script and its arguments.
MODULE = {"script": "src/train.py", "module": "src.train"}
FORMS: list[tuple[str, dict[str, Any]]] = [
    (f"python {TAIL}", {}),
    (f"python3.8 -u -W ignore {TAIL}", {}),
    (f"/opt/env/bin/python {TAIL}", {"python": "/opt/env/bin/python"}),
    (f"CUDA_VISIBLE_DEVICES=0,1 python {TAIL}", {"environment": {"CUDA_VISIBLE_DEVICES": "0,1"}}),
    (f"env -u FOO A=1 nohup python {TAIL}", {"environment": {"A": "1"}}),
    (f"nice -n 5 python {TAIL}", {}),
    (f"torchrun {TAIL}", {"launcher": "torchrun", "processes": 1}),
    (f"torchrun --nproc_per_node=4 {TAIL}", {"launcher": "torchrun", "processes": 4}),
    (
        f"CUDA_VISIBLE_DEVICES=1,3 torchrun --nproc-per-node gpu {TAIL}",
        {"launcher": "torchrun", "processes": 2, "environment": {"CUDA_VISIBLE_DEVICES": "1,3"}},
    ),
    (
        f"torchrun --nnodes 2 --nproc-per-node 4 {TAIL}",
        {"launcher": "torchrun", "processes": 8},
    ),
    (
        f"python -m torch.distributed.launch --nproc_per_node=4 --master_port 29501 {TAIL}",
        {"launcher": "torch.distributed.launch", "processes": 4},
    ),
    (
        f"accelerate launch --num_processes 2 --mixed_precision no {TAIL}",
        {"launcher": "accelerate", "processes": 2},
    ),
    (f"accelerate launch {TAIL}", {"launcher": "accelerate"}),
    (f"deepspeed --num_gpus=2 {TAIL}", {"launcher": "deepspeed", "processes": 2}),
    (f"./{TAIL}", {"script": "./train.py"}),
    (
        "python -m src.train --lr 0.1 --name 'a b'",
        {"script": "src/train.py", "module": "src.train"},
    ),
    (
        "python -m torch.distributed.run --nproc_per_node 2 -m src.train --lr 0.1 --name 'a b'",
        {**MODULE, "launcher": "torch.distributed.run", "processes": 2},
    ),
]


def expected(facts: dict[str, Any]) -> PastedCommand:
    plain = {"script": "train.py", "arguments": ARGUMENTS, "environment": {}}
    return PastedCommand(**{**plain, **facts})


@pytest.mark.parametrize(("text", "facts"), FORMS, ids=[text for text, _ in FORMS])
def test_a_command_is_read_from_the_words_that_a_shell_makes_of_it(
    text: str, facts: dict[str, Any]
) -> None:
    assert read_command(shlex.split(text)) == expected(facts)


@pytest.mark.parametrize(
    "text",
    [
        f"python {TAIL} 2>&1 | tee log",
        f"python {TAIL} > log 2>&1 &",
        f"python {TAIL} &> log",
        "python train.py \\\n  --lr 0.1 \\\n  --name 'a b'\n",
        f"python {TAIL}  # the best so far",
        f"mkdir -p out && python {TAIL}",
        f"echo start; python {TAIL}; echo end",
    ],
)
def test_a_quoted_command_loses_what_belongs_to_the_shell(text: str) -> None:
    assert read_command([text]) == expected({})


def test_a_variable_exported_before_a_quoted_command_is_its_own() -> None:
    found = read_command([f"export CUDA_VISIBLE_DEVICES=0,1,2; python {TAIL}"])
    assert found.environment == {"CUDA_VISIBLE_DEVICES": "0,1,2"}
    assert found.cards == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ls", "-l"], "ls -l: no Python script is started in it"),
        (["python"], "python: no Python script is started in it"),
        (["python -c 'import torch'"], "no Python script is started in it"),
        (["cd src && python train.py"], "the command changes to src: go there first"),
        (["python train.py --data $DATA"], r"\$DATA: a variable that only your shell knows"),
        (["torchrun --nproc_per_node $N train.py"], r"\$N: a variable that only your shell knows"),
        (["python train.py 'open"], "no closing quotation"),
        (["torchrun", "--nproc_per_node=gpu", "train.py"], "how many cards that was is not told"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_command(words)
    assert "\n" not in str(refused.value)
