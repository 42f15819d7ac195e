"""DF204: ranks share the training of a script for one process, or it says why they cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import changes, fixed, found
from ddpfix.patcher.engine.disk_lines import finding_on_disk
from ddpfix.patcher.engine.patch import Patch, patch

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{imports}

def main():
    model = torch.nn.Linear(2, 2)
    {setup}
    optimizer = torch.optim.SGD({parameters}, 0.1)
    for batch in {data}:
        {forward}
        {step}

{run}
"""
GUARDED = 'if __name__ == "__main__":\n    main()'


def script(
    imports: str = "import os",
    setup: str = "model.cuda()",
    parameters: str = "model.parameters()",
    data: str = "DataLoader(examples)",
    forward: str = "model(batch).sum().backward()",
    step: str = "optimizer.step()",
    run: str = GUARDED,
) -> str:
    return SCRIPT.format(
        imports=imports,
        setup=setup,
        parameters=parameters,
        data=data,
        forward=forward,
        step=step,
        run=run,
    )


LEARNER = """\
import torch
from torch.utils.data import DataLoader

class Learner{bases}:
    def __init__(self):
        self.model = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.loader = DataLoader(examples)

    def find_rate(self):
        for batch in self.loader:
            loss = self.model(batch).mean()
            if loss > 9:
                return
            loss.backward()
            self.optimizer.step()

    def train(self):
        for batch in self.loader:
            self.optimizer.zero_grad()
            self.model(batch).mean().backward()
            self.model(batch + 1).mean().backward()
            self.optimizer.step()

if __name__ == "__main__":
    learner = Learner()
    learner.train()
    {more}
"""


@pytest.mark.parametrize(
    ("bases", "more", "is_shared"),
    [
        ("", "pass", True),
        ("", "learner.find_rate()", False),
        ("", "getattr(learner, 'find_' + what)()", False),
        ("(lightning.Trainer)", "pass", False),
    ],
)
def test_a_method_that_nothing_names_hinders_no_training(
    bases: str, more: str, is_shared: bool
) -> None:
    (finding,) = found("DF204", LEARNER.format(bases=bases, more=more))
    assert bool(finding.edits) is is_shared


SPREADING = """\
class Unused(torch.nn.Module):
    def __init__(self):
        self.{first} = torch.nn.DataParallel(torch.nn.Linear(2, 2))

"""


def test_what_no_one_makes_spreads_no_layers_over_cards() -> None:
    text = script().replace("def main", SPREADING.format(first="gate") + "def main")
    (finding,) = found("DF204", text)
    assert finding.edits, finding.because
    assert found("DF201", text) == []
    used = text.replace("    model.cuda()", "    model = torch.nn.DataParallel(model)")
    assert [bool(finding.edits) for finding in found("DF201", used)] == [True]


OPTIMIZER = "    optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
REPAIRED = """\
@@ -1,4 +1,24 @@
 import torch
+import datetime
 from torch.utils.data import DataLoader
 import os
+from torch.utils.data.distributed import DistributedSampler
+
+
+def sum_of_ranks(loss): ...
+
+
+def over_ranks(model, **options): ...

@@ -8,4 +28,4 @@
     optimizer = torch.optim.SGD(model.parameters(), 0.1)
-    for batch in DataLoader(examples):
-        model(batch).sum().backward()
+    for batch in DataLoader(examples, sampler=None if not torch.distributed.is_initialized() else DistributedSampler(examples, shuffle=False)):
+        sum_of_ranks(over_ranks(model)(batch).sum()).backward()
         optimizer.step()
@@ -15,2 +35,10 @@
 if __name__ == "__main__":
+    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:  # torchrun, accelerate launch
+        use_cuda = torch.cuda.is_available()
+        if use_cuda:
+            torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
+        torch.distributed.init_process_group(backend='nccl' if use_cuda else 'gloo',
+                                             timeout=datetime.timedelta(hours=1))
     main()
+    if torch.distributed.is_initialized():
+        torch.distributed.destroy_process_group()
"""  # noqa: E501


@pytest.fixture
def repaired(tmp_path: Path) -> Patch:
    path = tmp_path / "train.py"
    path.write_text(script(run="examples = list(range(8))\n\n" + GUARDED))
    return patch(path)


def test_the_call_of_a_training_step_goes_over_the_ranks_and_nothing_else(repaired: Patch) -> None:
    (change,) = repaired.changes
    assert changes(change.source.text, change.text) == REPAIRED


STAYS = "under a launcher each rank trains a model alone, and "
AVERAGE = "average_gradients(optimizer)"
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1)"
TWICE = "a = model(batch)\n        (a - model(batch)).mean().backward()"
SCALED = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.scale, {result}
"""
BY_HAND = {
    "a part of the model that another object calls": script(
        "class Score:\n    def __init__(self, head, size):\n"
        "        self.head, self.size = head, size\n"
        "    def __call__(self, hidden):\n        return self.head(hidden).mean() / self.size",
        setup="score = Score(model.head, 2)",
        forward="score(model(batch)).backward()",
    ),
    "two models": script(
        "head = torch.nn.Linear(2, 2)", parameters="model.parameters(), head.parameters()"
    ),
    "parameters of nobody known": script(parameters="groups"),
    "two calls": script(forward=TWICE),
    "a call in a loop": script(
            forward="loss = 0\n        for part in batch:\n            loss += model(part).mean()"
            "\n        loss.backward()"
        ),
    "a part of the model": script(forward="model.encode(model(batch)).sum().backward()"),
    "a library's function": script(
        "import losses", forward="losses.contrast(model, model(batch)).backward()"
    ),
    "another name": script(
        forward="net = model\n        (net(batch) - model(batch)).mean().backward()"
    ),
    "two backward passes": script(
        forward="loss = model(batch).sum()\n        loss.backward(retain_graph=True)"
    ),
    "second derivatives": script(
        forward="loss = model(batch).sum()\n        torch.autograd.grad(loss, batch)\n"
        "        loss.backward()"
    ),
    "thawed on the way": script(step="optimizer.step()\n        model.weight.requires_grad_(True)"),
    "moved away and back": script(
        step="optimizer.step()\n        model.eval().cpu()\n        model.to(device)"
    ),
    "a parameter that the forward pass returns": script(
        SCALED.format(result="self.scale"),
        setup="model = Net()",
        forward="y, scale = model(batch)\n        (y / scale).mean().backward()",
    ),
}  # fmt: skip


def test_what_the_forward_pass_makes_of_a_parameter_is_in_its_graph() -> None:
    text = script(
        SCALED.format(result="self.scale.exp()"),
        setup="model = Net()",
        forward="y, scale = model(batch)\n        (y / scale).mean().backward()",
    )
    assert "over_ranks(model)(batch)" in fixed("DF204", text)


def test_batches_that_are_bound_anew_in_each_step_do_not_follow_each_other() -> None:
    text = script(
        data="DataLoader(examples)",
        forward="x, y = x.cuda(), y.cuda()\n        loss = criterion(model(x), y)\n"
        "        loss.backward()",
    ).replace("for batch in", "for x, y in")
    assert "criterion(over_ranks(model, find_unused_parameters=True)(x), y)" in fixed("DF204", text)


MICRO_BATCHES = """
import itertools
import torch
from torch.utils.data import DataLoader

def main():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = itertools.cycle(DataLoader(examples))
    for step in range(9):
        for part in range(4):
            loss = model(next(batches)).mean()
            (loss / 4).backward()
        {step}

if __name__ == "__main__":
    main()
"""


def test_the_micro_batches_of_a_step_are_a_loop_that_trains() -> None:
    repaired = fixed("DF204", MICRO_BATCHES.format(step="optimizer.step()"))
    assert "over_ranks(model)(next(batches))" in repaired
    (finding,) = found("DF204", MICRO_BATCHES.format(step="optimizer.later()"))
    assert "where its optimizer steps cannot be told" in finding.because


BY_TABLE = """
import torch

def train(model, optimizer, batches):
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()

def measure(model, optimizer, batches):
    return [model(batch) for batch in batches]

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
{table}
for phase in ("train", "test"):
    {call}
"""


def test_a_training_that_a_table_of_functions_starts_is_one() -> None:
    table = 'actions = {"train": train, "test": measure}'
    text = BY_TABLE.format(table=table, call="actions[phase](model, optimizer, batches)")
    (finding,) = found("DF204", text)
    assert "for batch in batches" in finding.module.text(finding.at)
    assert found("DF204", BY_TABLE.format(table=table, call="print(actions)")) == []


UNSHARED = {
    "no loader": (script(data="batches"), "no DataLoader of its batches could be found"),
    "so many batches, each of which is a step": (
        script("import itertools", data="itertools.islice(batches, 9)"),
        "line 9 takes so many batches, and each rank would take fewer",
    ),
    "parts of a loader's batches": (
        script(
            forward="for part in batch:\n            model(part).sum().backward()\n"
            "            optimizer.step()",
            step="pass",
        ),
        "line 10 steps through the parts of each batch of the DataLoader in line 9, of which",
    ),
    "a card that a tensor tells": (
        script(setup="model.cuda(gpus.int())"),
        "chooses a card: model.cuda(gpus.int())",
    ),
    "processes of its own": (
        script(run="import torch.multiprocessing as mp\n"
               'if __name__ == "__main__":\n    mp.spawn(main)\n    main()'),
        "starts processes of its own",
    ),
    "a wrapper that gathers in its own way": (
        script(
            "class Parallel(torch.nn.DataParallel):\n    def gather(self, outputs, device):\n"
            "        return outputs",
            setup="model = Parallel(model)",
        ),
        "spreads a model over all cards, by Parallel",
    ),
    "a wrapper that has another name": (
        script(setup="wrap = torch.nn.DataParallel if wide else list\n    model = wrap(model)"),
        "spreads a model over all cards, by torch.nn.DataParallel",
    ),
    "replicas by hand": (
        script(
            "def spread(model, *inputs):\n"
            "    replicas = torch.nn.parallel.replicate(model, [0, 1])\n"
            "    return torch.nn.parallel.parallel_apply(replicas, inputs)[0]",
            forward="spread(model, batch).sum().backward()",
        ),
        "spreads a model over all cards, by torch.nn.parallel.replicate",
    ),
    "wrappers by map": (
        script(setup="model, other = map(torch.nn.DataParallel, models)"),
        "spreads a model over all cards, by torch.nn.DataParallel",
    ),
    "several cards": (
        script(setup='names = ["cuda:0", "cuda:1"]'),
        "several cards are named by their numbers, or one in another module",
    ),
    "nowhere to start": (
        script(run="import sys\nmain()\nimport os"),
        "it has no command line, no main guard and nothing behind its imports to start from",
    ),
    "a sum in its model": (
        script(
            "class Net(torch.nn.Module):\n    def forward(self, x):\n"
            "        return [torch.sum(self.layer(x)), x]",
            setup="model = Net()",
            forward="loss, x = model(batch)\n        loss.backward()",
        ),
        "its loss may be a sum over a batch: line 5 of script.py",
    ),
    "a default card": (
        script(setup='card = os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")'),
        "line 7 chooses a card: card = os.environ.setdefault(",
    ),
    "apex's scaled losses": (
        script(forward=f"{TWICE}\n        with amp.scale_loss(a, optimizer) as b:\n            b"),
        "apex judges its gradients before they are averaged",
    ),
    "steps of its own kind": (
        script(
            "class Twice(torch.optim.Optimizer):\n    def second_step(self):\n"
            "        self.inner.step()",
            setup="twice = Twice(model.parameters())",
            forward=TWICE,
            step="twice.second_step()",
        ),
        "an optimizer of the script's own steps in line 5, not in step()",
    ),
    "a state that goes on": (
        script(
            setup="state = None",
            forward="out, state = model(batch, state)\n        loss = out.mean()\n"
            "        loss.backward()",
        ),
        "its batches follow each other: line 10 goes on with the state of the one before",
    ),
    "a memory that steps fill": (
        script(
            "x = torch.randn(32, 2)\n"
            "class Memory(torch.nn.Module):\n"
            "    def forward(self, nodes):\n        return self.rows[nodes]\n"
            "    def put(self, nodes, rows):\n        self.rows[nodes] = rows\n"
            "memory = Memory()",
            data="range(0, 32, 4)",
            forward="rows = x[batch : batch + 4]\n"
            "        loss = model(rows + memory(rows)).mean()\n"
            "        memory.put(rows, rows)\n        loss.backward()",
        ),
        "they may follow each other: in line 8 a step fills self.rows of a network",
    ),
    "sparse gradients": (
        script(
            setup="model = torch.nn.Embedding(9, 2, sparse=True)",
            parameters="model.parameters()",
        ).replace("optim.SGD", "optim.SparseAdam"),
        "the gradients of the embedding of line 7 are sparse",
    ),
    "a search": (
        script(
            forward="def closure():\n            loss = model(batch).mean()\n"
            "            loss.backward()\n            return loss",
            step="optimizer.step(closure)",
        ).replace("optim.SGD", "optim.LBFGS"),
        "where a step goes back cannot be told; line 14 hands its step a closure",
    ),
    "a closure": (
        script(forward=TWICE, step="optimizer.step(closure)"), "line 12 hands its step a closure"
    ),
    "a step elsewhere": (
        script(
            "def warm_up(model, optimizer):\n    model(1).sum()\n    optimizer.step()",
            setup="warm_up(model, torch.optim.SGD(model.parameters(), 0.1))",
            forward=TWICE,
        ),
        "line 5 steps an optimizer elsewhere",
    ),
    "an optimizer for each step": (
        script(forward=f"{TWICE}\n        optimizer = torch.optim.SGD(model.parameters(), 1)"),
        "line 12 makes an optimizer in each step",
    ),
    "clipping before it asks whether to step": (
        script(
            forward=f"{TWICE}\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)",
            step="if counter % 4 == 0:\n            optimizer.step()",
        ),
        "line 12 changes gradients before a test",
    ),
    "clipping before the function that steps": (
        script(
            "def go(optimizer):\n    optimizer.param_groups[0]['lr'] = 1\n    optimizer.step()",
            forward=f"{TWICE}\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)",
            step="if counter % 4 == 0:\n            go(optimizer)",
        ),
        "line 14 changes gradients before the function that steps",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "because"), UNSHARED.values(), ids=UNSHARED)
def test_what_ranks_cannot_share_is_said(text: str, because: str) -> None:
    (finding,) = found("DF204", text)
    assert finding.because.startswith(STAYS + because) or because in finding.because
    assert not finding.edits


@pytest.mark.parametrize("text", BY_HAND.values(), ids=BY_HAND)
def test_gradients_of_no_single_call_are_averaged_by_hand(text: str) -> None:
    repaired = fixed("DF204", text)
    assert "average_gradients(optimizer)\n        optimizer.step()" in repaired
    assert "over_ranks" not in repaired
    assert ", 0.1)\n    same_weights(optimizer)\n" in repaired


@pytest.mark.parametrize(
    ("model", "first", "by_hand"),
    [
        ("torch.nn.BatchNorm1d(2)", "pass", True),
        ("torch.nn.BatchNorm1d(2)", "loss = torch.zeros(1)", False),
        ("torch.nn.Linear(2, 2)", "pass", False),
    ],
)
def test_batch_norm_of_several_forward_passes_has_no_wrapper(
    model: str, first: str, by_hand: bool
) -> None:
    text = script(
        setup=f"model = {model}",
        forward=f"{first}\n        loss += model(batch).mean()",
        step="if counter % 4 == 0:\n            loss.backward()\n            optimizer.step()",
    )
    assert ("average_gradients(optimizer)\n" in fixed("DF204", text)) is by_hand


@pytest.mark.parametrize(
    ("step", "behind"),
    [
        (f"{CLIP}\n        optimizer.step()", f"{AVERAGE}\n        {CLIP}"),
        (f"log(model)\n        {CLIP}\n        optimizer.step()", f"{AVERAGE}\n        {CLIP}"),
        (
            f"if counter % 4 == 0:\n            {CLIP}\n            optimizer.step()",
            f"{AVERAGE}\n            {CLIP}",
        ),
        (
            "scaler.unscale_(optimizer)\n        scaler.step(optimizer)",
            f"{AVERAGE}\n        scaler.unscale_(optimizer)",
        ),
        (
            f"{CLIP}\n        if args.fp16:\n            scaler.step(optimizer)\n        else:\n"
            "            optimizer.step()",
            f"{AVERAGE}\n        {CLIP}",
        ),
        (
            "if args.fp16:\n            scaler.unscale_(optimizer)\n"
            f"        {CLIP}\n        if args.fp16:\n            scaler.step(optimizer)\n"
            "        else:\n            optimizer.step()",
            f"{AVERAGE}\n        if args.fp16:\n            scaler.unscale_(optimizer)",
        ),
        (
            "clip(model)\n        optimizer.step()\n        schedule.step()",
            f"{AVERAGE}\n        clip(model)",
        ),
    ],
)
def test_gradients_are_averaged_before_they_are_clipped(step: str, behind: str) -> None:
    clip = f"def clip(model):\n    {CLIP}"
    repaired = fixed("DF204", script(clip, forward=TWICE, step=step))
    assert behind in repaired
    assert repaired.count("average_gradients(optimizer)\n") == 1


MANY_MODELS = """
import torch
from torch.utils.data import DataLoader

def main():
    nets = [torch.nn.Linear(2, 2) for _ in range(2)]
    {optimizers}
    for epoch in range(2):
        for batch in DataLoader(examples):
            for net, optimizer in zip(nets, {each}):
                net(batch).sum().backward()
                optimizer.step()

main()
"""
SGD = "torch.optim.SGD(nets[{}].parameters(), 0.1)"


@pytest.mark.parametrize(
    ("optimizers", "each", "alike"),
    [
        (
            "opts = [torch.optim.SGD(net.parameters(), 0.1) for net in nets]",
            "opts",
            "[same_weights(each) for each in opts]",
        ),
        (
            f"opts = {{'a': {SGD.format(0)}, 'b': {SGD.format(1)}}}",
            "opts.values()",
            "[same_weights(each) for each in opts.values()]",
        ),
        (
            f"first, second = {SGD.format(0)}, {SGD.format(1)}",
            "(first, second)",
            "[same_weights(each) for each in (first, second)]",
        ),
    ],
)
def test_models_that_step_in_turn_have_no_wrapper(optimizers: str, each: str, alike: str) -> None:
    repaired = fixed("DF204", MANY_MODELS.format(optimizers=optimizers, each=each))
    assert "over_ranks" not in repaired, "which would make one anew in each step"
    assert "average_gradients(optimizer)\n                optimizer.step()" in repaired
    assert repaired.count(f"\n    {alike}\n") == 1


def test_an_attack_with_an_optimizer_of_its_own_is_not_averaged() -> None:
    attack = (
        "def attack(model, batch):\n    delta = torch.zeros_like(batch, requires_grad=True)\n"
        "    steps = torch.optim.SGD([delta], 1.0)\n    for _ in range(3):\n"
        "        (-model(batch + delta)).mean().backward()\n        steps.step()\n"
        "    return delta.detach()"
    )
    repaired = fixed(
        "DF204", script(attack, forward="model(batch + attack(model, batch)).mean().backward()")
    )
    assert "steps)" not in repaired
    assert "average_gradients(optimizer)\n        optimizer.step()" in repaired


SHARED = {
    "batches that each step moves": script(
        forward="batch = batch.cuda()\n        loss = model(batch).sum()\n        loss.backward()",
    )
    .replace("batch in", "batch, label in")
    .replace("batch = batch.cuda()", "batch, label = (batch.cuda(), label.cuda())"),
    "a function of the step": script(
        "def loss_of(model, batch):\n    return model(batch).sum()",
        forward="loss_of(model, batch).backward()",
    ),
    "two branches": script(
        forward="if batch.ndim == 2:\n            loss = model(batch).sum()\n        else:\n"
        "            loss = model(batch[None]).sum()\n        loss.backward()"
    ),
    "its forward pass by name": script(forward="model.forward(batch).sum().backward()"),
    "a bar of another library": script(
        "from fastprogress.fastprogress import progress_bar",
        data="progress_bar(DataLoader(examples), parent=bar)",
    ),
    "an evaluation on the way": script(
        "def score(model):\n    model.eval()\n    return model(1)",
        step="optimizer.step()\n        score(model)",
    ),
    "a mode whose result has the model's name": script(
        forward="model = model.train()\n        model(batch).sum().backward()"
    ),
    "a look without gradients": script(
        step="optimizer.step()\n        with torch.no_grad():\n            model(batch)"
    ),
    "clipping and saving": script(
        step="torch.nn.utils.clip_grad_norm_(model.parameters(), 1)\n        optimizer.step()\n"
        "        torch.save(model.state_dict(), 'x')"
    ),
    "questions after a wrapper": script(
        "def inner(model: torch.nn.DataParallel | None):\n    if type(model) in (list, "
        "torch.nn.DataParallel) or isinstance(model, torch.nn.DataParallel):\n"
        "        return model.module\n    return model",
        setup="inner(model)",
    ),
    "the device in a variable": script(setup="model.to(device, non_blocking=True)"),
    "the best card there is": script(
        setup='model.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))'
    ),
    "no main guard": script(run="examples = 1\nmain()"),
    "a state that goes on to batches in any order": script(
        setup="state = None",
        data="DataLoader(examples, shuffle=True)",
        forward="out, state = model(batch, state)\n        loss = out.mean()\n"
        "        loss.backward()",
    ),
    "a batch that moves to the card under its own name": script(
        forward="batch = batch.cuda()\n        loss = model(batch).mean()\n        loss.backward()"
    ),
    "a sum of losses": script(
        setup="total = 0",
        forward="loss = model(batch).mean()\n        loss.backward()\n        total += loss.item()",
    ),
    "imports below the training": script(
        run="torch.manual_seed(1)\nmain()\nimport sys\nprint(sys.argv)"
    ),
}


@pytest.mark.parametrize("text", SHARED.values(), ids=SHARED)
def test_ranks_share_the_training_with(text: str) -> None:
    (finding,) = found("DF204", text)
    assert finding.edits, finding.because


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("p.data.add_(p.grad, alpha=-0.1)", 1),
        ("p.data -= 0.1 * p.grad", 1),
        ("p.data = p.data - 0.1 * p.grad.data", 1),
        ("p.data += 0.1 * p.grad.sign()", 0),
        ("total += p.grad.norm()", 0),
        ("print(p.grad.norm())", 0),
    ],
)
def test_steps_without_an_optimizer_are_said_to_be_of_one_process(body: str, told: int) -> None:
    text = script(step=f"for p in model.parameters():\n            {body}")
    text = text.replace(OPTIMIZER, "")
    reasons = [finding.because for finding in found("DF204", text)]
    assert ["steps without an optimizer" in each for each in reasons] == [True] * told


KEEPING = "def with_rates(wrapped, rates=None):\n    wrapped.rates = rates\n    return {}"


@pytest.mark.parametrize(
    ("gives", "is_one"), [("wrapped", True), ("Schedule(wrapped)", False), ("rates", False)]
)
def test_a_function_may_give_back_the_optimizer_that_it_gets(gives: str, is_one: bool) -> None:
    made = "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
    text = script(KEEPING.format(gives), forward=TWICE)
    text = text.replace(made, f"{made}    optimizer = with_rates(optimizer)\n")
    assert (AVERAGE in fixed("DF204", text)) is is_one


def test_a_function_that_steps_without_an_optimizer_is_told_of() -> None:
    step = "def sgd(params, lr):\n    for p in params:\n        p -= lr * p.grad"
    text = script(step, step="sgd([model.weight, model.bias], 0.1)").replace(OPTIMIZER, "")
    (told,) = found("DF204", text)
    assert told.because.endswith("line 5 steps without an optimizer")


def test_an_optimizer_that_steps_in_a_way_of_its_own_is_told_of() -> None:
    (told,) = found("DF204", script(step="optimizer.first_step(zero_grad=True)"))
    assert told.because.endswith("where its optimizer steps cannot be told")
    assert told.edits == ()


def test_a_card_that_the_script_chooses_is_left_to_the_launcher(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    choice = 'os.environ["CUDA_VISIBLE_DEVICES"] = "0"\n    torch.cuda.set_device(0)'
    path.write_text(script(setup=choice, run="examples = [1]\n\n" + GUARDED))
    (change,) = patch(path).changes
    assert (
        """\
    if 'LOCAL_RANK' not in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    if 'LOCAL_RANK' not in os.environ:
        torch.cuda.set_device(0)
"""
        in change.text
    )


def test_where_ranks_cannot_share_it_the_rest_is_repaired_and_the_reason_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.py"
    only = "class Stream(torch.utils.data.IterableDataset):\n    pass\n"
    path.write_text(
        script(
            only,
            setup="scaler = torch.cuda.amp.GradScaler()",
            data="DataLoader(Stream())",
            step="optimizer.step()\n    torch.save(model, 'x')",
        )
    )
    result = patch(path)
    (change,) = result.changes
    assert result.refusal == ""
    assert "scaler = torch.amp.GradScaler('cuda')" in change.text
    assert "torch.save(model, 'x')" in change.text, "nothing tells rank 0 apart"
    assert "init_process_group" not in change.text
    (told,) = [each for each in result.findings_after if each.code == "DF204"]
    assert "not shared among ranks, as errors would be left: DF401" in told.because
    # The lines of the file, whatever the edits have put above.
    assert finding_on_disk(result.original, told).because == told.because


WRAP = "model = torch.nn.parallel.DistributedDataParallel(model)"


def test_a_wrapper_without_a_process_group_is_told() -> None:
    (finding,) = found("DF204", script(setup=f"if ranks > 1:\n        {WRAP}"))
    assert finding.because.endswith("nothing makes the process group that this needs")
    assert not finding.edits


@pytest.mark.parametrize(
    "text",
    [
        script(setup="model = torch.nn.DataParallel(model)"),
        script(setup='torch.distributed.init_process_group("gloo")'),
        script("from timm.utils import *", f"init_distributed_device(args)\n    {WRAP}"),
        script("from accelerate import Accelerator", "model = Accelerator().prepare(model)"),
        script("import deepspeed", "model, *_ = deepspeed.initialize(model=model)"),
        script(step="torch.distributed.all_reduce(model.weight.grad); optimizer.step()"),
        script(step="image = image + image.grad.sign()").replace(OPTIMIZER, ""),  # an attack
        script(run="# a library's module: its callers decide"),
    ],
)
def test_who_knows_of_ranks_or_trains_nothing_is_left_alone(text: str) -> None:
    assert found("DF204", text) == []


LOOP = """\
import torch


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def fit(self):
        for batch in self.loader:
            self.model(batch).mean().backward()
            self.optimizer.step()
            self.save()

    def save(self):
        to_save = self.model.module if hasattr(self.model, "module") else self.model
        torch.save(to_save.state_dict(), "x")
"""
MAIN = """\
import torch
from loop import Trainer

if __name__ == "__main__":
    Trainer(torch.nn.Linear(2, 2), torch.utils.data.DataLoader([1])).fit()
"""


def test_each_module_gets_what_it_uses_itself(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "main.py").write_text(MAIN)
    result = patch(tmp_path / "main.py")
    assert result.refusal == ""
    main, loop = sorted(result.changes, key=lambda each: each.source.name, reverse=True)
    assert "over_ranks(self.model, find_unused_parameters=True)(batch)" in loop.text
    assert "init_process_group" not in loop.text
    assert "init_process_group" in main.text
    assert "over_ranks" not in main.text


def test_a_variable_of_the_script_is_not_bound_anew(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    imports = "use_cuda = torch.cuda.is_available()\nexamples = [1]"
    path.write_text(script(imports, setup="if use_cuda:\n        model.cuda()"))
    result = patch(path)
    assert result.refusal == ""
    (change,) = result.changes
    assert change.text.count("use_cuda = ") == 1
    assert "        has_card = torch.cuda.is_available()\n        if has_card:\n" in change.text


def test_a_loader_of_two_loops_is_dealt_once(tmp_path: Path) -> None:
    again = "for batch in loader:\n        model(batch).mean().backward()\n        optimizer.step()"
    path = tmp_path / "train.py"
    path.write_text(
        script(
            setup="loader = DataLoader(data, sampler=torch.utils.data.RandomSampler(data))",
            data="loader",
            forward="model(batch).mean().backward()",
            step=f"optimizer.step()\n    {again}",
            run=f"data = list(range(8))\n\n{GUARDED}",
        )
    )
    (change,) = patch(path).changes
    assert change.text.count("else DistributedSampler(data)") == 1


@pytest.mark.parametrize("result", ["torch.sum(self.layer(x)), x", "self.layer(x).mean(), x"])
def test_a_sum_in_the_forward_pass_of_a_shared_model_is_multiplied(
    tmp_path: Path, result: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        script(
            "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.layer = torch.nn.Linear(2, 1)\n"
            f"    def forward(self, x):\n        return {result}",
            setup="model = Net()\n    examples = [torch.ones(2)] * 8",
            forward="loss, x = model(batch)\n        loss.backward()",
        )
    )
    (change,) = patch(path).changes
    assert "over_ranks(model)" in change.text
    assert ("sum_of_ranks(loss).backward()" in change.text) is ("sum" in result)


RANKS = """\
import torch.distributed as dist


def make_group():
    dist.init_process_group("gloo")


def added_up(value):
    if dist.is_initialized():
        dist.all_reduce(value)
    return value
"""


@pytest.mark.parametrize(
    ("used", "because"),
    [
        pytest.param("model", "a model alone", id="nothing of it is called"),
        pytest.param(
            "added_up(model.weight)",
            "line 10 of ranks.py exchanges values in a group that nothing makes",
            id="what would exchange values is called",
        ),
        pytest.param("make_group()", "", id="the group is made"),
    ],
)
def test_a_group_that_only_an_imported_function_would_make(
    used: str, because: str, tmp_path: Path
) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    path = tmp_path / "train.py"
    path.write_text(script("from ranks import added_up, make_group", setup=used))
    before = [each for each in patch(path).findings_before if each.code == "DF204"]
    assert [because in each.because for each in before] == ([True] if because else [])
    assert all(bool(each.edits) is ("exchanges" not in because) for each in before)


@pytest.mark.parametrize(
    ("sums", "is_shared"),
    [
        ("value /= dist.get_world_size()", True),
        ("return value / get_world_size()", True),
        ("self.count, self.total = value.tolist()", True),
        ("self.count = value[0]\n        self.total = value[1]", True),
        ("self.total = value", False),
        ("return value / len(examples)", False),
    ],
)
def test_what_only_makes_means_hinders_no_group(sums: str, is_shared: bool, tmp_path: Path) -> None:
    function = RANKS.replace("all_reduce(value)", f"all_reduce(value)\n        {sums}")
    (tmp_path / "ranks.py").write_text(function.replace("(value):", "(value, self=None):"))
    path = tmp_path / "train.py"
    path.write_text(script("from ranks import added_up", setup="added_up(model.weight)"))
    assert bool(patch(path).changes) is is_shared


def test_a_method_that_only_calls_itself_hinders_no_group(tmp_path: Path) -> None:
    method = "class Meters:\n    def add_up(self):\n        for each in self.meters:\n"
    method += "            each.add_up()\n        dist.all_reduce(self.total)\n"
    (tmp_path / "ranks.py").write_text(f"import torch.distributed as dist\n{method}")
    path = tmp_path / "train.py"
    path.write_text(script("from ranks import Meters", setup="meters = Meters()"))
    assert patch(path).changes


def test_a_step_in_a_function_is_one_of_the_training() -> None:
    go = "def go(optimizer):\n    optimizer.step()"
    repaired = fixed("DF204", script(go, step="go(optimizer)"))
    assert "over_ranks(model)(batch)" in repaired
    schedule = script("def go(scheduler):\n    scheduler.step()", step="go(sched)")
    assert fixed("DF204", schedule) == schedule


SAVING = """\
class Net(torch.nn.Linear):
    def save(self, path):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "step", "wraps"),
    [
        ("torch.save(self.state_dict(), path)", "model.save('net.pt')", True),
        ("torch.save(self.state_dict(), path)", "loss = model.save('net.pt')", False),
        ("self(path).mean().backward()\n        torch.save(self, path)", "model.save(x)", False),
        ("self.loss = path.mean()", "model.save(batch)", False),
    ],
)
def test_a_step_may_call_a_method_that_saves_its_model(body: str, step: str, wraps: bool) -> None:
    text = script(SAVING.format(body=body), step=f"optimizer.step()\n        {step}")
    new = fixed("DF204", text.replace("torch.nn.Linear(2, 2)", "Net(2, 2)"))
    assert ("over_ranks(model" in new) is wraps
    assert ("average_gradients(optimizer)" in new) is not wraps  # also of what it computes


ARGUMENTS_FIRST = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--name")
args = parser.parse_args()
name = args.name

"""


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        ("main()", "hours=1))\nmain()\n"),
        (GUARDED, "if __name__ == \"__main__\":\n    if 'LOCAL_RANK' in os.environ"),
    ],
)
def test_a_group_is_made_behind_imports_below_the_arguments(run: str, wanted: str) -> None:
    text = fixed("DF204", ARGUMENTS_FIRST + script(run=run))
    assert wanted in text
    head, found_group, _ = text.partition("if 'LOCAL_RANK' in os.environ")
    assert found_group
    assert head.index("args = parser.parse_args()") < head.index("import torch\n")


def test_no_group_where_the_arguments_stand_below_torch_and_above_what_it_needs() -> None:
    text = ARGUMENTS_FIRST.replace("name = args.name", "import torch\ntorch.set_num_threads(1)")
    assert fixed("DF204", text + script(run="main()").replace("import torch\n", "")) == (
        text + script(run="main()").replace("import torch\n", "")
    )


@pytest.mark.parametrize(
    ("setup", "backend"),
    [
        ("pass", "backend='gloo', timeout"),
        ("model.cuda()", "backend='nccl' if use_cuda else 'gloo'"),
        ("model.to(args.place)", "backend='nccl' if use_cuda else 'gloo'"),
        ("x = torch.zeros(2, device=args.place)", "backend='nccl' if use_cuda else 'gloo'"),
    ],
)
def test_ranks_of_a_script_that_puts_nothing_on_a_card_talk_by_gloo(
    setup: str, backend: str
) -> None:
    assert backend in fixed("DF204", script(setup=setup))
