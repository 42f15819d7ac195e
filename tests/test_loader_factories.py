"""Functions that make the loader of a training and others: the training's alone is dealt."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import audit
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import torch
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler

{made}


def evaluate(model, batches):
    model.eval()
    right = 0
    for x, y in batches:
        right += (model(x).argmax(1) == y).sum().item()
    return right


def main(x, y, model):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    train_loader = {train}
    valid_loader = {valid}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        model.train()
        for x, y in train_loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(evaluate(model, valid_loader))
"""
CALL = "\n\nmain(*map(torch.load, ['x', 'y', 'model']))\n"
ALONE = "not torch.distributed.is_initialized()"
# What makes the loaders, how it is called for the training and to evaluate; and the same repaired.
Case = tuple[str, str, str]
FIX: dict[str, tuple[Case, Case]] = {
    "a parameter says whether it trains": (
        (
            "def make(data, train):\n    return DataLoader(data, batch_size=8, shuffle=train)",
            "make(x, True)",
            "make(y, train=False)",
        ),
        (
            "def make(data, train):\n    return DataLoader(data, batch_size=8,"
            f" shuffle=train and {ALONE},"
            f" sampler=None if ({ALONE} or not train) else DistributedSampler(data))",
            "make(x, True)",
            "make(y, train=False)",
        ),
    ),
    "a parameter says what it is for": (
        (
            'def make(data, split="valid"):\n    return DataLoader(data, batch_size=8)',
            'make(x, "train")',
            "make(y)",
        ),
        (
            'def make(data, split="valid"):\n    return DataLoader(data, batch_size=8,'
            f" sampler=None if ({ALONE} or split != 'train')"
            " else DistributedSampler(data, shuffle=False))",
            'make(x, "train")',
            "make(y)",
        ),
    ),
    "what it is for chooses whether it shuffles": (
        (
            "def make(data, split):\n    return DataLoader(data, batch_size=8,"
            " shuffle=True if split == 'train' else False)",
            'make(x, "train")',
            'make(y, "valid")',
        ),
        (
            "def make(data, split):\n    return DataLoader(data, batch_size=8,"
            f" shuffle=(True if split == 'train' else False) and {ALONE},"
            f" sampler=None if ({ALONE} or split != 'train') else"
            " DistributedSampler(data, shuffle=(True if split == 'train' else False)))",
            'make(x, "train")',
            'make(y, "valid")',
        ),
    ),
    "a number says whether it shuffles": (
        (
            "def make(data, split, mixed=1):\n    return DataLoader(data, batch_size=8,"
            " shuffle=bool(mixed))",
            'make(x, "train")',
            'make(y, "valid")',
        ),
        (
            "def make(data, split, mixed=1):\n    return DataLoader(data, batch_size=8,"
            f" shuffle=bool(mixed) and {ALONE},"
            f" sampler=None if ({ALONE} or split != 'train') else"
            " DistributedSampler(data, shuffle=bool(mixed)))",
            'make(x, "train")',
            'make(y, "valid")',
        ),
    ),
    "nothing tells them apart": (
        (
            "def make(data):\n    return DataLoader(data, batch_size=8, shuffle=True)",
            "make(x)",
            "make(y)",
        ),
        (
            "def make(data, to_train=False):\n"
            f"    return DataLoader(data, batch_size=8, shuffle={ALONE},"
            f" sampler=None if ({ALONE} or not to_train) else DistributedSampler(data))",
            "make(x, to_train=True)",
            "make(y)",
        ),
    ),
    "options beside": (
        (
            "def make(data, **options):\n    return DataLoader(data, shuffle=True, **options)",
            "make(x, **{'batch_size': 8})",
            "make(y, **{'batch_size': 8})",
        ),
        (
            "def make(data, to_train=False, **options):\n"
            f"    return DataLoader(data, shuffle={ALONE}, **options,"
            f" sampler=None if ({ALONE} or not to_train) else DistributedSampler(data))",
            "make(x, **{'batch_size': 8}, to_train=True)",
            "make(y, **{'batch_size': 8})",
        ),
    ),
    "arguments by place": (
        (
            "def make(data, *more):\n    return DataLoader(data, 8, shuffle=True)",
            "make(x, *y)",
            "make(y, *x)",
        ),
        (
            "def make(data, *more, to_train=False):\n"
            f"    return DataLoader(data, 8, shuffle={ALONE},"
            f" sampler=None if ({ALONE} or not to_train) else DistributedSampler(data))",
            "make(x, *y, to_train=True)",
            "make(y, *x)",
        ),
    ),
    "parameters by name alone": (
        (
            "def make(data, *, size=8):\n    return DataLoader(data, size, shuffle=True)",
            "make(x)",
            "make(y)",
        ),
        (
            "def make(data, *, size=8, to_train=False):\n"
            f"    return DataLoader(data, size, shuffle={ALONE},"
            f" sampler=None if ({ALONE} or not to_train) else DistributedSampler(data))",
            "make(x, to_train=True)",
            "make(y)",
        ),
    ),
    "the caller of the function knows": (
        (
            "def make(data, size=8):\n    return DataLoader(data, size, shuffle=True)\n\n\n"
            "def of(data, split):\n    return make(data)",
            'of(x, "train")',
            'of(y, "valid")',
        ),
        (
            "def make(data, size=8, to_train=False):\n"
            f"    return DataLoader(data, size, shuffle={ALONE},"
            f" sampler=None if ({ALONE} or not to_train) else DistributedSampler(data))\n\n\n"
            "def of(data, split):\n    return make(data, to_train=split == 'train')",
            'of(x, "train")',
            'of(y, "valid")',
        ),
    ),
}


@pytest.mark.parametrize(("before", "after"), FIX.values(), ids=FIX)
def test_the_loader_that_trains_is_dealt_alone(before: Case, after: Case) -> None:
    script, right = (
        SCRIPT.format(made=made, train=train, valid=valid) for made, train, valid in (before, after)
    )
    text = fixed("DF401", script)
    assert text == right
    assert not found("DF401", text)
    assert not found("DF503", text)


def test_one_evaluation_that_gets_several_loaders_goes_through_each_in_order() -> None:
    made = "def make(data, split):\n    shuffles = split != 'test'\n"
    made += "    return DataLoader(data, batch_size=8, shuffle=shuffles)"
    script = SCRIPT.format(made=made, train="make(x, 'train')", valid="make(y, 'valid')")
    script += "        print(evaluate(model, make(y, 'test')))\n"
    assert f"shuffle=shuffles and {ALONE}, sampler" in fixed("DF401", script)


SAMPLED = """\
def make(data, size{more}):
    if torch.distributed.is_initialized():
        sampler = {ranks}
    else:
        sampler = RandomSampler(data)
    return DataLoader(data, size, sampler=sampler)"""


SHARED = """\
def make(data, evaluates=False, size=None, shuffles=False):
    if torch.distributed.is_initialized():
        sampler = {ranks}
    else:
        sampler = RandomSampler(data)
    if size is None:
        loader = DataLoader(data, sampler=sampler, batch_size=8)
    else:
        loader = DataLoader(data, sampler=sampler, batch_size=size)
    return sampler, loader"""


def test_a_sampler_of_two_constructions_is_told_by_what_separates_all_their_calls() -> None:
    def text(ranks: str) -> str:
        train, valid = "make(x, shuffles=True)", "make(y, evaluates=True)"
        whole = SCRIPT.format(made=SHARED.format(ranks=ranks), train=train, valid=valid)
        for name in ("train_loader", "valid_loader"):
            whole = whole.replace(f"    {name} =", f"    _, {name} =")
        tested = "    _, test_loader = make(y, size=4)\n    print(evaluate(model, test_loader))\n"
        return whole + tested

    told = "DistributedSampler(data) if shuffles else torch.utils.data.SequentialSampler(data)"
    assert fixed("DF503", text("DistributedSampler(data)")) == text(told)
    assert not found("DF503", text(told))
    assert not found("DF401", text(told))


def test_what_a_function_deals_to_train_and_to_evaluate_is_dealt_to_train_alone() -> None:
    script = SCRIPT.format(
        made=SAMPLED.format(more="", ranks="DistributedSampler(data)"),
        train="make(x, 8)",
        valid="make(y, 8)",
    )
    in_order = "torch.utils.data.SequentialSampler(data)"
    right = SCRIPT.format(
        made=SAMPLED.format(
            more=", to_train=False", ranks=f"DistributedSampler(data) if to_train else {in_order}"
        ),
        train="make(x, 8, to_train=True)",
        valid="make(y, 8)",
    )
    assert fixed("DF503", script) == right
    assert not found("DF503", right)
    assert not found("DF401", right)
    judged = audit(Program(module(right + CALL)))
    assert [each.because for each in judged if each.code == "O4"] == [
        "the sampler never learns the epoch: nothing calls set_epoch"
    ]


# Of these all loaders that the function makes are trained on: it deals them as one.
ALL_TRAIN = {
    "one call": ("make(x)", "DataLoader(y)"),
    "the loader of the training, scored": ("make(x)", "train_loader"),
}


@pytest.mark.parametrize(("train", "valid"), ALL_TRAIN.values(), ids=ALL_TRAIN)
def test_a_function_that_makes_nothing_else_gets_no_parameter(train: str, valid: str) -> None:
    made = "def make(data):\n    return DataLoader(data, batch_size=8, shuffle=True)"
    text = fixed("DF401", SCRIPT.format(made=made, train=train, valid=valid))
    assert f"sampler=None if {ALONE} else DistributedSampler(data))" in text
    assert "def make(data):" in text


def test_two_constructions_in_one_function_get_one_parameter() -> None:
    made = (
        "def make(data, small):\n    if small:\n        return DataLoader(data, 2, shuffle=True)\n"
        "    return DataLoader(data, 4, shuffle=True)"
    )
    script = SCRIPT.format(made=made, train="make(x, x.small)", valid="make(y, y.small)")
    text = fixed("DF401", fixed("DF401", script))
    assert text.count("to_train=False") == text.count("to_train=True") == 1
    assert text.count("or not to_train) else DistributedSampler(data)") == 2


ENDLESS = """\
def make(data, size, endless=False):
    if endless:
        return DataLoader(data, size, shuffle=True, drop_last=True)
    return DataLoader(data, size, shuffle=True)


def of(data, **options):
    return make(data, 8, **options)"""


@pytest.mark.parametrize(("train", "dealt"), [("of(x, endless=x.is_large)", 2), ("of(x)", 1)])
def test_options_that_a_function_hands_on_may_choose_another_branch(train: str, dealt: int) -> None:
    text = SCRIPT.format(made=ENDLESS, train=train, valid="DataLoader(y)")
    for _ in range(2):
        text = fixed("DF401", text) if found("DF401", text) else text
    assert text.count("DistributedSampler(data)") == dealt


PAIRS = """\
def make(data, kind, split):
    if kind == "small":
        loader = DataLoader(data, 2, shuffle=True)
        return data, loader
    loader = DataLoader(data, 4, shuffle=True{more})
    return data, loader


def of(data, split):
    data, loader = make(data, data.kind, split)
    return data, loader"""


def of_pairs(more: str, train: str, valid: str) -> str:
    text = SCRIPT.format(made=PAIRS.format(more=more), train=train, valid=valid)
    return text.replace("    train_loader = ", "    _, train_loader = ").replace(
        "    valid_loader = ", "    _, valid_loader = "
    )


@pytest.mark.parametrize(
    ("train", "valid", "test"),
    [
        ('of(x, "train")', 'of(y, "valid")', "split == 'train'"),
        ("make(x, x.kind, x.split)", "make(y, y.kind, y.split)", "True"),
    ],
)
def test_what_another_branch_makes_is_dealt_to_train_alone(
    train: str, valid: str, test: str
) -> None:
    text = of_pairs("", train, valid)
    for _ in range(3):
        text = fixed("DF401", text) if found("DF401", text) else text
    assert not found("DF401", text)
    assert not found("DF503", text)
    assert text.count(f"sampler=None if ({ALONE} or not to_train) else DistributedSampler(") == 2
    assert text.count(f", to_train={test})") == 1
    assert "made_to_train" not in text


def test_a_shard_that_another_branch_makes_is_found() -> None:
    text = of_pairs(", sampler=DistributedSampler(data)", 'of(x, "train")', 'of(y, "valid")')
    text = text.replace(", 4, shuffle=True", ", 4")
    (finding,) = found("DF503", text)
    assert "scores this rank's part" in finding.because


# Where the function cannot be told, or is called by more than what is read here.
UNTOLD = {
    "any arguments": ("def make(*all):\n    return DataLoader(*all, shuffle=True)", "make(x, 8)"),
    "a decorator": (
        "@remember\ndef make(data, size):\n    return DataLoader(data, size, shuffle=True)",
        "make(x, 8)",
    ),
    "all in one": ("def make(data):\n    return DataLoader(data, shuffle=True)", "make(*[x])"),
}


@pytest.mark.parametrize(("made", "train"), UNTOLD.values(), ids=UNTOLD)
def test_what_cannot_be_told_apart_is_refused(made: str, train: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(made=made, train=train, valid=train.replace("x", "y")) + CALL)
    result = patch(script)
    assert "DF401" in result.refusal, result.diff()
    assert not result.changes


STEPS = """\
import torch
from torch.utils.data import DataLoader


def make(data):
    return DataLoader(data, batch_size=4, shuffle=True)


def train(loader, model, optimizer):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
"""
EPOCHS = """
model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    batches = make(torch.randn(24, 2))
    print(epoch)
    train(batches, model, optimizer)
"""


@pytest.mark.parametrize("module", ["train.py", "steps.py"])
def test_a_loader_of_one_epoch_learns_it_once_it_is_made(tmp_path: Path, module: str) -> None:
    script = tmp_path / "train.py"
    (tmp_path / module).write_text(STEPS)
    head = STEPS if module == "train.py" else "import torch\nfrom steps import make, train\n"
    script.write_text(head + EPOCHS)
    result = patch(script)
    assert result.refusal == ""
    assert (
        "    print(epoch)\n"
        "    if isinstance(batches.sampler, DistributedSampler):\n"
        "        batches.sampler.set_epoch(epoch)\n"
        "    train(batches, model, optimizer)\n"
    ) in result.changes[0].text


TRAINER = """\
import torch
from torch.utils.data import DataLoader


class Trainer:
    def train_plainly(self, model, loader):
        self.train(model, loader)

    def train(self, model, loader):
        for batch in loader:
            self.optimizer.zero_grad()
            model(batch).mean().backward()
            self.optimizer.step()


trainer = Trainer()
{more}
model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
trainer.optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    trainer.train(model, DataLoader(torch.randn(24, 2), shuffle=True))
"""


@pytest.mark.parametrize("more", ["", "trainer.train_plainly(net, batches)"])
def test_a_way_to_train_that_nothing_calls_passes_no_loader(tmp_path: Path, more: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINER.format(more=more))
    assert ("DF401" in patch(script).refusal) is bool(more)
