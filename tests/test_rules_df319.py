"""DF319: Steps go on with what each rank has seen."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Net())
loader = DataLoader(data, sampler=DistributedSampler(data))
{before}
for epoch in range(9):
    {head}
    for step, (x, y, number) in enumerate(loader):
        features, logits = model(x)
        {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {after}
    {end}
"""
PARTS = {
    "before": "pass",
    "head": "pass",
    "loss": "loss = F.cross_entropy(logits, y)",
    "after": "pass",
    "end": "pass",
}


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


EACH = 'losses = F.cross_entropy(logits, y, reduction="none"); loss = losses.mean()'
BUFFER = """class Buffer:
    def __init__(self):
        self.rows = []
    def push(self, rows):
        self.rows += rows
buffer = Buffer()"""

NOISE = """class Noise:
    scale = 2.0
    def add_to(self, x):
        noisy = x.clone()
        noisy[0] = self.scale
        return self.put_in(noisy)
    def put_in(self, x):
        return x.float()
noise = Noise()"""

LEARNER = """class Learner:
    def update(self, x, y):
        self.updates += 1
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
learner = Learner()"""

TABLE = "table = numpy.zeros(9)"
SOFT = "table[number] = logits.detach()"

CODES = """class Codes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {made}
    def forward(self, x, number):
        {line}
        return (x @ self.rows.t()).mean()
codes = Codes()"""
ROWS = "self.rows = torch.zeros(9, 4)"
CODED = "loss = codes(features, number)"

# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("a step that is called an update", script(before=LEARNER, loss="loss = learner.update(x, y)")),
    ("a loss with a buffer, which ranks share", script(
        before=CODES.format(made='self.register_buffer("rows", torch.zeros(9, 4))',
            line="self.rows[number] = x.data"), loss=CODED)),
    ("a loss with rows that it sets to numbers", script(
        before=CODES.format(made=ROWS, line="self.rows[0] = 1"), loss=CODED)),
    ("a loss with rows of all ranks", script(
        before=CODES.format(made=ROWS, line="self.rows[number] = gather(x.data)"), loss=CODED)),
    ("a table that is only printed", script(head=TABLE, after=SOFT, end="print(table)")),
    ("a table of steps", script(
        head=TABLE, after="table[step] = loss.item()", end="numpy.save('table.npy', table)")),
    ("a table of what is known before", script(
        head=TABLE, after="table[number] = 1", end="numpy.save('table.npy', table)")),
    ("a table that ranks join behind", script(head=TABLE, after=SOFT,
        end="torch.distributed.all_reduce(table)\n    numpy.save('table.npy', table)")),
    ("a table of numbers that ranks join", script(
        head=TABLE, after=f"logits = gathered(logits); {SOFT}",
        end="numpy.save('table.npy', table)")),
    ("a line for a file of the settings", script(
        before="config = {'log': open('log.txt', 'w'), 'scale': 2.0}",
        loss="loss = config['scale'] * F.cross_entropy(logits, y)",
        after="line = f'{loss}'; config['log'].write(line + chr(10))")),
    ("a loss that is added up for a log", script(before="total = 0",
        after="total += loss.item()", end="print(total / len(loader))")),
    ("meters whose text has the name of an output", script(before="meter = Meter()",
        loss="output = logits; loss = F.cross_entropy(output, y)",
        after="meter.update(loss.item()); output = '{}'.format(meter)")),
    ("a model that a function takes and gives back", script(
        before="def step(model, x):\n    return model, model(x)",
        loss="model, logits = step(model, x); loss = F.cross_entropy(logits, y)")),
    ("a comprehension has a name of its own", script(before="meters = {}",
        after="meters['loss'] = loss.item(); print([meter for meter in meters.values()])\n"
        "        for meter in meters.values():\n            meter.reset()")),
    ("a loss that is the epoch's mean behind the steps", script(head="total = 0",
        after="total += loss.item()", end="loss = total / len(loader); save(model, loss)")),
    ("what the round before of one batch has computed", script(
        loss="loss = 0\n        for t in range(9):\n"
        "            if t > 0 and missing[t]:\n                x[t] = mean[0]\n"
        "            mean = model(x[t])\n            loss += mean.sum()")),
    ("a total whose mean gets the loss's name for a log", script(head="total = {'loss': 0}",
        after="total['loss'] += loss.item()\n        loss = total['loss'] / (step + 1)")),
    ("a list for a log", script(head="seen = []", after="seen.append(loss.item())",
        end="print(sum(seen))")),
    ("each example's last loss, which is printed", script(before="last = torch.zeros(9)",
        loss=EACH, after="last[number] = losses.detach()", end="print(last.mean())")),
    ("as many parts as a list of totals has", script(head="totals = [0, 0]",
        loss="loss = 0\n        for part in range(len(totals)):\n"
        "            loss += logits[part].mean()\n"
        "            totals[part] += logits[part].mean().item()")),
    ("a dictionary of each step", script(
        loss="parts, drawn = model.losses(x)\n        for key in parts:\n"
        "            parts[key] = parts[key].mean()\n        loss = parts['a'] + parts['b']")),
    ("a weight that follows the step", script(before="weight = 0.0",
        loss="weight = min(1.0, weight + 0.1); loss = weight * F.cross_entropy(logits, y)")),
    ("examples that are counted", script(before="seen = 0",
        loss="seen += x.shape[0]; loss = min(1, seen / 9) * F.cross_entropy(logits, y)")),
    ("a loss over parts of the batch", script(
        loss="loss = 0\n        for part in logits.split(4):\n            loss += part.mean()")),
    ("a teacher that follows the model", script(
        loss="loss = F.mse_loss(logits, teacher(x))", after="teacher.update(model)")),
    ("a weight that each step chooses", script(
        loss="weight = 1.0\n        if logits.max() > 3:\n            weight = 2.0\n"
        "        loss = weight * F.cross_entropy(logits, y)")),
    ("what a step takes of its batch or makes, and turns", script(
        loss="if y is not None:\n            kept = y[0].long()\n"
        "            kept[kept == 9] = 0\n            kept = kept.unsqueeze(0)\n"
        "        else:\n            kept = None\n        loss = (logits - kept).mean()")),
    ("one of two weights", script(loss="if logits.max() > 3:\n            weight = 2.0\n"
        "        else:\n            weight = 1.0\n        loss = weight * logits.mean()")),
    ("an attribute that each step binds", script(loss="self.loss = F.cross_entropy(logits, y)\n"
        "        loss = self.loss + 1")),
    ("a perturbation of each step", script(
        loss="own = torch.zeros(4).requires_grad_(True)\n"
        "        loss = head(features + own).mean()",
        after="print(own.grad)")),
    ("what computes, and puts nothing anywhere", script(before="critic = Critic()",
        loss="loss = critic.compute_loss(logits, 1); critic_loss = critic.compute_loss(y, 0)",
        after="critic_loss.backward()")),
    ("what all ranks have seen", script(before="bank = torch.zeros(9, 4)",
        loss="loss = F.cross_entropy(features @ bank.t(), y)",
        after="bank[y] = all_gathered(features)")),
    ("names of an evaluation between two steps, which a comprehension has, too", script(
        loss="x = [t.cuda() for t in x]; loss = F.cross_entropy(model(x)[1], y)",
        after="for row in model(x)[1]:\n            t = row.cpu(); t = list(t); names.append(t)\n"
        "        with open('names', 'w') as f:\n            f.write(str(names))")),
    ("a log that goes along with the batches", script(before="log = Log()",
        after="log.update(loss=loss.item())").replace("enumerate(loader)", "log.every(loader)")),
    ("a bar that is written to", script(head="bar = tqdm(enumerate(loader))",
        after="bar.write(str(loss.item()))").replace("in enumerate(loader)", "in bar")),
    ("such a log whose batches are counted", script(before="log = Log()",
        after="log.update(loss=loss.item())").replace("loader)", "log.every(loader, 10))")),
    ("a criterion that computes", script(before="criterion = Criterion()",
        loss="loss = criterion.compute(logits, y) + criterion.restored_output(logits)")),
    ("a method that puts nothing in", script(before=NOISE, loss="noisy = noise.add_to(x)\n"
        "        loss = F.mse_loss(model(noisy)[1], noise.scale * y)")),
    ("one process", script(before="bank = torch.zeros(9, 4)",
        loss="loss = F.cross_entropy(features @ bank.t(), y)", after="bank[y] = features")
        .replace("torch.distributed.init_process_group", "print")
        .replace("torch.nn.parallel.DistributedDataParallel", "")),
]  # fmt: skip

TOLD: list[tuple[str, str, str]] = [
    (
        "rows of a loss by the numbers of examples",
        "codes",
        script(before=CODES.format(made=ROWS, line="self.rows[number, :] = x.data"), loss=CODED),
    ),
    (
        "a perturbation of all examples, that gradients add up to",
        "noise",
        script(
            before="noise = torch.zeros(4)",
            loss="own = noise.clone().requires_grad_(True)\n"
            "        loss = F.cross_entropy(head(features + own), y)",
            after="noise += 0.1 * own.grad.sign()",
        ),
    ),
    (
        "a weight that a score switches on",
        "weight",
        script(
            before="weight = 0.1",
            loss="score = (logits.argmax(1) == y).float().mean()\n        if score > 0.6:\n"
            "            weight = 1.0\n        loss = weight * F.cross_entropy(logits, y)",
        ),
    ),
    (
        "a weight that goes up and down with a divergence",
        "beta",
        script(
            before="beta = 1.0",
            loss="kl = F.kl_div(logits, y)\n        loss = features.mean() + beta * kl",
            after="if kl.item() > 0.1:\n            beta = min(beta * 1.5, 4.0)\n        else:\n"
            "            beta = beta / 1.5",
        ),
    ),
    (
        "a multiplier of an object",
        "self.weight",
        script(
            loss="part = features.mean()\n        loss = logits.mean() + self.weight * part",
            after="self.weight = max(0.0, self.weight + 0.1 * part.item())",
        ),
    ),
    (
        "prototypes",
        "bank",
        script(
            before="bank = torch.zeros(9, 4)",
            loss="loss = F.cross_entropy(features @ bank.t(), y)",
            after="for c in y.unique():\n            bank[c] = features[y == c].mean(0).detach()",
        ),
    ),
    (
        "soft labels",
        "soft",
        script(
            before="soft = torch.zeros(64, 9)",
            loss="soft[number] = 0.9 * soft[number] + 0.1 * logits.softmax(1).detach()\n"
            "        loss = (logits * soft[number]).mean()",
        ),
    ),
    (
        "a threshold",
        "limit",
        script(
            before="limit = 0.5",
            loss="limit = 0.9 * limit + 0.1 * logits.max().item()\n"
            "        loss = (logits * (logits > limit)).mean()",
        ),
    ),
    (
        "a weight that a batch's loss changes",
        "weight",
        script(
            before="weight = 1.0",
            loss="loss = weight * F.cross_entropy(logits, y)",
            after="if loss.item() < 2:\n            weight *= 0.9",
        ),
    ),
    (
        "an object that keeps features",
        "buffer",
        script(
            before=BUFFER,
            loss="loss = F.cross_entropy(features @ buffer.matrix().t(), y)",
            after="buffer.push(features.detach())",
        ),
    ),
    (
        "the losses that choose the next epoch's examples",
        "last",
        script(
            before="last = torch.zeros(64)",
            head="loader = DataLoader(chosen(data, last), sampler=DistributedSampler(data))",
            loss=EACH,
            after="last[number] = losses.detach()",
        ),
    ),
    (
        "features of an epoch, of which the next one's centre is made",
        "seen",
        script(
            before="centre = 0",
            head="seen = []",
            loss="loss = (features - centre).pow(2).mean()",
            after="seen.append(features.detach())",
            end="centre = torch.cat(seen).mean(0)",
        ),
    ),
]


GLOBALS = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Net())
loader = DataLoader(data, sampler=DistributedSampler(data))
near = 0.5

def train(epoch):
    global near
    total = 0
    weight = {weight}
    for x, y in loader:
        loss = weight * F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    near = {kept}

for epoch in range(9):
    train(epoch)
"""


@pytest.mark.parametrize(
    ("weight", "kept", "told"),
    [
        ("near", "total", ["near"]),
        ("1 / (1 + near)", "total / len(loader)", ["near"]),
        ("1.0", "total", []),
        ("near", "0.9 * near", []),
    ],
)
def test_what_a_function_leaves_for_its_next_call(weight: str, kept: str, told: list[str]) -> None:
    because = [each.because for each in found("DF319", GLOBALS.format(weight=weight, kept=kept))]
    assert [each.split(" into ")[1].split(",")[0] for each in because] == told


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF319", text)] == []


@pytest.mark.parametrize(
    ("name", "text"), [pytest.param(name, text, id=sentence) for sentence, name, text in TOLD]
)
def test_found_and_only_told(name: str, text: str) -> None:
    (finding,) = found("DF319", text)
    assert (
        finding.because == f"each rank puts its own batches into {name}, which losses are made of"
    )
    assert not finding.edits


@pytest.mark.parametrize(
    "end",
    [
        "numpy.save('table.npy', table)",
        "labels = table\n    numpy.save('labels.npy', labels)",
        "if rank == 0:\n        torch.save({'table': table}, 'last.pt')",
    ],
)
def test_a_table_that_steps_fill_and_rank_0_saves_is_told(end: str) -> None:
    (finding,) = found("DF319", script(head=TABLE, after=SOFT, end=end))
    assert finding.because == "each rank puts its own batches into table, and rank 0's is saved"


RETURNED = """
import torch
from torch.utils.data import DataLoader, DistributedSampler

def train(model, loader):
    seen, losses = [], []
    for x, y in loader:
        out = model(x)
        loss = out.mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seen.append(out.detach())
    return sum(losses), torch.cat(seen)

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Net())
loss, rows = train(model, DataLoader(data, sampler=DistributedSampler(data)))
torch.save({saved})
"""
COLLECTED = {
    "at once": ("seen.append(features.detach())", "torch.save(torch.cat(seen), 'seen.pt')"),
    "by another name": ("seen.append(y)", "rows = {'y': seen}\n    pickle.dump(rows, file)"),
    "more at a time": ("seen.extend(y.tolist())", "pandas.DataFrame(seen).to_csv('seen.csv')"),
}
HISTORIES = {
    "losses": ("seen.append(loss.detach())", "torch.save(seen, 'losses.pt')"),
    "a number of each step": ("seen.append((y == 1).sum())", "torch.save(seen, 'ones.pt')"),
    "a score of all": ("seen.append(y)", "json.dump({'f1': f1(seen)}, file)"),
    "what ranks have put together": (
        "seen.append(y)",
        "gather(seen)\n    torch.save(seen, 'seen.pt')",
    ),
    "a file of each rank": ("seen.append(y)", "torch.save(seen, f'{rank}.pt')"),
    "a list for each batch": ("seen = []\n        seen.append(y)", "torch.save(seen, 'y.pt')"),
    "nothing that is saved": ("seen.append(y)", "print(seen)"),
}


@pytest.mark.parametrize(("after", "end"), COLLECTED.values(), ids=COLLECTED)
def test_a_list_of_what_steps_have_seen_and_rank_0_saves_is_told(after: str, end: str) -> None:
    (finding,) = found("DF319", script(before="seen = []", after=after, end=end))
    assert finding.because == "each rank puts its own batches into seen, and rank 0's is saved"


def test_a_list_that_the_callers_of_a_training_save_is_told() -> None:
    text = RETURNED.format(saved="rows, 'rows.pt'")
    assert [each.at.lineno for each in found("DF319", text)] == [12]
    assert found("DF319", RETURNED.format(saved="loss, 'loss.pt'")) == []


@pytest.mark.parametrize(("after", "end"), HISTORIES.values(), ids=HISTORIES)
def test_what_is_no_list_of_all_examples_is_left_alone(after: str, end: str) -> None:
    assert found("DF319", script(before="seen = []", after=after, end=end)) == []


@pytest.mark.parametrize(
    "line",
    [
        "loss = loss * loss_share(step, loader, args.accumulation)",
        "for each in held_out:\n            scores.append(each)\n        scores = gathered(scores)",
    ],
)
def test_helpers_of_a_patch_for_other_things_bring_no_batches_together(line: str) -> None:
    kept = "bank[y] = features.detach()"
    loss = "loss = F.mse_loss(features, bank[y])"
    plain = script(before="bank = torch.zeros(9, 4)", loss=loss, after=kept)
    told = script(before="bank = torch.zeros(9, 4)", loss=f"{loss}\n        {line}", after=kept)
    assert (
        [each.because for each in found("DF319", told)]
        == [each.because for each in found("DF319", plain)]
        != []
    )
