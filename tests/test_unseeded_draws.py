"""DF404: a script that knew of no ranks and seeds nothing draws as rank 0 does."""

from __future__ import annotations

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity

SCRIPT = """
import os
import random
import numpy as np
import torch

def read(path):
    lines = open(path).read().split()
    {draw}
    return lines

def seed_all(number):
    random.seed(number)
    np.random.seed(number)

def seed_by(args):
    random.seed(args.seed)

def main():
    if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:
        torch.distributed.init_process_group("gloo")
    {seed}
    return read("lines")

main()
"""


def script(draw: str = "random.shuffle(lines)", seed: str = "pass") -> str:
    return SCRIPT.format(draw=draw, seed=seed)


@pytest.mark.parametrize(
    "text",
    [
        script(),
        script("lines = np.random.permutation(lines)", "random.seed(1)"),
        script("lines = torch.randperm(len(lines))", "np.random.seed(1)"),
        script(seed="number = np.random.randint(9999)\n    random.seed(number)"),
        script(seed="if args.seed is not None: random.seed(args.seed)"),
        script(seed="if args.seed: random.seed(args.seed + 1)"),
        script(seed="if args.seed is not None: seed_all(args.seed)"),
        script(seed="if args.seed is not None: seed_by(args)"),
        script(seed="seed_all(args.seed or random.randint(1, 99))"),
        script("lines = lines[: int(100 * random.uniform(0, 1))]", "if args.seed: seed_by(args)"),
    ],
)
def test_ranks_take_the_numbers_of_rank_0(text: str) -> None:
    after = fixed("DF404", text)
    assert 'init_process_group("gloo")\n        draw_alike()\n' in after
    assert found("DF404", after) == []


@pytest.mark.parametrize(
    ("draw", "seed"),
    [
        ("random.shuffle(lines)", "random.seed(int(time.time()))"),
        ("random.shuffle(lines)", "random.seed(None if args.any else time.time())"),
        ("lines = np.random.permutation(lines)", "np.random.seed()"),
        ("args.lr = 10 ** random.uniform(-4, -1)", "number = os.getpid()\n    random.seed(number)"),
        ("args.lr = 10 ** random.uniform(-4, -1)", "seed_all(time.time_ns())"),
    ],
)
def test_behind_a_seed_of_a_ranks_own_they_take_them_again(draw: str, seed: str) -> None:
    text = "import time\n" + script(draw, seed)
    after = fixed("DF404", text)
    assert f"{seed.splitlines()[-1]}\n    draw_alike()\n" in after
    assert found("DF404", after) == []


STEPS = """
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters())
while step < 9:
    batch = random.sample(lines, 4)
    model(batch).sum().backward()
    optimizer.step()
"""


MIXED = """
def mix(batch):
    return batch[torch.randperm(len(batch))]
for batch in loader:
    model(mix(batch)).sum().backward()
    optimizer.step()
"""
CROP = """
class Crop:
    def __call__(self, image):
        return self.cut(image)
    def cut(self, image):
        return image.crop(random.choice(self.sizes))
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(script(seed="random.seed(1)"), id="it is seeded"),
        pytest.param(
            script(seed="if args.cuda: random.seed(args.seed)"), id="by a test of something else"
        ),
        pytest.param(
            'parser.add_argument("--seed", type=int, default=3)'
            + script(seed="if args.seed is not None: random.seed(args.seed)"),
            id="the option has a default",
        ),
        pytest.param(script("pass") + MIXED, id="for one batch"),
        pytest.param(script("pass") + CROP, id="for one example"),
        pytest.param(script() + STEPS, id="ranks draw batches of their own"),
        pytest.param(script(seed="set_seed(1)"), id="perhaps by a function"),
        pytest.param(script(seed="seed_all(args.seed)"), id="by a function of the script"),
        pytest.param(
            script(seed="random.seed(np.random.get_state()[1][0] + worker)"), id="a worker's"
        ),
        pytest.param(
            script(seed="if args.any: random.seed(int(time.time()))"), id="by a clock, maybe"
        ),
        pytest.param(script().replace("'LOCAL_RANK'", "'OTHER'"), id="a group of the script's own"),
    ],
)
def test_elsewhere_it_is_only_told(text: str) -> None:
    findings = found("DF404", text)
    assert {finding.severity for finding in findings} == {Severity.NOTE}
    assert not any(finding.edits for finding in findings)


def test_what_is_drawn_before_an_exit_and_by_entries_of_a_list_is_no_data() -> None:
    dry = "if args.dry: count(torch.randn(2)); {ends}\n    lines"
    assert found("DF404", script(dry.format(ends="sys.exit()"))) == []
    assert found("DF404", script(dry.format(ends="print(2)")))
    tilt = "def tilt(x):\n    return x * random.random()\n"
    assert found("DF404", tilt + "OPS = [tilt]\n" + script("pass")) == []
    assert found("DF404", tilt + "x = tilt(3)\n" + script("pass"))


def test_a_generator_of_its_own_is_no_draw_of_the_program() -> None:
    draw = "g = torch.Generator()\n    lines = torch.randperm(9, generator=g)"
    assert found("DF404", script(draw)) == []


MADE_UP = """
data = {made}
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters())
for batch in torch.utils.data.DataLoader(data):
    model(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "made",
    [
        "torch.randn(100, 1)",
        "np.random.normal(size=(100, 1)).tolist()",
        "[[random.gauss(0, 1)] for _ in range(100)]",
        "[[random.randrange(9)] for _ in range(100)]",
        "sklearn.datasets.make_blobs(100)[0]",
        "graphs('data').shuffle()[10:]",
        "table.sample(frac=1).reset_index(drop=True)",
    ],
)
def test_data_that_is_made_up_is_that_of_rank_0(made: str) -> None:
    text = "import sklearn.datasets\n" + script("pass") + MADE_UP.format(made=made)
    after = fixed("DF404", text)
    assert 'init_process_group("gloo")\n        draw_alike()\n' in after
    assert found("DF404", after) == []


def test_what_trains_and_evaluates_makes_up_data_too() -> None:
    text = script("pass").replace(
        "    return read", "    data = np.random.rand(9)\n    return read"
    )
    steps = MADE_UP.split("\n", 2)[2].replace("\n", "\n    ") + "model.eval()\n    return read"
    text = text.replace("    return read", f"    {steps}", 1)
    assert 'init_process_group("gloo")\n        draw_alike()\n' in fixed("DF404", text)


@pytest.mark.parametrize(
    ("made", "seed"),
    [
        ("torch.randn(100, 1)", "torch.manual_seed(1)"),
        ("sklearn.datasets.make_blobs(100)[0]", "np.random.seed(1)"),
        ("sklearn.datasets.make_blobs(100, random_state=1)[0]", "pass"),
        ("torch.randn(100, 1, generator=g)", "pass"),
        ("torch.nn.Parameter(torch.randn(100, 1))", "pass"),
        ("graphs('data').shuffle()", "torch.manual_seed(1)"),
        ("texts.shuffle(seed=1)", "pass"),
        ("lines.shuffle(100)", "pass"),
        ("table.sample(frac=1)", "np.random.seed(1)"),
        ("table.sample(frac=1, random_state=3)", "pass"),
        ("policy.sample()", "pass"),
        ("torch.randn(1, requires_grad=True)", "pass"),
    ],
)
def test_what_is_seeded_or_trained_is_no_data_that_ranks_make_up(made: str, seed: str) -> None:
    text = "import sklearn.datasets\n" + script("pass", seed) + MADE_UP.format(made=made)
    assert found("DF404", text) == []


def test_noise_of_steps_is_no_data() -> None:
    text = script("pass") + MADE_UP.format(made="read('lines')")
    assert found("DF404", text.replace("model(batch)", "model(batch + torch.randn(1))")) == []


def test_noise_that_is_added_to_gradients_is_that_of_rank_0() -> None:
    noise = "for p in model.parameters():\n        p.grad += torch.randn_like(p)"
    text = script("pass") + MADE_UP.format(made="read('lines')")
    after = fixed(
        "DF404", text.replace("    optimizer.step()", f"    {noise}\n    optimizer.step()")
    )
    assert 'init_process_group("gloo")\n        draw_alike()\n' in after
