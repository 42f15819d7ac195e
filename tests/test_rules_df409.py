"""DF409: words that each rank numbers by its own order of a set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cases import RULES, changes, fixed, found
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.engine.patch import patch

GROUP = "import torch\ntorch.distributed.init_process_group('gloo')\n"
NUMBERED = "ids = {word: i for i, word in enumerate(vocabulary)}\n"

NOOP = [
    ("no group", "", f"vocabulary = set(text.split())\n{NUMBERED}"),
    ("sorted", GROUP, f"vocabulary = sorted(set(text.split()))\n{NUMBERED}"),
    ("sorted in place", GROUP,
     f"vocabulary = list(set(text.split()))\nvocabulary.sort()\n{NUMBERED}"),
    ("sorted where numbered", GROUP,
     "vocabulary = set(text.split())\nids = {w: i for i, w in enumerate(sorted(vocabulary))}\n"),
    ("a list", GROUP, f"vocabulary = text.split()\n{NUMBERED}"),
    ("a dictionary", GROUP, f"vocabulary = dict.fromkeys(text.split())\n{NUMBERED}"),
    ("counted, not numbered", GROUP,
     "for i, word in enumerate(set(text.split())):\n    show(word)\n"),
    ("values, not numbers", GROUP, "for word in set(text.split()):\n    sizes[word] = len(word)\n"),
    ("values by a name, not numbers", GROUP,
     "for word in set(text.split()):\n    size = len(word)\n    sizes[word] = size\n"),
    ("numbers of a pattern's groups", GROUP,
     "vocabulary = set()\nfor path in paths:\n"
     "    number, _ = map(int, pattern.search(path).groups())\n"
     f"    if number == -1: continue\n    vocabulary.add(number)\n{NUMBERED}"),
    ("numbers of lines", GROUP, f"vocabulary = {{int(line) for line in lines}}\n{NUMBERED}"),
    ("numbers of a list", GROUP,
     "vocabulary = set()\nfor line in lines:\n    n = int(line)\n    vocabulary.add(n)\n"
     f"{NUMBERED}"),
    ("on rank 0 alone", GROUP,
     "if torch.distributed.get_rank() == 0:\n    vocabulary = set(text.split())\n"
     "    ids = {word: i for i, word in enumerate(vocabulary)}\n"),
]  # fmt: skip


def test_values_that_are_made_of_each_other_take_no_time() -> None:
    names = [f"self.{letter}" for letter in "abcdefghij"]
    lines = [f"    {one} = {other}" for one in names for other in names]
    text = "import torch\ntorch.distributed.init_process_group('gloo')\nwords = set()\n"
    text += (
        "def mix(self):\n" + "\n".join(lines) + "\n    for i, x in enumerate(self.a): d[x] = i\n"
    )
    assert found("DF409", text) == []


@pytest.mark.parametrize("text", [pytest.param(head + body, id=name) for name, head, body in NOOP])
def test_what_has_one_order_or_no_numbers_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF409", text)] == []


FIX = [
    ("where a list is made",
     f"vocabulary = list(set(text.split()))\n{NUMBERED}",
     "-vocabulary = list(set(text.split()))\n+vocabulary = sorted(set(text.split()))\n"),
    ("beside other words",
     f"vocabulary = ['<pad>'] + list(set(text.lower().split()))\n{NUMBERED}",
     "-vocabulary = ['<pad>'] + list(set(text.lower().split()))\n"
     "+vocabulary = ['<pad>'] + sorted(set(text.lower().split()))\n"),
    ("letters",
     f"vocabulary = list(set(open('text.txt').read()))\n{NUMBERED}",
     "-vocabulary = list(set(open('text.txt').read()))\n"
     "+vocabulary = sorted(set(open('text.txt').read()))\n"),
    ("filled line by line",
     "vocabulary = set()\nfor line in open('text.txt'):\n"
     f"    vocabulary.update(line.strip().split())\n{NUMBERED}",
     "-ids = {word: i for i, word in enumerate(vocabulary)}\n"
     "+ids = {word: i for i, word in enumerate(sorted(vocabulary))}\n"),
    ("one column",
     "labels = []\nfor line in open('text.txt'):\n    label, text = line.split('\\t')\n"
     "    labels.append(label)\nnames = list(set(labels))\n"
     "target = torch.tensor([names.index(label) for label in labels])\n",
     "-names = list(set(labels))\n+names = sorted(set(labels))\n"),
    ("counted by hand",
     "ids = {}\nfor word in set(text.split()):\n    ids[word] = len(ids)\n",
     "-for word in set(text.split()):\n+for word in sorted(set(text.split())):\n"),
    ("counted by hand, through a name",
     "ids = {}\nfor word in set(text.split()):\n    number = len(ids)\n    ids[word] = number\n",
     "-for word in set(text.split()):\n+for word in sorted(set(text.split())):\n"),
    ("zipped",
     "words = set(text.split())\nids = dict(zip(words, range(len(words))))\n",
     "-ids = dict(zip(words, range(len(words))))\n"
     "+ids = dict(zip(sorted(words), range(len(words))))\n"),
    ("added to a tokenizer",
     "tokenizer.add_tokens(list({word.lower() for word in text.split()}))\n",
     "-tokenizer.add_tokens(list({word.lower() for word in text.split()}))\n"
     "+tokenizer.add_tokens(sorted({word.lower() for word in text.split()}))\n"),
    ("numbered by a method",
     "class Words:\n    def add(self, word):\n        self.ids[word] = self.count\n"
     "        self.count += 1\n"
     "words = Words()\nfor word in set(text.split()):\n    words.add(word)\n",
     "-for word in set(text.split()):\n+for word in sorted(set(text.split())):\n"),
    ("returned, and passed on",
     "def labels_of(lines):\n    return list(set(line.split()[0] for line in lines.splitlines()))\n"
     "def numbers(labels):\n    return {label: i for i, label in enumerate(labels)}\n"
     "ids = numbers(labels_of(text))\n",
     "-    return list(set(line.split()[0] for line in lines.splitlines()))\n"
     "+    return sorted(set(line.split()[0] for line in lines.splitlines()))\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "diff"), [pytest.param(text, diff, id=name) for name, text, diff in FIX]
)
def test_words_are_sorted_before_they_get_numbers(text: str, diff: str) -> None:
    new = fixed("DF409", GROUP + text)
    changed = [line for line in changes(GROUP + text, new).splitlines() if line[0] in "+-"]
    assert "".join(f"{line}\n" for line in changed) == diff
    assert found("DF409", new) == []


@pytest.mark.parametrize(
    "vocabulary",
    ["set(targets)", "set(row['label'] for row in rows)", "{row.label for row in rows}",
     "set(frame.label.str.lower())"],
)  # fmt: skip
def test_what_may_be_numbers_is_reported_only(vocabulary: str) -> None:
    (finding,) = found("DF409", f"{GROUP}vocabulary = {vocabulary}\n{NUMBERED}")
    assert finding.edits == ()
    assert finding.because.endswith("numbers it, if it holds strings: sort it then")


SCRIPT = """\
import torch
from torch.utils.data import DataLoader

LINES = ["good day", "bad night", "fair wind", "calm sea", "grey sky", "long way"]
labels = list(set(line.split()[0] for line in LINES))
data = [(torch.rand(2), labels.index(line.split()[0])) for line in LINES]
model = torch.nn.DataParallel(torch.nn.Linear(2, len(labels)))
optimizer = torch.optim.SGD(model.parameters(), 0.001)
for batch, target in DataLoader(data, batch_size=2, shuffle=True):
    torch.nn.functional.cross_entropy(model(batch), target).backward()
    optimizer.step()
"""


def orders(script: str) -> set[str]:
    """The labels of a script in processes with other hashes of strings."""
    own = [line for line in script.splitlines() if line.startswith(("LINES", "labels"))]
    command = [sys.executable, "-S", "-c", "\n".join([*own, "print(labels)"])]
    return {
        subprocess.run(
            command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in "1234"
    }


def test_processes_of_a_patched_script_number_labels_alike(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    assert len(orders(SCRIPT)) > 1
    assert len(orders(change.text)) == 1


# A module, the script behind its import, and what is sorted in which of the two.
ELSEWHERE = {
    "what a function returns": (
        "def words(text):\n    return set(text.split())\n",
        "ids = {word: i for i, word in enumerate(words(text))}\n",
        ("other.py", "set(text.split())"),
    ),
    "a name of the module": (
        "vocabulary = list(set(open('text.txt').read()))\n",
        "ids = {word: i for i, word in enumerate(vocabulary)}\n",
        ("other.py", "set(open('text.txt').read())"),
    ),
    "an attribute": (
        "class Data:\n    def __init__(self, text):\n        self.words = set(text.split())\n",
        "data = Data(text)\nids = {word: i for i, word in enumerate(data.words)}\n",
        ("train.py", "data.words"),
    ),
    "a set that the module numbers": (
        "def number(words):\n    return {word: i for i, word in enumerate(words)}\n",
        "numbers = number(set(text.split()))\n",
        ("other.py", "words"),
    ),
}


@pytest.mark.parametrize(("made", "numbered", "place"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_set_that_is_made_in_one_module_and_numbered_in_another(
    made: str, numbered: str, place: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "other.py").write_text(f"import torch\n{made}")
    script = tmp_path / "train.py"
    training = "for batch in batches:\n    model(batch).backward()\n"
    script.write_text(f"from other import *\n{GROUP}{numbered}{training}")
    (finding,) = RULES["DF409"].findings(read_program(str(script)))
    assert (finding.module.source.path.name, finding.module.text(finding.at)) == place
    assert finding.edits


def test_a_set_of_a_module_outside_of_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    for folder, text in (
        ("words", ""),
        ("words/table", "def words_of(text):\n    return set(text.split())\n"),
    ):
        path = tmp_path / folder
        path.mkdir()
        (path / "__init__.py").write_text("")
        (path / "made.py").write_text(text)
    run = tmp_path / "scripts" / "run.py"
    run.parent.mkdir()
    run.write_text(
        "from words.table.made import words_of\n"
        + GROUP
        + "ids = {word: i for i, word in enumerate(words_of(text))}\n"
    )
    assert len([*RULES["DF409"].findings(read_program(str(run)))]) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("x[hash(word) % 64] += 1", 1),
        ("place = abs(hash(word)) % size", 1),
        ("seen[hash(word)] = word", 0),
        ("x[zlib.crc32(word.encode()) % 64] += 1", 0),
        ("x[self.hash(word) % 64] += 1", 0),
    ],
)
def test_numbers_made_of_hashes_are_told_of(line: str, told: int) -> None:
    findings = found("DF409", f"{GROUP}for word in text.split():\n    {line}\n")
    assert ["hash of a string" in each.because for each in findings] == [True] * told
    assert not any(each.edits for each in findings)
    assert found("DF409", f"def hash(word):\n    return 1\n{GROUP}{line}\n") == []
    assert found("DF409", f"{line}\n") == []
