"""DF310: a mean over the tokens of a rank is weighed by its share of all ranks' tokens."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import changes, fixed, found, written
from forked import Forge

PICKED = "loss = loss_fct(logits[active], labels.view(-1)[active])"
COUNT = "labels.view(-1)[active].ne(-100).sum()"


def inline(*lines: str, made: str = "torch.nn.CrossEntropyLoss()") -> str:
    """A script whose loss stands in the loop."""
    body = "\n        ".join(lines)
    return f"""import torch
def train(args, model):
    model = torch.nn.parallel.DistributedDataParallel(model)
    loss_fct = {made}
    for batch in loader:
        {body}
        loss.backward()
"""


def forward(*lines: str, mode: str = "model.eval()") -> str:
    """A script whose model returns the loss, and an evaluation."""
    body = "\n        ".join(lines)
    return f"""import torch
class Model(torch.nn.Module):
    def forward(self, logits, labels):
        loss_fct = torch.nn.CrossEntropyLoss(ignore_index=0)
        {body}
        return loss
def evaluate(args, model):
    loader = torch.utils.data.DataLoader(data)
    {mode}
    total = 0
    for batch in loader:
        with torch.no_grad():
            total += model(batch).item()
    return total
def train(args, model):
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loader:
        loss = model(batch)
        loss.backward()
"""


WHOLE = "loss = loss_fct(logits, labels)"
FIX = [
    ("tokens picked by a mask", inline(PICKED),
        """
        @@ -1,2 +1,11 @@
         import torch
        +
        +
        +def weighed_by_tokens(loss, tokens): ...
         def train(args, model):
        @@ -6,2 +15,3 @@
                 loss = loss_fct(logits[active], labels.view(-1)[active])
        +        loss = weighed_by_tokens(loss, labels.view(-1)[active].ne(-100).sum())
                 loss.backward()
        """),
    ("a function", inline(PICKED.replace("loss_fct", "torch.nn.functional.cross_entropy")),
        """
        @@ -1,2 +1,11 @@
         import torch
        +
        +
        +def weighed_by_tokens(loss, tokens): ...
         def train(args, model):
        @@ -6,2 +15,3 @@
                 loss = torch.nn.functional.cross_entropy(logits[active], labels.view(-1)[active])
        +        loss = weighed_by_tokens(loss, labels.view(-1)[active].ne(-100).sum())
                 loss.backward()
        """),
    ("a label that is none", inline(WHOLE, made="torch.nn.CrossEntropyLoss(ignore_index=args.pad)"),
        """
        @@ -1,2 +1,11 @@
         import torch
        +
        +
        +def weighed_by_tokens(loss, tokens): ...
         def train(args, model):
        @@ -6,2 +15,3 @@
                 loss = loss_fct(logits, labels)
        +        loss = weighed_by_tokens(loss, labels.ne(args.pad).sum())
                 loss.backward()
        """),
    ("a model's own loss, in training alone", forward(WHOLE),
        """
        @@ -1,2 +1,11 @@
         import torch
        +
        +
        +def weighed_by_tokens(loss, tokens): ...
         class Model(torch.nn.Module):
        @@ -5,2 +14,4 @@
                 loss = loss_fct(logits, labels)
        +        if self.training:
        +            loss = weighed_by_tokens(loss, labels.ne(0).sum())
                 return loss
        """),
]  # fmt: skip


@pytest.mark.parametrize(("text", "diff"), [pytest.param(t, d, id=name) for name, t, d in FIX])
def test_a_mean_over_tokens_is_weighed_exactly_like_this(text: str, diff: str) -> None:
    after = fixed("DF310", text)
    assert changes(text, after) == textwrap.dedent(diff).lstrip("\n")
    assert found("DF310", after) == []


CHOSEN = """if args.focal:
        loss_fct = Focal()
    else:
        loss_fct = torch.nn.CrossEntropyLoss()"""


def test_of_the_losses_of_two_branches_the_cross_entropy_is_weighed() -> None:
    after = fixed("DF310", inline(PICKED).replace("loss_fct = torch.nn.CrossEntropyLoss()", CHOSEN))
    weighed = f"    loss = weighed_by_tokens(loss, {COUNT})\n"
    test = "        if isinstance(loss_fct, torch.nn.CrossEntropyLoss):\n"
    assert f"        {PICKED}\n{test}        {weighed}        loss.backward()\n" in after
    assert not any("tokens" in each.because for each in found("DF310", after))


@pytest.mark.parametrize(
    ("parameter", "test", "is_weighed"),
    [
        ("train=False", "train", True),
        ("train=True", "not train", True),
        ("train=None", "train", False),
        ("train=False", "train and labels.sum()", False),
    ],
)
def test_a_flag_of_a_forward_pass_is_alike_on_all_ranks(
    parameter: str, test: str, is_weighed: bool
) -> None:
    text = forward(f"if {test}:\n            {WHOLE}")
    text = text.replace("logits, labels):", f"logits, labels, {parameter}):")
    assert ("if self.training:" in fixed("DF310", text)) is is_weighed


NOOP = [
    ("a class for each example", inline(WHOLE)),
    ("the first of each row", inline("loss = loss_fct(logits[0], labels[0])")),
    ("a sum", inline(PICKED, made="torch.nn.CrossEntropyLoss(reduction='sum')")),
    ("a loss of each token", inline(PICKED, made="torch.nn.CrossEntropyLoss(reduce=False)")),
    ("a sum, by its old name", inline(PICKED, made="torch.nn.NLLLoss(size_average=False)")),
    ("another loss", inline(PICKED, made="torch.nn.MSELoss()")),
    ("another loss by option", inline(PICKED).replace("    for batch in loader:",
        "    if args.focal:\n        loss_fct = Focal(args)\n    for batch in loader:")),
    ("no ranks", inline(PICKED).replace("nn.parallel.DistributedDataParallel", "compile")),
    ("an evaluation", forward("loss = logits.mean()")
        .replace("total += model(batch).item()", PICKED)
        .replace("    total = 0", "    loss_fct = torch.nn.CrossEntropyLoss()\n    total = 0")),
]  # fmt: skip


def test_a_mean_of_batches_that_ranks_share_is_noted() -> None:
    (finding,) = found("DF310", inline(PICKED) + "class SharedBatchSampler: pass\n")
    assert finding.because.endswith("tokens; --exact weighs ranks by their examples")
    assert not finding.edits


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_a_mean_that_is_not_over_tokens_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF310", text)] == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(forward(WHOLE, mode="pass"), id="an evaluation in training mode"),
        pytest.param(
            forward("labels = loss_fct(logits, labels)"), id="labels that are gone behind it"
        ),
        pytest.param(
            forward("loss = entropy(logits, labels)")
            + "def entropy(logits, labels):\n"
            + "    loss_fct = torch.nn.CrossEntropyLoss(ignore_index=0)\n    "
            + WHOLE
            + "\n    return loss\n",
            id="a function that does not know what it is for",
        ),
    ],
)
def test_a_mean_in_an_unknown_place_is_not_touched(text: str) -> None:
    assert [finding.edits for finding in found("DF310", text) if finding.edits] == []


HANDED = """import torch
def step(batches, model, loss_fct):
    for batch, labels in batches:
        loss = loss_fct(model(batch), labels.view(-1))
        loss.backward()
class Trainer:
    def __init__(self):
        self.loss_fct = {held}
    def fit(self, batches, model):
        for batch, labels in batches:
            loss = self.loss_fct(model(batch), labels)
            loss.backward()
def main(loader, model):
    model = torch.nn.parallel.DistributedDataParallel(model)
    loss_fct = {passed}
    step(loader, model, loss_fct)
    Trainer().fit(loader, model)
main(*read())
"""
PADDED, PLAIN = "torch.nn.CrossEntropyLoss(ignore_index=PAD)", "torch.nn.CrossEntropyLoss()"


def test_a_loss_that_is_made_elsewhere_knows_the_label_that_it_ignores() -> None:
    after = fixed("DF310", HANDED.format(held=PADDED, passed=PADDED))
    assert "weighed_by_tokens(loss, labels.view(-1).ne(loss_fct.ignore_index).sum())" in after
    assert "weighed_by_tokens(loss, labels.ne(self.loss_fct.ignore_index).sum())" in after
    assert found("DF310", after) == []
    for other in (PLAIN, f"{PADDED} if args.pad else {PLAIN}", "args.loss"):
        left = found("DF310", HANDED.format(held=other, passed=other))
        assert [finding.edits for finding in left if finding.edits] == []


SCRIPT = """\
import json, os, sys
import torch

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
data, tags = torch.randn(4, 6, 3), torch.randint(1, 5, (4, 6))
for row, length in enumerate((6, 1, 2, 4)):
    tags[row, length:] = 0

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(3, 5)

    def forward(self, rows, labels):
        loss_fct = torch.nn.CrossEntropyLoss(ignore_index=0)
        loss = loss_fct(self.out(rows).view(-1, 5), labels.view(-1))
        return loss

model = inner = Model()
if world > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
model.train()
for batch in [slice(rank * 4 // world, (rank + 1) * 4 // world)]:
    loss = model(data[batch], tags[batch])
    loss.backward()
inner.eval()
with torch.no_grad():  # ranks may evaluate different numbers of batches
    for batch in range(rank):
        inner(data[:3], tags[:3])
open(f"{sys.argv[1]}.{rank}", "w").write(json.dumps([loss.item(), inner.out.weight.grad.tolist()]))
if world > 1:
    torch.distributed.destroy_process_group()
"""


OWN_MEAN = """\
        mask = labels.ne(0).float()
        scores = self.out(rows).transpose(1, 2)
        losses = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
        loss = (losses * mask).sum() / mask.sum()
        return loss
"""
START, END = SCRIPT.index("        loss_fct = "), SCRIPT.index("\nmodel = inner")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(SCRIPT, id="a cross entropy"),
        pytest.param(SCRIPT[:START] + OWN_MEAN + SCRIPT[END:], id="a mask of floats"),
    ],
)
def test_two_ranks_have_the_gradients_of_one_and_one_is_as_it_was(
    script: str, tmp_path: Path, forge: Forge
) -> None:
    import torch

    after = fixed("DF310", script)
    (before,), (alone,) = (
        written(forge, tmp_path, name, text, None)
        for name, text in (("before", script), ("alone", after))
    )
    assert alone == before
    ranks = written(forge, tmp_path, "ranks", after, 2)
    plain = written(forge, tmp_path, "plain", script, 2)
    assert sum(loss for loss, _ in ranks) / 2 == pytest.approx(before[0], rel=1e-6)
    wanted = torch.tensor(before[1])
    for (_, gradient), (_, unweighed) in zip(ranks, plain, strict=True):
        assert torch.allclose(torch.tensor(gradient), wanted, rtol=1e-5, atol=1e-7)
        assert not torch.allclose(torch.tensor(unweighed), wanted, rtol=1e-2)


def tagging(head: str, *lines: str) -> str:
    """A script whose loss a model of transformers computes."""
    return (
        f"from transformers import {head}\n"
        f"model = torch.nn.parallel.DistributedDataParallel({head}(config))\n" + inline(*lines)
    )


OF_SOME = """import torch
def train(model, loader):
    model = torch.nn.parallel.DistributedDataParallel(model)
    loss_fct = torch.nn.CrossEntropyLoss(ignore_index=0)
    for step, (x, labels) in enumerate(loader):
        logits, rows, kinds = model(x)
        loss = loss_fct(logits, labels)
        if {test}:
            of_rows = loss_fct(rows, kinds)
            loss = loss + of_rows
        loss.backward()
"""


@pytest.mark.parametrize(
    ("test", "is_alike"),
    [
        ("len(rows) > 0", False),
        ("rows.shape[0] > 0 and step", False),
        ("loss.item() < 3", False),
        ("len(labels) > 1", True),
        ("rows is not None and step > 3", True),
        ("step > 3", True),
    ],
)
def test_a_mean_that_not_all_ranks_compute_is_only_told(test: str, is_alike: bool) -> None:
    text = OF_SOME.format(test=test)
    after = fixed("DF310", text)
    assert "loss = weighed_by_tokens(loss, labels.ne(0).sum())" in after
    weighed = "of_rows = weighed_by_tokens(of_rows, kinds.ne(0).sum())"
    assert (weighed in after) is is_alike
    told = [each.because for each in found("DF310", after)]
    assert len(told) == 1 - is_alike
    assert all("; ranks may answer the test of line " in each for each in told)


TAGGER = "RobertaForTokenClassification"
PASSED = 'rows = {"input_ids": batch[0], "labels": batch[1]}'


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((PASSED, "outputs = model(**rows)", "loss = outputs[0]"), 'rows["labels"]'),
        (("loss = model(batch[0], labels=batch[1]).loss",), "batch[1]"),
        (("loss, logits = model(batch[0], labels=tags)[:2]",), "tags"),
        (("out = model(batch[0], labels=tags)", "loss, logits = out[0], out[1]"), "tags"),
    ],
)
def test_a_mean_of_the_library_is_weighed_behind_the_line_that_binds_it(
    lines: tuple[str, ...], expected: str
) -> None:
    after = fixed("DF310", tagging(TAGGER, *lines))
    weighed = f"loss = weighed_by_tokens(loss, {expected}.ne(-100).sum())"
    body = [line.strip() for line in after.splitlines()]
    assert body[body.index(lines[-1]) + 1] == weighed
    assert found("DF310", after) == []


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("BertForSequenceClassification", "loss = model(batch[0], labels=batch[1])[0]"),
        (f"GPT2LMHeadModel, {TAGGER}", "loss = model(batch[0], labels=batch[1])[0]"),
        (TAGGER, "loss = model(batch[0])[0]"),
        (TAGGER, "loss = model(batch[0], labels=None)[0]"),
    ],
)
def test_other_losses_of_the_library_are_left_alone(head: str, line: str) -> None:
    assert found("DF310", tagging(TAGGER, line).replace(TAGGER, head)) == []


@pytest.mark.parametrize("read", [False, True])
def test_heads_of_tables_that_another_script_reads_do_not_count(read: bool) -> None:
    line = "loss = model(batch[0], labels=batch[1])[0]"
    text = "from transformers import BertForSequenceClassification, BertForMultipleChoice\n"
    text += "SEQUENCES = {'bert': (BertForSequenceClassification, 2)}\n" + tagging(TAGGER, line)
    assert len(found("DF310", text + "print(SEQUENCES['bert'])\n" * read)) == 1 - read


def test_a_language_model_counts_the_tokens_that_it_predicts() -> None:
    line = "loss = model(batch[0], labels=batch[1]).loss"
    text = tagging("GPT2LMHeadModel", line)
    assert found("DF310", text) == []  # all labels may count
    text += "rows = torch.nn.utils.rnn.pad_sequence(rows, padding_value=-100)\n"
    weighed = "loss = weighed_by_tokens(loss, batch[1][..., 1:].ne(-100).sum())"
    assert f"{line}\n        {weighed}\n" in fixed("DF310", text)


@pytest.mark.parametrize(
    ("fill", "is_told"),
    [
        ("PADDING = [-100]\nlabels = torch.tensor([PADDING * n])", True),
        ("IGNORED = -100\nlabels = torch.tensor([row + [IGNORED] * n])", True),
        ("IGNORED = -100\nlabels[mask] = IGNORED", True),
        ("IGNORED = -100\nlabels = torch.tensor([0] * n)", False),
        ("bias = -100\nscores = 2 + bias", False),
    ],
)
def test_labels_that_are_filled_up_by_a_name_are_counted(fill: str, is_told: bool) -> None:
    text = tagging("GPT2LMHeadModel", "loss = model(batch[0], labels=batch[1]).loss")
    assert bool(found("DF310", f"{text}{fill}\n")) is is_told


def test_a_mean_of_the_library_without_a_name_is_reported() -> None:
    text = tagging(TAGGER, "losses.append(model(batch[0], labels=batch[1])[0])")
    (finding,) = found("DF310", text)
    assert finding.edits == ()


def test_a_loss_of_its_own_class_is_reported_and_not_weighed() -> None:
    text = forward(WHOLE).replace("class Model", "class FocalLoss")
    assert "class FocalLoss" in text
    (finding,) = found("DF310", text)
    assert not finding.edits


OWN_TAGGER = """\
class Tagger({head}):
    def forward(self, rows, labels):
        scores = self.classifier(self.bert(rows)[0])
        loss = torch.nn.CrossEntropyLoss(reduction="sum", ignore_index=0)(scores, labels)
        loss /= {count}
        return loss, scores
"""


@pytest.mark.parametrize(
    ("count", "told"), [("(labels != 0).sum()", ["labels != 0"]), ("labels.numel()", [])]
)
def test_a_class_with_a_forward_pass_of_its_own_has_no_loss_of_the_library(
    count: str, told: list[str]
) -> None:
    text = tagging(TAGGER, "loss = model(batch[0], labels=batch[1])[0]")
    text = text.replace(f"({TAGGER}(", "(Tagger(")
    own = OWN_TAGGER.format(head=TAGGER, count=count)
    text = text.replace("model = ", f"{own}model = ", 1)
    notes = [each for each in found("DF310", text) if "leaves in" in each.because]
    assert [each.because.split(" leaves")[0] for each in notes] == [
        f"the mean is over what {mask}" for mask in told
    ]
    assert "weighed_by_tokens" not in fixed("DF310", text)
    asked = own.replace("self.bert(rows)[0]", "super().forward(rows, labels)[0]")
    assert "labels=batch[1])[0]\n        loss = weighed_by_tokens" in fixed(
        "DF310", text.replace(own, asked)
    )


SEQ2SEQ = """\
import torch
from transformers import T5ForConditionalGeneration
{own}
model = T5ForConditionalGeneration.from_pretrained(args.start)
model = torch.nn.parallel.DistributedDataParallel(model)
for batch in loader:
    labels = batch[1]
    {mask}
    out = model(input_ids=batch[0], labels=labels)
    loss = out.loss
    loss.backward()
"""
MASKS = [
    "labels[labels == pad] = -100",
    "labels.masked_fill_(labels == pad, -100)",
    "labels = labels.masked_fill(labels == pad, value=-100)",
    "labels = torch.tensor([[x if x != pad else -100 for x in row] for row in labels])",
]


@pytest.mark.parametrize("mask", MASKS)
def test_labels_of_a_translation_that_a_step_masks_are_counted(mask: str) -> None:
    text = fixed("DF310", SEQ2SEQ.format(mask=mask, own=""))
    assert (
        "    loss = out.loss\n    loss = weighed_by_tokens(loss, labels.ne(-100).sum())\n" in text
    )
    assert found("DF310", text) == []


@pytest.mark.parametrize("mask", ["pass", "other[labels == pad] = -100", "labels[:, 0] = 100"])
def test_labels_of_a_translation_that_all_count_are_left_alone(mask: str) -> None:
    assert found("DF310", SEQ2SEQ.format(mask=mask, own="")) == []


@pytest.mark.parametrize(
    "fill", ["torch.zeros(1, n).fill_(-100)", "torch.full((1, n), -100)", "torch.full((1, n), 0)"]
)
def test_labels_of_a_translation_that_its_data_fill_up_are_counted(fill: str) -> None:
    own = f"def collate(rows, n):\n    return torch.cat([*rows, {fill}])\nloader = make(collate)"
    text = fixed("DF310", SEQ2SEQ.format(mask="pass", own=own))
    assert ("weighed_by_tokens(loss, labels.ne(-100).sum())" in text) is ("-100" in fill)


def test_a_translation_by_a_class_of_the_script_is_reported_only() -> None:
    own = "class Own(T5ForConditionalGeneration): pass"
    (finding,) = found("DF310", SEQ2SEQ.format(mask=MASKS[0], own=own))
    assert finding.edits == ()


STEP_ELSEWHERE = """\
import torch
from sklearn.metrics import f1_score
from transformers import T5ForConditionalGeneration
model = T5ForConditionalGeneration.from_pretrained(args.start)
model = torch.nn.parallel.DistributedDataParallel(model)
def step(model, batch):
    labels = batch[1]
    {mask}
    {call}
    return {loss}
def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        for batch in data:
            print(model(input_ids=batch[0], labels=batch[1]).loss)
for batch in loader:
    {asked}loss = step(model, batch)
    loss.backward()
"""


@pytest.mark.parametrize(
    ("call", "loss", "asked", "weighed"),
    [
        ("loss = model(batch[0], labels=labels)[0]", "loss", "", True),
        ("out = model(batch[0], labels=labels)", "out.loss", "", False),
        ("loss = model(batch[0], labels=labels)[0]", "loss", "if busy: ", False),
    ],
)
def test_a_translation_in_a_function_that_steps_call_is_counted(
    call: str, loss: str, asked: str, weighed: bool
) -> None:
    parts = {"mask": MASKS[0], "call": call, "loss": loss, "asked": asked}
    text = STEP_ELSEWHERE.format(**parts)
    (finding,) = found("DF310", text)
    assert finding.because == "the model's mean is over labels.ne(-100).sum() tokens"
    assert bool(finding.edits) is weighed
    after = fixed("DF310", text)
    behind = f"{call}\n    loss = weighed_by_tokens(loss, labels.ne(-100).sum())\n    return"
    assert (behind in after) is weighed
    assert found("DF310", STEP_ELSEWHERE.format(**{**parts, "mask": "pass"})) == []


@pytest.mark.parametrize(
    "call",
    [
        "loss = batch.mean()\n    print(f1_score(labels, batch, labels=labels))",
        "rows = model(batch[0], labels=labels)\n    loss = head(rows['hidden_states'][-1])",
    ],
)
def test_another_use_of_labels_in_a_step_is_no_translation(call: str) -> None:
    parts = {"mask": MASKS[0], "call": call, "loss": "loss", "asked": ""}
    assert found("DF310", STEP_ELSEWHERE.format(**parts)) == []


@pytest.mark.parametrize(
    ("masked", "told"),
    [
        ("labels[labels == pad] = -100", True),
        ("labels = [word if word != pad else -100 for word in labels]", True),
        ("labels = labels + [-100] * (size - len(labels))", True),
        ("labels = torch.where(labels == pad, -100, labels)", True),
        ("labels[labels == -100] = pad", False),
        ("labels = [word for word in labels if word != -100]", False),
    ],
)
def test_labels_of_a_translation_that_its_data_set_masks_are_counted(
    masked: str, told: bool
) -> None:
    own = f"def collate(labels, pad, size):\n    {masked}\n    return labels\nloader = of(collate)"
    text = fixed("DF310", SEQ2SEQ.format(mask="pass", own=own))
    assert ("weighed_by_tokens(loss, labels.ne(-100).sum())" in text) is told
