"""Programs and what the audit is to say of them: at lines that end in ``# here``."""

from __future__ import annotations

import textwrap

from cases import module
from ddpfix.patcher.analysis.program import Program
from ddpfix.patcher.audit import audit

MAIN = "\n\nif __name__ == '__main__':\n    main()\n"


def program_of(text: str) -> Program:
    """A text as a program; a main guard is added where it has none."""
    text = textwrap.dedent(text).lstrip("\n")
    return Program(module(text if "__main__" in text else text + MAIN))


def audited(text: str) -> set[tuple[str, str, int]]:
    """Obligation, answer and line of each verdict on a text."""
    return {(each.code, each.answer.value, each.line) for each in audit(program_of(text))}


# A name, a program, an obligation and what it says: holds, violated or unknown.
READ: list[tuple[str, str, str, str]] = [
    (
        "an import inside the function makes the name local above it",
        """
        import os
        def main():
            print(os.name)  # here
            import os
        """,
        "O1",
        "violated",
    ),
    (
        "a name that an earlier statement binds",
        """
        def main():
            import os
            print(os.name)
        """,
        "O1",
        "holds",
    ),
    (
        "a name that is bound in one branch and read in the other",
        """
        def main(flag=True):
            if flag:
                folder = "out"
            else:
                print(folder)  # here
        """,
        "O1",
        "violated",
    ),
    (
        "a name that one of the branches binds",
        """
        def main(flag=True):
            if flag:
                folder = "out"
            print(folder)
        """,
        "O1",
        "holds",
    ),
    (
        "a name that rank 0 alone binds",
        """
        import torch
        def main():
            torch.distributed.init_process_group("nccl")
            rank = torch.distributed.get_rank()
            if rank == 0:
                best = 1
            print(best)  # here
        """,
        "O1",
        "violated",
    ),
    (
        "a keyword that is given twice",
        """
        def main():
            dict(a=1, a=2)  # here
        """,
        "O1",
        "violated",
    ),
    (
        "a name that nothing binds",
        """
        def main():
            print(os.name)  # here
        """,
        "O1",
        "violated",
    ),
    (
        "a name that a loop's later pass reads",
        """
        def main():
            for i in range(3):
                if i:
                    print(last)
                last = i
        """,
        "O1",
        "holds",
    ),
    (
        "a name of a comprehension",
        """
        def main(items=()):
            print([x for x in items], [y + 1 for y in items])
        """,
        "O1",
        "holds",
    ),
    (
        "a name that is asked for in a try",
        """
        def main():
            try:
                print(here)
            except NameError:
                here = 1
        """,
        "O1",
        "holds",
    ),
]
