"""DF307: in-batch negatives are those of the rank's own batch."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import changes, fixed, found, written
from ddpfix.patcher.findings import Safety, Severity
from forked import Forge

TRAIN = """\
import torch
def train(args, model):
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loader:
        code, text = model(batch), model(batch)
        {lines}
        loss.backward()
"""


def training(*lines: str) -> str:
    return TRAIN.format(lines="\n        ".join(lines))


def loss_of(parameters: str, *lines: str) -> str:
    """A script whose loss is a function of its own."""
    body = "\n    ".join(lines)
    return f"{training('loss = contrast(text, code)')}def contrast({parameters}):\n    {body}\n"


def masked(mask: str, *lines: str) -> str:
    """A script with a loss over pairs of equal labels, as a module."""
    body = "\n        ".join([*lines, f"same = {mask}", "scores = x @ x.t() / self.temperature"])
    return f"""{training("loss = contrast(text, tags)")}
class Contrast(torch.nn.Module):
    def forward(self, x, labels):
        {body}
        return (scores.log_softmax(1) * same).sum(1).mean()
"""


ENTROPY = "cross_entropy(scores, torch.arange(len(scores))) + entropy(scores.t(), labels)"
LABELS = "torch.arange(text.size(0), device=scores.device)"
LOSS = f"loss = loss_fct(scores, {LABELS})"
NOOP = [
    ("classes, not examples", training("scores = torch.mm(text, weight.t())",
        "loss = loss_fct(scores, labels)")),
    ("positions of a sentence", training("scores = head(text)", LOSS)),
    ("attention", training("scores = torch.einsum('abc,acd->abd', text, code)", LOSS)),
    ("pairs turned", training("scores = torch.einsum('ab,cb->ca', text, code)", LOSS)),
    ("sums multiplied", training("scores = torch.einsum('ab,cd->ac', text, code)", LOSS)),
    ("each with its own", training("scores = torch.einsum('ab,ab->aa', text, code)", LOSS)),
    ("one similarity for each", training("scores = F.cosine_similarity(text, code)", LOSS)),
    ("an outer difference", training("scores = text.unsqueeze(1) - code.unsqueeze(0)", LOSS)),
    ("all ranks' vectors", training("scores = text @ WithOtherRanks.apply(code).t()", LOSS)),
    ("gathered by the script", training("every = all_gather(code)", "scores = text @ every.t()",
        LOSS)),
    ("the diagonal of a matrix of weights", training("loss = (weight * torch.eye(4)).sum()")),
    ("the diagonal of the scores of classes", training("scores = torch.mm(text, code.t())",
        "loss = (head(text) * torch.eye(4)).sum()")),
    ("the diagonal of a matrix of the model's", training("loss = torch.diag(model.mix).sum()")),
    ("a loss of each side", training("loss = nll(text) + nll(code.t())")),
    ("no ranks", training("scores = text @ code.t()", LOSS)
        .replace("nn.parallel.DistributedDataParallel", "compile")),
    ("nothing trains on it", training("loss = model(text)") + f"""
def evaluate(text, code):
    scores = text @ code.t()
    {LOSS}
"""),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_scores_without_negatives_of_the_batch_are_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF307", text)] == []


def picked(mask: str) -> str:
    """A script whose loss picks pairs of a batch by their labels."""
    lines = ("d = torch.cdist(x, x)", f"same = {mask}", "return (d * same).max(1)[0].mean()")
    return loss_of("x, y", *lines)


@pytest.mark.parametrize(
    ("mask", "is_told"),
    [
        ("y[:, None] == y[None]", True),
        ("y.unsqueeze(0) == y.unsqueeze(1)", True),
        ("y.expand(n, n).eq(y.expand(n, n).t())", True),
        ("y[:, :, None] == y[:, None, :]", False),
        ("y.unsqueeze(1) == y.unsqueeze(2)", False),
        ("y == x.argmax(1)", False),
    ],
)
def test_pairs_that_are_picked_by_their_labels_are_of_one_rank(mask: str, is_told: bool) -> None:
    told = found("DF307", picked(mask))
    assert bool(told) is is_told
    assert all(each.edits == () for each in told)


@pytest.mark.parametrize(
    ("labels", "is_told"),
    [
        ("torch.as_tensor(range(len(scores))).to(scores.device)", True),
        ("torch.LongTensor(list(range(4)))", True),
        ("torch.LongTensor(torch.arange(4)).to(scores.device)", True),
        ("torch.arange(4)\n        own = torch.cat([own[2:], own[:2]])", True),
        ("torch.arange(4)\n        own = own.roll(2)", True),
        ("torch.arange(4)\n        own[::2] += 1\n        own = own.long().to(args.gpu)", True),
        ("torch.tensor([kind for kind in kinds])", False),
        ("torch.tensor(sorted(kinds)).to(len(range(4)))", False),
    ],
)
def test_labels_may_be_numbers_that_python_counts(labels: str, is_told: bool) -> None:
    text = training("scores = text @ code.T", f"own = {labels}", "loss = loss_fct(scores, own)")
    assert bool(found("DF307", text)) is is_told


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        (("a, b = text.mm(code.t()), wise.mm(code.t())", "loss = torch.abs(a - b).sum()"), True),
        (("a = text.mm(code.t())", "loss = torch.abs(a - wise).sum()"), True),
        (("a = torch.einsum('ab,cb->ac', text, code)", "loss = F.mse_loss(a, wise)"), True),
        (("a = text @ code.t()", "loss = F.kl_div(a.log_softmax(1), wise.softmax(1))"), True),
        (("a = text @ code.t()", "accuracy = a.mean()", "loss = text.mean()"), False),
        (("a = text @ code.transpose(-1, -2)", "loss = (a @ code).mean()"), False),
        (("a = text.mm(head.weight)", "loss = F.mse_loss(a, wise)"), False),
    ],
)
def test_distances_between_scores_of_all_pairs_are_noted(
    lines: tuple[str, ...], is_told: bool
) -> None:
    told = found("DF307", training(*lines))
    assert [each.edits for each in told] == [()] * is_told


@pytest.mark.parametrize(
    ("turned", "scores", "is_told"),
    [
        ("code = code.permute(1, 0)", "torch.matmul(text, code)", True),
        ("columns = code.t()", "text @ columns", True),
        ("columns = code.T", "text.mm(columns)", True),
        ("columns = code.permute(1, 0, 2)", "text @ columns", False),
        ("columns = code.transpose(1, 2)", "torch.matmul(text, columns)", False),
        ("columns = head.weight", "text @ columns", False),
    ],
)
def test_vectors_may_be_turned_in_a_line_above(turned: str, scores: str, is_told: bool) -> None:
    told = found("DF307", training(turned, f"scores = {scores}", LOSS))
    assert [each.edits for each in told] == [()] * is_told


def test_a_method_that_forward_calls_runs_in_training() -> None:
    text = f"""{training("loss = model(text, code)")}
class Net(torch.nn.Module):
    def forward(self, text, code):
        return self.contrast(text, code)
    def contrast(self, text, code):
        scores = text @ code.T
        return loss_fct(scores, torch.arange(len(scores)))
"""
    assert found("DF307", text)
    assert not found("DF307", text.replace("return self.contrast(text, code)", "return text"))


FIX = [
    ("einsum", "torch.einsum('ab,cb->ac', text, code)",
        "torch.einsum('ab,cb->ac', text, WithOtherRanks.apply(code))"),
    ("mm", "torch.mm(text, code.t()) * 20", "torch.mm(text, WithOtherRanks.apply(code).t()) * 20"),
    ("turned by torch", "torch.mm(text, torch.transpose(code, 0, 1))",
        "torch.mm(text, torch.transpose(WithOtherRanks.apply(code), 0, 1))"),
    ("matmul", "text @ code.T", "text @ WithOtherRanks.apply(code).T"),
    ("a sum of products", "(text[:, None, :] * code[None, :, :]).sum(-1)",
        "(text[:, None, :] * WithOtherRanks.apply(code)[None, :, :]).sum(-1)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(old, new, id=name) for name, old, new in FIX]
)
def test_the_others_vectors_are_gathered_where_scores_are_made(old: str, new: str) -> None:
    inline, gathered = (training(f"loss = loss_fct({x}, torch.arange(4))") for x in (old, new))
    assert rest_of(fixed("DF307", inline)) == rest_of(gathered)
    if old != FIX[1][1]:
        named, gathered = (training(f"scores = {x}", LOSS) for x in (old, new))
        assert rest_of(fixed("DF307", named)) == rest_of(gathered)


def test_scores_that_are_worked_on_are_named_and_left_as_they_are() -> None:
    text = training(
        "scores = torch.mm(text, code.t())",
        "scores = scores.masked_fill(mask, -1e9)",
        "old = torch.mm(text, queue.detach().t())",
        "scores = torch.cat([scores, old], dim=1)",
        LOSS,
    )
    (finding,) = found("DF307", text)
    assert "scores against code of this rank's batch only" in finding.because
    assert not finding.edits


def rest_of(script: str) -> str:
    """A script from its function on, behind what it imports and defines."""
    return script[script.index("def train(") :]


WHOLE = [
    ("both directions", loss_of("a, b, t=0.1", "scores = a @ b.t() / t", f"return {ENTROPY}"),
        """
        @@ -1,2 +1,25 @@
         import torch
        +
        +
        +class WithOtherRanks(torch.autograd.Function): ...
         def train(args, model):
        @@ -8,2 +31,4 @@
         def contrast(a, b, t=0.1):
        +    a = WithOtherRanks.apply(a)
        +    b = WithOtherRanks.apply(b)
             scores = a @ b.t() / t
        """),
    ("normalised vectors", loss_of("a, b", "pass", "x = b / b.norm(dim=1, keepdim=True)",
        "scores = a @ x.t()", f"return {ENTROPY}"), """
        @@ -1,2 +1,25 @@
         import torch
        +
        +
        +class WithOtherRanks(torch.autograd.Function): ...
         def train(args, model):
        @@ -9,2 +32,4 @@
             pass
        +    a = WithOtherRanks.apply(a)
        +    b = WithOtherRanks.apply(b)
             x = b / b.norm(dim=1, keepdim=True)
        """),
    ("a mask by torch.eq", masked("torch.eq(labels, labels.T)", "labels = labels.view(-1, 1)"),
        """
        @@ -1,2 +1,35 @@
         import torch
        +
        +
        +class WithOtherRanks(torch.autograd.Function): ...
        +
        +
        +def with_other_ranks(vectors, rows): ...
         def train(args, model):
        @@ -10,2 +43,4 @@
             def forward(self, x, labels):
        +        labels = with_other_ranks(x, labels)
        +        x = WithOtherRanks.apply(x)
                 labels = labels.view(-1, 1)
        """),
    ("a mask by unsqueeze", masked("labels.unsqueeze(0) == labels.unsqueeze(1)"), """
        @@ -1,2 +1,35 @@
         import torch
        +
        +
        +class WithOtherRanks(torch.autograd.Function): ...
        +
        +
        +def with_other_ranks(vectors, rows): ...
         def train(args, model):
        @@ -10,2 +43,4 @@
             def forward(self, x, labels):
        +        labels = with_other_ranks(x, labels)
        +        x = WithOtherRanks.apply(x)
                 same = labels.unsqueeze(0) == labels.unsqueeze(1)
        """),
    ("a mask by None", masked("labels[None, :].eq(labels[:, None])"), """
        @@ -1,2 +1,35 @@
         import torch
        +
        +
        +class WithOtherRanks(torch.autograd.Function): ...
        +
        +
        +def with_other_ranks(vectors, rows): ...
         def train(args, model):
        @@ -10,2 +43,4 @@
             def forward(self, x, labels):
        +        labels = with_other_ranks(x, labels)
        +        x = WithOtherRanks.apply(x)
                 same = labels[None, :].eq(labels[:, None])
        """),
]  # fmt: skip


@pytest.mark.parametrize(("text", "diff"), [pytest.param(t, d, id=name) for name, t, d in WHOLE])
def test_a_loss_of_its_own_is_given_the_whole_batch(text: str, diff: str) -> None:
    after = fixed("DF307", text)
    assert changes(text, after) == textwrap.dedent(diff).lstrip("\n")
    assert found("DF307", after) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            training("scores = text @ code.t()", LOSS, "print(scores.diagonal())"),
            id="the scores are used elsewhere too",
        ),
        pytest.param(
            training("loss = loss_fct(text @ model(batch).t(), torch.arange(4))"),
            id="vectors without a name",
        ),
        pytest.param(
            training("scores = (text @ code.t()).t()", LOSS), id="columns are the examples"
        ),
        pytest.param(
            loss_of("a, b", "scores = a @ b.t()", f"return {ENTROPY}, scores"),
            id="a function that returns the scores too",
        ),
        pytest.param(
            loss_of("a, b, weights", "scores = a @ b.t()", f"return ({ENTROPY} * weights).mean()"),
            id="a function that is given weights of examples",
        ),
        pytest.param(
            loss_of("a, b", "a = model(a)", "scores = a @ b.t()", f"return {ENTROPY}"),
            id="a function that computes the vectors",
        ),
        pytest.param(
            training("loss = model(batch)")
            + """
class Model:
    def forward(self, out, labels):
        scores = torch.mm(out, out.t())
        return scores * (labels[:, None] == labels[None, :])
""",
            id="a mask of equal labels",
        ),
        pytest.param(
            training(
                "scores = torch.matmul(text, code.t())",
                "own = torch.eye(len(text)).to(text.device)",
                "loss = -(scores.log_softmax(1) * own).sum(1).mean()",
            ),
            id="the diagonal",
        ),
    ],
)
def test_scores_that_cannot_be_gathered_are_noted_and_not_touched(text: str) -> None:
    (finding,) = found("DF307", text)
    assert finding.edits == ()


def test_negatives_of_one_rank_are_a_note() -> None:
    (finding,) = found("DF307", training("scores = text @ code.t()", LOSS))
    assert finding.severity is Severity.NOTE
    assert finding.safety is Safety.UNSAFE


SCRIPT = """\
import json, os, sys
import torch
from torch.nn import functional as F

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
data = torch.randn(8, 3)

{loss}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.code, self.text = torch.nn.Linear(3, 5), torch.nn.Linear(3, 5)

    def forward(self, x):
        code, text = self.code(x), self.text(x)
        {call}
        return loss

model = inner = Model()
if world > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
for batch in [data[rank * 8 // world : (rank + 1) * 8 // world]]:
    loss = model(batch)
    loss.backward()
with torch.no_grad():  # ranks may evaluate different numbers of batches
    for batch in range(rank):
        inner(data[:3])
grads = torch.cat([p.grad.flatten() for p in inner.parameters()]).tolist()
open(f"{{sys.argv[1]}}.{{rank}}", "w").write(json.dumps([loss.item(), grads]))
if world > 1:
    torch.distributed.destroy_process_group()
"""
ONE_DIRECTION = """
        scores = torch.einsum("ab,cb->ac", text, code)
        loss = F.cross_entropy(scores, torch.arange(x.size(0), device=scores.device))
"""
BOTH_DIRECTIONS = """
class Contrast(torch.nn.Module):
    def forward(self, code, text):
        code = F.normalize(code, dim=-1)
        scores = text @ code.t() / 0.1
        labels = torch.arange(scores.size(0))
        return F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)
"""
# The mean is over those that have another of their label: a number that differs from rank to rank.
BY_LABELS = """
class Contrast(torch.nn.Module):
    def forward(self, features, labels):
        features = F.normalize(features, dim=1)
        others = ~torch.eye(len(features), dtype=torch.bool)
        labels = labels.contiguous().view(-1, 1)
        same = torch.eq(labels, labels.T) & others
        scores = torch.matmul(features, features.T) / 0.5
        scores = scores - torch.logsumexp(scores.masked_fill(~others, -1e9), 1, keepdim=True)
        found = same.sum(1)
        return -((scores * same).sum(1)[found > 0] / found[found > 0]).mean()
"""
LOSSES = [
    ("in one direction", "", ONE_DIRECTION.strip(), "WithOtherRanks.apply(code))"),
    ("in both directions", BOTH_DIRECTIONS, "loss = Contrast()(code, text)",
        "text = WithOtherRanks.apply(text)"),
    ("by labels", BY_LABELS, "loss = Contrast()(code + text, (x[:, 0] * 2).round().long())",
        "labels = with_other_ranks(features, labels)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "call", "edit"), [pytest.param(*rest, id=name) for name, *rest in LOSSES]
)
def test_two_ranks_have_the_loss_and_gradients_of_one_at_the_global_batch(
    loss: str, call: str, edit: str, tmp_path: Path, forge: Forge
) -> None:
    text = SCRIPT.format(loss=loss, call=call)
    new = fixed("DF307", text)
    assert edit in new
    ((alone, gradient),) = written(forge, tmp_path, "alone", text, None)
    old, gathered = (
        written(forge, tmp_path, name, source, 2) for name, source in (("old", text), ("new", new))
    )
    assert sum(loss for loss, _ in gathered) / 2 == pytest.approx(alone, rel=1e-6)
    assert sum(loss for loss, _ in old) / 2 != pytest.approx(alone, rel=1e-2)
    for _, found_gradient in gathered:
        assert found_gradient == pytest.approx(gradient, rel=1e-5, abs=1e-7)
    assert old[0][1] != pytest.approx(gradient, rel=1e-2, abs=1e-3)


PAIRS = [
    ("scores = F.cosine_similarity(text.unsqueeze(1), code.unsqueeze(0), dim=-1)", LOSS),
    ("scores = args.sim(code.unsqueeze(0), text.unsqueeze(1)) / 0.05", LOSS),
    (
        "scores = F.cosine_similarity(text.unsqueeze(1), code.unsqueeze(0), dim=-1)",
        "n = torch.arange(text.shape[0])\n        n = (n - n % 2 * 2) + 1",
        "loss = F.cross_entropy(scores, n)",
    ),
    ("scores = text @ code.T", "loss = soft(scores, wanted) + soft(scores.T, wanted.T)"),
    ("scores = torch.mm(text, code.t())", "loss = -torch.diag(scores.log_softmax(1)).mean()"),
    ("scores = args.sim(code, code)", "loss = scores.exp().sum() - scores.diagonal(1).sum()"),
]


@pytest.mark.parametrize("lines", PAIRS)
def test_similarities_of_all_pairs_are_noted(lines: tuple[str, ...]) -> None:
    (finding,) = found("DF307", "import torch.nn.functional as F\n" + training(*lines))
    assert finding.because.endswith("scores against code of this rank's batch only")
    assert finding.severity is Severity.NOTE
    assert finding.edits == ()


THEMSELVES = [
    ("mask = (torch.ones_like(scores) - torch.eye(len(x))).bool()", "x @ x.t().contiguous()", True),
    ("mask = ~torch.eye(len(x), dtype=torch.bool)", "torch.mm(x, x.T)", True),
    ("mask = torch.eye(len(x)).bool()", "F.cosine_similarity(x[:, None], x[None], dim=-1)", True),
    ("scores.fill_diagonal_(-9)", "x @ x.transpose(0, 1)", True),
    ("mask = 1 - torch.eye(len(x))", "torch.mm(x, x.t().data)", True),
    ("supports = [torch.eye(len(x))]", "x @ x.t()", False),
    ("mask = ~torch.eye(9, dtype=torch.bool)", "x @ x.transpose(1, 2)", False),
    ("mask = ~torch.eye(9, dtype=torch.bool)", "x @ self.words.t()", False),
    ("mask = (x != 0).bool()", "x @ x.t()", False),
]


@pytest.mark.parametrize(("mask", "product", "is_told"), THEMSELVES)
def test_examples_that_are_scored_among_themselves(mask: str, product: str, is_told: bool) -> None:
    lines = (f"scores = torch.exp({product} / 0.5)", mask, "return -scores.log().mean()")
    told = found("DF307", loss_of("x, y", *lines))
    assert [each.because.split(" of ")[0] for each in told] == ["line 9 scores against x"] * is_told


def test_a_penalty_on_weights_that_are_alike_is_no_contrast() -> None:
    lines = ("scores = x @ x.t() * (1 - torch.eye(len(x)))", "return scores.pow(2).sum()")
    assert found("DF307", loss_of("x, y", *lines)) == []


CRITERION = """
class Criterion(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.sim = among if kind == "dot" else by_order
        {holds}

    def forward(self, {takes}):
        {lines}

def among(x, y):
    return x.mm(y.t())
"""


@pytest.mark.parametrize(
    ("holds", "takes", "lines", "because"),
    [
        (
            "self.sim = among",
            "x, y",
            "scores = self.sim(x, y)\n        return (1 - scores.diag()).clamp(min=0).sum()",
            "scores against y of this rank's batch only",
        ),
        (
            "pass",
            "scores",
            "n = scores.shape[0]\n        scores = scores.squeeze()\n"
            "        return F.cross_entropy(scores, torch.arange(n).long())",
            "the labels number the rows of scores, of this rank's batch only",
        ),
        ("pass", "scores", "return F.cross_entropy(scores, torch.arange(10))", ""),
    ],
)
def test_scores_that_a_function_makes_or_a_loss_is_given(
    holds: str, takes: str, lines: str, because: str
) -> None:
    given = "text, code" if takes == "x, y" else "similarity(text, code)"
    script = f"import torch.nn.functional as F\n{training(f'loss = Criterion(kind)({given})')}"
    told = found("DF307", script + CRITERION.format(holds=holds, takes=takes, lines=lines))
    assert [each.because.endswith(because) for each in told] == [True] * bool(because)


VIEWS = (
    "turns = model(batch)",
    "scores = model(turns)",
    "of = torch.arange({count}).unsqueeze(1).expand(-1, 3).contiguous().view(-1)",
    "loss = torch.nn.functional.cross_entropy(scores, of)",
)


@pytest.mark.parametrize(
    ("count", "first", "is_told"),
    [
        ("batch.size(0)", VIEWS[0], True),
        ("n", "n = int(batch.size(0) / 4)", True),
        ("n", "n = 4", False),
        ("batch.size(0)", "turns = all_gather(model(batch))", False),
    ],
)
def test_views_that_are_labelled_by_their_example_are_noted(
    count: str, first: str, is_told: bool
) -> None:
    told = found("DF307", training(first, *(line.format(count=count) for line in VIEWS[1:])))
    assert [each.because for each in told] == [
        "the labels number the rows of scores, of this rank's batch only"
    ] * is_told


CRITERION_OF_BATCHES = """
class Criterion(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.others = {mask}
    def forward(self, x, y):
        scores = torch.mm(x, x.t().data).div_(0.1).exp_() * self.others
        pos = (x * y).sum(1)
        lost = torch.log(pos / scores.sum(1))
        return -lost.sum(0) / len(x)
contrast = Criterion(8)
"""


@pytest.mark.parametrize(
    ("mask", "is_told"), [("1 - torch.eye(size)", True), ("torch.ones(size, size)", False)]
)
def test_a_mask_of_the_diagonal_may_be_held_by_the_loss(mask: str, is_told: bool) -> None:
    text = training("loss = contrast(text, code)") + CRITERION_OF_BATCHES.format(mask=mask)
    told = found("DF307", text)
    assert [each.because.split(" of ")[0] for each in told] == [
        "line 14 scores against x"
    ] * is_told
