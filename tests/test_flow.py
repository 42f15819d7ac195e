"""Names that a rank reads unbound and a lone process does not."""

from __future__ import annotations

import textwrap

import pytest
from cases import module
from ddpfix.patcher.analysis.ranks.rank_reach import Role
from ddpfix.patcher.analysis.ranks.unbound_reads import unbound_reads


def reads(body: str) -> list[tuple[str, Role]]:
    script = module("def f(args):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    "))
    return [(unbound.name.id, unbound.role) for unbound in unbound_reads(script)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            """
            if args.local_rank == -1:
                results = g()
            print(results)
            """,
            [("results", Role.MAIN)],
            id="bound for a lone process only",
        ),
        pytest.param(
            """
            if args.local_rank in [-1, 0]:
                writer = g()
            writer.close()
            """,
            [("writer", Role.OTHER)],
            id="bound on rank 0, read by all",
        ),
        pytest.param(
            """
            if args.local_rank in [-1, 0]:
                writer = g()
            if args.local_rank in [-1, 0]:
                writer.close()
            """,
            [],
            id="read under the same gate",
        ),
        pytest.param(
            """
            results = {}
            if args.local_rank == -1:
                results = g()
            print(results)
            """,
            [],
            id="bound before the gate",
        ),
        pytest.param(
            """
            if args.local_rank in [-1, 0]:
                cache = g()
            else:
                cache = h()
            print(cache)
            """,
            [],
            id="bound in both branches",
        ),
        pytest.param(
            """
            if args.local_rank not in [-1, 0]:
                return
            if args.local_rank in [-1, 0]:
                cache = g()
            print(cache)
            """,
            [],
            id="the ranks without it have left",
        ),
        pytest.param(
            """
            if args.local_rank != -1:
                print(results)
            if args.local_rank == -1:
                results = g()
            """,
            [("results", Role.MAIN)],
            id="read by ranks alone",
        ),
        pytest.param(
            """
            if args.local_rank == -1:
                return
            print(cache)
            if args.local_rank != -1:
                cache = g()
            """,
            [("cache", Role.MAIN)],
            id="read where a lone process has left",
        ),
        pytest.param(
            """
            if args.local_rank == -1:
                return
            print(cache)
            cache = g()
            """,
            [("cache", Role.MAIN)],
            id="bound under no test, read where a lone process has left",
        ),
        pytest.param(
            """
            if args.local_rank != -1:
                print(results)
                results = g()
            """,
            [("results", Role.MAIN)],
            id="read and bound by ranks alone",
        ),
        pytest.param(
            """
            if args.local_rank not in [-1, 0]:
                try:
                    raise ValueError
                except ValueError:
                    pass
            else:
                cache = g()
            print(cache)
            """,
            [("cache", Role.OTHER)],
            id="a handler leads on",
        ),
        pytest.param(
            """
            for step in range(3):
                if step > 0:
                    print(last)
                last = step
            """,
            [],
            id="bound in an earlier round of the loop",
        ),
        pytest.param(
            """
            if args.fp16:
                amp = g()
            if args.fp16:
                amp.scale()
            """,
            [],
            id="a flag is no rank",
        ),
        pytest.param(
            """
            try:
                if args.local_rank == -1:
                    score = g()
            except ValueError:
                score = 0
            print([score for score in range(3)])
            print(score)
            """,
            [],
            id="a handler may have bound it",
        ),
    ],
)
def test_names_are_read_unbound_by_the_roles_that_skip_their_binding(
    body: str, expected: list[tuple[str, Role]]
) -> None:
    assert reads(body) == expected
