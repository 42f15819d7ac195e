"""Point mutants of Python sources: what `mutants.py` draws from."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """New text for one span of a file, in bytes."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str

    @property
    def mutation(self) -> str:
        """What becomes of what."""
        return " -> ".join(" ".join(text.split()) for text in (self.old, self.new))


class Source:
    """A file's text, by the positions of its nodes."""

    def __init__(self, root: Path, file: str) -> None:
        self.file, self.content = file, (root / file).read_bytes()
        self.starts = [0]
        for line in self.content.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node starts and ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.content[start:end].decode()

    def mutant(self, kind: str, start: int, end: int, new: str) -> Mutant:
        """The mutant that has ``new`` from ``start`` to ``end``."""
        line = self.content.count(b"\n", 0, start) + 1
        return Mutant(self.file, line, kind, start, end, self.content[start:end].decode(), new)

    def applied(self, mutant: Mutant) -> bytes:
        """The whole file, mutated."""
        return self.content[: mutant.start] + mutant.new.encode() + self.content[mutant.end :]


Change = tuple[int, int, str]  # from, to, new text
COMPARISONS = {
    "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
    "in": "not in", "not in": "in", "is": "is not", "is not": "is",
}  # fmt: skip
PLACES = {"before": "after", "after": "before", "first": "last", "last": "first"}


def between(
    source: Source, left: ast.expr, right: ast.expr, words: dict[str, str]
) -> Change | None:
    """The word between two operands, replaced; none where brackets stand there, too."""
    start, end = source.span(left)[1], source.span(right)[0]
    gap = source.content[start:end].decode()
    word = " ".join(gap.split())
    return (start, end, gap.replace(gap.strip(), words[word])) if word in words else None


def comparison(source: Source, node: ast.AST) -> Iterator[Change | None]:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for left, right in itertools.pairwise(sides):
            yield between(source, left, right, COMPARISONS)


def connective(source: Source, node: ast.AST) -> Iterator[Change | None]:
    if isinstance(node, ast.BoolOp):
        for left, right in itertools.pairwise(node.values):
            yield between(source, left, right, {"and": "or", "or": "and"})


def negation(source: Source, node: ast.AST) -> Iterator[Change | None]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield *source.span(node), f"({source.text(node.operand)})"
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield *source.span(node.test), f"(not ({source.text(node.test)}))"
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield *source.span(test), f"(not ({source.text(test)}))"


def number(source: Source, node: ast.AST) -> Iterator[Change | None]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield *source.span(node), str(node.value + 1)
        yield *source.span(node), f"({node.value - 1})"


def truth(source: Source, node: ast.AST) -> Iterator[Change | None]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield *source.span(node), str(not node.value)


def result(source: Source, node: ast.AST) -> Iterator[Change | None]:
    if isinstance(node, ast.Return) and node.value and source.text(node.value) != "None":
        yield *source.span(node.value), "None"


def statement(source: Source, node: ast.AST) -> Iterator[Change | None]:
    plain = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant | ast.Yield)
    if plain or isinstance(node, ast.Assign | ast.AugAssign | ast.Raise | ast.Continue):
        assert isinstance(node, ast.stmt)
        yield *source.span(node), "pass"


def arguments(source: Source, node: ast.AST) -> Iterator[Change | None]:
    if isinstance(node, ast.Call):
        for first, second in itertools.pairwise(node.args):
            yield swapped(source, first, second)


def insertion(source: Source, node: ast.AST) -> Iterator[Change | None]:
    """Another place beside a statement, or another order of what is put there."""
    if isinstance(node, ast.Call):
        for word in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(word, ast.Constant) and word.value in PLACES:
                yield *source.span(word), f'"{PLACES[word.value]}"'
        if ast.unparse(node.func).endswith("Insert") and len(node.args) == 2 and not node.keywords:
            end = source.span(node.args[1])[1]
            yield end, end, ', "after"'
    elif isinstance(node, ast.Tuple | ast.List):
        for first, second in itertools.pairwise(node.elts):
            if meet(first, second):
                yield swapped(source, first, second)


def meet(first: ast.expr, second: ast.expr) -> bool:
    """Whether they look like two insertions at one place: the order of others is nothing."""
    places = []
    for one in (first, second):
        if not isinstance(one, ast.Call) or not ast.unparse(one.func).endswith("Insert"):
            return False
        rest = [*one.args[2:], *(keyword.value for keyword in one.keywords)]
        places.append([ast.dump(part) for part in (*one.args[:1], *rest)])
    return places[0] == places[1]


def swapped(source: Source, first: ast.expr, second: ast.expr) -> Change | None:
    (start, middle), (other, end) = source.span(first), source.span(second)
    one, two = source.text(first), source.text(second)
    gap = source.content[middle:other].decode()
    return (start, end, f"{two}{gap}{one}") if ast.dump(first) != ast.dump(second) else None


KINDS: dict[str, Callable[[Source, ast.AST], Iterator[Change | None]]] = {
    "comparison": comparison,
    "and, or": connective,
    "not": negation,
    "number": number,
    "truth": truth,
    "result": result,
    "statement": statement,
    "arguments": arguments,
    "insertion": insertion,
}


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All that runs: no annotations, no assertions, and nothing for a type checker alone."""
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TYPE_CHECKING":
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield from nodes(child)


def mutants(root: Path, files: Sequence[str]) -> dict[str, list[Mutant]]:
    """Every mutant of some files, by kind."""
    found: dict[str, list[Mutant]] = defaultdict(list)
    for source in (Source(root, file) for file in files):
        for node in nodes(ast.parse(source.content)):
            for kind, changes in KINDS.items():
                made = (change for change in changes(source, node) if change)
                found[kind] += [source.mutant(kind, *change) for change in made]
    return found
