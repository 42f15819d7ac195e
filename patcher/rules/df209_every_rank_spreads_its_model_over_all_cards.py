"""Every rank spreads its model over all cards.

What         A model that is trained is loaded with device_map="auto", or another word for all cards
             that are visible, and ranks train it.
At run time  Each process puts layers on the cards of the others: they run out of memory, accelerate
             refuses to move the model, or DistributedDataParallel meets layers on several cards.
             One process is right, and trains on all cards in turn.
Example      AutoModelForCausalLM.from_pretrained(name, device_map="auto")
Fix          A rank takes the whole model to the card of LOCAL_RANK. A model that one card cannot
             hold is trained by one process, or sharded.
Fix safety   Safe: without LOCAL_RANK, or a card, nothing changes.
Source       https://huggingface.co/docs/accelerate/concept_guides/big_model_inference
"""

import ast
from collections.abc import Iterator

from ..analysis.models.trained_models import last_part, trained_models
from ..analysis.models.wrapping import OTHER_WAYS
from ..analysis.training.frameworks import OWNS_LOOP, calls_one_of
from ..analysis.training.program import Program
from ..editing.edits import Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module

CODE, SEVERITY, SAFETY = "DF209", Severity.ERROR, Safety.SAFE

OPTION = "device_map"
ALL_CARDS = ("auto", "balanced", "balanced_low_0", "sequential")
OWN_CARD = (
    "{{'': int(os.environ['LOCAL_RANK'])}}"
    " if 'LOCAL_RANK' in os.environ and torch.cuda.is_available() else {text}"
)


def findings(program: Program) -> Iterator[Finding]:
    groups = [g for g in program.calls_to("init_process_group") if program.is_live(*g)]
    if not groups or not program.train_loops:
        return
    if calls_one_of(program, OTHER_WAYS | OWNS_LOOP):
        return
    trained = {last_part(name) for name in trained_models(program)}
    for module in program.modules:
        for word in module.nodes(ast.keyword):
            value = word.value
            if word.arg != OPTION or not program.is_live(module, value) or not spreads(value):
                continue
            if trained.isdisjoint(names_of_model(program, module, value)):
                continue  # a frozen model answers from wherever its layers are
            text = module.text(value)
            alone = f"({text})" if isinstance(value, ast.IfExp) else text
            code = OWN_CARD.format(text=alone)
            edits = (Rewrite(value, code), Import("os"), Import("torch"))
            because = f"{OPTION}={text} is all cards of the machine on every rank"
            yield Finding(module, value, because, edits)


def spreads(value: ast.expr) -> bool:
    """Whether a device map is all cards: a word for them, perhaps only where there is a card."""
    if isinstance(value, ast.IfExp):
        asks = value.test.func if isinstance(value.test, ast.Call) else None
        is_of_card = isinstance(asks, ast.Attribute) and asks.attr == "is_available"
        return is_of_card and (spreads(value.body) or spreads(value.orelse))
    return isinstance(value, ast.Constant) and value.value in ALL_CARDS


def names_of_model(program: Program, module: Module, node: ast.AST) -> set[str]:
    """What the model is called that a statement makes; where it is returned, by the callers."""
    stmt, function = module.statement(node), module.function(node)
    if isinstance(stmt, ast.Return) and function is not None:
        callers = program.callers(function)
        return {name for where, call in callers for name in names_bound(where, call)}
    return names_bound(module, node)


def names_bound(module: Module, node: ast.AST) -> set[str]:
    """The last parts of what a statement assigns to: ``model``, ``self.model``."""
    stmt = module.statement(node)
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    parts = [part for target in targets for part in getattr(target, "elts", [target])]
    return {last_part(module.text(part)) for part in parts}
