"""DF206: cards that a script chooses by their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch

GROUP = """\
import os
import torch
if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ:
    torch.distributed.init_process_group('gloo')
"""
TOLD = "if 'LOCAL_RANK' in os.environ else"
NUMBER, TEXT = (
    f"int(os.environ['LOCAL_RANK']) {TOLD}",
    f"f\"cuda:{{os.environ['LOCAL_RANK']}}\" {TOLD}",
)
ALONE = "if 'LOCAL_RANK' not in os.environ:\n    "

FIX = [
    ("torch.cuda.set_device(args.gpu)", ALONE + "torch.cuda.set_device(args.gpu)"),
    ("torch.cuda.set_device('cuda:{}'.format(gpus[0]))",
        ALONE + "torch.cuda.set_device('cuda:{}'.format(gpus[0]))"),
    ("def f(c):\n    device = c['main']\n    torch.cuda.set_device(device)\n    return device",
        f"def f(c):\n    device = {TEXT} c['main']\n    if 'LOCAL_RANK' not in os.environ:\n"
        "        torch.cuda.set_device(device)\n    return device"),
    ("def f(c):\n    main = c['main']\n    torch.cuda.set_device(main)\n    return name_of(main)",
        "def f(c):\n    main = c['main']\n    if 'LOCAL_RANK' not in os.environ:\n"
        "        torch.cuda.set_device(main)\n    return name_of(main)"),
    ("os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'",
        ALONE + "os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'"),
    ("os.environ.setdefault('CUDA_VISIBLE_DEVICES', args.gpu)",
        ALONE + "os.environ.setdefault('CUDA_VISIBLE_DEVICES', args.gpu)"),
    ("os.environ.update({'CUDA_DEVICE_ORDER': 'PCI_BUS_ID', 'CUDA_VISIBLE_DEVICES': '1'})",
        ALONE + "os.environ.update({'CUDA_DEVICE_ORDER': 'PCI_BUS_ID', "
        "'CUDA_VISIBLE_DEVICES': '1'})"),
    ("with torch.cuda.device(args.gpu): pass",
        f"with torch.cuda.device({NUMBER} args.gpu): pass"),
    ("model.cuda(0)", "model.cuda(int(os.environ.get('LOCAL_RANK', 0)))"),
    ("x = x.cuda(params['GPU'])", f"x = x.cuda({NUMBER} params['GPU'])"),
    ("x = x.cuda(ids[0])", f"x = x.cuda({NUMBER} ids[0])"),
    ("x = x.to(int(ids[0]))", f"x = x.to({NUMBER} int(ids[0]))"),
    ("x = x.to(gpu_ids[0])", f"x = x.to({NUMBER} gpu_ids[0])"),
    ("x = x.cuda(args.gpu, non_blocking=True)",
        f"x = x.cuda({NUMBER} args.gpu, non_blocking=True)"),
    ("device = cfg.GPU_ID\nx = x.to(device)", f"device = {NUMBER} cfg.GPU_ID\nx = x.to(device)"),
    ("d = torch.device('cuda', args.gpu)", f"d = torch.device('cuda', {NUMBER} args.gpu)"),
    ("d = torch.device('cuda:%d' % gpu)", f"d = torch.device({TEXT} 'cuda:%d' % gpu)"),
    ("d = f'cuda:{args.gpu}' if has else 'cpu'",
        f"d = ({TEXT} f'cuda:{{args.gpu}}') if has else 'cpu'"),
    ("d = i == n and 'cuda:' + str(n) != c", f"d = i == n and ({TEXT} 'cuda:' + str(n)) != c"),
    ("d = 'cuda:{}'.format(n)", f"d = {TEXT} 'cuda:{{}}'.format(n)"),
    ("n = torch.cuda.device_count()\npart.to(i % n)",
        f"n = torch.cuda.device_count()\npart.to({NUMBER} i % n)"),
    ("x.cards = [i % max(1, torch.cuda.device_count()) for i in parts]\npart.to(x.cards[i])",
        f"x.cards = [{NUMBER} i % max(1, torch.cuda.device_count()) for i in parts]\n"
        "part.to(x.cards[i])"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "new"), FIX, ids=[line for line, _ in FIX])
def test_the_launchers_card_is_taken_where_there_is_a_launcher(line: str, new: str) -> None:
    assert fixed("DF206", f"{GROUP}{line}\n") == f"{GROUP}{new}\n"
    assert found("DF206", f"{GROUP}{new}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "model.cuda(args.local_rank)",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
        "x = x.to(args.device)",
        "device = args.device\nx = x.to(device)",
        "x = x.to(torch.float16)",
        "x = x.to(outputs[0].device)",
        "x = x.to(batch[0])",
        "print('cuda:%d' % n)",
        "x = x.cuda()",
        "n = torch.cuda.device_count()\nassert size % n == 0\nx.to(size)",
        "n = torch.cuda.device_count()\nrest = size % n\nx = x[rest]",
        "n = len(parts)\nplace = i % n\nx.to(place)",
        "n = torch.cuda.device_count()\ncard = rank % n\nx.to(card)",
        "gpu = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\nx = x.to(gpu)",
        "gpu = torch.device('cuda') if args.cuda else 'cpu'\nx = x.to(gpu)",
        "def put(x, gpu_id=device): return x.to(gpu_id)\nput(x, gpu_id=torch.device('cpu'))",
    ],
)
def test_what_names_no_card_of_one_process_is_left_alone(line: str) -> None:
    assert found("DF206", f"{GROUP}{line}\n") == []


BEHIND_ARGUMENTS = """\
import os
import torch
args = parser.parse_args()
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
args.n_gpu = torch.cuda.device_count()
args.local_rank = -1
if args.local_rank != -1:
    use_cuda = torch.cuda.is_available()
    torch.distributed.init_process_group('nccl' if use_cuda else 'gloo')
    device = torch.device('cuda', args.local_rank) if use_cuda else torch.device('cpu')
    args.n_gpu = 1
"""


def test_a_card_behind_the_set_up_that_the_arguments_have_is_one_too() -> None:
    new = "model.to(int(os.environ.get('LOCAL_RANK', 0)))"
    assert fixed("DF206", f"{BEHIND_ARGUMENTS}model.to(0)\n") == f"{BEHIND_ARGUMENTS}{new}\n"
    assert found("DF206", f"{BEHIND_ARGUMENTS}{new}\n") == []
    own = BEHIND_ARGUMENTS.replace("    args.n_gpu = 1\n", "")
    assert found("DF206", f"{own}model.to(0)\n") == []  # a group of the script's own


def test_a_group_of_the_scripts_own_has_its_own_cards() -> None:
    group = GROUP.replace("if 'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ", "if own")
    assert found("DF206", f"{group}model.cuda(0)\n") == []


SCRIPT = """\
import argparse
import os
import torch
from torch.utils.data import DataLoader
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
args = parser.parse_args()
torch.cuda.set_device(args.gpu)
device = torch.device("cuda:%d" % args.gpu)
model = torch.nn.Linear(2, 1).cuda(args.gpu)
{wrap}
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(2):
    for batch in DataLoader(torch.randn(8, 2), shuffle=True):
        model(batch.to(device)).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("wrap", ["", "model = torch.nn.DataParallel(model)"])
def test_a_script_that_chooses_its_card_is_patched_whole(wrap: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(wrap=wrap))
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    assert change.text.count("'LOCAL_RANK' not in os.environ") == 2
    assert "DistributedDataParallel(model" in change.text
    assert {each.code for each in result.findings_after} <= {"DF701"}


OPTION = """\
import argparse
{group}parser = argparse.ArgumentParser()
parser.add_argument('--device', {option})
args = parser.parse_args()
{read}x = x.to(args.device)
"""
READ = """\
if 'LOCAL_RANK' in os.environ and args.device.startswith('cuda'):
    args.device = f"cuda:{os.environ['LOCAL_RANK']}"
"""


@pytest.mark.parametrize(
    "option",
    [
        "default='cuda:0'",
        "type=str, default='cpu', choices=['cpu', 'cuda:0', 'cuda:1']",
        "default='cpu'",
    ],
)
def test_an_option_that_names_a_card_is_read_as_the_ranks_own(option: str) -> None:
    text = OPTION.format(group=GROUP, option=option, read="")
    new = OPTION.format(group=GROUP, option=option, read=READ)
    assert fixed("DF206", text) == new
    assert found("DF206", new) == []


def test_an_option_of_that_name_may_be_the_cpu() -> None:
    """A number of a card in its place would be one on a machine without any, too."""
    option = "default='cuda'"
    text = OPTION.format(group=GROUP, option=option, read="").replace("device", "cuda")
    new = OPTION.format(group=GROUP, option=option, read=READ).replace("device", "cuda")
    assert fixed("DF206", text) == new
    assert found("DF206", new) == []


@pytest.mark.parametrize(
    "option",
    [
        *("default='cuda'", "type=int, default=0", "default=None"),
        "default='cpu', choices=['cpu', 'cuda']",
    ],
)
def test_an_option_that_names_no_card_is_left_alone(option: str) -> None:
    assert found("DF206", OPTION.format(group=GROUP, option=option, read="")) == []


def test_several_cards_to_choose_from_are_no_obstacle(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    option = "default='cpu', choices=['cpu', 'cuda:0', 'cuda:1']"
    script.write_text(
        OPTION.format(group="import torch\nx = torch.ones(2)\n", option=option, read="")
        + "model = torch.nn.Linear(2, 1)\noptimizer = torch.optim.SGD(model.parameters(), 1)\n"
        "for batch in torch.utils.data.DataLoader([x]):\n    model(batch).mean().backward()\n"
        "    optimizer.step()\n"
    )
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    assert READ in change.text
    assert "over_ranks(model)(batch)" in change.text


COUNTED = (
    "os.environ['CUDA_VISIBLE_DEVICES'] = args.gpu\n",
    "count = len(os.environ['CUDA_VISIBLE_DEVICES'].split(','))\n",
)


def test_cards_that_are_counted_by_the_variable_are_counted_without_it() -> None:
    after = fixed("DF206", GROUP + "".join(COUNTED))
    assert "count = len(os.environ.get('CUDA_VISIBLE_DEVICES', '0').split(','))" in after
    assert found("DF206", after) == []
    assert found("DF206", GROUP + COUNTED[1]) == []  # whoever starts it has to set it


OWN_GROUP = """\
import os
import torch
parser.add_argument("--cards", default="{default}")
args = parser.parse_args()
{line}
if args.local_rank != -1:
    torch.cuda.set_device(args.local_rank)
    torch.distributed.init_process_group('nccl')
"""
VISIBLE = 'os.environ["CUDA_VISIBLE_DEVICES"]'


@pytest.mark.parametrize(
    ("default", "value", "told"),
    [
        ("1", "args.cards", ["ranks see one card by default: args.cards is to name one each"]),
        ("0,1", "args.cards", []),
        ("1", "'0,1'", []),
        ("1", "str(args.local_rank)", []),
        ("1", "'1'", ["'1' is the only card that ranks see"]),
    ],
)
def test_ranks_of_the_scripts_own_group_see_a_card_each(
    default: str, value: str, told: list[str]
) -> None:
    text = OWN_GROUP.format(default=default, line=f"{VISIBLE} = {value}")
    assert [each.because for each in found("DF206", text)] == told


def test_the_only_visible_card_is_left_out_on_ranks() -> None:
    text = OWN_GROUP.format(default="1", line=f"{VISIBLE} = '1'")
    new = text.replace(VISIBLE, f"if 'LOCAL_RANK' not in os.environ:\n    {VISIBLE}")
    assert fixed("DF206", text) == new
    assert found("DF206", new) == []


PASSED = (
    "import argparse\n"
    + GROUP
    + """\
def begin(place):
    for each in [place]:
        device = torch.device(each)
    return device
parser = argparse.ArgumentParser()
parser.add_argument('--gpu', type={kind}, default={default})
args = parser.parse_args()
device = {made}
"""
)


@pytest.mark.parametrize(
    ("kind", "default", "made", "told"),
    [
        ("int", 0, "begin(args.gpu)", True),
        ("int", 0, "other(args.gpu)", False),
        ("int", 0, "print(args.gpu)", False),
        ("str", "'x'", "begin(args.gpu)", False),
    ],
)
def test_an_option_that_a_function_makes_a_device_of_is_the_launchers(
    kind: str, default: object, made: str, told: bool
) -> None:
    text = PASSED.format(kind=kind, default=default, made=made)
    line = "    args.gpu = int(os.environ['LOCAL_RANK'])\n"
    after = fixed("DF206", text)
    assert (line in after) is told
    assert fixed("DF206", after) == after
