"""DF610: A rank meets the folder that another has just made, and refuses to go on."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import os
import sys
import torch
from pathlib import Path
{above}
torch.distributed.init_process_group("gloo")
def main(args):
    folder = os.path.join(args.out, "x")
    {look}
    {make}
    for batch in loader:
        model(batch).backward()
main(args)
"""
LOOK = "if os.path.exists(folder):\n        raise FileExistsError(folder)"
MAKE = "os.makedirs(folder)"
WAIT = """
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # all ranks have looked"""


def script(look: str = LOOK, make: str = MAKE, above: str = "pass") -> str:
    return SCRIPT.format(look=look, make=make, above=above)


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("all have looked", script(make="torch.distributed.barrier()\n    os.makedirs(folder)")),
    ("all have looked, as a library says it",
        script(make="accelerator.wait_for_everyone()\n    os.makedirs(folder)")),
    ("all have looked, in a function of the program", script(
        above="def together():\n    torch.distributed.barrier()",
        make="together()\n    os.makedirs(folder)")),
    ("something else than a file lies there", script(
        LOOK.replace("(folder):", "(folder) and not os.path.isfile(folder):"),
        make="open(folder, 'w').write('x')")),
    ("nothing is made", script(make="pass")),
    ("what is there is asserted", script("assert os.path.exists(folder)")),
    ("all have looked, and asserted",
        script("assert not os.path.exists(folder)", "torch.distributed.barrier()\n    " + MAKE)),
    ("a list that is empty", script("if len(os.listdir(folder)) == 0:\n        sys.exit()",
        "open(os.path.join(folder, 'log'), 'w')")),
    ("a folder of each rank", script().replace(
        "(args.out, \"x\")", "(args.out, f\"{torch.distributed.get_rank()}\")")),
    ("another folder is made", script(make="os.makedirs(args.out)")),
    ("nobody refuses", script("if os.path.exists(folder):\n        print(folder)")),
    ("what is missing", script(LOOK.replace("if os", "if not os"))),
    ("a file in the place of the folder", script(LOOK.replace("exists", "isfile"))),
    ("a folder in the place of the file",
        script(LOOK.replace("exists", "isdir"), make="open(folder, 'w').write('x')")),
    ("a folder with something in it",
        script(LOOK.replace("(folder):", "(folder) and os.listdir(folder):"))),
    ("a folder with something in it, which the first rank fills behind the wrapper", script(
        LOOK.replace("(folder):", "(folder) and os.listdir(folder):"),
        make="""os.makedirs(folder)
    model = torch.nn.parallel.DistributedDataParallel(net)
    torch.save(model.state_dict(), os.path.join(folder, "model.pt"))""")),
    ("looked for before the group, made behind it", script("pass", above="""\
if os.path.exists("o"):
    sys.exit()""", make="os.makedirs('o')").replace("    os.makedirs('o')", "    pass")
        + "os.makedirs('o')\n"),
    ("a checkpoint of another kind is refused", script(
        "if os.path.exists(folder):\n        if torch.load(folder)['kind'] != 1:\n"
        "            raise ValueError(folder)", "torch.save(model, folder)")),
    ("no ranks", script().replace("torch.distributed.init_process_group", "print")),
]  # fmt: skip

# A sentence, the test, and the line that makes what it asked for.
FIX: list[tuple[str, str, str]] = [
    ("a folder", LOOK, MAKE),
    ("among other tests", LOOK.replace("(folder):", "(folder) and not args.force:"), MAKE),
    ("by another spelling", LOOK.replace("(folder):", "(f'{args.out}/x'):"), MAKE),
    ("a file", LOOK.replace("exists", "isfile"), "open(folder, 'w').write('x')"),
    ("a folder with something in it", LOOK.replace("(folder):", "(folder) and os.listdir(folder):"),
        "os.makedirs(folder)\n    writer = SummaryWriter(os.path.join(folder, 'events'))"),
    ("pathlib's way", "path = Path(args.out)\n    if path.exists():\n        sys.exit('there')",
        "path.mkdir()"),
    ("what is asserted", "assert not os.path.exists(folder), folder", MAKE),
    ("what is asserted unless an option says so",
        "assert args.force or not os.path.isdir(folder)", MAKE),
    ("a list that is not empty", "if len(os.listdir(folder)) > 0:\n        raise ValueError",
        "logging.basicConfig(filename=os.path.join(folder, 'log'))"),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF610", text)] == []


@pytest.mark.parametrize(
    ("look", "make"), [pytest.param(look, make, id=name) for name, look, make in FIX]
)
def test_repaired(look: str, make: str) -> None:
    new = script(look + WAIT, make)
    assert fixed("DF610", script(look, make)) == new
    assert found("DF610", new) == []


def test_what_rank_0_alone_writes_into_an_empty_folder_is_told() -> None:
    early = """if os.listdir('o') and os.path.exists('o'):
    sys.exit()
log = logging.FileHandler('o/log' if os.environ.get('RANK', '0') == '0' else os.devnull)"""
    (finding,) = found("DF610", script("pass", "pass", early))
    assert finding.because.startswith("'o' gets a file in line 7")


@pytest.mark.parametrize("saves", ["pass", "if args.rank == 0:\n        save(folder)"])
def test_where_rank_0_comes_alone_as_well_it_is_told(saves: str) -> None:
    function = f"def save{{}}(folder):\n    {LOOK}\n    {MAKE}"
    (alike,) = found("DF610", script("pass", "save(folder)", function.format("")))
    assert alike.edits
    name = "" if saves != "pass" else "_pretrained"
    text = script(saves, f"save{name}(folder)", function.format(name))
    (finding,) = found("DF610", text)
    assert finding.edits == ()


def test_what_is_before_the_group_is_told() -> None:
    early = "if os.path.exists('o'):\n    sys.exit()\nos.makedirs('o')"
    (finding,) = found("DF610", script("pass", "pass", early))
    assert not finding.edits
    assert finding.because.endswith("do both behind init_process_group")


IN_A_BRANCH = """if {test}:
        if not args.overwrite:
            sys.exit("there")
    else:
        os.makedirs(folder)"""


def test_a_folder_that_the_other_branch_makes() -> None:
    text = script(IN_A_BRANCH.format(test="os.path.exists(folder)"), "pass")
    look = f"was_there = os.path.exists(folder){WAIT}\n    {IN_A_BRANCH.format(test='was_there')}"
    assert fixed("DF610", text) == script(look, "pass")
    assert found("DF610", script(look, "pass")) == []


def test_under_an_elif_it_is_told() -> None:
    look = "if args.resume:\n        pass\n    el" + IN_A_BRANCH.format(
        test="os.path.exists(folder)"
    )
    (finding,) = found("DF610", script(look, "pass"))
    assert finding.edits == ()


COUNTED = {
    "a while loop": 'n = 0\n    while os.path.exists(f"run{n}"):\n        n += 1\n'
    '    folder = f"run{n}"',
    "a break": 'for n in range(99):\n        folder = f"run{n}"\n'
    "        if not os.path.exists(folder):\n            break",
}


@pytest.mark.parametrize("look", COUNTED.values(), ids=COUNTED)
@pytest.mark.parametrize("make", [MAKE, "os.makedirs(folder, exist_ok=True)"])
def test_a_name_is_free_for_all_ranks_alike(look: str, make: str) -> None:
    text = fixed("DF610", script(look, make))
    assert text.count("all have looked") + text.count("all ranks have looked") == 1
    assert text.index("all ranks have looked") < text.index("os.makedirs")
    assert found("DF610", text) == []
    assert found("DF610", script(look, "os.makedirs(args.out)")) == []
