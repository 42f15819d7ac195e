"""DF607: one rank copies, writes and removes what is one file."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import RULES, fixed, found, module
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import audit
from ddpfix.patcher.engine.check import check
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import io
import logging
import os
import shelve
import shutil
import tarfile
import cv2
import faiss
import h5py
import imageio
import nibabel as nib
import safetensors.torch
from omegaconf import OmegaConf
from gensim.models import word2vec as words
import numpy
import scipy.io
import soundfile
import torch
from matplotlib import animation
from PIL import Image
from torchvision.utils import save_image
from torch.utils.data import DataLoader, DistributedSampler

def score(model):
    return numpy.zeros(2)

def main(args, model, data, frame, is_best, rank):
    torch.distributed.init_process_group("gloo")
    for epoch in range(3):
        for batch in DataLoader(data):
            model(batch).backward()
        {line}
        {then}

main(*args)
"""


def script(line: str, then: str = "pass") -> str:
    return SCRIPT.format(line=line, then=then)


@pytest.mark.parametrize(
    "line",
    [
        'shutil.copyfile("last.pt", "best.pt")',
        'shutil.copy2("last.pt", "best.pt")',
        'os.symlink("epoch_3.pt", "latest.pt")',
        'Path("latest.pt").symlink_to("epoch_3.pt")',
        'shutil.make_archive("out", "zip", "results")',
        'cv2.imwrite("worst.png", frame)',
        'imageio.imsave("worst.png", frame)',
        'Image.fromarray(frame).convert("L").save("worst.png")',
        "frame.save(name, quality=90)",
        'soundfile.write("sample.wav", frame, 22050)',
        'save_image(tensor=frame, filename="worst.png", pad_value=1)',
        'nib.save(frame, "mask.nii.gz")',
        'torch.onnx.export(model, frame, "model.onnx")',
        'torch.jit.save(model, "model.pt")',
        'torch.jit.script(model).save("model.pt")',
        'safetensors.torch.save_file({"x": frame}, "model.safetensors")',
        'OmegaConf.save(args, "settings.yaml")',
        'frame.tofile("scores.bin")',
        'frame.dump(f"scores_{epoch}.dat")',
        'animation.FuncAnimation(frame, score).save("all.gif")',
        'drawn(frame).save(os.path.join("out", f"{epoch}.png"))',
        'scipy.io.wavfile.write("sample.wav", 22050, frame)',
        'frame.to_csv("scores.csv")',
        'numpy.save("scores.npy", frame)',
        'frame.plot().get_figure().savefig("loss.png")',
        'model.config.to_json_file("config.json")',
        'tokenizer.save_vocabulary("out")',
        'model.encoder.save_adapter("out", args.adapter)',
        'data.save_to_disk("out/tokens")',
        'faiss.write_index(frame, "code.index")',
        'words.Word2Vec(data).save("words.model")',
        's3.upload_file("model.pt", "bucket", "model.pt")',
        'hub.upload_file(path_or_fileobj="model.pt", path_in_repo="model.pt", repo_id="x")',
        'bucket.blob("model.pt").upload_from_filename("model.pt")',
        'os.remove("old.pt")',
        'shutil.rmtree("old")',
        'os.symlink("last.pt", "best.pt")',
        'Path("best.pt").symlink_to("last.pt")',
        'shutil.make_archive("code", "zip", ".")',
        'frame.to_hdf("scores.h5", key="x")',
    ],
)
def test_rank_0_alone_runs_the_statement(line: str) -> None:
    text = script(line)
    new = fixed("DF607", text)
    guarded = f"        if is_main_process():\n            {line}\n"
    wanted = text.replace(f"        {line}\n", guarded)
    assert new.split("def main(")[1] == wanted.split("def main(")[1]
    assert found("DF607", new) == []


@pytest.mark.parametrize("line", ["io.dump('text')", "frame.dump(args)", "frame.dump('a', 2)"])
def test_what_dumps_no_file_by_its_name_is_left_alone(line: str) -> None:
    assert found("DF607", script(line)) == []


@pytest.mark.parametrize(
    ("block", "is_left"),
    [
        ("f['x'] = frame", True),
        ("best = f['x'] = frame\n        print(best)", False),
    ],
)
def test_a_block_that_fills_a_file_is_left_to_rank_0(block: str, is_left: bool) -> None:
    text = script(f'with h5py.File("out.h5", "w") as f:\n            {block}')
    assert (
        "    if is_main_process():\n            with h5py.File(" in fixed("DF607", text)
    ) is is_left
    assert len(found("DF607", text)) == 1
    archive = script('with tarfile.open("out.tar", "w:gz") as f:\n            f.add("scores.npy")')
    assert "is_main_process():\n            with tarfile.open(" in fixed("DF607", archive)
    assert found("DF607", archive.replace('"w:gz"', '"r:gz"')) == []
    assert found("DF607", script('with h5py.File("out.h5") as f:\n            show(f)')) == []
    lines = "with jsonlines.open(path) as f:\n            show(f)".replace("path", "'a.jsonl'")
    assert found("DF607", script(lines)) == []


@pytest.mark.parametrize(
    ("uses", "is_only_read"),
    [
        ("f['x'][:].astype('float32')", True),
        ("numpy.array(f['x']), f['y'].shape, list(f), f['z'][:, 0]", True),
        ("f.keys(), [f['x'][name][:] for name in f]", False),
        ("f['x'].resize(9)", False),
        ("filled(f['x'])", False),
        ("filled(f)", False),
        ("(row := f['x'])", False),
        ("exec('f[0] = 1')", False),
    ],
)
def test_a_file_that_might_be_changed_is_locked_by_one_rank(uses: str, is_only_read: bool) -> None:
    text = script("f = h5py.File('in.h5', 'r+')", f"data = {uses}")
    (told,) = found("DF607", text)
    assert bool(told.edits) is is_only_read
    if is_only_read:
        after = fixed("DF607", text)
        assert "f = h5py.File('in.h5', 'r')" in after
        assert found("DF607", after) == []


@pytest.mark.parametrize(("flag", "is_told"), [("", True), (', "n"', True), (', flag="r"', False)])
def test_a_shelf_that_is_only_read_is_left_alone(flag: str, is_told: bool) -> None:
    assert bool(found("DF607", script(f'shelf = shelve.open("words"{flag})'))) is is_told


def test_a_file_that_is_there_is_removed_by_rank_0_alone() -> None:
    text = script('if os.path.exists("old.pt"):\n            os.remove("old.pt")')
    assert "    if is_main_process():\n                os.remove(" in fixed("DF607", text)


@pytest.mark.parametrize(
    ("listed", "is_told"),
    [
        ('os.listdir("out")', True),
        ('sorted(Path("out").glob("best*"))[1:]', True),
        ('["old.pt", "older.pt"]', False),
    ],
)
def test_what_a_rank_may_list_later_is_removed_by_rank_0_also_where_errors_are_caught(
    listed: str, is_told: bool
) -> None:
    removal = (
        f"for name in {listed}:\n            try:\n                os.remove(name)\n"
        "            except OSError:\n                pass"
    )
    text = script(removal)
    assert (
        "if is_main_process():\n                    os.remove(" in fixed("DF607", text)
    ) is is_told
    assert found("DF607", fixed("DF607", text)) == []


@pytest.mark.parametrize(
    "read",
    [
        'open("old.pt").read()',
        'open("other.pt").read()',
        'os.path.getsize("old.pt")',
        'Path("old.pt").stat().st_size',
        'os.path.getsize("other.pt")',
    ],
)
def test_a_file_that_all_ranks_read_is_removed_once_they_have_done_so(read: str) -> None:
    new = fixed("DF607", script(f"print({read})", 'os.remove("old.pt")'))
    waits = (
        "        if torch.distributed.is_initialized():\n"
        "            torch.distributed.barrier()  # another rank may still be reading\n"
        "        if is_main_process():\n"
        '            os.remove("old.pt")\n'
    )
    assert (waits in new) is ("old.pt" in read)
    assert ("barrier()" in new) is ("old.pt" in read)
    assert found("DF607", new) == []


def test_a_file_that_a_function_of_the_program_may_read_is_removed_once_it_has_done_so() -> None:
    own = "\n\ndef score(path):\n    return open(path).read()\n"
    for call, waits in (('score("old.pt")', True), ('score("other.pt")', False)):
        new = fixed("DF607", script(f"print({call})", 'os.remove("old.pt")') + own)
        assert ("# another rank may still be reading" in new) is waits
        assert found("DF607", new) == []


REMOVED = """
        paths = folders("out")
        best = None
        for path in paths:
            if score(path) > 0.5:
                best = path
        {others}
            if name != best:
                shutil.rmtree(name)"""


@pytest.mark.parametrize(
    ("others", "waits"),
    [
        ("for name in paths:", True),
        (
            "rest = [os.path.dirname(path) for path in paths if path != best]\n"
            "        for name in rest:",
            True,
        ),
        ('for name in ["a", "b"]:', False),
    ],
)
def test_folders_are_removed_once_all_ranks_have_read_what_the_list_names(
    others: str, waits: bool
) -> None:
    own = "\n\ndef score(path):\n    return float(open(path).read())\n"
    new = fixed("DF607", script(REMOVED.format(others=others)) + own)
    before = "            torch.distributed.barrier()  # another rank may still be reading\n"
    assert (f"{before}        for name in " in new) is waits
    assert ("barrier()" in new) is waits
    assert "if is_main_process():\n                    shutil.rmtree(name)" in new
    assert found("DF607", new) == []


@pytest.mark.parametrize("is_read_again", [False, True])
def test_ranks_wait_in_a_loop_that_reads_the_file_again(is_read_again: bool) -> None:
    loop = "for number in range(3):\n            os.remove('old.pt')"
    more = "\n            print(open('old.pt').read())" if is_read_again else ""
    new = fixed("DF607", script("print(open('old.pt').read())", loop + more))
    assert ("for number in range(3):\n            if torch.dis" in new) is is_read_again
    assert new.count("# another rank may still be reading") == 1


def test_a_method_of_the_program_is_read_where_it_is() -> None:
    text = script('tokenizer.save_vocabulary("out")')
    own = "\n\nclass Words:\n    def save_vocabulary(self, folder):\n        pass\n"
    assert found("DF607", text + own) == []


def test_ranks_wait_for_what_they_read_behind_it() -> None:
    text = script('shutil.copyfile("last.pt", "best.pt")', 'model.load(torch.load("best.pt"))')
    lines = fixed("DF607", text).splitlines()
    at = lines.index("        if is_main_process():")
    assert [ln.strip() for ln in lines[at : at + 5]] == [
        "if is_main_process():",
        'shutil.copyfile("last.pt", "best.pt")',
        "if torch.distributed.is_initialized():",
        "torch.distributed.barrier()  # rank 0 may still be writing",
        'model.load(torch.load("best.pt"))',
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('numpy.save("x.npy", frame)', 'frame = numpy.load("x.npy")'),
        (
            'with zipfile.ZipFile("x.npy", "w") as z:\n                z.write("raw")',
            'zipfile.ZipFile("x.npy")',
        ),
    ],
)
def test_ranks_wait_behind_the_test_for_a_file_that_is_not_there(written: str, read: str) -> None:
    text = script(f'if not os.path.exists("x.npy"):\n            {written}', read)
    new = fixed("DF607", text)
    behind = new[new.index('if not os.path.exists("x.npy")') :]
    guarded = f"            if is_main_process():\n                {written.splitlines()[0]}\n"
    assert guarded in behind
    barrier = (
        "        if torch.distributed.is_initialized():\n            torch.distributed.barrier()"
    )
    assert behind.index(barrier) < behind.index(read)
    assert found("DF607", new) == []


@pytest.mark.parametrize(
    "test",
    [
        "rank == 1 and not os.path.exists(name)",
        "not os.path.exists(other)",
        "not os.path.exists(name) and time.time() > 9",
    ],
)
def test_nobody_waits_where_a_test_for_a_file_is_not_that_of_all(test: str) -> None:
    text = script(f"if {test}:\n            numpy.save(name, frame)", "numpy.load(name)")
    assert found("DF607", text) == []


SCORED = """\
def extract(path, model):
    scipy.io.savemat(path, {"features": model(1)})

def score(path):
    return {read}

"""


@pytest.mark.parametrize(
    ("read", "waits"),
    [
        ("scipy.io.loadmat(path)", True),
        ("numpy.genfromtxt(path)", True),
        ("cv2.imread(path)", True),
        ('scipy.io.loadmat("other.mat")', False),
        ("os.path.basename(path)", False),
    ],
)
def test_ranks_wait_for_a_file_of_one_function_that_another_reads(read: str, waits: bool) -> None:
    text = script('extract("all.mat", model)', 'print(score("all.mat"))')
    text = text.replace(
        "def score(model):\n    return numpy.zeros(2)\n\n", SCORED.replace("{read}", read)
    )
    text = text.replace("    scipy", "    if torch.distributed.get_rank() == 0:\n        scipy", 1)
    told = [each.because for each in found("DF604", text)]
    assert told == ["rank 0 may still be writing it when another rank reads"] * waits


KEPT = """\
NAME = "all.mat"

def extract(model):
    if torch.distributed.get_rank() == 0:
        scipy.io.savemat({written}, {{"features": model(1)}})

def score():
    {local}
    return scipy.io.loadmat({read})

"""


@pytest.mark.parametrize(
    ("written", "local", "read", "waits"),
    [
        ("NAME", "pass", "NAME", True),
        ('"all.mat"', "pass", "NAME", True),
        ("NAME", "pass", '"all.mat"', True),
        ("NAME", "pass", '"other.mat"', False),
        ("NAME", "NAME = choose()", "NAME", False),
    ],
)
def test_ranks_wait_for_a_file_that_the_module_names(
    written: str, local: str, read: str, waits: bool
) -> None:
    text = script("extract(model)", "print(score())").replace(
        "def score(model):\n    return numpy.zeros(2)\n\n",
        KEPT.format(written=written, local=local, read=read),
    )
    told = [each.because for each in found("DF604", text)]
    assert told == ["rank 0 may still be writing it when another rank reads"] * waits


FEATURES = """\
import numpy
import scipy.io

def extract(path):
    scipy.io.savemat(path, {"features": numpy.zeros(2)})

def score(path):
    return scipy.io.loadmat(path)

if __name__ == "__main__":
    extract("all.mat")
    print(score("all.mat"))
"""


def test_the_main_guard_of_an_imported_module_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "features.py").write_text(FEATURES)
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\nfrom features import extract, score\n"
        "model = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for x, y in torch.utils.data.DataLoader([(torch.ones(2), 1)] * 9):\n"
        "    torch.nn.functional.cross_entropy(model(x), y).backward()\n"
        "    optimizer.step()\n"
        'extract("all.mat")\nprint(score("all.mat"))\n'
    )
    texts = {Path(each.source.name).name: each.text for each in patch(path).changes}
    assert texts["train.py"].count("rank 0 may still be writing") == 1
    assert "barrier()" not in texts["features.py"]


@pytest.mark.parametrize(
    ("use", "waits"),
    [("judge(gold, path)", True), ("print(path)", False), ("judge(gold)", False)],
)
def test_ranks_wait_for_a_file_that_a_parameter_names(use: str, waits: bool) -> None:
    scored = f"""\
def score(model, path, gold):
    numpy.savetxt(path, gold)
    {use}

"""
    text = script('score(model, "scores.txt", data)')
    text = text.replace("def score(model):\n    return numpy.zeros(2)\n\n", scored)
    assert ("    torch.distributed.barrier()" in fixed("DF607", text)) is waits


KEYED = """\
        epoch_config = vars(args)
        frame.to_csv("models/%s/log.csv" % epoch_config["name"])
        {then}"""


@pytest.mark.parametrize(
    ("then", "waits"),
    [
        ('print(epoch_config["epochs"], epoch_config["name"])', False),
        ('read("models/%s/log.csv" % epoch_config["name"])', True),
    ],
)
def test_an_object_that_holds_a_part_of_a_path_is_no_file(then: str, waits: bool) -> None:
    text = script(KEYED.format(then=then).strip())
    assert ("barrier()" in fixed("DF607", text)) is waits


def test_ranks_wait_for_a_file_whose_path_has_a_key() -> None:
    line = 'files = vars(args)\n        frame.to_csv(files["log"])'
    assert "barrier()" in fixed("DF607", script(line, 'read(files["log"])'))
    assert "barrier()" not in fixed("DF607", script(line, 'read(files["names"])'))


def test_what_joins_the_parts_of_a_path_tells_no_file() -> None:
    text = script('frame.to_csv(args.a + "_" + args.b)', 'print(args.b + "_" + "loss")')
    assert "barrier()" not in fixed("DF607", text)


@pytest.mark.parametrize(
    "line",
    [
        'frame.to_csv(f"scores_{rank}.csv")',
        "text = frame.to_csv()",
        'shutil.rmtree("old", ignore_errors=True)',
        'if torch.distributed.get_rank() == 0: os.remove("old.pt")',
        'torch.save(model, "last.pt")',  # DF601's
        'frame.save("worst")',  # of whatever it is
        'logging.FileHandler("log.txt")',  # DF602's
        'from loguru import logger; logger.add("log.txt")',  # DF602's
        "frame.to_csv(io.StringIO())",
    ],
)
def test_a_file_of_each_rank_or_of_another_rule_is_left_alone(line: str) -> None:
    assert found("DF607", script(line)) == []


DEALS = "torch.utils.data.distributed.DistributedSampler(test)"


@pytest.mark.parametrize(("sampler", "told"), [("DistributedSampler(test)", 0), ("None", 1)])
def test_a_file_called_after_an_example_of_a_rank_s_own_share_is_its_own(
    sampler: str, told: int
) -> None:
    show = "for shot, name in zip(shots, names): cv2.imwrite(name, shot)"
    line = f"for shots, names in DataLoader(test, sampler={sampler}):\n            {show}"
    assert len(found("DF607", script(line))) == told


EXAMPLES = """\
import cv2
import torch
torch.distributed.init_process_group("gloo")

def show(shots, part):
    for shot, name in zip(shots, part["names"]):
        {write}

def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        for shots, names in loader:
            model(shots)
            show(shots, {{"names": names}})

evaluate(model, torch.utils.data.DataLoader(test, sampler={sampler}))
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""
WRITES = {
    "DF607": 'cv2.imwrite(f"{name}.png", shot)',
    "DF602": 'print(shot, file=open(f"{name}.txt", "w"))',
    "DF601": 'torch.save(shot, f"{name}.pt")',
}


@pytest.mark.parametrize(("sampler", "told"), [(DEALS, 0), ("None", 1)])
@pytest.mark.parametrize(("code", "write"), WRITES.items(), ids=WRITES)
def test_the_example_s_name_may_come_through_calls(
    code: str, write: str, sampler: str, told: int
) -> None:
    text = EXAMPLES.format(write=write, sampler=sampler)
    assert len(found(code, text)) == told
    program = Program(module(text))
    assert told or "O7" not in {each.code for each in audit(program)}


BY_HAND = "shares = lines[torch.distributed.get_rank() :: torch.distributed.get_world_size()]"


@pytest.mark.parametrize(
    ("dealt", "loop", "mended"),
    [
        ("pass", "for shots, names in progress_of(loader):", True),
        (BY_HAND, "for shots, names in progress_of(loader):", False),
        (BY_HAND, "for shots, names in range(9):", True),
    ],
)
@pytest.mark.parametrize(("code", "write"), WRITES.items(), ids=WRITES)
def test_it_may_be_one_of_a_share_that_was_dealt_by_hand(
    code: str, write: str, dealt: str, loop: str, mended: bool
) -> None:
    text = EXAMPLES.format(write=write, sampler="None").replace("for shots, names in loader:", loop)
    (finding,) = found(code, f"{text}{dealt}\n")
    assert bool(finding.edits) is mended


@pytest.mark.parametrize(
    ("step", "mended"), [("model(batch).backward()", True), ("model(batch)", False)]
)
def test_the_number_of_a_batch_is_no_example_of_it(step: str, mended: bool) -> None:
    """Where no rank trains, each has batches of its own under these numbers."""
    loop = "for i, batch in enumerate(DataLoader(test, sampler=DistributedSampler(test))):"
    save = "numpy.save(f'{epoch * 9 + i}.npy', numpy.zeros(2))"
    line = f"{loop}\n            {step}\n            {save}"
    assert [bool(each.edits) for each in found("DF607", script(line))] == [mended]


@pytest.mark.parametrize(("added", "told"), [("Image.fromarray(frame)", 1), ("Row(frame)", 0)])
def test_a_picture_of_a_list_is_one(added: str, told: int) -> None:
    line = f"frames = []\n        frames.append({added})\n        "
    line += "frames[0].save('all', 'GIF')"
    assert len(found("DF607", script(line))) == told


ATTEMPT = """
import logging
import torch
from torch.utils.data import DataLoader
from torchvision.utils import save_image
def main(args, model, data):
    torch.distributed.init_process_group("gloo")
    {outer}
        for batch in DataLoader(data):
            model(batch).backward()
            {inner}
                save_image(batch, "batch.png")
{handler}
main(*args)
"""
ONCE = "    except OSError:\n        print('full')"


@pytest.mark.parametrize(
    ("outer", "inner", "handler", "is_left"),
    [
        ("try:", "if args.draw:", "    except Exception as error:\n        raise error", False),
        ("try:", "if args.draw:", "    except Exception:\n        print('ends')", False),
        (
            "try:",
            "if args.draw:",
            "    except OSError as error:\n        raise Full() from error",
            False,
        ),
        (
            "if True:",
            "try:",
            ONCE.replace("    except", "            except").replace(
                "    print", "            print"
            ),
            True,
        ),
    ],
)
def test_an_error_that_ends_the_training_forgives_no_second_writer(
    outer: str, inner: str, handler: str, is_left: bool
) -> None:
    findings = found("DF607", ATTEMPT.format(outer=outer, inner=inner, handler=handler))
    assert (findings == []) is is_left


def test_a_removal_that_may_fail_is_left_alone() -> None:
    tries = 'try:\n            os.remove("old.pt")\n        except OSError:\n            pass'
    assert found("DF607", script(tries)) == []
    assert found("DF607", script(tries.replace("OSError", "(shutil.Error, OSError)"))) == []
    assert len(found("DF607", script(tries.replace("OSError", "KeyboardInterrupt")))) == 1
    late = 'try:\n            pass\n        finally:\n            os.remove("old.pt")'
    assert len(found("DF607", script(late))) == 1


@pytest.mark.parametrize(
    "line",
    [
        'numpy.save("scores.npy", score(model))',
        'numpy.save("scores.npy", torch.distributed.nn.all_gather(frame))',
        'name = shutil.copyfile("last.pt", "best.pt")',
    ],
)
def test_what_other_ranks_may_have_to_run_is_only_reported(line: str) -> None:
    text = script(line).replace("return numpy.zeros(2)", "return model(numpy.zeros(2))")
    (finding,) = found("DF607", text)
    assert finding.edits == ()
    assert "every rank writes a file by" in finding.because


def test_one_process_has_one_writer() -> None:
    text = textwrap.dedent(
        """
        import shutil
        shutil.copyfile("a", "b")
        """
    )
    assert found("DF607", text) == []


def test_a_folder_of_each_process_and_code_that_nothing_calls_are_left_alone() -> None:
    text = script("shutil.rmtree(work.folder)").replace(
        "def score", "work.folder = tempfile.mkdtemp()\n\ndef score"
    )
    assert found("DF607", text) == []
    uncalled = "class Case:\n    def tear_down(self):\n        shutil.rmtree('x')\n\ndef score"
    assert found("DF607", script("pass").replace("def score", uncalled)) == []


EARLY = """
import os
import torch
from torch.utils.data import DataLoader

def note(path):
    with open(path, "w") as file:
        file.write("settings")

def main(args, model, data):
    note("settings.txt")
    os.remove("old.txt")
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in DataLoader(data, sampler=torch.utils.data.DistributedSampler(data)):
        model(batch).backward()
        optimizer.step()
    note("end.txt")

if __name__ == "__main__":
    main(*args)
"""


def test_a_rank_is_known_by_the_launcher_before_the_group_is_made(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(EARLY)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    first = "if int(os.environ.get('RANK', -1)) in (-1, 0):\n"
    assert f'    {first}        with open(path, "w") as file:\n' in change.text
    assert f'    {first}        os.remove("old.txt")\n' in change.text
    assert [each.because for each in result.audit if each.code == "O7"] == []
    script.write_text(change.text)
    assert patch(script).changes == ()


def test_a_file_that_an_option_asks_for_is_written_by_rank_0() -> None:
    text = script("if config.get('dump', False):\n            shutil.copy2('last.pt', 'best.pt')")
    assert "if is_main_process():" in fixed("DF607", text)


@pytest.mark.parametrize(
    ("use_gpu", "is_left"),
    [
        ("torch.cuda.is_available()", False),
        ("torch.cuda.is_available() and not False", False),
        ("args.local_gpu", True),
    ],
)
def test_a_switch_for_cards_keeps_no_rank_away(use_gpu: str, is_left: bool) -> None:
    """All ranks leave alike where there is no card; a number of a card may be a rank."""
    line = "if is_best:\n            shutil.copy2('last.pt', 'best.pt')"
    leaves = f"use_gpu = {use_gpu}\n    if not use_gpu:\n        return\n    for epoch"
    text = script(line).replace("for epoch", leaves)
    assert bool(found("DF607", text)) is not is_left


MADE_WHERE_MISSING = """\
import json
import os
import torch
torch.distributed.init_process_group("gloo")
def features(raw, paths):
    json.dump(raw, open(paths[0], "w"))
if not os.path.exists(args.train):
    features("a", [args.train])
if not os.path.exists(args.dev):
    features("b", [args.dev])
{use}
for batch in data:
    model(batch).backward()
"""


@pytest.mark.parametrize(
    ("use", "tests"),
    [
        ("data = json.load(open(args.train)), json.load(open(args.dev))", ["train", "dev"]),
        ("data = json.load(open(args.train))", ["train"]),
        ("data = json.load(open(args.other))", []),
    ],
)
def test_ranks_wait_behind_each_test_for_what_a_function_writes(use: str, tests: list[str]) -> None:
    text = MADE_WHERE_MISSING.format(use=use)
    wait = "if torch.distributed.is_initialized():\n    torch.distributed.barrier()"
    new = fixed("DF602", text)
    assert new.count(wait) == len(tests)
    for name in tests:
        assert f"[args.{name}])\n{wait}" in new
    assert found("DF602", new) == []


FIRST = "if not os.path.exists('images.tar'):\n    download('images.tar')\n    predict(model)\n"


@pytest.mark.parametrize(("line", "count"), [("pass", 0), ("predict(model)", 1)])
def test_a_function_that_is_also_called_elsewhere_is_not_fetched_in_turn(
    line: str, count: int
) -> None:
    """Rank 0 fetches the file of the test first, and predicts there too."""
    before = textwrap.indent(FIRST, "    ")
    text = script(line).replace("    for epoch", f"{before}    for epoch")
    text = text.replace(
        "def main", 'def predict(model):\n    cv2.imwrite("worst.png", model)\n\ndef main'
    )
    assert len(found("DF607", text)) == count


def test_a_module_that_waits_before_the_group_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        "import shutil\n\ndef keep(path):\n"
        '    shutil.copyfile(path, "kept.json")\n'
        '    return open("kept.json").read()\n'
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom torch.utils.data import DataLoader, DistributedSampler\n"
        "from settings import keep\n\ndef main(data, model):\n"
        '    print(keep("all.json"))\n    torch.distributed.init_process_group("gloo")\n'
        "    model = torch.nn.parallel.DistributedDataParallel(model)\n"
        "    for batch in DataLoader(data, sampler=DistributedSampler(data)):\n"
        "        model(batch).backward()\n\nmain([1], torch.nn.Linear(1, 1))\n"
    )
    result = patch(script)
    assert result.refusal == ""
    (settings,) = [each.text for each in result.changes if "kept" in each.text]
    assert "import torch\n" in settings


PLAIN = "    out = (x + 1) / 2\n    return out.clamp(0, 1)"


@pytest.mark.parametrize(
    ("body", "is_left"),
    [
        (PLAIN, True),
        (
            "    scaled = []\n    for row in x:\n        scaled += [row * 2]\n    return scaled",
            True,
        ),
        ("    return torch.stack([half(row) for row in x])", True),
        ("    x *= 2\n    return x", False),
        ("    x[0] = 0\n    return x", False),
        ("    return x.mul_(2)", False),
        ("    return x + torch.randn(3)", False),
        ("    return model(x)", False),
        ("    return other(x)", False),
        ("    torch.distributed.all_reduce(x)\n    return x", False),
        ("    global last\n    last = x\n    return x", False),
    ],
)
def test_rank_0_alone_calls_a_function_that_only_computes(body: str, is_left: bool) -> None:
    functions = f"def half(x):\n    return x / 2\n\ndef shown(x):\n{body}\n\ndef main("
    text = script('save_image(shown(frame), "worst.png")').replace("def main(", functions)
    (finding,) = found("DF607", text)
    assert bool(finding.edits) is is_left


@pytest.mark.parametrize(
    "body",
    [
        "    if not os.path.exists(path):\n        os.mkdir(path)",
        "    nib.save(picture, path)",
        "    sitk.WriteImage(picture, path)",
        "    visdom.Visdom(env=path).line(picture)",
        "    os.remove(path)",
    ],
)
def test_a_module_of_another_folder_that_writes_is_read(body: str, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    imports = "import os\nimport nibabel as nib\nimport SimpleITK as sitk\nimport visdom\n"
    tools = f"{imports}def keep(path, picture):\n{body}\n"
    (tmp_path / "tools" / "kept.py").write_text(tools)
    path = tmp_path / "run.py"
    path.write_text("from tools.kept import keep\n" + script("keep('out', frame)"))
    program = read_program(str(path))
    codes = {
        each.code
        for each in check(program, RULES.values())
        if each.module.source.path.name == "kept.py"
    }
    assert codes & {"DF602", "DF607", "DF609"}


TABLE = """\
import os
import numpy
import pandas as pd
import torch
from torch.utils.data import DataLoader

torch.distributed.init_process_group("gloo")
for x in DataLoader(data):
    model(x).backward()
path = "results.csv"
rows = pd.DataFrame({{"score": [score]}})
if os.path.isfile(path):
    table = pd.read_csv(path)
    {join}
    table.to_csv(path, index=False)
else:
    rows.to_csv(path, index=False)
{behind}
"""
JOIN = "table = pd.concat([table, rows])"
WHOLE = "if is_main_process():\n    if os.path.isfile(path):\n"


@pytest.mark.parametrize(
    ("join", "behind", "is_whole"),
    [
        (JOIN, "", True),
        ("table = table.append(rows)", "print(rows)", True),
        ("table = table.append(shared(rows))", "", False),
        (JOIN, "print(table)", False),
        ("pass", "numpy.save('table.npy', table.values)", False),
    ],
)
def test_rank_0_alone_reads_a_table_and_writes_it_with_more_rows(
    join: str, behind: str, is_whole: bool
) -> None:
    text = TABLE.format(join=join, behind=behind)
    shared = "def shared(x):\n    torch.distributed.all_reduce(x)\n    return x\n\n"
    text = text.replace("torch.distributed.init", f"{shared}torch.distributed.init")
    assert (WHOLE in fixed("DF607", text)) is is_whole


def test_a_table_that_is_read_behind_is_waited_for() -> None:
    text = fixed("DF607", TABLE.format(join=JOIN, behind="show(pd.read_csv(path))"))
    assert WHOLE in text
    assert "    rows.to_csv(path, index=False)\nif torch.distributed.is_initialized():\n" in text
    assert text.index("barrier()") < text.index("show(")
