"""Models that are trained beside wrapped ones (DF301)."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Severity

DISTILLATION = """\
import torch
{imports}
def main(args, student, teacher, loader):
    torch.distributed.init_process_group("nccl")
    teacher = {wrapper}(teacher)
    {more}
    named = list(student.named_parameters())
    groups = [{{"params": [p for _, p in named], "weight_decay": 0.01}}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    for batch in loader:
        (student(batch) - teacher(batch).detach()).pow(2).mean().backward()
        optimizer.step()
if __name__ == "__main__":
    main(*things())
"""
TORCHS = "torch.nn.parallel.DistributedDataParallel"
APEXS = {"imports": "from apex.parallel import DistributedDataParallel as DDP", "wrapper": "DDP"}


def distillation(imports: str = "", wrapper: str = TORCHS, more: str = "pass") -> str:
    return DISTILLATION.format(imports=imports, wrapper=wrapper, more=more)


@pytest.mark.parametrize("parts", [{}, APEXS])
def test_a_student_beside_a_wrapped_teacher_is_named_and_nothing_edited(
    parts: dict[str, str],
) -> None:
    (finding,) = found("DF301", distillation(**parts))
    assert finding.because.startswith("student is trained, and its gradients are not averaged")
    assert not finding.edits


PARTED = """
class Head(torch.nn.Module):
    def forward(self, x):
        {meets}
        return x @ self.weight
"""


@pytest.mark.parametrize(
    ("meets", "severity"),
    [("torch.distributed.all_reduce(x)", Severity.DEGRADED), ("print(x)", Severity.ERROR)],
)
def test_a_model_that_may_be_parted_among_the_ranks_is_no_error(
    meets: str, severity: Severity
) -> None:
    text = distillation(more="student = Head()") + PARTED.format(meets=meets)
    (finding,) = found("DF301", text)
    assert finding.severity is severity
    assert ("exchanges with other ranks" in finding.because) is (severity is Severity.DEGRADED)


@pytest.mark.parametrize(
    "more",
    [
        f"student = {TORCHS}(student)",
        f"wrapped = {TORCHS}(student)",
        f"models = [{TORCHS}(student)]",
        "torch.distributed.fsdp.fully_shard(student)",
    ],
)
def test_a_student_that_is_wrapped_or_may_be_is_not_named(more: str) -> None:
    assert not found("DF301", distillation(more=more))


def test_apex_wrappers_of_teacher_and_student_both_become_torchs() -> None:
    text = fixed("DF301", distillation(**APEXS, more="student = DDP(student)"))
    unused = "find_unused_parameters=True)"
    lines = [line.strip() for line in text.splitlines() if "DDP(" in line]
    assert [
        line.startswith(("teacher = DDP(teacher, ", "student = DDP(student, ")) for line in lines
    ]
    assert len(lines) == 2
    assert all(line.endswith(unused) for line in lines)
    assert "from torch.nn.parallel import DistributedDataParallel as DDP" in text


TRAINER = """\
import torch
class Trainer:
    def __init__(self, network, loader, **options):
        self.model = network
        self.loader = loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def train(self):
        for batch in self.loader:
            self.model(batch).mean().backward()
            self.optimizer.step()
def main(args, net, teacher, loader):
    torch.distributed.init_process_group("nccl")
    {wrapped} = torch.nn.parallel.DistributedDataParallel({wrapped})
    Trainer(net, loader, **vars(args)).train()
if __name__ == "__main__":
    main(*things())
"""


@pytest.mark.parametrize(("wrapped", "bare"), [("net", []), ("teacher", ["self.model"])])
def test_an_object_may_call_the_wrapped_model_otherwise(wrapped: str, bare: list[str]) -> None:
    findings = found("DF301", TRAINER.format(wrapped=wrapped))
    assert [each.because.partition(" is trained")[0] for each in findings] == bare


INNER = """\
import torch
def evaluate(model, batch):
    model.eval()
    with torch.no_grad():
        return model(batch)
def main(args, model, loader):
    torch.distributed.init_process_group("nccl")
    {wrap}
    optimizer = torch.optim.AdamW(bare.parameters())
    for batch in loader:
        {call}(batch).mean().backward()
        optimizer.step()
        evaluate(bare, batch)
if __name__ == "__main__":
    main(*things())
"""
BOTH = f"model = {TORCHS}(model); bare = model.module"
BARE = {
    "behind the wrapper": BOTH,
    "in branches": f"if args.local_rank != -1:\n        {BOTH}\n    else:\n        bare = model",
    "in a conditional": f"model = {TORCHS}(model); bare = model.module if args.ddp else model",
}


@pytest.mark.parametrize("wrap", BARE.values(), ids=BARE)
def test_what_a_wrapper_holds_is_evaluated_between_steps(wrap: str) -> None:
    assert found("DF301", INNER.format(wrap=wrap, call="model")) == []
    (finding,) = found("DF301", INNER.format(wrap=wrap, call="bare"))
    assert finding.because.startswith("bare is trained, and its gradients are not averaged")


BESIDE = """\
import torch
def main(model, loader, sums):
    torch.distributed.init_process_group("nccl")
    {made}
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam({given})
    for batch in loader:
        {first}
        (model(batch) * scale).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    main(*things())
"""
SCALE = "scale = torch.nn.Parameter(torch.zeros(2))"
GIVEN = "[*model.parameters(), scale]"


@pytest.mark.parametrize(
    ("made", "given"),
    [
        (SCALE, GIVEN),
        (SCALE, "list(model.parameters()) + [scale]"),
        (SCALE, "[{'params': model.parameters()}, {'params': [scale], 'lr': 0.1}]"),
        ("scale = torch.zeros(2, requires_grad=True)", GIVEN),
        ("scale = torch.zeros(2).cuda().requires_grad_()", GIVEN),
        ("scale = torch.zeros(2).cuda(); scale.requires_grad = True", GIVEN),
        (f"{SCALE}; groups = [model.parameters(), (scale,)]", "groups"),
    ],
)
def test_a_tensor_that_is_trained_beside_a_wrapped_model_is_named(made: str, given: str) -> None:
    (finding,) = found("DF301", BESIDE.format(made=made, given=given, first="pass"))
    assert finding.because.startswith("scale is trained, and is in no wrapped model")
    assert not finding.edits


@pytest.mark.parametrize(
    ("made", "given", "first"),
    [
        (f"{SCALE}; model.scale = scale", GIVEN, "pass"),
        ("scale = model.scale", GIVEN, "pass"),
        ("scale = torch.zeros(2)", "model.parameters(), betas=(scale, 0.9)", "pass"),
        ("scale = torch.zeros(2)", "model.parameters()", f"{SCALE}; torch.optim.SGD([scale])"),
        (SCALE, "model.parameters()", "pass"),
        (SCALE, GIVEN, "torch.distributed.all_reduce(scale.grad)"),
    ],
)
def test_a_tensor_that_a_model_has_or_that_nobody_trains_is_not_named(
    made: str, given: str, first: str
) -> None:
    assert not found("DF301", BESIDE.format(made=made, given=given, first=first))


ADAPTED = """\
import torch
class Net(torch.nn.Module):
    def forward(self, batch, shots):
        with torch.enable_grad():
            centres = self.adapted(shots)
        return batch @ centres.T
    def adapted(self, shots):
        first = {made}
        centres = torch.nn.Parameter(first, requires_grad=True)
        steps = torch.optim.SGD([centres], lr=0.1)
        for _ in range(3):
            steps.zero_grad()
            (shots - centres).pow(2).mean().backward()
            steps.step()
        return centres
def main(loader):
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.Adam(model.parameters())
    for batch, shots in loader:
        model(batch, shots).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    main(*things())
"""


@pytest.mark.parametrize(("made", "count"), [("shots.mean(0).detach()", 0), ("torch.ones(2)", 1)])
def test_what_a_forward_pass_adapts_to_its_batch_is_each_rank_s_own(made: str, count: int) -> None:
    told = [each.because for each in found("DF301", ADAPTED.format(made=made))]
    assert len([because for because in told if because.startswith("centres")]) == count


READER = """\
import argparse
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
class Reader:
    def __init__(self):
        self.network = torch.nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)
    def update(self, x):
        loss = self.network(x).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
    def parallelize(self):
        self.network = torch.nn.DataParallel(self.network)
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    reader = Reader()
    if args.parallel:
        {first}reader.parallelize()
    data = TensorDataset(torch.randn(32, 4))
    loader = DataLoader(data, batch_size=4, sampler=RandomSampler(data))
    for epoch in range(2):
        for (x,) in loader:
            reader.update(x)
if __name__ == "__main__":
    main()
"""


def test_ranks_wrap_whatever_an_option_says(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(READER.format(first=""))
    (change,) = patch(path).changes
    assert "    if args.parallel or torch.distributed.is_initialized():\n" in change.text
    path.write_text(READER.format(first="print(args); "))
    result = patch(path)
    assert "an option has to turn this on" in result.refusal
    assert result.changes == ()


EVALUATED = """\
import argparse
import torch
from torch.utils.data import DataLoader
def measure(sampler, net):
    net.eval()
    with torch.no_grad():
        scores = [sampler(torch.zeros(4, 2)).mean() for _ in range(3)]
    net.train()
    return scores
def train(args):
    net = torch.nn.Linear(2, 2)
    if args.parallel:
        net = torch.nn.DataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in DataLoader(examples):
        optimizer.zero_grad()
        net(batch).mean().backward()
        optimizer.step()
def evaluate(args):
    net = torch.nn.Linear(2, 2)
    sampler = torch.nn.Sequential(net)
    if args.parallel:
        sampler = torch.nn.DataParallel(sampler)
    net.load_state_dict(torch.load("last.pt"))
    print(measure(sampler, net))
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", action="store_true")
    parser.add_argument("--evaluate", action="store_true")
    args = parser.parse_args()
    train(args)
    if args.evaluate:
        evaluate(args)
"""


def test_a_function_that_evaluates_what_it_wraps_is_run_by_option(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(EVALUATED)
    (change,) = patch(path).changes
    assert "    if args.evaluate:\n        evaluate(args)\n" in change.text
    assert change.text.count("DistributedDataParallel(") == 1


RESUMED = """\
import argparse
import torch
from torch.utils.data import DataLoader
def main(args):
    if args.checkpoint is None:
        net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        optimizer = torch.optim.SGD([{{"params": net.parameters()}}], 0.1)
        {more}
    else:
        checkpoint = torch.load(args.checkpoint)
        net, optimizer = checkpoint["net"], checkpoint["optimizer"]
    net = net.to("cpu")
    for batch in DataLoader(examples):
        optimizer.zero_grad()
        net(batch).mean().backward()
        optimizer.step()
parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint")
main(parser.parse_args())
"""


@pytest.mark.parametrize(
    ("more", "is_behind"), [("pass", True), ("print(net(torch.zeros(2, 2)))", False)]
)
def test_a_model_of_a_checkpoint_is_wrapped_as_a_new_one(
    more: str, is_behind: bool, tmp_path: Path
) -> None:
    path = tmp_path / "run.py"
    path.write_text(RESUMED.format(more=more))
    (change,) = patch(path).changes
    moved = '    net = net.to("cpu")\n    if torch.distributed.is_initialized():\n'
    assert (f"{moved}        net = torch.nn.parallel.Dist" in change.text) is is_behind


CENTRES = """\
import torch
from torch.utils.data import DataLoader
class Centres(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.places = torch.nn.Parameter(torch.zeros(3, 2))
    def forward(self, x, y):
        return (x - self.places[y]).pow(2).mean()
def make_loss():
    centres = Centres()
    def loss_of(x, y):
        return x.mean() + centres(x, y)
    return loss_of, centres
def make_optimizers(net, centre_loss):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    centre_optimizer = torch.optim.SGD({stepped}.parameters(), 0.5)
    return optimizer, centre_optimizer
def main():
    net = torch.nn.Linear(2, 2)
    loss_of, centre_loss = make_loss()
    optimizer, centre_optimizer = make_optimizers(net, centre_loss)
    net = torch.nn.DataParallel(net)
    for x, y in DataLoader(examples):
        loss_of(net(x), y).backward()
        optimizer.step()
        for places in centre_loss.parameters():
            places.grad *= 10
        centre_optimizer.step()
if __name__ == "__main__":
    main()
"""


def test_centres_that_a_closure_calls_have_their_gradients_averaged(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(CENTRES.format(stepped="centre_loss"))
    (change,) = patch(path).changes
    assert "        average_gradients(optimizer)\n        optimizer.step()\n" in change.text
    head = "        average_gradients(centre_optimizer)\n        for places in centre_loss"
    assert head in change.text


def test_the_optimizer_of_a_part_of_the_wrapped_model_steps_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(CENTRES.format(stepped="net.head"))
    (change,) = patch(path).changes
    assert "average_gradients" not in change.text
    assert "DistributedDataParallel(net" in change.text


ANEW = """\
import torch
def train(net, loader):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader:
        net(batch).mean().backward()
        optimizer.step()
def test(net, loader):
    return [net(batch) for batch in loader]
def main(loader):
    {group}
    net = {wrapper}(torch.nn.Linear(2, 2))
    train(net, loader)
    {behind}
main(torch.utils.data.DataLoader(data))
"""
GROUP = "torch.distributed.init_process_group('gloo')"
AGAIN = """\
for size in range(3):
        net = torch.nn.Linear(2, 2)
        train(net, loader)"""
WRAPPER = "torch.nn.parallel.DistributedDataParallel"


@pytest.mark.parametrize(
    ("behind", "count"),
    [
        (AGAIN, 1),
        ("net = torch.nn.Linear(2, 2)\n    test(net, loader)", 0),
        (f"net = torch.nn.Linear(2, 2)\n    net = {WRAPPER}(net)\n    train(net, loader)", 0),
        ("net = net.to(card)\n    train(net, loader)", 0),
    ],
    ids=["trained", "evaluated", "wrapped as well", "the same one"],
)
def test_a_model_made_anew_under_a_wrapped_ones_name_is_told(behind: str, count: int) -> None:
    text = ANEW.format(group=GROUP, wrapper=WRAPPER, behind=behind)
    told = [each for each in found("DF301", text) if "from here on" in each.because]
    assert len(told) == count


def test_a_model_made_anew_is_averaged_by_hand_beside_data_parallel() -> None:
    text = ANEW.format(group=GROUP, wrapper="torch.nn.DataParallel", behind=AGAIN)
    assert "average_gradients(optimizer)\n        optimizer.step()" in fixed("DF301", text)
    once = ANEW.format(group=GROUP, wrapper="torch.nn.DataParallel", behind="test(net, loader)")
    assert "average_gradients" not in fixed("DF301", once)


BUILDERS = """\
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset
class Experiment:
    def __init__(self, args):
        self.args = args
        self.model = self.build()
    def build(self):
        raise NotImplementedError
class One(Experiment):
    def build(self):
        model = torch.nn.Linear(4, 3)
        if self.args.parallel:
            model = torch.nn.DataParallel(model)
        return model
    def train(self, loader):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for epoch in range(2):
            for (x,) in loader:
                optimizer.zero_grad()
                self.model(x).mean().backward()
                optimizer.step()
class Two(Experiment):
    pass
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", action="store_true")
    parser.add_argument("--kind", default="one")
    args = parser.parse_args()
    if args.kind == "two":
        kind = Two
    else:
        kind = One
    data = TensorDataset(torch.randn(32, 4))
    experiment = kind(args)
    experiment.train(DataLoader(data, batch_size=4, shuffle=True))
if __name__ == "__main__":
    main()
"""


def test_a_model_that_a_class_builds_for_its_base_is_wrapped_without_an_option(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.py"
    path.write_text(BUILDERS)
    (change,) = patch(path).changes
    gate = "\n        if torch.distributed.is_initialized():\n"
    wrapped = change.text.partition(gate)[2].partition("return model")[0]
    assert "model = torch.nn.parallel.DistributedDataParallel(model" in wrapped


PARTS_BARE = """\
import torch
def main(args, net, loader):
    torch.distributed.init_process_group("nccl")
    bare = net
    if args.distributed:
        net = torch.nn.parallel.DistributedDataParallel(net)
        bare = net.module
    groups = [{"params": [p for p in bare.backbone.parameters() if p.requires_grad]}]
    groups += [{"params": list(bare.head.parameters()), "lr": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=0.01)
    for batch in loader:
        net(batch).mean().backward()
        optimizer.step()
if __name__ == "__main__":
    main(*things())
"""


def test_parts_of_what_a_wrapper_holds_are_not_left_out() -> None:
    assert found("DF301", PARTS_BARE) == []
    other = PARTS_BARE.replace("bare.backbone", "other.backbone").replace("bare.head", "other.head")
    assert [each.because.partition(",")[0] for each in found("DF301", other)] == [
        "other.backbone is trained"
    ]


JOINED = """\
import torch
def main(args, net, loader):
    torch.distributed.init_process_group("nccl")
    head = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(net, {part})
    model = torch.nn.parallel.DistributedDataParallel(model)
    groups = [dict(params=head.parameters(), lr=0.1)]
    optimizer = torch.optim.SGD(groups, lr=0.01)
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
if __name__ == "__main__":
    main(*things())
"""


@pytest.mark.parametrize(("part", "count"), [("head", 0), ("torch.nn.ReLU()", 1)])
def test_a_head_that_the_wrapped_model_was_made_of_is_not_left_out(part: str, count: int) -> None:
    assert len(found("DF301", JOINED.format(part=part))) == count
