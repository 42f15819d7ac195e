"""Programs that train in ways that are easily overlooked, and programs that do not train."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import audit
from ddpfix.patcher.engine.check import check
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.rules import all_rules

HEAD = """\
import torch
from torch.utils.data import DataLoader

"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    return folder / "tools" / "train.py"


PATHS = """
    import os
    import sys

    def add_path(path):
        if path not in sys.path:
            sys.path.insert(0, path)

    add_path(os.path.join(os.path.dirname(__file__), "..", "lib"))
    """
TRAIN = """
    import torch
    import _paths
    from core.steps import train

    def main():
        model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        loader = torch.utils.data.DataLoader(torch.randn(8, 2), batch_size=2)
        for epoch in range(2):
            train(loader, model, optimizer)

    if __name__ == "__main__":
        main()
    """
STEPS = """
    def train(loader, model, optimizer):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
    """


def test_a_module_that_adds_to_the_path_by_a_function_of_its_own_is_followed(
    tmp_path: Path,
) -> None:
    script = written(
        tmp_path, tools__in__train=TRAIN, tools__in___paths=PATHS, lib__in__core__in__steps=STEPS
    )
    program = read_program(str(script))
    assert [
        loop.module.source.name.endswith("lib/core/steps.py") for loop in program.train_loops
    ] == [True]
    result = patch(script)
    assert result.refusal == ""
    assert "else DistributedSampler(" in result.diff()


def test_what_trains_and_cannot_be_read_is_an_error_and_not_silence(tmp_path: Path) -> None:
    script = written(tmp_path, tools__in__train=TRAIN.replace("import _paths\n", "import sys\n"))
    result = patch(script)
    assert not result.changes
    (finding,) = [each for each in result.findings_after if each.code == "DF201"]
    assert "no backward pass can be seen" in finding.because


LOOPS = {
    "a loss that is an object": """
        class Loss:
            def __init__(self, optimizer):
                self.optimizer = optimizer
            def __call__(self, out):
                out.mean().backward()
                self.optimizer.step()
        def run(loader, model, loss):
            for batch in loader:
                loss(model(batch))
        model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        run(DataLoader(data), model, Loss(torch.optim.SGD(model.parameters(), 0.1)))
        """,
    "a method of what a parameter gets": """
        class Reader:
            def __init__(self):
                self.network = torch.nn.DataParallel(torch.nn.Linear(2, 2))
                self.optimizer = torch.optim.SGD(self.network.parameters(), 0.1)
            def update(self, batch):
                self.network(batch).mean().backward()
                self.optimizer.step()
        def train(loader, reader):
            for batch in loader:
                reader.update(batch)
        train(DataLoader(data), Reader())
        """,
    "a step that the class below has": """
        class Engine:
            def __init__(self, loader, model):
                self.loader, self.model = loader, model
                self.optimizer = torch.optim.SGD(model.parameters(), 0.1)
            def run(self):
                for batch in self.loader:
                    self.forward_backward(batch)
            def forward_backward(self, batch):
                raise NotImplementedError
        class MeanEngine(Engine):
            def forward_backward(self, batch):
                self.model(batch).mean().backward()
                self.optimizer.step()
        MeanEngine(DataLoader(data), torch.nn.DataParallel(torch.nn.Linear(2, 2))).run()
        """,
}  # fmt: skip


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
def test_the_loop_around_it_trains(text: str) -> None:
    program = Program(module(HEAD + textwrap.dedent(text)))
    (loop,) = program.train_loops
    assert loop.loader is not None
    assert program.script.text(loop.steps).startswith("for batch in ")


SCORING = """
    import torch
    from lib import score, Wrapped

    def main():
        model = Wrapped().load()
        loader = torch.utils.data.DataLoader(torch.randn(8, 2))
        with open("scores.txt", "w") as file:
            file.write(str(score(model, loader)))

    if __name__ == "__main__":
        main()
    """
LIBRARY = """
    import torch

    class Wrapped:
        def load(self):
            return torch.nn.DataParallel(torch.nn.Linear(2, 2))
        def make_optimizer(self, model):
            self.optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def score(model, loader):
        model.eval()
        total = 0
        for batch in loader:
            total += model(batch).sum()
        return total

    def fit(model, loader, optimizer):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
    """


def test_a_script_that_only_scores_is_left_alone(tmp_path: Path) -> None:
    script = written(tmp_path, tools__in__train=SCORING, tools__in__lib=LIBRARY)
    program = read_program(str(script))
    assert (program.train_loops, program.only_evaluates) == ([], True)
    result = patch(script)
    assert (result.changes, result.findings_after, result.refusal) == ((), (), "")


OWN_TRAINER = (
    HEAD
    + """\
class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(self):
        for batch in self.loader:
            self.model(batch).mean().backward()
            self.optimizer.step()


torch.distributed.init_process_group("gloo")
Trainer(torch.nn.Linear(2, 2), DataLoader(torch.randn(8, 2))).train()
"""
)


def violated(text: str) -> set[str]:
    return {each.code for each in audit(Program(module(text))) if each.is_violated}


GROUP = """
    import torch

    def infer_backend():
        return "nccl" if torch.cuda.is_available() else "gloo"

    def start_group():
        torch.distributed.init_process_group(infer_backend())
    """


@pytest.mark.parametrize(
    ("use", "codes"),
    [("infer_backend", set()), ("start_group", {"DF202", "DF602"})],
    ids=["a_unit_test_of_another_function", "who_makes_the_group"],
)
def test_a_process_group_counts_where_the_script_comes_to_it(
    tmp_path: Path, use: str, codes: set[str]
) -> None:
    script = f"""
        import group

        def main():
            with open("backend.txt", "w") as file:
                file.write(str(group.{use}()))

        if __name__ == "__main__":
            main()
        """
    path = written(tmp_path, tools__in__group=GROUP, tools__in__train=script)
    assert {each.code for each in check(read_program(str(path)), all_rules())} == codes


def test_a_class_of_the_programs_own_is_not_a_librarys_trainer() -> None:
    assert violated(OWN_TRAINER) == {"O2", "O4"}
    assert violated(
        OWN_TRAINER.replace("class Trainer:", "class Mine:").replace("Trainer(", "Mine(")
    ) == {"O2", "O4"}


@pytest.mark.parametrize("base", ["transformers.Trainer", "Trainer"])
def test_a_class_that_inherits_from_a_librarys_is(base: str) -> None:
    text = "import transformers\nfrom transformers import Trainer\n" + OWN_TRAINER
    text = text.replace("class Trainer:", f"class Mine({base}):").replace(
        "Trainer(torch.nn", "Mine(torch.nn"
    )
    assert violated(text) == set()


COPYING = """\
import torch
from torch.nn import DataParallel
from torch.utils.data import DataLoader


class WithCallback(DataParallel):
    def replicate(self, module, device_ids):
        return super(WithCallback, self).replicate(module, device_ids)


torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in DataLoader(torch.randn(8, 2)):
    model(batch).mean().backward()
    optimizer.step()
"""


def test_a_copy_for_each_card_of_one_process_averages_nothing_over_ranks() -> None:
    assert "O2" in violated(COPYING)
    assert [each.line for each in found("DF301", COPYING)] == [14]


def test_what_insists_on_dataparallel_is_told_and_not_widened() -> None:
    text = COPYING + "assert isinstance(model, DataParallel)\nmodel.replicate\n"
    (finding,) = found(
        "DF305",
        text.replace(
            "model = torch.nn.Linear(2, 2)", "model = DataParallel(torch.nn.Linear(2, 2))"
        ),
    )
    assert finding.edits == ()
    assert "fails on ranks" in finding.because


INSISTS = """
def prepared(model):
    assert isinstance(model, DataParallel)
    model.replicate = model.replicate
"""


@pytest.mark.parametrize(
    ("call", "edited"), [("prepared(model)", True), ("done = prepared(model)", False)]
)
def test_a_function_that_insists_on_dataparallel_is_called_without_ranks(
    call: str, edited: bool
) -> None:
    made = f"{INSISTS}model = DataParallel(torch.nn.Linear(2, 2))\n{call}"
    text = COPYING.replace("model = torch.nn.Linear(2, 2)", made)
    (finding,) = found("DF305", text)
    assert bool(finding.edits) is edited
    if edited:
        after = fixed("DF305", text)
        assert f"if not torch.distributed.is_initialized():\n    {call}\n" in after
        assert found("DF305", after) == []


ITERATED = (
    HEAD
    + """\
import random


def batches(data, size):
    random.shuffle(data)
    for start in range(0, len(data), size):
        yield data[start : start + size]


torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in batches(list(torch.randn(8, 2)), 2):
    model(torch.stack(batch)).mean().backward()
    optimizer.step()
"""
)


def test_batches_of_no_loader_that_all_ranks_get_are_an_error() -> None:
    (finding,) = found("DF401", ITERATED)
    assert finding.severity.name == "ERROR"
    assert finding.edits


def test_batches_that_a_loop_draws_itself_may_differ_between_ranks() -> None:
    drawn = ITERATED.replace(
        "for batch in batches(list(torch.randn(8, 2)), 2)", "for step in range(9)"
    )
    (finding,) = found("DF401", drawn.replace("torch.stack(batch)", "torch.randn(2, 2)"))
    assert finding.severity.name == "DEGRADED"


def test_batches_that_a_loop_draws_by_the_numbers_of_rank_0_are_the_same() -> None:
    drawn = ITERATED.replace(
        "for batch in batches(list(torch.randn(8, 2)), 2)", "while step < 9"
    ).replace("torch.stack(batch)", "torch.randn(2, 2)")
    ours = "if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:\n    "
    group = 'torch.distributed.init_process_group("gloo")\n'
    (alone,) = found("DF401", drawn.replace(group, f"{ours}{group}"))
    assert alone.severity.name == "DEGRADED"
    (finding,) = found("DF401", drawn.replace(group, f"{ours}{group}    draw_alike()\n"))
    assert finding.severity.name == "ERROR"


@pytest.mark.parametrize(
    "lines",
    [
        "for step in range(4):\n    batch = data[step * 2 : (step + 1) * 2]\n",
        "for start in range(0, 8, 2):\n    stop = start + 2\n    batch = data[start:stop]\n",
        "start = 0\nwhile start < 8:\n    batch = cut(data, start)\n    start += 2\n",
    ],
    ids=["by its number", "by where it starts", "in a function"],
)
def test_batches_that_a_loop_cuts_out_of_the_data_are_those_of_all_ranks(lines: str) -> None:
    cut = ITERATED.replace(
        "for batch in batches(list(torch.randn(8, 2)), 2):\n",
        "def cut(data, i):\n    return data[i : i + 2]\n\n"
        f"data = list(torch.randn(8, 2))\nrandom.shuffle(data)\n{lines}",
    )
    (finding,) = found("DF401", cut)
    assert finding.severity is None or finding.severity.name == "ERROR"


COPY = """
    import torch

    class Model(torch.nn.Linear):
        def save_words(self, path):
            with open(path, "w") as file:
                file.write("words")

        def save_all(self, path):
            with open(path, "w") as file:
                file.write("all")

    def unused(path):
        Model(2, 2).bias.data.numpy().tofile(path)
    """
WITH_COPY = """
    import torch
    from {package}.models import Model

    def main():
        torch.distributed.init_process_group("gloo")
        model = Model(2, 2)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = torch.randn(8, 2)
        sampler = torch.utils.data.DistributedSampler(data)
        for batch in torch.utils.data.DataLoader(data, sampler=sampler):
            wrapped(batch).mean().backward()
            optimizer.step()
        model.save_words("words.txt")

    if __name__ == "__main__":
        main()
    """


@pytest.mark.parametrize(("package", "files"), [("transformers", 1), ("mine", 2)])
def test_methods_of_a_librarys_copy_count_where_they_are_called(
    tmp_path: Path, package: str, files: int
) -> None:
    path = written(
        tmp_path,
        **{f"tools__in__{package}__in____init__": "", f"tools__in__{package}__in__models": COPY},
        tools__in__train=WITH_COPY.format(package=package),
    )
    found_in_copy = [
        each
        for each in check(read_program(str(path)), all_rules())
        if each.code == "DF602" and each.module.source.file == "models.py"
    ]
    assert len(found_in_copy) == files


HANDED_ON = """
    import torch
    from solver.build import make
    from engines import Engine

    def train(loader, net):
        model = torch.nn.DataParallel(net)
        optimizer = make(net, "SGD")

        def update(engine, batch):
            model(batch).mean().backward()
            optimizer.step()

        Engine(update).run(loader, 9)

    if __name__ == "__main__":
        train([], torch.nn.Linear(2, 2))
    """


@pytest.mark.parametrize(
    "optimizer", ["getattr(torch.optim, name)(parameters)", "torch.optim.SGD(parameters, 0.1)"]
)
def test_a_step_that_is_handed_to_a_library_is_told(tmp_path: Path, optimizer: str) -> None:
    path = written(
        tmp_path,
        tools__in__train=HANDED_ON,
        tools__in__solver__in____init__="",
        tools__in__solver__in__build=f"""
            import torch

            def make(net, name):
                parameters = [*net.parameters()]
                return {optimizer}
            """,
    )
    (finding,) = check(read_program(str(path)), all_rules())
    assert finding.code == "DF201"
    assert "no loop around this backward pass can be seen" in finding.because


STEPPER = """
    import torch

    class Learner:
        def __init__(self, model):
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def learn(self, batch):
            loss = self.model(batch).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
    """
DRIVER = """
    import torch
    from learner import Learner
    from world import World

    world = World(Learner(torch.nn.Linear(2, 2)))
    world.play()
    """
WORLD = """
    class World:
        def __init__(self, learner):
            self.learners = [learner]

        def play(self):
            self.learners[0].{name}([1.0, 2.0])
    """


@pytest.mark.parametrize("name", ["learn", "forget"])
def test_a_backward_pass_of_no_loop_is_told(tmp_path: Path, name: str) -> None:
    files = {"tools__in__train": DRIVER, "tools__in__learner": STEPPER}
    script = written(tmp_path, **files, tools__in__world=WORLD.format(name=name))
    told = [finding.because for finding in check(read_program(str(script)), all_rules())]
    assert any("no loop around this backward pass" in each for each in told) is (name == "learn")


def test_a_library_of_learners_is_no_program(tmp_path: Path) -> None:
    script = written(tmp_path, tools__in__train=STEPPER)
    assert check(read_program(str(script)), all_rules()) == []


BY_HAND = """
    import torch

    net = torch.nn.Linear(2, 2)
    points = torch.rand(4, 2, requires_grad=True)
    hits = 0
    with torch.no_grad():
        for batch, labels in torch.utils.data.DataLoader(data):
            hits += (net(batch).argmax(1) == labels).sum().item()
    print(hits / len(data))
    parts = torch.autograd.grad(net(points).mean(), {inputs})
    """


@pytest.mark.parametrize("inputs", ["list(net.parameters())", "points"])
def test_gradients_of_a_model_that_no_backward_pass_makes_are_told(
    tmp_path: Path, inputs: str
) -> None:
    script = written(tmp_path, tools__in__train=BY_HAND.format(inputs=inputs))
    told = [finding.because for finding in check(read_program(str(script)), all_rules())]
    is_told = any("gradients come from torch.autograd.grad" in each for each in told)
    assert is_told is ("parameters" in inputs)


EXPERIMENT = """
    import torch
    from sacred import Experiment
    from sacred.observers import FileStorageObserver
    from torch.utils.data import DataLoader

    ex = Experiment("first")
    ex.observers.append(FileStorageObserver("runs"))

    @ex.config
    def config():
        size = 8

    @ex.{decorator}
    def train(size):
        loader = DataLoader(data(), size, shuffle=True)
        model = torch.nn.DataParallel(torch.nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for epoch in range(3):
            for x in loader:
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
"""


def test_what_an_experiment_of_sacred_runs_trains(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(EXPERIMENT.format(decorator="automain")))
    (change,) = patch(path).changes
    group, run = change.text.index("init_process_group"), change.text.index("@ex.automain")
    assert group < run < change.text.index("destroy_process_group")
    (finding,) = found("DF609", change.text)
    assert finding.because.startswith("every rank starts a run of its own")
    path.write_text(textwrap.dedent(EXPERIMENT.format(decorator="capture")))
    assert not patch(path).changes


def test_the_group_is_made_above_what_an_experiment_of_another_module_runs(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    text = textwrap.dedent(EXPERIMENT.format(decorator="automain"))
    (tmp_path / "config.py").write_text(text[: text.index("@ex.automain")])
    imports = text[: text.index("ex = ")].replace("from sacred import Experiment\n", "")
    path.write_text(f"{imports}from config import ex\n{text[text.index('@ex.automain') :]}")
    change = next(each for each in patch(path).changes if each.source.path.name == "train.py")
    assert change.text.index("init_process_group") < change.text.index("@ex.automain")
