"""Rank tests evaluated for a lone process, rank 0 and the other ranks."""

from __future__ import annotations

import ast

import pytest
from cases import module
from ddpfix.patcher.analysis.ranks.rank_reach import (
    EVERYONE,
    UNKNOWN,
    Role,
    rank_gates,
    roles_reaching,
    value_for_role,
)
from ddpfix.patcher.analysis.training.program import Program

ALONE, MAIN, OTHER = Role.SINGLE, Role.MAIN, Role.OTHER


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("args.local_rank == -1", (True, False, False)),
        ("args.local_rank != -1", (False, True, True)),
        ("args.local_rank in [-1, 0]", (True, True, False)),
        ("args.local_rank not in (-1, 0)", (False, False, True)),
        ("local_rank == 0", (False, True, False)),
        ("not args.local_rank > 0", (True, True, False)),
        ("torch.distributed.get_rank() == 0", (True, True, False)),
        ("torch.distributed.is_initialized()", (False, True, True)),
        ("'LOCAL_RANK' in os.environ", (False, True, True)),
        ("'RANK' in os.environ and 'MASTER_ADDR' in os.environ", (False, True, True)),
        ("int(os.environ.get('RANK', -1)) == 0", (False, True, False)),
        ("int(os.environ['SLURM_PROCID']) == 0", (UNKNOWN, True, False)),
        ("'SLURM_PROCID' in os.environ", (UNKNOWN, UNKNOWN, UNKNOWN)),
        ("int(os.environ['OMPI_COMM_WORLD_SIZE']) > 1", (UNKNOWN, True, True)),
        ("args.n_gpu > 1", (UNKNOWN, False, False)),
        ("args.fp16", (UNKNOWN, UNKNOWN, UNKNOWN)),
        ("args.local_rank in [-1, 0] and args.fp16", (UNKNOWN, UNKNOWN, False)),
        ("args.local_rank == -1 or args.no_cuda", (True, UNKNOWN, UNKNOWN)),
        ("is_main()", (True, True, False)),
        ("alone", (True, False, False)),
        ("rank == 1", (UNKNOWN, UNKNOWN, UNKNOWN)),
        ("twice", (True, True, True)),
    ],
)
def test_a_test_has_a_value_for_each_role(
    test: str, expected: tuple[object, object, object]
) -> None:
    text = f"""
        import os, torch
        def is_main():
            return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        def main(args, local_rank):
            alone = args.local_rank == -1
            twice = args.local_rank == -1
            twice = True
            rank = 0
            rank += 1
            if {test}:
                pass
        """
    script = module(text)
    condition = script.nodes(ast.If)[0].test
    got = tuple(value_for_role(script, condition, role) for role in (ALONE, MAIN, OTHER))
    assert tuple(item if item is UNKNOWN else bool(item) for item in got) == expected


def roles_at_mark(text: str) -> frozenset[Role]:
    script = module(text)
    (mark,) = script.calls_to("mark")
    return roles_reaching(Program(script), script, mark)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("def f(args):\n    mark()", EVERYONE, id="an open place is reached by all"),
        pytest.param(
            "def f(args):\n    if args.local_rank in [-1, 0]:\n        mark()",
            {ALONE, MAIN},
            id="a gate keeps the other ranks away",
        ),
        pytest.param(
            "def f(args):\n    if args.ddp:\n        torch.distributed.init_process_group('gloo')\n"
            "        number = torch.distributed.get_rank()\n    else:\n        number = 0\n"
            "    if number == 0:\n        mark()",
            {ALONE, MAIN},
            id="a number of the group's, where an option asks for one",
        ),
        pytest.param(
            "def f(args):\n    if args.ddp:\n        number = torch.distributed.get_rank()\n"
            "    else:\n        number = 0\n    if number == 0:\n        mark()",
            EVERYONE,
            id="a number of the group's, where nothing tells when there is one",
        ),
        pytest.param(
            "def f():\n    rank, size = (int(os.environ[k]) for k in ('RANK', 'WORLD_SIZE'))\n"
            "    if rank == 0:\n        mark()",
            {MAIN},
            id="a rank that is read with the size",
        ),
        pytest.param(
            "def f():\n    size, here = map(int, [os.getenv(k) for k in ['WORLD_SIZE', 'RANK']])\n"
            "    if here > 0:\n        mark()",
            {OTHER},
            id="the same by map",
        ),
        pytest.param(
            "def f():\n    rank, size = (int(options[k]) for k in ('RANK', 'WORLD_SIZE'))\n"
            "    if rank == 0:\n        mark()",
            EVERYONE,
            id="what other options than the environment's say",
        ),
        pytest.param(
            "def f(args):\n    if local_rank in [-1, 0]:\n        a()\n    else:\n        mark()",
            {OTHER},
            id="the else branch is theirs",
        ),
        pytest.param(
            "def f(args):\n    if args.local_rank not in [-1, 0]:\n        return\n    mark()",
            {ALONE, MAIN},
            id="an early return is a gate",
        ),
        pytest.param(
            "def g():\n    mark()\ndef f(args):\n    if args.local_rank == 0:\n        g()",
            {MAIN},
            id="a gate at the only call site holds in the function",
        ),
        pytest.param(
            "def g():\n    mark()\ndef f(args):\n    if local_rank == 0:\n        g()\n    g()",
            EVERYONE,
            id="an open second call site lifts it",
        ),
        pytest.param(
            "def g():\n    mark()\ndef h():\n    g()\nif local_rank == 0:\n    g()",
            {MAIN},
            id="a call in a function that nothing calls does not",
        ),
        pytest.param(
            "def f(args):\n    mark() if args.local_rank == -1 else None",
            {ALONE},
            id="a conditional expression is a gate",
        ),
        pytest.param(
            "def f(args):\n    first = [-1, 0]\n    if args.local_rank in first:\n        mark()",
            {ALONE, MAIN},
            id="a list with a name is one",
        ),
        pytest.param(
            "def f(paths):\n    found = []\n    for path in paths:\n        found.append(path)\n"
            "    if found:\n        mark()",
            EVERYONE,
            id="a list that is filled is none",
        ),
        pytest.param(
            "def f(args):\n    device = 'cuda'\n    if device:\n        mark()",
            EVERYONE,
            id="a text that is not empty is true",
        ),
        pytest.param(
            "def f(args, world_size):\n    if world_size - 1:\n        mark()",
            {MAIN, OTHER},
            id="so is a number",
        ),
        pytest.param(
            "def f(args):\n    device = ''\n    if device:\n        a()\n    else:\n        mark()",
            EVERYONE,
            id="an empty text is not",
        ),
    ],
)
def test_roles_that_reach_a_place(text: str, expected: frozenset[Role]) -> None:
    assert roles_at_mark(text) == expected


def test_a_gate_that_no_role_fails_is_no_gate() -> None:
    script = module("def f(args):\n    if args.fp16:\n        mark()")
    assert rank_gates(script, script.calls_to("mark")[0]) == []
