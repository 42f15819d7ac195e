"""``ddpfix report``: a real run's figures in the terminal, in a real browser, and exported."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ddpfix.launchers.report.card_samples import read_samples

SCRIPT = """\
import argparse
import os
import time

import torch
import torch.distributed as dist
from tqdm import tqdm

parser = argparse.ArgumentParser()
parser.add_argument("--train_batch_size", type=int, default=8)
args = parser.parse_args()
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 4))
sampler = torch.utils.data.distributed.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, args.train_batch_size, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    bar = tqdm(loader, mininterval=0)
    for (batch,) in bar:
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
        bar.set_description(f"loss {loss.item():.5f} lr {0.1 / (1 + epoch):.2e}")
    if dist.get_rank() == 0:
        print(f"eval_acc = {0.5 + epoch / 4}", flush=True)
dist.destroy_process_group()
"""


def ddpfix(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ddpfix", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script, its original, and two runs: on one process and on two."""
    place = tmp_path_factory.mktemp("report")
    (place / "train.py").write_text(SCRIPT)
    (place / "original.py").write_text(SCRIPT.replace("SGD", "AdamW"))
    for processes in ("1", "2"):
        done = ddpfix(
            *("launch", "--cpu", "--unchecked", "--processes", processes, "--backend"),
            *("torchrun", "--output", f"run{processes}", "train.py", "--", "--train_batch_size=8"),
            cwd=place,
        )
        assert done.returncode == 0, done.stderr
    return place


def data_of(place: Path, *runs: str) -> list[dict[str, Any]]:
    done = ddpfix("report", *runs, "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["runs"]  # type: ignore[no-any-return]


def test_the_figures_of_a_run_are_those_of_its_log(place: Path) -> None:
    one, two = data_of(place, "run1", "run2")
    for run, processes in ((one, 1), (two, 2)):
        facts = {name: fact["value"] for name, fact in run["facts"].items()}
        assert facts["processes"] == processes
        assert facts["global batch"] == 8
        assert facts["per-device batch"] == 8 // processes
        assert facts["steps of the progress bar"] == 16
        assert facts["last eval_acc"] == 0.75
        assert facts["time per step"] > 0.01
        scores = run["curves"]["eval_acc"]
        assert scores["values"] == [0.5, 0.75]
        # What is printed and what tqdm draws come in two streams, whose order is not certain, and
        # a bar is drawn ten times a second at most: a score may be told at an earlier step.
        first, last = scores["steps"]
        assert 0 < first <= 9
        assert first < last <= 16
        assert run["curves"]["learning_rate"]["values"][-1] == 0.05
        assert run["curves"]["loss"]["steps"][-1] == 16
    assert two["seconds_per_step"].keys() == {"0", "1"}


def test_a_log_of_a_training_that_was_not_launched_here_is_compared(place: Path) -> None:
    shutil.copy(place / "run1" / "log.txt", place / "before.log")
    before, after = data_of(place, "before.log", "run2")
    assert before["facts"]["processes"]["value"] is None
    assert before["curves"]["eval_acc"]["values"] == after["curves"]["eval_acc"]["values"]


def test_the_terminal_shows_both_runs_and_their_ratio(place: Path) -> None:
    done = ddpfix("report", "run1", "run2", cwd=place)
    rows = {line.split("  ")[0]: line.split() for line in done.stdout.splitlines() if line}
    assert rows["per-device batch"][-3:] == ["8", "4", "0.50"]
    assert rows["processes"][-3:] == ["1", "2", "2.00"]
    assert "▁" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def page_of(place: Path, *words: str) -> Path:
    path = place / "page.html"
    done = ddpfix("report", *words, "--html", str(path), cwd=place)
    assert done.returncode == 0, done.stderr
    return path


def lacking() -> str:
    """What a browser test lacks here; empty if nothing."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright"
    return "" if shutil.which("chromium") else "chromium"


needs_browser = pytest.mark.skipif(bool(lacking()), reason=f"no browser: {lacking()}")


@contextmanager
def opened(path: Path, scheme: str) -> Iterator[Any]:
    """The page in Chromium; it asks for nothing else, and nothing in it fails."""
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    errors: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: errors.append(dialog.message))
        page.goto(path.as_uri())
        page.wait_for_selector(".plot .main-svg")
        yield page
        browser.close()
    assert not errors
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_reads_the_plotted_values_back(place: Path, scheme: str) -> None:
    path = page_of(place, "run1", "run2", "--original", "original.py")
    with opened(path, scheme) as page:
        plotted = page.evaluate(
            "() => Object.fromEntries(Object.keys(plots).map(name => [name,"
            " document.getElementById(name).data.map(t => [t.name, [...t.x], [...t.y]])]))"
        )
        for place_of_run, run in enumerate(data_of(place, "run1", "run2")):
            for figure, curve in (("loss", "loss"), ("rate", "learning_rate")):
                expected = run["curves"][curve]
                name, x, y = plotted[figure][place_of_run]
                assert (name, x, y) == (run["run"], expected["steps"], expected["values"])
        assert [row[1] for row in plotted["step_times"]] == [["rank 0"], ["rank 0", "rank 1"]]
        assert page.locator("#facts tr").count() > 10
        assert "AdamW" in page.locator("#diff .removed").inner_text()
        assert "SGD" in page.locator("#diff .added").inner_text()
        behind = "getComputedStyle(document.body).backgroundColor"
        written = "document.querySelector('#loss .xtick text').style.fill"
        light = [
            sum(map(int, page.evaluate(which)[4:-1].split(","))) for which in (behind, written)
        ]
        assert (light[0] > light[1]) == (scheme == "light")
        page.emulate_media(media="print")
        assert page.evaluate(behind) == "rgb(255, 255, 255)"


@needs_browser
def test_a_name_is_text_on_the_page(place: Path) -> None:
    name = "<img src=x onerror=alert(1)>.log"
    shutil.copy(place / "run1" / "log.txt", place / name)
    with opened(page_of(place, name), "light") as page:
        assert name in page.locator("h1").inner_text()
        assert page.locator("img").count() == 0


def test_numbers_for_prometheus(place: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    done = ddpfix("report", "run2", "--prometheus", "run.prom", cwd=place)
    assert done.returncode == 0, done.stderr
    text = (place / "run.prom").read_text()
    (family,) = text_string_to_metric_families(text)
    numbers = {one.labels["figure"]: one.value for one in family.samples}
    assert numbers["processes"] == 2
    assert numbers["last eval_acc"] == 0.75


def test_curves_for_tensorboard(place: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = ddpfix("report", "run1", "run2", "--tensorboard", "board", cwd=place)
    assert done.returncode == 0, done.stderr
    for run in data_of(place, "run1", "run2"):
        events = EventAccumulator(str(place / "board" / run["run"]))
        events.Reload()
        assert set(events.Tags()["scalars"]) == run["curves"].keys()
        for name, curve in run["curves"].items():
            written = events.Scalars(name)
            assert [event.step for event in written] == curve["steps"]
            assert [event.value for event in written] == pytest.approx(curve["values"])


def wandb_records(path: Path) -> Iterator[bytes]:
    """The records of an offline run: a log of LevelDB, in blocks, behind seven bytes of W&B's."""
    data, place, begun = path.read_bytes(), 7, b""
    while place < len(data):
        left = -place % 32768 or 32768
        if left < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        begun += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield begun
            begun = b""


def test_runs_for_wandb_without_a_network(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    done = ddpfix("report", "run2", "--wandb", "project", cwd=place)
    assert done.returncode == 0, done.stderr
    (path,) = (place / "wandb").glob("offline-run-*/*.wandb")
    found: dict[str, list[tuple[int, float]]] = {}
    names = []
    for data in wandb_records(path):
        record = Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            names.append((record.run.project, record.run.display_name))
        items = {item.key or item.nested_key[0]: item for item in record.history.item}
        if "_step" in items:
            step = int(items["_step"].value_json)
            for name, item in items.items():
                found.setdefault(name, []).append((step, json.loads(item.value_json)))
    assert names[0] == ("project", "run2")
    (run,) = data_of(place, "run2")
    for name, curve in run["curves"].items():
        assert found[name] == list(zip(curve["steps"], curve["values"], strict=True))


def test_without_wandb_one_line_names_it(place: Path, tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text("raise ImportError('gone')\n")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ddpfix.cli import main; main()"
    words = [sys.executable, "-c", code, str(tmp_path), "report", "run1", "--wandb", "project"]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "ddpfix: --wandb needs wandb: pip install it\n")


def test_the_samples_of_the_cards(tmp_path: Path) -> None:
    card = {"index": 1, "memory_used": 3 << 30, "utilization": 50, "power": 100.0}
    full = {**card, "memory_used": 5 << 30, "utilization": 100}
    lines = [
        json.dumps({"t": 0.0, "gpus": [card]}),
        json.dumps({"t": 1.0, "lost": "GPU is lost"}),
        json.dumps({"t": 2.0, "gpus": [full, {"index": 0, "memory_used": 1}]}),
        '{"t": 3.0, "gp',
    ]
    (tmp_path / "gpus.jsonl").write_text("\n".join(lines))
    cards = read_samples(tmp_path)
    assert cards[1].seconds == [0.0, 2.0]
    assert cards[1].peak_memory == 5 << 30
    assert cards[1].mean_utilization == 75
    assert cards[1].mean_power == 100
    assert cards[0].mean_power is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "no run 'nothing'"),
        (["run1", "--verdict", "none.json"], "none.json: there is no such file"),
        (["run1", "--verdict", "train.py"], "train.py: cannot be read: "),
        (["run1", "--original", "none.py", "--html", "p.html"], "none.py: cannot be read: "),
        (["before.md", "--original", "original.py", "--html", "p.html"], "its script is not there"),
        (["run1", "--html", "none/p.html"], "none/p.html: cannot be written: "),
        (["run1", "--prometheus", "none/p.prom"], "none/p.prom: cannot be written: "),
    ],
)
def test_what_cannot_be_used_is_one_line(place: Path, words: list[str], message: str) -> None:
    (place / "before.md").write_text("step 1 loss 2\n")
    done = ddpfix("report", *words, cwd=place)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("ddpfix: ")
    assert message in line
    assert not (place / "p.html").exists()


def test_without_plotly_the_page_names_what_to_install(place: Path, tmp_path: Path) -> None:
    (tmp_path / "plotly.py").write_text("raise ImportError('gone', name='plotly')\n")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ddpfix.cli import main; main()"
    words = [sys.executable, "-c", code, str(tmp_path), "report", "run1", "--html", "p.html"]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "ddpfix: a page needs plotly: pip install 'ddpfix[report]'; without --html the figures are "
        "printed\n"
    )
