"""A loss that learns is found by whatever way its parameters get to the optimizer (DF301)."""

from __future__ import annotations

import pytest
from cases import found

CENTRES = """\
import torch
torch.distributed.init_process_group("gloo")
net, centres = Net(), CentreLoss(10)
net = torch.nn.DataParallel(net)
{made}
for x, y in torch.utils.data.DataLoader(data):
    features = net(x)
    (features.sum() + centres(features, y)).backward()
    optimizer.step()
"""
BARE = "centres is trained, and nothing wraps it: ranks average the gradients by hand"
MADE = [
    (
        "groups that are appended",
        """
        groups = [{"params": net.parameters()}]
        if learns:
            groups.append({"params": centres.parameters(), "lr": 0.5})
        optimizer = torch.optim.SGD(groups, 0.1)
        """,
    ),
    (
        "a list that grows by +=",
        """
        weights = list(net.parameters())
        weights += list(centres.parameters())
        optimizer = torch.optim.SGD(weights, 0.1)
        """,
    ),
    (
        "one group for each parameter",
        """
        groups = []
        for name, weight in net.named_parameters():
            groups += [{"params": [weight]}]
        for name, weight in centres.named_parameters():
            groups += [{"params": [weight], "lr": 0.5}]
        optimizer = torch.optim.SGD(groups, 0.1)
        """,
    ),
    (
        "a group that the optimizer gets later",
        """
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        optimizer.add_param_group({"params": centres.parameters()})
        """,
    ),
    (
        "a group that is put behind its others",
        """
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        optimizer.param_groups.append({"params": list(centres.parameters()), "lr": 0.5})
        """,
    ),
    (
        "models in a list of modules",
        """
        both = torch.nn.ModuleList([net])
        both.append(centres)
        optimizer = torch.optim.SGD(both.parameters(), 0.1)
        """,
    ),
    (
        "one model after another",
        """
        groups = [{"params": each.parameters()} for each in (net, centres)]
        optimizer = torch.optim.SGD(groups, 0.1)
        """,
    ),
    (
        "a function that makes the optimizer",
        """
        def make_optimizer(weights):
            return torch.optim.SGD(weights, 0.1)
        optimizer = make_optimizer([*net.parameters(), *centres.parameters()])
        """,
    ),
]
NOT_ITS = [
    (
        "a list that grows behind the optimizer",
        """
        weights = list(net.parameters())
        optimizer = torch.optim.SGD(list(weights), 0.1)
        weights += list(centres.parameters())
        """,
    ),
    (
        "another list",
        """
        weights, others = list(net.parameters()), []
        others.extend(centres.parameters())
        optimizer = torch.optim.SGD(weights, 0.1)
        """,
    ),
]


def reasons(made: str) -> list[str]:
    lines = [line[8:] for line in made.splitlines()]
    return [each.because for each in found("DF301", CENTRES.format(made="\n".join(lines)))]


@pytest.mark.parametrize("made", [pytest.param(text, id=name) for name, text in MADE])
def test_a_loss_that_learns_has_its_gradients_averaged(made: str) -> None:
    assert reasons(made) == [BARE]


@pytest.mark.parametrize("made", [pytest.param(text, id=name) for name, text in NOT_ITS])
def test_a_loss_that_no_optimizer_steps_is_no_reason(made: str) -> None:
    assert not any("centres" in each for each in reasons(made))
