"""DF406: features that one rank writes while another looks for them."""

from __future__ import annotations

import pickle
import textwrap
from pathlib import Path

import pytest
from cases import RULES, changes, fixed, found
from ddpfix.patcher.api import Severity, read_program
from forked import Forge, Job

CACHE = """\
import os, pickle
import torch
def features(args, path):
    if os.path.exists(path):
        made = {read}
    else:
        made = make(args)
        {write}
    return made
"""


def cache(write: str, read: str = "pickle.load(open(path, 'rb'))") -> str:
    return CACHE.format(read=read, write=write)


DUMP = "pickle.dump(made, open(path, 'wb'))"


def test_a_function_of_another_module_that_nobody_calls_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "caches.py").write_text(cache(DUMP))
    for line, severity in [("features(args, 'x')", Severity.ERROR), ("pass", Severity.DEGRADED)]:
        script = tmp_path / "run.py"
        text = f"from caches import features\nif __name__ == '__main__':\n    {line}\n"
        script.write_text(text)
        (told,) = RULES["DF406"].findings(read_program(script))
        assert told.severity is severity


def test_what_an_imported_script_does_for_itself_is_no_error(tmp_path: Path) -> None:
    guard = "if __name__ == '__main__':\n    features(None, 'x')\n"
    (tmp_path / "caches.py").write_text(cache(DUMP) + guard)
    script = tmp_path / "run.py"
    script.write_text("from caches import features\nif __name__ == '__main__':\n    pass\n")
    (told,) = RULES["DF406"].findings(read_program(script))
    assert told.severity is Severity.DEGRADED


EXAMPLES = """
import os, torch
class Data:
    def __getitem__(self, number):
        return self.prior(self.names[number])
    def prior(self, name):
        folder, _ = name.split("/")
        path = os.path.join(self.folder, {part})
        path += ".pt"
        if os.path.exists(path):
            made = torch.load(path)
        else:
            made = make(name)
            torch.save(made, path)
        return made
data = Data()
data[0]
"""


@pytest.mark.parametrize(
    ("part", "severity"), [("folder", Severity.DEGRADED), ("'all'", Severity.ERROR)]
)
def test_a_file_that_is_named_by_one_example_is_no_error(part: str, severity: Severity) -> None:
    (told,) = found("DF406", EXAMPLES.format(part=part))
    assert (told.severity or Severity.ERROR) is severity
    assert bool(told.edits) is (severity is Severity.ERROR)
    (told,) = found("DF601", EXAMPLES.format(part=part))
    assert bool(told.edits) is (severity is Severity.ERROR)


@pytest.mark.parametrize(
    ("caller", "severity"), [("__init__", Severity.ERROR), ("item", Severity.DEGRADED)]
)
def test_what_a_constructor_makes_is_of_no_one_example(caller: str, severity: Severity) -> None:
    text = EXAMPLES.format(part="folder").replace("__getitem__(self, number)", f"{caller}(self)", 1)
    text = text.replace("return self.prior(self.names[number])", "self.all = self.prior('a/b')")
    text = text.replace("data[0]", "data.item()" if caller == "item" else "data[0]")
    text = text.replace(
        "    def prior", "    def __getitem__(self, number):\n        pass\n    def prior"
    )
    (told,) = found("DF406", text)
    assert (told.severity or Severity.ERROR) is severity


# Rank 0 writes what all have read before; ``between`` is indented as the body of main().
MET = """
import json, os, torch
torch.distributed.init_process_group("nccl")
def main(args, model, optimizer, data, path):
    state = {{}}
    if os.path.exists(path):
        with open(path) as file:
            state = json.load(file)
{between}
        if torch.distributed.get_rank() == 0:
            with open(path, "w") as file:
                json.dump(state, file)
main(*things())
"""
BARRIER = "torch.distributed.barrier()"
MET_BETWEEN = [
    ("at a barrier", f"    {BARRIER}\n    if True:"),
    ("at a barrier of each round", f"    while True:\n        step(state)\n        {BARRIER}"),
    ("at a barrier of the head", f"    {BARRIER}\n    for step in range(9):"),
    ("going back", """
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in torch.utils.data.DataLoader(data):
        model(batch).mean().backward()
        optimizer.step()"""),
]  # fmt: skip
NOT_MET = [
    ("nowhere", "    if True:"),
    (
        "in the round in which another rank reads",
        f"""
    for step in range(9):
        state = json.load(open(path))
        {BARRIER}""",
    ),
]


NOOP = [
    ("a file that is never read", cache(DUMP, "None")),
    ("it appears whole", cache("write_on_main(path, 'wb', lambda file: pickle.dump(made, file))")),
    ("a checkpoint that appears whole", cache("save_on_main(made, path)", "torch.load(path)")),
    ("memory, whose bytes go by broadcast", """
import io, torch
def share(made):
    if torch.distributed.get_rank() == 0:
        buffer = io.BytesIO()
        torch.save(made, buffer)
        buffer = send(buffer)
    else:
        buffer = io.BytesIO(receive())
        made = torch.load(buffer)
    return made
"""),
    ("another file of one name", """
import pickle
def convert(args, path):
    with open(path, "rb") as file:
        made = pickle.load(file)
    path = args.output
    with open(path, "wb") as file:
        pickle.dump(made, file)
"""),
    ("a checkpoint in a file that is open, by a name that another had", """
import pickle, torch
def convert(args, model):
    with open(args.words, "rb") as f:
        made = pickle.load(f)
    with open(args.output, "wb") as f:
        torch.save(model(made), f)
"""),
    ("each rank has its own", cache(DUMP).replace("(path", "(f'{path}_{args.local_rank}'")
        .replace("open(path", "open(f'{path}_{args.local_rank}'")),
    ("each rank has its own, by a name", """
import pickle
def features(args):
    path = args.folder + "_rank_" + str(torch.distributed.get_rank())
    try:
        return pickle.load(open(path, 'rb'))
    except OSError:
        pickle.dump(made, open(path, 'wb'))
"""),
    ("rank 0 goes first", """
import pickle, torch
def features(args, path):
    if args.local_rank not in [-1, 0]:
        torch.distributed.barrier()
    try:
        made = pickle.load(open(path, 'rb'))
    except OSError:
        pickle.dump(made, open(path, 'wb'))
    if args.local_rank == 0:
        torch.distributed.barrier()
"""),
    ("rank 0 calls it first", cache(DUMP) + """
def main(args):
    if args.do_train:
        if args.local_rank not in [-1, 0]:
            torch.distributed.barrier()
        data = features(args, "train")
        if args.local_rank == 0:
            torch.distributed.barrier()
"""),
    ("ranks that have averaged gradients since", """
import torch
torch.distributed.init_process_group("nccl")
def average(model):
    for parameter in model.parameters():
        torch.distributed.all_reduce(parameter.grad)
def train(model, optimizer):
    for batch in torch.utils.data.DataLoader(data):
        model(batch).mean().backward()
        average(model)
        optimizer.step()
def main(args, model, optimizer):
    if args.resume:
        model.load_state_dict(torch.load(args.path))
    for epoch in range(9):
        train(model, optimizer)
        if torch.distributed.get_rank() == 0:
            torch.save(model.state_dict(), args.path)
main(*things())
"""),
    ("a lone process only", cache(DUMP) + """
def main(args):
    if args.local_rank == -1:
        features(args, "train")
"""),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_a_cache_that_nobody_reads_half_written_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF406", text)] == []


@pytest.mark.parametrize("between", [pytest.param(t, id=name) for name, t in MET_BETWEEN])
def test_ranks_that_have_met_since_the_read_are_left_alone(between: str) -> None:
    assert found("DF406", MET.format(between=between)) == []


@pytest.mark.parametrize("between", [pytest.param(t, id=name) for name, t in NOT_MET])
def test_ranks_that_may_not_have_met_read_what_another_writes(between: str) -> None:
    (finding,) = found("DF406", MET.format(between=between))
    assert "another rank looks for it" in finding.because


FIX = [
    ("into a file that the call opens", cache(DUMP), """
        @@ -2,2 +2,16 @@
         import torch
        +
        +
        +def is_main_process(): ...
        +
        +
        +def write_on_main(path, mode, write): ...
         def features(args, path):
        @@ -7,3 +21,3 @@
                 made = make(args)
        -        pickle.dump(made, open(path, 'wb'))
        +        write_on_main(path, 'wb', lambda file: pickle.dump(made, file))
             return made
        """),
    ("in a block of its own", cache("""with open(path, 'wb') as handle:
            pickle.dump({'x': made}, handle, protocol=pickle.HIGHEST_PROTOCOL)"""), """
        @@ -2,2 +2,16 @@
         import torch
        +
        +
        +def is_main_process(): ...
        +
        +
        +def write_on_main(path, mode, write): ...
         def features(args, path):
        @@ -7,4 +21,3 @@
                 made = make(args)
        -        with open(path, 'wb') as handle:
        -            pickle.dump({'x': made}, handle, protocol=pickle.HIGHEST_PROTOCOL)
        +        write_on_main(path, 'wb', lambda file: pickle.dump({'x': made}, file, protocol=pickle.HIGHEST_PROTOCOL))
             return made
        """),  # noqa: E501
    ("text", cache("json.dump(made, open(path, 'w'))", "json.load(open(path))"), """
        @@ -2,2 +2,16 @@
         import torch
        +
        +
        +def is_main_process(): ...
        +
        +
        +def write_on_main(path, mode, write): ...
         def features(args, path):
        @@ -7,3 +21,3 @@
                 made = make(args)
        -        json.dump(made, open(path, 'w'))
        +        write_on_main(path, 'w', lambda file: json.dump(made, file))
             return made
        """),
]  # fmt: skip


def test_the_read_may_be_the_other_branch_below_the_write() -> None:
    text = cache(DUMP)
    head, read, write = "if os.path.exists(path)", "pickle.load(open(path, 'rb'))", DUMP
    turned = text.replace(head, f"{head} is False").replace(f"made = {read}", "THERE")
    turned = turned.replace(f"made = make(args)\n        {write}", f"made = {read}")
    turned = turned.replace("THERE", f"made = make(args)\n        {write}")
    (finding,) = found("DF406", turned)
    assert finding.because == "another rank looks for it in line 8"
    assert "write_on_main(path, 'wb', lambda" in fixed("DF406", turned)


@pytest.mark.parametrize(("text", "diff"), [pytest.param(t, d, id=name) for name, t, d in FIX])
def test_a_cache_is_written_by_rank_0_exactly_like_this(text: str, diff: str) -> None:
    new = fixed("DF406", text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert found("DF406", new) == []


def test_a_checkpoint_of_features_is_saved_whole() -> None:
    new = fixed("DF406", cache("torch.save(made, path)", "torch.load(path)"))
    assert "save_on_main(made, path)" in new
    assert found("DF406", new) == []


REPORTED = [
    ("more than the object goes into the file", cache("""with open(path, 'wb') as handle:
            pickle.dump(len(made), handle)
            pickle.dump(made, handle)""")),
    ("a file with its own encoding",
        cache("json.dump(made, open(path, 'w', encoding='utf-8'))", "json.load(open(path))")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in REPORTED])
def test_a_cache_that_is_written_in_another_way_is_not_touched(text: str) -> None:
    assert not any(finding.edits for finding in found("DF406", text))


SCRIPT = """\
import os, pickle, sys
import torch

def features(path):
    if os.path.exists(path):
        made = pickle.load(open(path, 'rb'))
    else:
        made = list(range(5))
        pickle.dump(Slow(made), open(path, 'wb'))
    return made

def meet():
    torch.distributed.barrier()

class Slow(list):
    def __reduce_ex__(self, protocol):  # the others look while half of it is written
        if torch.distributed.is_initialized():
            meet()
            meet()
        return list, (list(self),)

if len(sys.argv) > 2:
    torch.distributed.init_process_group('gloo')
    if torch.distributed.get_rank() == 1:
        meet()  # as rank 0 is in the middle
        print(features(sys.argv[1]) if len(sys.argv) > 3 else os.path.exists(sys.argv[1]))
        meet()
    else:
        features(sys.argv[1])
    torch.distributed.destroy_process_group()
else:
    features(sys.argv[1])
"""


def test_who_looks_while_it_is_written_finds_nothing_and_then_all(
    tmp_path: Path, forge: Forge
) -> None:
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text(SCRIPT)
    new.write_text(fixed("DF406", SCRIPT))
    assert "write_on_main(path" in new.read_text()
    for script in (old, new):
        torn = tmp_path / f"{script.stem}.pkl"
        words = [str(torn), "two", *(["read"] if script is old else [])]
        (run,) = forge.run([Job(tmp_path / script.stem, script, words, world=2)])
        if script is old:
            assert "EOFError" in run.log
        else:
            assert run.statuses == (0, 0), run.log
            assert "False" in run.log.splitlines()
            assert pickle.loads(torn.read_bytes()) == list(range(5))


def test_a_lone_process_leaves_the_same_bytes(tmp_path: Path, forge: Forge) -> None:
    contents = []
    for name, text in (("old", SCRIPT), ("new", fixed("DF406", SCRIPT))):
        script = tmp_path / f"{name}.py"
        script.write_text(textwrap.dedent(text))
        (run,) = forge.run([Job(tmp_path / name, script, [str(tmp_path / f"{name}.pkl")])])
        assert run.statuses == (0,), run.log
        contents.append((tmp_path / f"{name}.pkl").read_bytes())
    assert contents[0] == contents[1]
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    ("before", "count"),
    [
        ("if args.local_rank not in [-1, 0]:\n    torch.distributed.barrier()", 0),
        (
            "if args.local_rank not in [-1, 0]:\n    torch.distributed.barrier()\n"
            "model = load(args)\nif args.local_rank == 0:\n    torch.distributed.barrier()",
            1,
        ),
    ],
)
def test_ranks_that_rank_0_has_met_since_wait_no_more(before: str, count: int) -> None:
    made = cache(f"if args.local_rank in [-1, 0]:\n            {DUMP}")
    assert len(found("DF406", f"{made}{before}\nfeatures(args, 'x')\n")) == count


def test_a_cache_that_rank_0_alone_writes_is_asked_for_the_rank_once() -> None:
    helper = "def is_main_process():\n    return torch.distributed.get_rank() == 0\n"
    text = helper + cache(f"if is_main_process():\n            {DUMP}")
    after = fixed("DF406", text)
    assert "        write_on_main(path, 'wb', lambda file: pickle.dump(made, file))" in after
    assert "if is_main_process():\n            write_on_main" not in after
