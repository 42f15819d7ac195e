"""The runs of a verification leave the user's files as they were, and all begin alike."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from command_line import run
from ddpfix.errors import InputError
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.verify import isolation_choice, landlock
from ddpfix.launchers.verify.isolation import IsolatedRun, Isolation
from ddpfix.launchers.verify.isolation_choice import choose_isolation
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.scratch_copy import NoRoomError, plan_copy
from ddpfix.launchers.verify.scripts import prepare_scripts
from sabotage import LEGACY, write


def listing(folder: Path) -> dict[str, tuple[int, int, int, bytes | str | None]]:
    """What `find -printf '%p %s %T@ %m'` tells of a folder, and what is in its files."""
    result = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        info = path.lstat()
        content: bytes | str | None = None
        if path.is_symlink():
            content = str(path.readlink())
        elif stat.S_ISREG(info.st_mode):
            content = path.read_bytes()
        size = 0 if stat.S_ISDIR(info.st_mode) else info.st_size
        result[str(path)] = (size, info.st_mtime_ns, info.st_mode, content)
    return result


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of a user's, whose folder is the current one: a script, results, data, links."""
    folder = tmp_path / "ann" / "project"
    for name in ("code", "results", "checkpoints"):
        (folder / name).mkdir(parents=True)
    (folder.parent / "data").mkdir()
    (folder.parent / "data" / "train.txt").write_text("one\ntwo\n")
    (folder / "results" / "final.json").write_text('{"f1": 0.9}')
    (folder / "checkpoints" / "best.pt").write_bytes(b"months of work")
    (folder / "code" / "vocabulary.txt").write_text("a b c")
    (folder / "code" / "run.py").write_text("print('run')\n")
    os.link(folder / "results" / "final.json", folder / "results" / "hard.json")
    (folder / "latest.json").symlink_to("results/final.json")
    (folder / "best.pt").symlink_to(folder / "checkpoints" / "best.pt")
    for path in folder.rglob("*"):
        os.utime(path, ns=(10**18, 10**18 + 123456789), follow_symlinks=False)
    monkeypatch.chdir(folder)
    return folder


def isolation_of(mode: str, project: Path, *arguments: str) -> Isolation:
    """The isolation of this mode, for ``code/run.py``; skips the test where it cannot be had."""
    folder = project.parents[1] / "runs"
    folder.mkdir(exist_ok=True)
    try:
        return choose_isolation(mode, project / "code" / "run.py", arguments, folder)
    except InputError as error:
        if mode != "overlay":
            raise
        pytest.skip(str(error))


def start(
    isolation: Isolation, program: str, *words: str, name: str = "run"
) -> subprocess.CompletedProcess[str]:
    """Run a program as verify runs a script of ``runs/code``."""
    folder = isolation.folder
    prepared = folder / "code" / "patched"
    shutil.rmtree(prepared, ignore_errors=True)
    shutil.copytree(isolation.home, prepared)
    (prepared / "run.py").write_text(program)
    (folder / "live").mkdir(exist_ok=True)
    with isolation.begin(
        prepared / "run.py", folder / "runs" / name, folder / "live", None
    ) as isolated:
        command = Command((sys.executable, str(isolated.script), *isolated.arguments(words)), {})
        command = isolated.command(command)
        return subprocess.run(
            command.argv,
            env=command.environment(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(params=["overlay", "copy"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# What a script does to the user's files, one after the other, each in words of its own.
WRITES = {
    "to the end of a file": "open('results/final.json', 'a').write('more')",
    "over a file": "open('results/final.json', 'w').write('lost')",
    "through a relative link": "open('latest.json', 'w').write('lost')",
    "through a full link": "open('best.pt', 'w').write('lost')",
    "to a hard link": "open('results/hard.json', 'w').write('lost')",
    "beside the script": "open(home / 'vocabulary.txt', 'w').write('lost')",
    "over the script": "open(__file__, 'w').write('lost')",
    "a path of the arguments": "open(sys.argv[1], 'a').write('lost')",
    "beside the data": "open(sys.argv[1] + '.cache', 'w').write('cache')",
    "a rename over a file": "open('new', 'w'); os.replace('new', 'checkpoints/best.pt')",
    "another program": "subprocess.run('echo lost > results/final.json', shell=True, check=True)",
    "a shorter file": "os.truncate('checkpoints/best.pt', 0)",
    "another mode": "os.chmod('results/final.json', 0o600)",
    "other times": "os.utime('results/final.json', (1, 1))",
    "a hard link more": "os.link('results/final.json', 'results/second.json')",
    "a new folder": "os.makedirs('a/b/c'); open('a/b/c/d', 'w').write('d')",
    "a rename of a file": "os.rename('checkpoints/best.pt', 'results/best.pt')",
    "a file less": "os.remove('results/final.json')",
    "a folder less": "shutil.rmtree('results')",
}
PROLOGUE = "import os, pathlib, shutil, subprocess, sys\nhome = pathlib.Path(__file__).parent\n"


def test_a_script_may_write_anywhere_and_changes_nothing(mode: str, project: Path) -> None:
    data = project.parent / "data" / "train.txt"
    isolation = isolation_of(mode, project, str(data))
    before = listing(project.parent)
    lines = [f"print({what!r}); {line}" for what, line in WRITES.items()]
    done = start(isolation, PROLOGUE + "\n".join(lines), str(data))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(WRITES)
    assert listing(project.parent) == before


def test_what_runs_write_can_be_kept_in_memory(project: Path) -> None:
    """For a scratch folder that cannot be an upper layer, such as one in a container's own tree."""
    isolation = attrs.evolve(isolation_of("overlay", project), in_memory=True)
    refusal = isolation_choice._try_overlay(isolation, project / "code" / "run.py")
    if refusal:
        pytest.skip(refusal)
    before = listing(project.parent)
    done = start(isolation, f"{PROLOGUE}{WRITES['over a file']}")
    assert done.returncode == 0, done.stderr
    assert listing(project.parent) == before
    left = isolation.folder / "runs" / "run" / "view" / "layers"
    assert not list(left.iterdir()), "it was written to the scratch folder"


def test_all_runs_begin_alike(mode: str, project: Path) -> None:
    """A cache beside the data, and one beside the script, must not be seen by the next run."""
    data = project.parent / "data" / "train.txt"
    isolation = isolation_of(mode, project, f"--data={data}")
    program = """
data = sys.argv[1].removeprefix("--data=")
caches = [data + ".cache", home / "cache", "cache", "../data/other.cache"]
print(*(os.path.exists(cache) for cache in caches))
for cache in caches:
    open(cache, "w").write("features")
"""
    for name in ("first", "second"):
        done = start(isolation, PROLOGUE + program, f"--data={data}", name=name)
        assert done.stdout == "False False False False\n", done.stderr


def test_a_run_sees_the_users_files_and_links_by_relative_and_full_paths(
    mode: str, project: Path
) -> None:
    isolation = isolation_of(mode, project)
    program = f"""
for name in ("../data/train.txt", "latest.json", "best.pt", "{project}/results/final.json"):
    print(repr(open(name).read()))
print(os.stat("results/final.json").st_mtime_ns, sorted(os.listdir()))
"""
    done = start(isolation, PROLOGUE + program)
    assert done.stdout.splitlines() == [
        *("'one\\ntwo\\n'", "'{\"f1\": 0.9}'", "'months of work'", "'{\"f1\": 0.9}'"),
        f"{10**18 + 123456789} {sorted(path.name for path in project.iterdir())}",
    ], done.stderr


def test_a_run_that_begins_where_another_ended_finds_what_that_wrote(
    mode: str, project: Path
) -> None:
    isolation = isolation_of(mode, project)
    if isolation.in_memory:
        pytest.skip("no overlay mount here keeps what it has beyond the run")
    write_first = "open('checkpoints/new.pt', 'w').write('trained'); os.remove('best.pt')"
    assert start(isolation, PROLOGUE + write_first, name="first").returncode == 0
    folder = isolation.folder
    (folder / "code" / "patched" / "run.py").write_text("print(open('checkpoints/new.pt').read())")
    before = folder / "runs" / "first"
    with isolation.begin(
        folder / "code" / "patched" / "run.py", folder / "runs" / "second", folder / "live", before
    ) as isolated:
        command = isolated.command(Command((sys.executable, str(isolated.script)), {}))
        done = subprocess.run(
            command.argv, env=command.environment(os.environ), capture_output=True, check=False
        )
    assert done.stdout == b"trained\n", done.stderr


@pytest.mark.parametrize("safe_path", [False, True], ids=["first on the path", "PYTHONPATH alone"])
def test_modules_are_those_of_the_prepared_copy(
    mode: str, project: Path, monkeypatch: pytest.MonkeyPatch, *, safe_path: bool
) -> None:
    """Else the unpatched original is imported, by PYTHONPATH or by the current folder."""
    (project / "code" / "steps.py").write_text("NAME = 'the original'\n")
    monkeypatch.setenv("PYTHONPATH", str(project / "code"), prepend=os.pathsep)
    if safe_path:
        monkeypatch.setenv("PYTHONSAFEPATH", "1")
    isolation = isolation_of(mode, project)
    folder = isolation.folder
    shutil.copytree(project / "code", folder / "code" / "patched")
    (folder / "code" / "patched" / "steps.py").write_text("NAME = 'the patched copy'\n")
    (folder / "code" / "patched" / "run.py").write_text(
        "import os, sys\nsys.path.insert(0, os.path.abspath('code'))\n"
        "from steps import NAME\nprint(NAME)\n"
    )
    (folder / "live").mkdir()
    before = listing(project)
    with isolation.begin(
        folder / "code" / "patched" / "run.py", folder / "runs" / "run", folder / "live", None
    ) as isolated:
        command = isolated.command(Command((sys.executable, str(isolated.script)), {}))
        done = subprocess.run(
            command.argv, env=command.environment(os.environ), capture_output=True, check=False
        )
    assert done.stdout == b"the patched copy\n", done.stderr
    assert listing(project) == before


def test_modules_of_the_scripts_package_are_patched_and_those_that_run(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script in a package, started with PYTHONPATH: its module is found through the package."""
    project = tmp_path / "ann" / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "pkg" / "__init__.py").write_text("")
    (project / "pkg" / "training.py").write_text(LEGACY.partition("\nif __name__")[0] + "\n")
    script = project / "pkg" / "run.py"
    script.write_text(
        "import inspect\nfrom pkg.training import main\n\nif __name__ == '__main__':\n    main()\n"
    )
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTHONPATH", str(project), prepend=os.pathsep)
    before = listing(project)
    folder = tmp_path / "runs"
    (folder / "live").mkdir(parents=True)
    scripts = prepare_scripts(VerifyRequest(script, []), folder / "code")
    patched = folder / "code" / "patched" / "pkg" / "training.py"
    assert scripts.patched == patched.with_name("run.py")
    assert "LOCAL_RANK" in patched.read_text()
    assert scripts.patching_row.status == "holds", scripts.patching_row.evidence
    try:
        isolation = choose_isolation(mode, script, [], folder)
    except InputError as error:
        assert mode == "overlay"
        pytest.skip(str(error))
    probe = (
        "import importlib.util as u, sys; print(open(u.find_spec('pkg.training').origin).read())"
    )
    for prepared, what in ((scripts.original, "original"), (scripts.patched, "patched")):
        assert prepared is not None
        with isolation.begin(prepared, folder / "runs" / what, folder / "live", None) as isolated:
            command = isolated.command(Command((sys.executable, "-c", probe), {}))
            done = subprocess.run(
                command.argv, env=command.environment(os.environ), capture_output=True, check=False
            )
        assert done.stdout.decode().strip() == prepared.with_name("training.py").read_text().strip()
    assert listing(project) == before


def test_a_module_that_is_imported_by_a_full_path_is_not_patched_behind_the_users_back(
    tmp_path: Path,
) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "project").mkdir()
    module = tmp_path / "library" / "training.py"
    module.write_text(LEGACY.partition("\nif __name__")[0] + "\n")
    script = tmp_path / "project" / "run.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(module.parent)!r})\nfrom training import main\n\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    before = listing(tmp_path / "library")
    with pytest.raises(InputError, match="by a full path"):
        prepare_scripts(VerifyRequest(script, []), tmp_path / "code")
    assert listing(tmp_path / "library") == before


@pytest.mark.parametrize("barrier", ["landlock", "mounts"])
def test_a_copys_run_cannot_write_by_a_full_path_that_nobody_told_of(
    barrier: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = project.parent / "other.txt"
    other.write_text("kept")
    if barrier == "mounts":
        monkeypatch.setattr(landlock, "is_usable", lambda: False)
    isolation = isolation_of("copy", project)
    if isolation.barrier != barrier:
        pytest.skip(f"not to be had here: {barrier}")
    before = listing(project.parent)
    for line in (
        f"open({str(other)!r}, 'w')",
        f"os.remove({str(other)!r})",
        f"os.rename('latest.json', {str(other)!r})",
        f"subprocess.run(['cp', 'latest.json', {str(other)!r}], check=True)",
        f"os.mkdir({str(project / 'new')!r})",
        f"open({str(project / 'results/final.json')!r}, 'a')",
    ):
        assert start(isolation, PROLOGUE + line).returncode == 1, line
        assert listing(project.parent) == before, line


SAVES = """
    if args.local_rank in [-1, 0]:
        state = (model.module if hasattr(model, "module") else model).state_dict()
        here = os.path.dirname(os.path.abspath(__file__))
        cache = args.data_dir + "/features.cache"
        print("a cache" if os.path.exists(cache) else "no cache")
        torch.save(state, cache)
        torch.save(state, here + "/weights.pt")
        torch.save(state, "best.new")
        os.replace("best.new", "checkpoints/best.pt")
        with open("results/final.json", "w") as f:
            f.write("{}")
"""


def test_a_verification_leaves_every_file_as_it_was(mode: str, project: Path) -> None:
    """torch.save writes from C++, which no wrapper of Python's functions sees."""
    isolation_of(mode, project)  # or skip
    script, arguments = write(project.parent / "small")
    text = script.read_text()
    at = text.index("    return global_step\n")
    script.write_text(text[:at] + SAVES.lstrip("\n") + text[at:])
    (script.parent / "weights.pt").write_bytes(b"weights of last year")
    before = listing(project.parent)
    keep = project.parents[1] / "kept"
    worlds = "1,2" if mode == "overlay" else "1"
    options = ("--isolation", mode, "--world-sizes", worlds, "--accumulation", "1", "--keep", keep)
    done = run("verify", script, *options, "--json", "--", *arguments)
    assert done.exit_code in (0, 2), done.output
    rows = {row["code"]: row for row in json.loads(done.stdout)["rows"]}
    proven = {code for code, row in rows.items() if row["status"] == "holds"}
    # It takes two accumulations to tell of C7, and two ranks to tell of C3.
    assert proven >= {"C1", "C2", "C4", "C5", "C6", "C8", "C9"}, done.output
    assert str(project / "checkpoints" / "best.pt") in rows["C5"]["evidence"]
    assert listing(project.parent) == before
    logs = sorted((keep / "runs").glob("*/log.txt"))
    assert len(logs) == (4 if mode == "overlay" else 3)
    assert [log.read_text().count("no cache") for log in logs] == [1] * len(logs)
    assert not list(keep.glob("runs/*/view")), "what isolated the runs is left behind"


@pytest.mark.skipif(not landlock.is_usable(), reason="the kernel has no Landlock (version 2)")
def test_a_write_that_copies_cannot_keep_is_told_in_one_line(project: Path) -> None:
    script, arguments = write(project.parent / "small")
    other = project.parent / "other.txt"
    line = f'    with open("{other}", "w") as f:\n        f.write("mine")\n'
    text = script.read_text()
    at = text.index("    global_step = 0\n")
    script.write_text(text[:at] + line + text[at:])
    done = run("verify", script, "--isolation", "copy", "--", *arguments)
    assert done.exit_code == 2
    assert f"the script writes to {other}, which is outside of what is copied" in done.stderr
    assert "--in-place" in done.stderr
    assert not other.exists()


def test_a_write_that_an_overlay_cannot_take_names_the_other_way(tmp_path: Path) -> None:
    overlay = Isolation("overlay", tmp_path, tmp_path, tmp_path)
    run_of = IsolatedRun(overlay, tmp_path / "run.py", None)
    failure = "rank 0 died: OSError: [Errno 75] Value too large for defined data type"
    assert run_of.explain(failure, "").endswith("try --isolation copy")
    assert run_of.explain("rank 0 died: ValueError: 3", "") == ""
    in_place = attrs.evolve(run_of, isolation=attrs.evolve(overlay, mode="none"))
    assert in_place.explain(failure, "") == ""


def test_the_folder_of_the_runs_is_not_copied_even_in_a_folder_that_is(tmp_path: Path) -> None:
    (tmp_path / "kept" / "live").mkdir(parents=True)
    copy = plan_copy(tmp_path / "kept" / "copy", [tmp_path], tmp_path / "kept")
    copy.make()
    output = tmp_path / "kept" / "live" / "output"
    assert copy.place(output) == output
    assert copy.place(tmp_path / "data") == Path(f"{tmp_path}/kept/copy{tmp_path}/data")
    assert not copy.place(tmp_path / "x").with_name("kept").exists()


def test_folders_that_have_no_room_are_refused(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddpfix.launchers.verify.scratch_copy.MOST_FILES", 2)
    with pytest.raises(NoRoomError, match="more than 2 files to copy"):
        plan_copy(tmp_path / "copy", [project], tmp_path / "runs")
    monkeypatch.setattr("ddpfix.launchers.verify.scratch_copy.MOST_FILES", 1000)
    monkeypatch.setattr("ddpfix.launchers.verify.scratch_copy.MOST_BYTES", 30)
    monkeypatch.setattr("ddpfix.launchers.verify.scratch_copy.LARGE", 13)
    copy = plan_copy(tmp_path / "copy", [project / "checkpoints", project / "code"], tmp_path / "x")
    assert copy.largest is None or copy.largest == 13
    monkeypatch.setattr("ddpfix.launchers.verify.scratch_copy.MOST_BYTES", 12)
    with pytest.raises(NoRoomError, match="GB to copy"):
        plan_copy(tmp_path / "copy", [project], tmp_path / "runs")


def test_where_nothing_keeps_the_files_verify_does_not_start_without_in_place(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, arguments = write(project.parent / "small")
    monkeypatch.setenv("DDPFIX_ISOLATION", "auto")
    monkeypatch.setattr(
        isolation_choice, "_try_overlay", lambda *_: "no overlay mount: not permitted"
    )
    monkeypatch.setattr(landlock, "is_usable", lambda: False)
    monkeypatch.setattr(isolation_choice, "_try_read_only", lambda _: "not permitted")
    done = run("verify", script, "--", *arguments)
    assert done.exit_code == 2
    (line,) = (each for each in done.stderr.splitlines() if each.startswith("ddpfix: "))
    for words in (
        "no overlay mount: not permitted",
        "neither Landlock nor read-only mounts",
        "--in-place",
    ):
        assert words in line
    assert choose_isolation("none", script, arguments, project).mode == "none"
    assert choose_isolation("copy", script, arguments, project).mode == "copy"
