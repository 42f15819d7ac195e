"""``patch --with fsdp``: weights are dealt among the ranks, and training is what it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from capable import added, assert_alike, made, outputs, plain_and_capable, reasons
from ddpfix.fixtures.tiny import build_clone_data, build_model, clone_arguments
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.patcher.capabilities import fsdp_helper_code as helpers
from ddpfix.patcher.capabilities import select_capabilities
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job, Run
from safetensors.torch import load_file

PRELUDE = Path(__file__).parent / "preludes" / "dealt.py"
NAMES = ["amp", "lora", "checkpointing", "fsdp", "resume"]
(CAPABILITY,) = select_capabilities(["fsdp"])
SAVING = "--save_total_limit=9 --save_steps=2"
TOGETHER = "--amp=bf16 --lora_r=2 --gradient_checkpointing"


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return plain_and_capable(tmp_path_factory.mktemp("scripts"), NAMES)


def out_of(folder: Path) -> Path:
    """Where a run writes; one that goes on finds a checkpoint there."""
    return folder.with_suffix(".out") if "goes on" in folder.name else folder / "out"


@pytest.fixture(scope="module")
def runs(
    forge: Forge, scripts: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    plain, capable = scripts
    folder = tmp_path_factory.mktemp("fsdp")
    data = build_clone_data(folder / "data", train=28, valid=7, test=5)  # ranks evaluate 2 and 1
    model = build_model(folder / "model", "roberta")

    def job(name: str, script: Path, world: int | None, accumulation: int, words: str = "") -> Job:
        here = folder / name
        training = clone_arguments(
            model, data, out_of(here), "roberta", batch=3, accumulation=accumulation, epochs=1
        )
        options = ("--no-dropout", "--keep-parameters")
        return Job(here, script, [*training, *words.split()], world, options, PRELUDE)

    script = folder / "rank_0_saves.py"
    shutil.copy(Path(__file__).with_name(script.name), script)
    result = patch(script, capabilities=[CAPABILITY])
    assert (result.refusal, result.capability_failures) == ("", ())
    result.write()
    saving = ["--fsdp", "--output_dir", str(folder / "rank 0 saves" / "out")]
    found = made(
        forge,
        [
            job("alone", plain, None, 1),
            job("alone, off", capable, None, 1),
            job("ddp", capable, 2, 2),
            job("fsdp", capable, 2, 2, f"--fsdp {SAVING}"),
            job("ddp, together", capable, 2, 1, TOGETHER),
            job("fsdp, together", capable, 2, 1, f"--fsdp {TOGETHER}"),
            Job(folder / "rank 0 saves", script, saving, 2),
            Job(folder / "helpers", Path(__file__).with_name("sharded_ranks.py"), [], 2),
        ],
    )
    middle = folder / "fsdp" / "out" / "resumable" / "step-000002.pt"
    place = out_of(folder / "goes on") / "resumable" / middle.name
    place.parent.mkdir(parents=True)
    shutil.copy(middle, place)
    return found | made(forge, [job("goes on", capable, 1, 4, f"{SAVING} --resume")])


def test_what_the_helpers_promise_on_two_ranks(runs: dict[str, Run]) -> None:
    assert runs["helpers"].log.count("all is as promised") == 2


def weights(run: Run) -> dict[str, torch.Tensor]:
    path = out_of(run.folder) / "checkpoint-best-f1" / "model.bin"
    found: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
    return found


def assert_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], by: float) -> None:
    assert list(one) == list(other)
    for name, values in one.items():
        assert values.dtype == other[name].dtype
        torch.testing.assert_close(values, other[name], rtol=0, atol=by)


def test_without_its_flag_nothing_is_computed_otherwise(runs: dict[str, Run]) -> None:
    assert_alike(runs["alone"], runs["alone, off"])


def test_each_rank_holds_its_part(runs: dict[str, Run]) -> None:
    for what in ("weights", "gradients", "states"):
        whole = runs["ddp"].seen[0][what]
        parts = [seen[what] for seen in runs["fsdp"].seen]
        assert sum(parts) == whole > 0
        assert max(parts) < 0.6 * whole


def test_ranks_take_the_steps_of_ddp(runs: dict[str, Run]) -> None:
    for name, step_count, by in (("", 3, 1e-6), (", together", 5, 1e-3)):
        ddp, fsdp = runs[f"ddp{name}"], runs[f"fsdp{name}"]
        before, after = compare.steps(ddp.ranks), compare.steps(fsdp.ranks)
        assert len(before) == len(after) == step_count
        assert compare.deviation(before, after, "loss").largest < by
        assert compare.deviation(before, after, "norm").largest < 10 * by
        assert compare.first_divergent_step(fsdp.ranks) == 0
        assert_close(weights(ddp), weights(fsdp), by)
        assert outputs(ddp)["predictions.txt"] == outputs(fsdp)["predictions.txt"]


def test_gradients_are_scattered_once_per_step(runs: dict[str, Run]) -> None:
    layers = 2
    assert {seen["scatters"] for seen in runs["fsdp"].seen} == {3 * (layers + 1)}


def test_training_goes_on_with_other_ranks_and_without_the_flag(runs: dict[str, Run]) -> None:
    assert len(compare.steps(runs["goes on"].ranks)) == 1
    assert_close(weights(runs["ddp"]), weights(runs["goes on"]), 1e-6)


def test_rank_0_saves_alone_what_all_have_gathered(runs: dict[str, Run]) -> None:
    out = runs["rank 0 saves"].folder / "out"
    last, saved = torch.load(out / "last.pt"), load_file(out / "model.safetensors")
    assert last.keys() >= saved.keys() > set()
    for name, values in saved.items():  # of the last step
        assert torch.equal(values, last[name])
        assert values.isfinite().all()
    states = torch.load(out / "optimizer.pt")["state"]
    shapes = [tuple(state["exp_avg"].shape) for state in states.values()]
    assert sorted(shapes) == sorted(tuple(values.shape) for values in saved.values())


def test_a_second_patch_changes_nothing(scripts: tuple[Path, Path]) -> None:
    again = patch(scripts[1], capabilities=[CAPABILITY])
    assert (again.refusal, again.changes, again.capability_failures) == ("", (), ())


HEAD = """\
import argparse
import copy
import torch
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
{flag}args = parser.parse_args()
torch.distributed.init_process_group("gloo")
"""
FLAG = (
    'parser.add_argument("--fsdp", action="store_true",\n'
    '                    help="Deal weights, gradients and optimizer states among the ranks '
    '(FSDP2).")\n'
)
WRAP = "model = DistributedDataParallel(model)\n"
SHARD = "if not args.fsdp:\n    " + WRAP + "else:\n    model = shard_over_ranks({})\n"
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters())\n"
LOOP = """\
for batch in batches:
    model.train()
    model(batch).backward()
    {first}
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
{last}
"""
PLAIN = LOOP.format(first="pass", last="")
PLACES = {
    "the optimizer is made before": (
        OPTIMIZER + WRAP + PLAIN,
        OPTIMIZER + SHARD.format("model, optimizer") + PLAIN,
    ),
    "the norm is kept": (
        OPTIMIZER + WRAP + PLAIN.replace("    torch.nn", "    norm = torch.nn"),
        OPTIMIZER
        + SHARD.format("model, optimizer")
        + PLAIN.replace("    torch.nn", "    norm = summed_norm(torch.nn").replace("0)", "0))"),
    ),
    "the optimizer is made behind it": (
        WRAP + OPTIMIZER + PLAIN,
        SHARD.format("model")
        + OPTIMIZER
        + "if args.fsdp:\n    deal_optimizer_state(optimizer)\n"
        + PLAIN,
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_model_is_sharded_where_it_is_wrapped(place: str) -> None:
    before, after = PLACES[place]
    text = added(CAPABILITY, HEAD.format(flag="") + before)
    assert text.endswith(after)
    assert text.count(FLAG) == 1
    compile(text, place, "exec")


def trained(first: str = "pass", last: str = "", above: str = "", wrap: str = WRAP) -> str:
    loop = LOOP.format(first=first, last=last)
    return HEAD.format(flag="") + above + OPTIMIZER + wrap + loop


GATE = "if torch.distributed.get_rank() == 0{}:\n    "
OTHERS = "if torch.distributed.get_rank() != 0: "
SAVE = "x = model.module.state_dict()"
GATES = {
    "behind the training": ("", "gather_weights()\n"),
    "every so many steps": (
        " and step % args.local_rank == 0",
        "if step % args.local_rank == 0:\n    gather_weights()\n",
    ),
    "where rank 0 alone knows when": (" and f1 > best", "gather_weights()\n"),
}


@pytest.mark.parametrize("gate", GATES)
def test_all_gather_above_the_test_behind_which_rank_0_saves(gate: str) -> None:
    test, gathering = GATES[gate]
    saving = GATE.format(test) + SAVE
    text = added(CAPABILITY, trained(above="step = 0\n", last=saving))
    assert text.endswith(f"    optimizer.step()\n{gathering}{saving}\n")


def in_loop(code: str) -> str:
    return code.replace("\n", "\n    ")


REASONS = {
    "another model is wrapped": (trained(above="x = DistributedDataParallel(x)\n"), "several"),
    "two optimizers step": (trained("other.step()"), "it steps 2 optimizers"),
    "nobody knows the optimizer": (trained().replace(OPTIMIZER, ""), "made in 0 places"),
    "rank 0 alone takes the weights in each step": (
        trained(in_loop(GATE.format("") + SAVE)),
        "only rank 0 comes to state_dict(), and line 15 is come to in each step",
    ),
    "rank 0 alone takes them behind another test": (
        trained(last="if args.x:\n    pass\nel" + GATE.format("") + SAVE),
        "is an elif",
    ),
    "rank 0 alone takes them behind an exit": (
        trained(last=f"def f():\n    {OTHERS}return\n    {SAVE}\nf()"),
        "by no test that is seen",
    ),
    "rank 0 alone takes a part": (
        trained(last=GATE.format("") + "x = model.module.encoder.state_dict()"),
        "rank 0 alone saves encoder, a part of the model",
    ),
    "rank 0 alone evaluates": (trained(last=GATE.format("") + "model.eval()"), "come to eval()"),
    "the whole module is saved": (trained(last="torch.save(model.module, 'x')"), "whole module"),
    "the wrapper's state is saved": (
        trained(last="torch.save(model.state_dict(), 'x')"),
        "keys of model.state_dict() begin with module., of the wrapper",
    ),
    "a function saves the wrapper's state": (
        trained(last="def save(net):\n    torch.save(net.state_dict(), 'x')\nsave(model)"),
        "keys of net.state_dict() begin with module., of the wrapper",
    ),
    "a copy": (trained(last="copy.deepcopy(model)"), "a copy of its parts"),
    "an average of weights": (trained(above="a = EMA(model)\n"), "a copy of its parts"),
    "a gradient is read": (trained("print(model.head.weight.grad)"), "part of a gradient"),
    "weights are changed": (
        trained("[p.mul_(2) for p in model.parameters()]"),
        "model.parameters() is looked at between steps",
    ),
    "a method trains": (trained("model.penalty().backward()"), "used between steps"),
    "weights are thawed": (trained("layer.requires_grad = True"), "changes between steps"),
    "a normed weight": (trained(above="weight_norm(layer)\n"), "needs weights that are whole"),
    "a hook": (trained(above="weight.register_hook(f)\n"), "needs weights that are whole"),
    "the script compiles": (trained(above="model = torch.compile(model)\n"), "torch.compile"),
    "wrappers are taken off in a loop": (
        trained(last="while hasattr(model, 'module'):\n    model = model.module"),
        "until there is none",
    ),
    "a name of ours": (trained(above="whole_tensor = 1\n"), "whole_tensor is another thing"),
    "a helper that gathers on rank 0": (
        trained(above="class Resumable:\n    def save(self):\n        pass\n"),
        "its Resumable is of an earlier ddpfix",
    ),
    "one call at a time": (
        trained(wrap="def over_ranks(m):\n    ddp = DistributedDataParallel(m)\n    return ddp\n"),
        "wrapped for one call at a time",
    ),
    "no wrapping": (trained(wrap=""), "no assignment wraps the trained model"),
}


@pytest.mark.parametrize("case", REASONS)
def test_what_it_cannot_do_is_refused_with_the_reason(case: str) -> None:
    text, because = REASONS[case]
    (reason,) = reasons(CAPABILITY, text)
    assert because in reason


class Layer(torch.nn.Module):
    def __init__(self, weight: torch.nn.Parameter | None = None) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(5, 5)
        if weight is not None:
            self.linear.weight = weight


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer() for _ in range(3)])
        self.heads = torch.nn.ModuleList([torch.nn.Linear(1, 1) for _ in range(2)])


NO_REASONS = {
    "the wrapper is taken off": "torch.save(model.module.state_dict(), 'x')",
    "the wrapper is looked for": (
        "torch.save(model.module.state_dict() if hasattr(model, 'module') else model.state_dict())"
    ),
    "a function takes it off": (
        "def save(net):\n    net = getattr(net, 'module', net)\n"
        "    torch.save(net.state_dict(), 'x')\nsave(model)"
    ),
    "a function gives the model in it": "torch.save({'net': unwrap(model).state_dict()}, 'x')",
    "a tokenizer is saved by rank 0": "if torch.distributed.get_rank() == 0:\n"
    "    tokenizer.save_pretrained('x')",
    "another step has gradients": "torch.optim.SGD([x]).step()",
}


@pytest.mark.parametrize("case", NO_REASONS)
def test_what_only_looks_alike_stays_possible(case: str) -> None:
    text = added(CAPABILITY, trained(last=NO_REASONS[case]))
    assert text.endswith(f"    optimizer.step()\n{NO_REASONS[case]}\n")


def test_layers_are_the_members_of_large_lists_of_alike() -> None:
    model = Layers()
    assert list(helpers.sharding_blocks(model)) == list(model.layers)
    model.tied = torch.nn.Linear(5, 5)
    model.tied.weight = model.layers[1].linear.weight
    model.layers.append(model.layers[0])
    assert list(helpers.sharding_blocks(model)) == [model.layers[0], model.layers[2]]
    towers = torch.nn.ModuleList([Layers(), Layers()])
    assert list(helpers.sharding_blocks(towers)) == list(towers)
    assert list(helpers.sharding_blocks(torch.nn.Linear(2, 2))) == []


def test_parts_with_weights_of_another_type_are_for_themselves() -> None:
    model = Layers().bfloat16()
    model.head = torch.nn.Linear(5, 2)
    assert list(helpers.sharding_blocks(model)) == [*model.layers, model.head]
    model.head.requires_grad_(False)
    assert list(helpers.sharding_blocks(model)) == list(model.layers)


@pytest.mark.parametrize(
    ("model", "because"),
    [
        (torch.nn.Sequential(torch.nn.BatchNorm1d(2)), "batch norm"),
        (torch.nn.DataParallel(torch.nn.Linear(2, 2)), "wrapped already"),
    ],
)
def test_a_run_ends_where_it_would_train_otherwise(model: torch.nn.Module, because: str) -> None:
    with pytest.raises(SystemExit, match=f"^--fsdp: .*{because}"):
        helpers.check_sharding(model)
    helpers.check_sharding(Layers())


def test_a_run_ends_whose_optimizer_looks_at_whole_weights() -> None:
    weights = list(Layers().parameters())
    with pytest.raises(SystemExit, match=r"^--fsdp: LBFGS may need more than a part"):
        helpers.deal_optimizer_state(torch.optim.LBFGS(weights))
    helpers.deal_optimizer_state(torch.optim.AdamW(weights))
