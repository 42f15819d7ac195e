"""Mounts of a verification, each in a process of its own with a mount namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENTERED = """\
import os, sys
from pathlib import Path
from ddpfix.launchers.verify.mount_namespace import enter_namespace, mount_points
from ddpfix.launchers.verify.read_only_mounts import allow_writes_in
from ddpfix.launchers.verify.system_calls import MS_BIND, MS_REC, make_read_only, mount
folder = sys.argv[1]
"""


def answers(code: str, folder: Path) -> str:
    """What a process prints that is allowed to make mounts; skips the test where none is."""
    able = "from ddpfix.launchers.verify.mount_namespace import enter_namespace\n"
    able += "with enter_namespace():\n    pass\n"
    if subprocess.run([sys.executable, "-c", able], capture_output=True).returncode:
        pytest.skip("the kernel gives this user no mount namespace")
    done = subprocess.run(
        [sys.executable, "-c", ENTERED + code, str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_read_only_mount_takes_what_is_mounted_below_it_along(tmp_path: Path) -> None:
    for name in ("seen/inner", "other"):
        (tmp_path / name).mkdir(parents=True)
    code = """
with enter_namespace():
    mount(folder + "/seen", folder + "/seen", "", MS_BIND)
    mount(folder + "/other", folder + "/seen/inner", "", MS_BIND)
    make_read_only(folder + "/seen")
for place in ("", "/seen", "/seen/inner"):
    try:
        Path(folder + place + "/new").touch()
        print("written")
    except OSError as error:
        print(error.strerror)
"""
    assert answers(code, tmp_path).splitlines() == ["written", *["Read-only file system"] * 2]
    assert [path.name for path in tmp_path.rglob("new")] == ["new"]


@pytest.mark.parametrize(
    "name", ["a b", "tab\there", "back\\slash", "caf\xe9", os.fsdecode(b"\xff")]
)
def test_a_mount_point_has_the_name_of_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    code = """
(place,) = Path(folder).iterdir()
before = mount_points()
with enter_namespace():
    mount(place, place, "", MS_BIND)
    new = mount_points().keys() - before.keys()
    print(new == {str(place)}, ascii(new))
"""
    assert answers(code, tmp_path).startswith("True")


def test_what_a_mount_forbids_stays_forbidden_where_it_becomes_read_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    code = """
with enter_namespace():
    mount("none", folder + "/a", "tmpfs", 2 | 4 | 8 | 1024)  # nosuid, nodev, noexec, noatime
before = mount_points()[folder + "/a"]
allow_writes_in([folder + "/b"])
after = mount_points()[folder + "/a"]
print(sorted(before - after), sorted(after - before))
Path(folder + "/b/new").touch()
"""
    assert answers(code, tmp_path).strip() == "['rw'] ['ro']"
    assert (tmp_path / "b" / "new").exists()
