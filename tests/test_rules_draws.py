"""DF404: examples that each rank draws for itself."""

from __future__ import annotations

import textwrap

import pytest
from cases import found
from ddpfix.patcher.findings import Severity

NOOP = [
    ("a generator with a seed of its own", """
        import random
        random.Random(7).shuffle(data)
        rng.sample(data, 3)
        """),
    ("per example", """
        import random
        class Data:
            def __getitem__(self, index):
                return random.choice(self.items)
        """),
    ("a choice among loaders", "import numpy as np\nnp.random.choice(train_dataloaders)"),
    ("a lone process only", """
        import random
        if args.local_rank == -1:
            random.shuffle(data)
        """),
    ("timesteps of a batch, under a seed of its own", """
        import numpy as np
        class Steps:
            def sample(self, count):
                return np.random.choice(1000, size=(count,))
        def main(args):
            np.random.seed(args.seed + args.local_rank)
            steps = Steps()
            for x in loader:
                model(x, steps.sample(len(x))).sum().backward()
                optimizer.step()
        """),
    ("nobody's random", "from mine import random\nrandom.shuffle(data)"),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_draws_that_need_not_be_the_same_on_all_ranks_are_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF404", textwrap.dedent(text))] == []


NOTED = [
    ("a sample", "import random\ndata = random.sample(data, 10)\n"),
    ("under another name", "from random import shuffle as mix\nmix(data)\n"),
    ("numpy's", "import numpy as np\nnp.random.shuffle(data)\n"),
    ("the same seed everywhere",
        "import random\nrandom.seed(args.seed)\nrandom.shuffle(data)\n"),
    ("seeds that part when data is made", """
        import random
        def main(args):
            random.shuffle(data)
            random.seed(args.seed + args.local_rank)
        """),
    ("the same, in a function called before", """
        import random
        def load():
            random.shuffle(data)
        def main(args):
            load()
            set_seed(args.seed + torch.distributed.get_rank())
            train()
        """),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOTED])
def test_draws_that_are_the_same_under_one_seed_alone_are_noted(text: str) -> None:
    (finding,) = found("DF404", textwrap.dedent(text))
    assert finding.severity is Severity.NOTE
    assert "same on all ranks" in finding.because


MEANT = [
    ("an object orders what it has, by its rank", """
        import random
        class Shards:
            def __init__(self, rank, shards):
                self.rank, self.shards = rank, shards[rank]
            def order(self):
                random.seed(self.seed + self.rank)
                random.shuffle(self.shards)
        """),
    ("a part that is dealt by hand", """
        import random
        def rows(path, rank, world_size):
            for number, line in enumerate(open(path)):
                if number % world_size == rank:
                    yield line
        def mixed(lines):
            lines = list(lines)
            random.shuffle(lines)
            return lines
        def main(args):
            random.seed(args.seed + args.local_rank)
            mixed(rows(args.path, args.local_rank, args.world_size))
        """),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in MEANT])
def test_ranks_may_order_what_they_have_each_in_its_own_way(text: str) -> None:
    (finding,) = found("DF404", textwrap.dedent(text))
    assert finding.severity is Severity.NOTE
    assert "own part" in finding.because


WARNED = [
    ("an object that deals behind its order", """
        import random
        class Shards:
            def order(self):
                random.seed(self.seed + self.rank)
                random.shuffle(self.shards)
                self.shards = self.shards[self.rank :: self.count]
        """),
    ("epochs that are drawn, not batches", """
        import numpy as np
        def order(count):
            return np.random.choice(count, size=(count,))
        def main(args):
            np.random.seed(args.seed + args.local_rank)
            places = order(len(data))
            for x in loader:
                model(x).sum().backward()
                optimizer.step()
        """),
    ("a seed of its own, then data", """
        import random
        random.seed(args.seed + args.local_rank)
        random.shuffle(data)
        """),
    ("an option made each rank's own", """
        import random
        args.seed += args.rank
        random.shuffle(data)
        """),
    ("data made by a constructor behind it", """
        import random
        class Data:
            def __init__(self):
                self.read()
            def read(self):
                random.shuffle(self.items)
        def main(args):
            set_seed(args.seed + args.local_rank)
            Data()
        """),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in WARNED])
def test_worse_where_each_rank_has_its_own_seed(text: str) -> None:
    (finding,) = found("DF404", textwrap.dedent(text))
    assert finding.severity is Severity.DEGRADED
    assert "seeds each rank differently" in finding.because
