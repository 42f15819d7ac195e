"""DF411: Every rank searches hyperparameters by itself."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import functools
import hyperopt, optuna, torch, wandb
from optuna.samplers import GridSampler, TPESampler

def objective(trial):
    net = torch.nn.parallel.DistributedDataParallel(Net(trial))
    train(net)
    return score(net)

def train(net):
    for x, y in loader:
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()

class Objective:
    def __call__(self, trial):
        return objective(trial)

def tune(trial):
    return trial.suggest_float("x", 0, 1)

def main():
    torch.distributed.init_process_group("gloo")
    {search}

main()
"""


def script(*search: str) -> str:
    return SCRIPT.format(search="\n    ".join(search))


RUN = "study.optimize(objective, n_trials=9)"
NOOP = {
    "a seed": ("study = optuna.create_study(sampler=TPESampler(seed=0))", RUN),
    "a seed of a sampler with a name": (
        "sampler = TPESampler(seed=seed)",
        "study = optuna.create_study(sampler=sampler)",
        RUN,
    ),
    "a sampler from elsewhere": ("study = optuna.create_study(sampler=sampler_of(opt))", RUN),
    "options from elsewhere": ("study = optuna.create_study(sampler=TPESampler(**opt))", RUN),
    "rank 0 alone": (
        "if torch.distributed.get_rank() == 0:",
        "    optuna.create_study().optimize(objective)",
    ),
    "a trial that rank 0 tells the others": (
        "optuna.create_study().optimize(objective)",
        "optuna.integration.TorchDistributedTrial(None)",
    ),
    "what trains nothing": ("optuna.create_study().optimize(tune)",),
    "a study of another library": ("Study().optimize(objective)",),
    "hyperopt with a seed": ("hyperopt.fmin(objective, space, rstate=rng)",),
}
UNSEEDED = "no seed= is told to the study's sampler: each rank draws other trials"
STORAGE = "all ranks take their trials from one storage, each another"
FOUND = {
    "at once": (UNSEEDED, "optuna.create_study().optimize(objective)"),
    "by a name": (UNSEEDED, "study = optuna.create_study(storage=None)", RUN),
    "a sampler": (UNSEEDED, "study = optuna.create_study(sampler=GridSampler(space))", RUN),
    "no seed": (UNSEEDED, "study = optuna.create_study(sampler=TPESampler(seed=None))", RUN),
    "a lambda": (UNSEEDED, "optuna.create_study().optimize(lambda t: objective(t))"),
    "a partial": (UNSEEDED, "optuna.create_study().optimize(functools.partial(objective))"),
    "an object": (UNSEEDED, "optuna.create_study().optimize(Objective(), n_trials=9)"),
    "an object with a name": (
        UNSEEDED,
        "run = Objective()",
        "optuna.create_study().optimize(run)",
    ),
    "a storage": (
        STORAGE,
        "study = optuna.create_study(storage='sqlite:///a.db', sampler=TPESampler(seed=0))",
        RUN,
    ),
    "hyperopt": (
        "no rstate= seeds the search: each rank draws other trials",
        "hyperopt.fmin(objective, space, algo=hyperopt.tpe.suggest)",
    ),
    "wandb": (
        "each rank asks the server for a trial of its own",
        "wandb.agent(sweep, function=functools.partial(objective, None))",
    ),
}


@pytest.mark.parametrize("search", NOOP.values(), ids=NOOP)
def test_what_is_left_alone(search: tuple[str, ...]) -> None:
    assert [each.because for each in found("DF411", script(*search))] == []


@pytest.mark.parametrize(("because", "search"), [(v[0], v[1:]) for v in FOUND.values()], ids=FOUND)
def test_what_is_found(because: str, search: tuple[str, ...]) -> None:
    assert [each.because for each in found("DF411", script(*search))] == [because]
