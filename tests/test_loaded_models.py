"""DF604: a model that a file holds whole is not left on the CPU."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace

import pytest
from cases import fixed
from ddpfix.patcher.editing.helpers import helper_code

WHOLE = [
    ("a model", "model = torch.load(path)\nmodel.eval()"),
    ("it is called", "model = torch.load(path)\nfor x in data:\n    model(x)"),
    ("at once", "score(torch.load(path).eval())"),
    ("an item", "state = torch.load(path)\nmodel = state['model']\nmodel.train()"),
    ("by get", "model = torch.load(path).get('net')\nmodel(x)"),
    ("into a wrapper", "model = torch.nn.DataParallel(torch.load(path))"),
    ("an attribute", """
        class Trainer:
            def __init__(self, path):
                self.model = torch.load(path)
            def score(self, x):
                return self.model(x)
        """),
    ("a function returns it", """
        def restore(path):
            return torch.load(path)
        model = restore(path)
        model.eval()
        """),
    ("a function gets it, and an object by keyword", """
        class Tester:
            def __init__(self, net):
                self.net = net
            def score(self, x):
                return self.net(x)
        def test(model, data):
            return Tester(net=model).score(data)
        model = torch.load(path)
        test(model, data)
        """),
    ("a function returns it among others, from one of two branches", """
        def restore(path, device):
            state = torch.load(path, 'cpu') if device == 'cpu' else torch.load(path)
            return state['epoch'], state['model']
        epoch, model = restore(path, device)
        model.train()
        """),
    ("a tensor is a factor", "centres = torch.load(path)\nscores = torch.mm(features, centres.T)"),
    ("from one of two branches", """
        if os.path.exists(path):
            centres = torch.load(path)
        else:
            centres = encode(data)
        scores = features @ centres.t()
        """),
    ("it becomes a layer's weight", """
        def read(path):
            found = torch.load(path)
            return found
        weights = read(path)["state_dict"]
        model.embed.weight.data = weights[key]
        """),
    ("an average of weights, which a class of its own goes on with", """
        class Average:
            def step(self, net):
                for name, weight in net.named_parameters():
                    kept = 0.9 * self.kept[name].data
                    self.kept[name].data = 0.1 * weight.data + kept
            def load_state_dict(self, state):
                self.kept = state
        average = Average() if args.average else None
        states = torch.load(path)
        model.load_state_dict(states[0])
        average.load_state_dict(states[1])
        """),
    ("an average that is moved in place", """
        class Average:
            def step(self, net):
                for name, weight in net.named_parameters():
                    self.kept[name].mul_(0.9).add_(weight.detach(), alpha=0.1)
            def load_state_dict(self, state):
                self.kept = state["kept"]
        average = Average()
        average.load_state_dict(torch.load(path))
        """),
    ("one of several that lie there", "model, optimizer = torch.load(path)\nmodel.eval()"),
    ("a function binds it for all others", """
        def restore(path):
            global model, optimizer
            model, optimizer = torch.load(path)
        def score(x):
            return model(x)
        """),
    ("a trained model's name, for what cannot be followed", """
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        model = torch.load(path)
        EVALUATORS[name](model, data)
        """),
    ("its own method multiplies", "torch.load(path)['centres'].float().matmul(features)"),
]  # fmt: skip

STATES = [
    ("into load_state_dict", "model.load_state_dict(torch.load(path))"),
    ("items of it", "state = torch.load(path)\nmodel.load_state_dict(state['model'])\nmodel(x)"),
    ("items by get", "state = torch.load(path)\nepoch = state.get('epoch', 0)"),
    ("it is moved", "model = torch.load(path).to(device)\nmodel.eval()"),
    ("a tensor is moved", "centres = torch.load(path).to(device)\nfeatures @ centres.T"),
    ("a number is added", "state = torch.load(path)\nepoch = state['epoch'] + 1"),
    ("a number is added to another", """
        state = torch.load(path)
        first = state['epoch']
        last = first + args.epochs
        """),
    ("it is copied to a layer's weight", "model.w.data.copy_(torch.load(path)['weight'])"),
    ("data are read", "x, y = torch.load(path)\ndata = TensorDataset(x.float(), y)"),
    ("a function returns it", """
        def restore(path):
            return torch.load(path)
        model.load_state_dict(restore(path))
        model(x)
        """),
    ("a function gets it for a model", """
        def fill(net, weights):
            net.load_state_dict(weights)
            return net(x)
        fill(Net(), torch.load(path))
        """),
    ("another model has its name later", """
        model = torch.load(path)
        weights = model['weights']
        model = Net()
        model.load_state_dict(weights)
        model.eval()
        """),
]  # fmt: skip


def mapped(text: str) -> str:
    return fixed("DF604", "import torch\n" + textwrap.dedent(text))


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in WHOLE])
def test_a_whole_model_comes_to_the_card_of_its_rank(text: str) -> None:
    assert "torch.load(path, map_location=onto_own_card)" in mapped(text)


def test_the_helper_stands_above_a_use_at_module_level() -> None:
    text = mapped("model = torch.load(path)\nmodel.eval()\ndef f():\n    pass\n")
    assert text.index("def onto_own_card") < text.index("torch.load")


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in STATES])
def test_weights_are_read_to_the_cpu(text: str) -> None:
    assert "torch.load(path, map_location='cpu')" in mapped(text)


@pytest.mark.parametrize(
    ("is_rank", "place", "card"),
    [(False, "cuda:0", None), (True, "cpu", None), (True, "cuda:0", "own")],
)
def test_only_a_rank_moves_what_lay_on_a_card(is_rank: bool, place: str, card: str | None) -> None:
    group = SimpleNamespace(is_initialized=lambda: is_rank)
    names = {"torch": SimpleNamespace(distributed=group)}
    exec(helper_code("onto_own_card"), names)
    storage = SimpleNamespace(cuda=lambda: "own")
    assert names["onto_own_card"](storage, place) == card  # type: ignore[operator]
