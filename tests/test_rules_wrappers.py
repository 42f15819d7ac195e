"""DF305: a model in a wrapper is not the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import RULES, fixed, found
from ddpfix.patcher.api import read_program
from forked import Forge, Job

TRAIN = """\
import torch
def train(args, model):
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loader:
        model(batch).backward()
    {behind}
"""


def training(behind: str) -> str:
    return TRAIN.format(behind=behind)


NOOP = [
    ("no wrapper anywhere", training("model.generate(x)").replace("DistributedDataParallel", "X")),
    ("nothing trains", "if isinstance(m, torch.nn.DataParallel):\n    m = m.module\n"),
    ("the attribute is asked for",
        training("model = model.module if hasattr(model, 'module') else model")),
    ("both wrappers are asked for",
        training("isinstance(model, (DataParallel, DistributedDataParallel))")),
    ("something else where there is one card", training(
        "if args.n_gpu <= 1:\n        show(args)\n    else:\n        show(model.module)")),
    ("taken out, then used", training("model = model.module\n    model.generate(x)")),
    ("asked of the wrapper only where there is none",
        training("if not hasattr(model, 'module'):\n        model.save_pretrained(x)")),
    ("wrappers have these too", training("model.eval()\n    model.state_dict()")),
    ("an attribute that the script gives the wrapper",
        training("model.best = 3\n    print(model.best)")),
    ("asked with and without, whatever it is",
        training("try:\n        model.head\n    except AttributeError:\n        model.module")),
    ("asked where nothing is wrapped",
        training("if not args.a:\n        save(model.head)").replace("local_rank != -1", "a")),
    ("asked where there is one card, of cards that are wrapped", training(
        "if args.n_gpu == 1:\n        print(model.head)").replace(
            "local_rank != -1", "n_gpu > 1").replace("nn.parallel.Distributed", "nn.")),
    ("a function's own model of that name",
        training("def show(model):\n        return model.head\n    show(model.module)")),
    ("the engine of another library, in the other branch",
        training("model.save_checkpoint(path)").replace(
            "    if args.local_rank", "    if args.engine:\n"
            "        model, *_ = start(model=model)\n    elif args.local_rank")),
    ("the other branch asks the module",
        training("model.module.encode(x) if args.distributed else model.encode(x)")),
    ("a wrapper of the program's own, which may hand all on",
        "class DistributedDataParallel: pass\n"
        + training("model.head").replace("torch.nn.parallel.", "")),
    ("an assertion that there is no DataParallel",
        training("assert not isinstance(model, torch.nn.DataParallel), 'one card only'")),
    ("sharded in the other branch", training("args.sharded and model.clip_grad_norm_(1.0)").replace(
        "    if args.local_rank", "    if args.sharded:\n"
            "        model = torch.distributed.fsdp.FullyShardedDataParallel(model)\n"
            "    elif args.local_rank")),
    ("asked in a callee under the other answer of an option", "def step(args, model):\n"
        "    if args.sharded:\n        model.clip_grad_norm_(1.0)\n"
        + training("step(args, model)").replace("args.local_rank != -1", "not args.sharded")),
    ("another function's model", training("pass") + "def test(model):\n    model.generate(x)\n"),
    ("saved with the wrapper's keys, loaded with them", training(
        "torch.save(model.state_dict(), p)\n    model.load_state_dict(torch.load(p))")),
    ("saved with the wrapper's keys by a function that gets it", training(
        "model.load_state_dict(torch.load(p))\n    keep(model, p)")
        + "def keep(net, path):\n    torch.save({'net': net.state_dict()}, path)\n"),
    ("loaded where a lone process has wrapped it, too", training("pass").replace(
        "DistributedDataParallel(model)", "DataParallel(model)\n"
        "        model.load_state_dict(torch.load(p))").replace("local_rank != -1", "n_gpu > 1")),
    ("a model that has a module of its own", training("m = model.module if args.n_gpu > 1 else m")
        + "class Model:\n    def __init__(self):\n        self.module = x\n"),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_a_model_that_is_asked_with_or_without_wrapper_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF305", text)] == []


FIX = [
    ("both wrappers", "m = model.module if isinstance(model, torch.nn.DataParallel) else model",
        "m = model.module if isinstance(model, (torch.nn.DataParallel, "
        "torch.nn.parallel.DistributedDataParallel)) else model"),
    ("one more in a tuple", "w = isinstance(model, (FSDP, torch.nn.DataParallel))",
        "w = isinstance(model, (FSDP, torch.nn.DataParallel, "
        "torch.nn.parallel.DistributedDataParallel))"),
    ("a count of cards is no wrapper", "m = model.module if args.n_gpu > 1 else model",
        "m = model.module if hasattr(model, 'module') else model"),
    ("one card is no lack of a wrapper",
        "torch.save(model.state_dict() if args.n_gpu <= 1 else model.module.state_dict(), path)",
        "torch.save(model.state_dict() if not hasattr(model, 'module')"
        " else model.module.state_dict(), path)"),
    ("generate", "text = model.generate(batch)",
        "text = getattr(model, 'module', model).generate(batch)"),
    ("a configuration", "print(model.config.hidden_size)",
        "print(getattr(model, 'module', model).config.hidden_size)"),
    ("a part of the model", "torch.save(model.head.state_dict(), path)",
        "torch.save(getattr(model, 'module', model).head.state_dict(), path)"),
    ("what a rank's one card does not tell", "if args.n_gpu == 1:\n        print(model.width)",
        "if args.n_gpu == 1:\n        print(getattr(model, 'module', model).width)"),
    ("a method of the model", "model.report(path)",
        "getattr(model, 'module', model).report(path)"),
    ("a checkpoint made of the module", "model.load_state_dict(torch.load(path))",
        "getattr(model, 'module', model).load_state_dict(torch.load(path))"),
    ("a checkpoint made of the module where there is one",
        "model.load_state_dict(torch.load(path))\n    try:\n"
        "        kept = model.module.state_dict()"
        "\n    except AttributeError:\n        kept = model.state_dict()",
        "getattr(model, 'module', model).load_state_dict(torch.load(path))\n    try:\n"
        "        kept = model.module.state_dict()"
        "\n    except AttributeError:\n        kept = model.state_dict()"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(old, new, id=name) for name, old, new in FIX]
)
def test_a_wrapped_model_is_asked_exactly_like_this(old: str, new: str) -> None:
    text = fixed("DF305", training(old))
    assert text == training(new)
    assert found("DF305", text) == []


def test_an_assertion_of_data_parallel_and_what_a_callee_asks_under_the_same_answer() -> None:
    assert found("DF305", training("assert isinstance(model, torch.nn.DataParallel)"))
    step = "def step(args, model):\n    if args.whole:\n        model.clip_grad_norm_(1.0)\n"
    text = step + training("step(args, model)").replace("args.local_rank != -1", "args.whole")
    assert found("DF305", text)


@pytest.mark.parametrize("behind", ["", "    if args.n_gpu <= 1:\n    "])
def test_a_load_that_a_lone_process_comes_to_without_the_wrapper(behind: str) -> None:
    load = "model.load_state_dict(torch.load(p))"
    text = training(f"{behind}    {load}".lstrip()).replace("local_rank != -1", "n_gpu > 1")
    text = text.replace("Distributed", "")
    assert bool(found("DF305", text)) is not behind.startswith("    if")


@pytest.mark.parametrize(
    ("test", "is_told"),
    [
        ("device == 'cuda'", False),
        ("torch.cuda.is_available()", False),
        ("args.use_cuda", False),
        ("torch.cuda.device_count() > 1", True),
        ("args.n_gpu > 1", True),
    ],
)
def test_what_another_script_saved_is_loaded_into_the_wrapper_of_any_card(
    test: str, is_told: bool
) -> None:
    text = training("model.load_state_dict(torch.load(p))").replace("Distributed", "")
    assert bool(found("DF305", text.replace("args.local_rank != -1", test))) is is_told
    saves = text.replace("args.local_rank != -1", test) + "torch.save(model.module.state_dict(), p)"
    assert found("DF305", saves)


def test_a_function_that_saves_may_get_the_module() -> None:
    keep = "def keep(net, path):\n    torch.save(net.state_dict(), path)\n"
    text = training("model.load_state_dict(torch.load(p))\n    keep(model.module, p)") + keep
    assert "getattr(model, 'module', model).load_state_dict(" in fixed("DF305", text)


def test_a_wrapper_of_another_name_is_one() -> None:
    text = training("model.load_state_dict(torch.load(path))").replace(
        "torch.nn.parallel.DistributedDataParallel", "DDP"
    )
    text = f"from torch.nn.parallel import DistributedDataParallel as DDP\n{text}"
    assert "getattr(model, 'module', model).load_state_dict(" in fixed("DF305", text)


@pytest.mark.parametrize(
    ("step", "edits"),
    [
        ("model(batch)\n        model.score(batch).backward()", 0),
        ("model(batch)\n        model.head.score(batch).backward()", 0),
        ("model(batch).backward()\n        x = model.score(batch)", 1),
        ("with torch.no_grad():\n            x = model.score(x)\n        model(x).backward()", 1),
        ("model.head.eval()\n        model(batch).backward()", 1),
        ("model(batch, model.width).backward()", 1),
    ],
)
def test_a_loss_that_is_computed_around_the_wrapper_is_told(step: str, edits: int) -> None:
    (finding,) = found("DF305", training("pass").replace("model(batch).backward()", step))
    assert len(finding.edits) == edits
    assert ("around it" in finding.because) is (edits == 0)


def test_a_function_that_computes_the_loss_around_the_wrapper_is_told() -> None:
    text = training("pass").replace("model(batch).backward()", "loss(model, batch).backward()")
    for line, edits in [("return model.score(x)", 0), ("return model(x) + model.width", 1)]:
        (finding,) = found("DF305", f"{text}\ndef loss(model, x):\n    {line}\n")
        assert len(finding.edits) == edits


ENGINE = """
import torch
def step(model, loss):
    model.backward(loss)
def train(model, loader):
    for x in loader:
        loss = model(x).mean()
        if scaler is None:
            step(model, loss)
        else:
            loss.backward()
            optimizer.step()
def main(model):
    if args.deepspeed:
        model, *_ = start(args=args, model=model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    train(model, torch.utils.data.DataLoader(data))
"""


def test_a_function_of_an_engine_is_left_alone() -> None:
    assert found("DF305", ENGINE) == []
    nowhere = ENGINE.replace("model, *_ = start(args=args, model=model)", "pass")
    assert found("DF305", nowhere) == []  # in code that programs without an engine share
    told = found("DF305", nowhere + "class Net:\n    def backward(self, loss): pass\n")
    assert [each.because for each in told] == ["model.backward is asked of the wrapper of line 8"]


def test_a_function_asks_the_wrapper_for_what_its_caller_has_given_it() -> None:
    for given, told in [("model.width = 3\n    ", 0), ("", 1)]:
        text = training(f"{given}look(model)") + "\ndef look(model):\n    return model.width\n"
        assert len(found("DF305", text)) == told


def test_ranks_have_torchs_wrapper_where_a_lone_process_has_one_that_hands_all_on() -> None:
    own = "    if args.n_gpu:\n        model = mine.DataParallel(model)\n    if args"
    text = training("print(model.head)").replace("    if args", own, 1)
    assert "print(getattr(model, 'module', model).head)" in fixed("DF305", text)


WRITE = "\ndef write(model, x):\n    {first}\n    return model.generate(x)\n"
CARDS = "\n    elif cards > 1:\n        model = torch.nn.DataParallel(model)\n    for"


@pytest.mark.parametrize("cards", ["\n    for", CARDS])
def test_a_function_that_gets_the_wrapper_asks_the_module(cards: str) -> None:
    text = training("write(model, batch)").replace("\n    for", cards, 1)
    text += WRITE.format(first="pass")
    new = text.replace("return model.", "return getattr(model, 'module', model).")
    assert fixed("DF305", text) == new
    assert found("DF305", new) == []


@pytest.mark.parametrize(
    ("call", "first"),
    [
        ("write(model.module, batch)", "pass"),
        ("write(model, batch)", "model = model.module"),
        ("other(model, batch)", "pass"),
    ],
)
def test_a_function_that_gets_the_module_is_left_alone(call: str, first: str) -> None:
    assert found("DF305", training(call) + WRITE.format(first=first)) == []


@pytest.mark.parametrize(
    ("first", "asks"),
    [
        ("if x is None:\n        model = Net.from_pretrained(x)", True),
        ("if x is None:\n        model = model.module", False),
        ("if x is None:\n        model = bare(model)", False),
        ("model = Net.from_pretrained(x)", False),
    ],
)
def test_a_function_that_makes_another_model_in_some_cases_asks_the_module(
    first: str, asks: bool
) -> None:
    text = training("write(model, batch)") + WRITE.format(first=first)
    new = text.replace("return model.", "return getattr(model, 'module', model).")
    assert (fixed("DF305", text) == new) is asks
    assert asks or found("DF305", text) == []


LOADED = "\ndef test(path):\n    model = Net()\n    model.load_state_dict(torch.load(path))\n"


def test_a_resume_into_the_wrapper_keeps_the_keys_that_another_file_saves(tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text(
        "import torch\ndef save_model(net, path):\n    state = {'model': net.state_dict()}\n"
        "    torch.save(state, path)\n"
    )
    script = tmp_path / "run.py"
    for saved, codes in [("model", 0), ("model.module", 1)]:
        loads = f"model.load_state_dict(torch.load(p)['model'])\n    save_model({saved}, p)"
        script.write_text(f"from common import save_model\n{training(loads)}train(args, net)\n")
        assert len([*RULES["DF305"].findings(read_program(script))]) == codes


@pytest.mark.parametrize(("parts", "codes"), [("model", 0), ("model.module", 1)])
def test_a_resume_into_the_wrapper_keeps_the_keys_of_one_part_of_several(
    parts: str, codes: int
) -> None:
    text = training(
        "model.load_state_dict(torch.load(path)['model'])\n"
        f"    keep({{'model': {parts}, 'optimizer': optimizer}}, path)"
    )
    text += (
        "\ndef keep(parts, path):\n"
        "    torch.save({key: part.state_dict() for key, part in parts.items()}, path)\n"
    )
    assert len(found("DF305", text)) == codes


def test_what_is_loaded_bare_is_saved_bare() -> None:
    line, bare = "torch.save(model.state_dict(), path)", "getattr(model, 'module', model)"
    text = training(line) + LOADED
    assert fixed("DF305", text) == training(line.replace("model", bare, 1)) + LOADED


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("model.state_dict() if {} else model.module.state_dict()", False),
        ("model.module.state_dict() if not {} else model.state_dict()", False),
        ("model.state_dict() if args.last else model.module.state_dict()", True),
    ],
)
def test_what_is_saved_where_nothing_is_wrapped_is_bare(state: str, told: bool) -> None:
    line = f"torch.save({state.format('args.local_rank == -1')}, path)"
    assert bool(found("DF305", training(line) + LOADED)) is told


def test_what_is_loaded_bare_by_its_key_is_saved_bare() -> None:
    line, bare = (
        "torch.save({'model': model.state_dict()}, path)",
        "getattr(model, 'module', model)",
    )
    loaded = LOADED.replace("load(path)", "load(path)['model']")
    text = training(line) + loaded
    assert fixed("DF305", text) == training(line.replace("model.state", f"{bare}.state")) + loaded


@pytest.mark.parametrize(
    "taken",
    [
        "state[k[7:]] = v",
        "state[k.replace('module.', '')] = v",
        "state[k[len('module.'):]] = v",
    ],
)
def test_a_load_that_takes_the_wrappers_keys_wants_them(taken: str) -> None:
    loaded = LOADED.replace(
        "    model.load_state_dict(torch.load(path))",
        f"    state = {{}}\n    for k, v in torch.load(path).items():\n        {taken}\n"
        "    model.load_state_dict(state)",
    )
    text = training("torch.save(model.state_dict(), path)") + loaded
    assert found("DF305", text) == []
    assert found("DF305", text.replace(taken, "state[k] = v"))


def test_a_function_that_the_state_goes_through_takes_the_prefix_off() -> None:
    loaded = LOADED.replace("torch.load(path)", "bare(torch.load(path))") + (
        "def bare(state):\n    return {key.removeprefix('module.'): state[key] for key in state}\n"
    )
    text = training("torch.save(model.state_dict(), path)") + loaded
    assert found("DF305", text) == []
    assert found("DF305", text.replace("'module.'", "'x.'"))


@pytest.mark.parametrize(
    ("taken", "is_saved"),
    [
        ("mean = copy.deepcopy(model.state_dict())", False),
        ("new = model.state_dict()\n    for key in mean:\n        mean[key] += new[key]", False),
        ("teacher.load_state_dict(model.state_dict())", False),
        ("for _, value in model.state_dict().items():\n        dist.broadcast(value, 0)", False),
        ("for value in model.state_dict().values():\n        dist.broadcast(value, 0)", False),
        ("for key, value in model.state_dict().items():\n        kept[key] = value", True),
        ("kept = {k: v.cpu() for k, v in model.state_dict().items()}", True),
        ("new = model.state_dict()\n    torch.save({'model': new}, path)", True),
        ("kept = dict(model=model.state_dict())", True),
    ],
)
def test_averages_keep_the_keys_of_the_state_that_they_follow(taken: str, is_saved: bool) -> None:
    assert bool(found("DF305", training(taken) + LOADED)) is is_saved


def test_a_load_into_the_wrapper_that_may_take_off_its_prefix_still_tells_of_it() -> None:
    resume = """state = torch.load(path)
    if not args.distributed:
        state = {k[len('module.'):]: v for k, v in state.items()}
    model.load_state_dict(state)
    torch.save(model.state_dict(), path)"""
    assert found("DF305", training(resume) + LOADED) == []


def test_a_model_that_is_moved_is_still_in_its_wrapper() -> None:
    text = training("model = model.to(device)\n    torch.save(model.state_dict(), path)") + LOADED
    assert "torch.save(getattr(model, 'module', model).state_dict(), path)" in fixed("DF305", text)


@pytest.mark.parametrize(
    "text",
    [
        training("torch.save(model.state_dict(), path)"),
        training("torch.save(model.state_dict(), p)\n    model.load_state_dict(best)") + LOADED,
        training("torch.save(optimizer.state_dict(), path)") + LOADED,
        training("torch.save({'model': model.state_dict()}, path)") + LOADED,
        training("torch.save(model.state_dict(), path)") + LOADED.replace("model", "net"),
        training("torch.save(model.state_dict(), path)")
        .replace(
            "if args.local_rank != -1:\n        model = torch.nn.parallel.Distributed",
            "if args.train:\n        model = torch.nn.Distributed",
        )
        .replace("Distributed", "")
        + LOADED,
    ],
    ids=[
        "loaded nowhere",
        "into the wrapper",
        "an optimizer's",
        "another file, which has no such key",
        "an optimizer",
        "one process, too",
    ],
)
def test_a_state_that_has_the_wrappers_keys_for_all_keeps_them(text: str) -> None:
    assert found("DF305", text) == []


def test_what_is_compiled_around_the_wrapper_is_no_new_model() -> None:
    text = training("model = torch.compile(model)\n    model.generate(batch)")
    new = text.replace("    model.generate(", "    getattr(model, 'module', model).generate(")
    assert fixed("DF305", text) == new != text


SCRIPT = """\
import os
import torch

class Model(torch.nn.Linear):
    def generate(self, x):
        return x + 1

class args:
    local_rank, n_gpu = int(os.environ["LOCAL_RANK"]), 1

torch.distributed.init_process_group("gloo")
model = Model(1, 1)
state = model.state_dict()
if args.local_rank != -1:
    model = torch.nn.parallel.DistributedDataParallel(model)
for batch in torch.ones(2, 1):
    model(batch).sum().backward()
{line}
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("line", "error"),
    [
        pytest.param(
            "(model.module if isinstance(model, torch.nn.DataParallel) else model).generate(1)",
            "has no attribute 'generate'",
            id="asked for one wrapper",
        ),
        pytest.param(
            "(model.module if args.n_gpu > 1 else model).generate(1)",
            "has no attribute 'generate'",
            id="counted cards",
        ),
        pytest.param("model.generate(1)", "has no attribute 'generate'", id="asked the wrapper"),
        pytest.param("model.load_state_dict(state)", "Missing key(s)", id="other keys"),
    ],
)
def test_the_old_line_fails_in_a_group_and_the_new_one_works(
    tmp_path: Path, forge: Forge, line: str, error: str
) -> None:
    text = SCRIPT.format(line=line)
    runs = []
    for name, content in (("old", text), ("new", fixed("DF305", text))):
        script = tmp_path / f"{name}.py"
        script.write_text(content)
        runs += forge.run([Job(tmp_path / name, script, [], world=1)])
    old, new = runs
    assert old.statuses != (0,)
    assert error in old.log
    assert new.statuses == (0,), new.log


CARDS = """
import torch

def main(model, cards):
    is_spread = is_drawn = False
    if others:
        is_drawn = True
    if cards > 1:
        if not torch.distributed.is_initialized():
            model = torch.nn.DataParallel(model)
        is_spread = True
    if torch.distributed.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loader:
        model(batch).backward()
    {bare}
    torch.save(bare.state_dict(), "model.pt")
"""
IN_LINES = "if {test}:\n        bare = {first}\n    else:\n        bare = {second}"


@pytest.mark.parametrize(
    ("test", "first", "second", "is_wrong"),
    [
        ("cards > 1", "model.module", "model", True),
        ("cards > 1", "model.module", "copy", False),
        ("others > 1", "model.module", "model", False),
        ("is_spread", "model.module", "model", True),
        ("is_drawn", "model.module", "model", False),
        ("hasattr(model, 'module')", "model.module", "model", False),
        ("hasattr(encoder, 'module')", "model.module", "model", True),
        ("hasattr(encoder, 'module')", "model.module", "copy", False),
    ],
)
def test_the_test_that_wraps_a_lone_process_is_no_test_of_the_wrapper(
    test: str, first: str, second: str, is_wrong: bool
) -> None:
    lines = IN_LINES.format(test=test, first=first, second=second)
    for bare in (lines, f"bare = {first} if {test} else {second}"):
        text = CARDS.format(bare=bare).lstrip()
        right = text.replace(bare, bare.replace(test, "hasattr(model, 'module')"))
        assert fixed("DF305", text) == (right if is_wrong else text)


HANDED = """
import torch

def keep(net{more}):
    state = {state}
    torch.save(state, "model.pt")

def main(args, model, other):
    if args.spread and not torch.distributed.is_initialized():
        model = torch.nn.DataParallel(model)
    if torch.distributed.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loader:
        model(batch).backward()
    keep({passed})
"""


@pytest.mark.parametrize(
    ("state", "passed", "asked"),
    [
        ("net.module if args.spread else net", "model", "hasattr(net, 'module')"),
        ("net if not args.spread else net.module", "model", "not hasattr(net, 'module')"),
        ("net.module if args.other else net", "model", ""),
        ("net.module if args.spread else net", "other", ""),
        ("net if args.spread else net.module", "model", ""),
    ],
)
def test_a_function_that_gets_the_model_is_asked_too(state: str, passed: str, asked: str) -> None:
    text = HANDED.format(state=state, passed=passed, more=", args=args").lstrip()
    test = "not args.spread" if "not " in state else "args.spread"
    right = text.replace(state, state.replace(test, asked)) if asked else text
    assert fixed("DF305", text) == right


BRANCHES = """
import torch

def main(model, is_group):
    if is_group:
        model = torch.nn.parallel.DistributedDataParallel(model)
    else:
        model = torch.nn.DataParallel(model)
    for batch in loader:
        model(batch).backward()
    if is_group:
        bare = model.module
    else:
        bare = model
    torch.save(bare.state_dict(), "model.pt")
"""


def test_the_test_that_wraps_a_ranks_model_tells_of_its_wrapper() -> None:
    assert found("DF305", BRANCHES) == []
    lone = BRANCHES.replace("DistributedDataParallel", "X").replace("DataParallel", "Y")
    both = lone.replace("parallel.X", "Y").replace("nn.Y", "nn.DataParallel", 1)
    both = both.replace("nn.Y", "nn.parallel.DistributedDataParallel")
    assert len(found("DF305", both)) == 1


MADE = """\
import torch
def make(args):
    net = model = Net()
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    return {results}
def train(args):
    {made} = make(args)
    {behind}
    for batch in loader:
        model(batch).backward()
    print(model.head)
"""


@pytest.mark.parametrize(
    ("results", "made", "behind", "is_wrapper"),
    [
        ("model", "model", "pass", True),
        ("model, optimizer", "model, optimizer", "pass", True),
        ("model", "model, optimizer", "pass", False),
        ("net, model", "model, wrapped", "pass", False),
        ("model", "model", "model = model.module", False),
        ("model", "model", "model.head = 1", False),
    ],
)
def test_what_a_function_returns_may_be_wrapped(
    results: str, made: str, behind: str, is_wrapper: bool
) -> None:
    text = MADE.format(results=results, made=made, behind=behind)
    after = fixed("DF305", text)
    assert ("print(getattr(model, 'module', model).head)" in after) is is_wrapper
    assert (after != text) is is_wrapper


PRIVATE = """
class Net(torch.nn.Module):
    def forward(self, x):
        return self.layer(x)
    def {name}(self, x):
        return self.layer(x).mean()
"""


@pytest.mark.parametrize(
    ("name", "asked", "is_told"),
    [
        ("_loss", "_loss", True),
        ("_apply", "_apply", False),
        ("__repr__", "__repr__", False),
        ("_loss", "_parameters", False),
    ],
)
def test_methods_of_the_model_with_an_underscore_are_its_own(
    name: str, asked: str, is_told: bool
) -> None:
    text = training("pass").replace("model(batch)", f"model.{asked}(batch)")
    told = found("DF305", text + PRIVATE.format(name=name))
    assert [each.edits for each in told] == [()] * is_told
