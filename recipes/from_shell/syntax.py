"""The commands of a shell file, as the grammar of tree-sitter-bash divides it.

Nothing is expanded and nothing is run. What the grammar tells in dozens of kinds of nodes is told
in the few of `nodes`.
Source: https://github.com/tree-sitter/tree-sitter-bash/blob/master/grammar.js
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import attrs

from ...errors import InputError
from .nodes import (
    Assignment,
    Body,
    Bracket,
    Branch,
    CaseStatement,
    Chain,
    Declaration,
    ForLoop,
    FunctionDefinition,
    IfStatement,
    Negation,
    OtherLoop,
    Part,
    Pipeline,
    RawWord,
    SimpleCommand,
    Statement,
)
from .refusals import refuse_no_bash, refuse_nul
from .repairs import parse
from .words import line_of, parts_of, text_of, words_of

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

TO_FILE = (">", ">>", "&>", "&>>", ">|")


def statements_of(text: str, source: str) -> tuple[Statement, ...]:
    """Parse a shell file into its commands; `source` is what a complaint begins with.

    Raises:
        InputError: the text is no bash, hides a character that bash reads otherwise than people
            do, or is nested too deeply; tree-sitter-bash is not installed.

    """
    text = text.replace("\r\n", "\n").removeprefix("\ufeff")
    # With an end of its own for a last line that a backslash continues.
    text = f"{text}\n\n"
    refuse_nul(text, source)
    content, root = parse(text.encode(), _parser(), source)
    refuse_no_bash(root, content, text, source)
    return _statements(root.children)


@cache
def _parser() -> Parser:
    try:
        # No part of a light installation, whose other commands do without.
        import tree_sitter_bash
        from tree_sitter import Language, Parser
    except ImportError:
        raise InputError(
            "tree-sitter-bash, which reads shell files, is not installed here: "
            "pip install 'ddpfix[shell]'"
        ) from None
    return Parser(Language(tree_sitter_bash.language()))


def _statements(nodes: Iterable[Node]) -> tuple[Statement, ...]:
    return tuple(one for one in map(_statement, nodes) if one is not None)


def _statement(node: Node) -> Statement | None:
    """The command that a node is; None for a word, a keyword, a comment and the like."""
    return KINDS[node.type](node) if node.type in KINDS else None


def _group(node: Node) -> Statement:
    if node.children[0].type == "((":
        return Bracket(line_of(node))  # whose value is not computed
    return Body(line_of(node), _statements(node.children), node.type == "subshell")


def _command(node: Node) -> Statement:
    words = words_of(node, node.children)
    timed = words[:1] and words[0].bare == "time"
    while timed and words and words[0].bare in ("time", "-p", "{"):
        words = words[1:]
    for child in node.children:
        if child.type == "subshell":  # behind time; elsewhere it is refused
            return _group(child)
    command: Statement = SimpleCommand(line_of(node), _assignments(node.children), words)
    for child in node.children:
        command = _with_redirection(command, child)
    return command


def _assigning(node: Node) -> Statement:
    nodes = [node] if node.type == "variable_assignment" else node.children
    return SimpleCommand(line_of(node), _assignments(nodes), ())


def _assignments(nodes: Iterable[Node]) -> tuple[Assignment, ...]:
    """Those to variables, and not to one element of an array."""
    return tuple(
        _assignment(node)
        for node in nodes
        if node.type == "variable_assignment" and node.children[0].type == "variable_name"
    )


def _assignment(node: Node) -> Assignment:
    name, sign, *rest = node.children
    elements, value = None, tuple[Part, ...]()
    if rest and rest[0].type == "array":
        elements = words_of(rest[0], rest[0].children[1:-1])
    elif rest:
        value = tuple(parts_of(rest[0]))
    return Assignment(line_of(node), text_of(name), sign.type == "+=", value, elements)


def _declaration(node: Node) -> Statement:
    keyword, *rest = node.children
    words = [word.bare for word in words_of(node, rest)]
    exports = keyword.type == "export" or any(one[:1] == "-" and "x" in one for one in words)
    names = tuple(word for word in words if word and not word.startswith("-"))
    return Declaration(line_of(node), exports, _assignments(rest), names)


def _bracket(node: Node) -> Statement:
    line, inner = line_of(node), node.named_children
    if len(inner) != 1:
        return Bracket(line)
    test, negated = _without_negation(inner[0])
    if test.type == "unary_expression":
        sign, *operands = test.children
    elif test.type == "binary_expression":
        left, sign, right = test.children
        left, again = _without_negation(left)  # the grammar has ! bind tighter than =
        operands, negated = [left, right], negated != again
    else:
        return Bracket(line)
    if any(one.type.endswith("_expression") for one in operands):
        return Bracket(line)
    words = tuple(RawWord(line_of(one), tuple(parts_of(one))) for one in operands)
    return Bracket(line, text_of(sign), words, negated)


def _without_negation(test: Node) -> tuple[Node, bool]:
    negated = test.type == "unary_expression" and test.children[0].type == "!"
    return (test.children[1], True) if negated else (test, False)


def _pipeline(node: Node) -> Statement | None:
    stages = _statements(node.children)
    if stages and isinstance(stages[0], Negation):  # of the pipeline, not of its first command
        line = stages[0].line
        return Negation(line, Pipeline(line, (stages[0].statement, *stages[1:])))
    return Pipeline(line_of(node), stages) if stages else None


def _negation(node: Node) -> Statement | None:
    statements = _statements(node.children)
    return Negation(line_of(node), statements[0]) if statements else None


def _chain(node: Node) -> Statement | None:
    links: list[tuple[str, Statement]] = []
    # Without recursion, as a list is in a list for each && before.
    while node.type == "list":
        left, right = (one for one in node.children if one.is_named and one.type != "comment")
        [sign] = [one.type for one in node.children if not one.is_named]
        statement = _statement(right)
        links += [(sign, statement)] if statement is not None else []
        node = left
    first = _statement(node)
    return Chain(first.line, first, tuple(reversed(links))) if first is not None else None


def _if(node: Node) -> Statement:
    inner: list[Node] = []
    others: list[Branch] = []
    for child in node.children:
        if child.type in ("elif_clause", "else_clause"):
            others.append(_branch(child.children))
        else:
            inner.append(child)
    return IfStatement(line_of(node), (_branch(inner), *others))


def _branch(nodes: Sequence[Node]) -> Branch:
    line = line_of(nodes[0])
    then = next((place for place, node in enumerate(nodes) if node.type == "then"), 0)
    condition = Body(line, _statements(nodes[1:then])) if then else None
    return Branch(line, condition, Body(line, _statements(nodes[then + 1 :])))


def _case(node: Node) -> Statement:
    items = [child for child in node.children if child.type == "case_item"]
    bodies = tuple(Body(line_of(item), _statements(item.children)) for item in items)
    return CaseStatement(line_of(node), bodies)


def _for(node: Node) -> Statement:
    name = node.child_by_field_name("variable")
    if name is None or node.children[0].type == "select":  # whose user sets it
        return _other_loop(node)
    values = words_of(node, node.children_by_field_name("value"))
    return ForLoop(line_of(name), text_of(name), values, _loop_body(node))


def _other_loop(node: Node) -> Statement:
    conditions = node.children_by_field_name("condition")
    condition = Body(line_of(node), _statements(conditions))
    return OtherLoop(line_of(node), condition, _loop_body(node))


def _loop_body(node: Node) -> Body:
    body = node.child_by_field_name("body")
    return Body(line_of(node), _statements(body.children if body else ()))


def _function(node: Node) -> Statement | None:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    statement = _statement(body) if body else None
    if name is None or statement is None:
        return None
    return FunctionDefinition(line_of(node), text_of(name), statement)


# In the grammar, a redirection belongs to all that stands before it in a chain or a pipeline; in
# bash, to the last command.


def _redirection(node: Node) -> Statement | None:
    body = node.child_by_field_name("body")
    statement = _statement(body) if body else SimpleCommand(line_of(node), (), ())
    for redirect in node.children_by_field_name("redirect"):
        statement = statement and _with_redirection(statement, redirect)
    return statement


def _with_redirection(statement: Statement, redirect: Node) -> Statement:
    """The statement where `redirect` is a redirection; else as it is."""
    if redirect.type == "heredoc_redirect":
        return _before_document(statement, redirect)
    if redirect.type != "file_redirect":
        return statement
    targets = words_of(redirect, redirect.children_by_field_name("destination"))
    number = redirect.child_by_field_name("descriptor")
    signs = {child.type for child in redirect.children}
    output = targets[0] if targets and signs.intersection(TO_FILE) else None
    if (number and text_of(number) == "2") or (output and output.bare == "/dev/null"):
        output = None
    # The grammar takes what follows a target for more of them.
    return _with_last(statement, lambda last: _extend(last, targets[1:], output))


def _before_document(statement: Statement, redirect: Node) -> Statement:
    """The statement with what stands behind << on its line, as a pipeline that goes on."""
    for child in redirect.children:
        if child.type == "pipeline":
            for stage in _statements(child.children):
                statement = _pipe_into(statement, stage)
        else:
            statement = _with_redirection(statement, child)
    arguments = words_of(redirect, redirect.children_by_field_name("argument"))
    statement = _with_last(statement, lambda last: _extend(last, arguments))
    operator = redirect.child_by_field_name("operator")
    right = redirect.child_by_field_name("right")
    behind = _statement(right) if right else None
    if operator is None or behind is None:
        return statement
    return Chain(statement.line, statement, ((operator.type, behind),))


def _with_last(statement: Statement, change: Callable[[Statement], Statement]) -> Statement:
    """The statement with the last command of it changed."""
    if isinstance(statement, Chain) and statement.links:
        *links, (sign, last) = statement.links
        return attrs.evolve(statement, links=(*links, (sign, _with_last(last, change))))
    if isinstance(statement, Pipeline):
        *stages, last = statement.stages
        return attrs.evolve(statement, stages=(*stages, _with_last(last, change)))
    if isinstance(statement, Negation):
        return attrs.evolve(statement, statement=_with_last(statement.statement, change))
    return change(statement)


def _extend(
    statement: Statement, words: tuple[RawWord, ...], output: RawWord | None = None
) -> Statement:
    """A simple command with more words and another output; anything else as it is."""
    if not isinstance(statement, SimpleCommand):
        return statement
    output = output or statement.output
    return attrs.evolve(statement, words=(*statement.words, *words), output=output)


def _pipe_into(statement: Statement, stage: Statement) -> Statement:
    """The statement with its last command piped into a stage, behind which a chain may go on."""
    first, links = (stage.first, stage.links) if isinstance(stage, Chain) else (stage, ())
    stages = first.stages if isinstance(first, Pipeline) else (first,)
    whole = _with_last(statement, lambda last: Pipeline(last.line, (last, *stages)))
    return Chain(whole.line, whole, links) if links else whole


KINDS: Mapping[str, Callable[[Node], Statement | None]] = {
    "command": _command,
    "unset_command": _command,
    "variable_assignment": _assigning,
    "variable_assignments": _assigning,
    "declaration_command": _declaration,
    "test_command": _bracket,
    "redirected_statement": _redirection,
    "pipeline": _pipeline,
    "negated_command": _negation,
    "list": _chain,
    "compound_statement": _group,
    "subshell": _group,
    "if_statement": _if,
    "case_statement": _case,
    "for_statement": _for,
    "c_style_for_statement": _other_loop,
    "while_statement": _other_loop,
    "function_definition": _function,
}
