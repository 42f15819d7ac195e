"""The script knows DataParallel only.

What         The script trains a model and never creates a process group.
At run time  Under a launcher every process trains the whole set on its own, on the same card, and
             the last one to save wins. Alone, one process drives all cards: the slow way, and
             torch advises against it.
Example      if args.n_gpu > 1: model = torch.nn.DataParallel(model)
Fix          The set-up of a process group goes behind the arguments and the choice of the device,
             or where the program starts; "cuda:0" becomes the card of each rank. DF301, DF401 and
             DF505 do the rest. Reported only where several cards are named by their numbers.
Fix safety   Safe: without a launcher the variables are absent and nothing changes.
Source       torch.nn.DataParallel; hazards counted in 13 of 134 public scripts
"""

from collections.abc import Iterator

from ..analysis.models.wrapping import averages_otherwise
from ..analysis.training.frameworks import starts_under_horovod
from ..analysis.training.program import Program
from ..analysis.training.train_loops import is_backward
from ..findings import Finding, Safety, Severity
from ..fixes.counted_cards import one_card_each
from ..fixes.group_setup import group_setup, why_no_group

CODE, SEVERITY, SAFETY = "DF201", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    if program.calls_to("init_process_group") or starts_under_horovod(program):
        return
    if not program.train_loops:
        yield from unseen_training(program)
        return
    edits = group = group_setup(program)
    because = "this script never makes a process group"
    if not edits:
        because += f", and gets none: {why_no_group(program)}"
    wraps = [place for place in program.calls_to("DataParallel") if program.is_live(*place)]
    for module, call in wraps:
        yield Finding(module, call, because, edits)
        edits = ()  # one finding carries them
    if wraps and group and not averages_otherwise(program):
        yield from cards_counted_elsewhere(program)


def cards_counted_elsewhere(program: Program) -> Iterator[Finding]:
    """Findings for the counts of a machine's cards in other modules than the script."""
    for module in program.modules[1:]:
        for stmt, edits in one_card_each(program, module):
            yield Finding(module, stmt, "a rank has one card of those that are counted", edits)


def unseen_training(program: Program) -> Iterator[Finding]:
    """A program that wraps a model to train it, where no loop can be seen that does."""
    if not program.makes_optimizer_for_wrapped:
        return
    wraps = [place for place in program.calls_to("DataParallel") if program.is_called(*place)]
    for module, call in program.calls_to("backward"):
        if is_backward(call) and program.is_called(module, call):
            because = "no loop around this backward pass can be seen: which one trains is not known"
            yield Finding(module, call, because)
            return
    unread = ", ".join(name for _, _, name in program.unread[:3])
    because = "no backward pass can be seen: what trains the model is not known"
    yield Finding(*wraps[0], f"{because}; {unread} cannot be read" if unread else because)
