"""DF104: local rank 0 is one process per node."""

from __future__ import annotations

import itertools
import textwrap

import pytest
from cases import changes, fixed, found

GROUP = "import torch\ntorch.distributed.init_process_group('gloo')\n"

NOOP = [
    ("no process group", "if args.local_rank in [-1, 0]:\n    torch.save(x, path)\n"),
    ("the group's own rank", GROUP + """
if torch.distributed.get_rank() == 0:
    torch.save(x, path)
"""),
    ("what the script calls local is the group's", GROUP + """
args.local_rank = torch.distributed.get_rank()
if args.local_rank in [-1, 0]:
    torch.save(x, path)
"""),
    ("a group of ranks that a node numbers from its first",
        "import torch\nrank = first + local_rank\n"
        "torch.distributed.init_process_group('gloo', rank=rank, world_size=args.world)\n"),
    ("is there a group at all", GROUP + "if args.local_rank != -1:\n    torch.save(x, path)\n"),
    ("the first of each node goes first", GROUP + """
if args.local_rank not in [-1, 0]:
    torch.distributed.barrier()
model = load()
if args.local_rank == 0:
    torch.distributed.barrier()
"""),
    ("each node downloads", GROUP + "if args.local_rank == 0:\n    hub.snapshot_download(name)\n"),
    ("each node may talk", GROUP + """
level = logging.INFO if args.local_rank in [-1, 0] else logging.WARN
for batch in tqdm(loader, disable=args.local_rank not in [-1, 0]):
    if args.local_rank in [-1, 0] and step % 10 == 0:
        logger.info("loss %s", round(loss.item(), 4))
        logged = loss
"""),
    ("each node may make the folder", GROUP + """
if args.local_rank in [-1, 0] and not os.path.exists(folder):
    os.makedirs(folder, exist_ok=True)
"""),
    ("a parameter may be given any number", GROUP + """
def shard(lines, local_rank):
    if local_rank in [-1, 0]:
        write(lines)
"""),
    ("nobody can ask the group before it is made", """
import torch
def seed(args):
    if args.local_rank in [-1, 0]:
        write(args)
def main(args):
    seed(args)
    if args.local_rank == 0:
        write(args)
    torch.distributed.init_process_group('gloo')
"""),
    ("evaluation is DF501's", GROUP + """
def evaluate(model):
    model.eval()
    for batch in torch.utils.data.DataLoader(data):
        model(batch)
def main(args, model):
    if args.local_rank in [-1, 0]:
        evaluate(model)
"""),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_tests_that_may_hold_on_every_node_are_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF104", text)] == []


FIX = [
    ("one writer of all nodes", GROUP + """
if args.local_rank in [-1, 0] and step % 10 == 0:
    write(path)
""", """
        @@ -1,5 +1,10 @@
         import torch
        +
        +
        +def is_main_process(): ...
         torch.distributed.init_process_group('gloo')

        -if args.local_rank in [-1, 0] and step % 10 == 0:
        +if is_main_process() and step % 10 == 0:
             write(path)
        """),
    ("the others are all but one", GROUP + """
def main(args):
    if args.local_rank not in [-1, 0]:
        return
    write(path)
""", """
        @@ -3,4 +3,9 @@

        +
        +def is_main_process(): ...
        +
         def main(args):
        -    if args.local_rank not in [-1, 0]:
        +    if not is_main_process():
                 return
        """),
    ("the group gets the rank of the launcher", """import os
import torch
torch.distributed.init_process_group('gloo', rank=args.local_rank, world_size=args.world)
""", """
        @@ -2,2 +2,2 @@
         import torch
        -torch.distributed.init_process_group('gloo', rank=args.local_rank, world_size=args.world)
        +torch.distributed.init_process_group('gloo', rank=int(os.environ.get('RANK', args.local_rank)), world_size=args.world)
        """),  # noqa: E501
    ("a lone process still fails the test", GROUP + """
if args.local_rank == 0:
    write(path)
""", """
        @@ -1,5 +1,10 @@
         import torch
        +
        +
        +def is_main_process(): ...
         torch.distributed.init_process_group('gloo')

        -if args.local_rank == 0:
        +if args.local_rank != -1 and is_main_process():
             write(path)
        """),
    ("a lone process still passes it, in brackets where it stands among others", GROUP + """
if args.late and args.local_rank != 0:
    write(path)
""", """
        @@ -1,5 +1,10 @@
         import torch
        +
        +
        +def is_main_process(): ...
         torch.distributed.init_process_group('gloo')

        -if args.late and args.local_rank != 0:
        +if args.late and (args.local_rank == -1 or not is_main_process()):
             write(path)
        """),
    ("a name for it", GROUP + """
def main(args):
    main_process = args.local_rank <= 0
    if main_process:
        write(path)
""", """
        @@ -3,4 +3,9 @@

        +
        +def is_main_process(): ...
        +
         def main(args):
        -    main_process = args.local_rank <= 0
        +    main_process = is_main_process()
             if main_process:
        """),
]  # fmt: skip


@pytest.mark.parametrize(("text", "diff"), [pytest.param(t, d, id=name) for name, t, d in FIX])
def test_a_local_rank_gives_way_to_the_groups_exactly_like_this(text: str, diff: str) -> None:
    text = textwrap.dedent(text)
    new = fixed("DF104", text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert found("DF104", new) == []


@pytest.mark.parametrize("test", ["in [-1, 0]", "not in [-1, 0]", "== 0", "!= 0", "<= 0", "> 0"])
def test_on_one_node_and_alone_the_new_test_is_the_old_one(test: str) -> None:
    text = f"{GROUP}if args.late or args.local_rank {test}:\n    write(path)\n"
    new = next(ln for ln in fixed("DF104", text).splitlines() if ln.startswith("if ")).strip("if :")
    old = f"args.late or args.local_rank {test}"
    assert new != old
    for late, rank in itertools.product((False, True), (-1, 0, 1, 2)):
        names = {
            "args": type("Arguments", (), {"late": late, "local_rank": rank}),
            "is_main_process": lambda rank=rank: rank in (-1, 0),
        }
        assert bool(eval(new, dict(names))) is bool(eval(old, dict(names)))
