"""Log files that a configuration of logging opens (DF602), paths by attribute, and databases."""

from __future__ import annotations

import pytest
from audited import audited
from cases import fixed, found

CONFIGURED = """\
import logging.config
import torch

def set_up(folder, config):
    for handler in config["handlers"].values():
        if "{key}" in handler:
            handler["{key}"] = folder + handler["{key}"]
    logging.config.dictConfig(config)

torch.distributed.init_process_group("gloo")
set_up("out/", read())
"""


def test_rank_0_alone_opens_the_files_of_a_configuration() -> None:
    text = fixed("DF602", CONFIGURED.format(key="filename"))
    assert "    if is_main_process():\n        logging.config.dictConfig(config)\n" in text
    assert not found("DF602", text)
    assert not found("DF602", CONFIGURED.format(key="level"))  # which opens none


PATH = """\
import torch
from pathlib import Path

class Log:
    def __init__(self, folder):
        self.path = Path(folder) / "log.txt"

    def write(self, line):
        with self.path.open({mode}) as file:
            file.write(line)

torch.distributed.init_process_group("gloo")
Log("out").write("a")
"""


def test_a_path_that_is_an_attribute_is_opened_by_rank_0() -> None:
    text = fixed("DF602", PATH.format(mode='"a"'))
    assert "        if is_main_process():\n            with self.path.open(" in text
    assert not found("DF602", PATH.format(mode=""))
    assert not found("DF602", PATH.format(mode='"member.txt"'))  # of an archive, perhaps


DATABASE = """
    import sqlite3
    import torch

    class Log:
        def __init__(self, path):
            self.con = sqlite3.connect({path}){mark}

        def write(self, epoch):
            self.con.execute({sql}, (epoch,))

    def main():
        torch.distributed.init_process_group("gloo")
        Log("log.db").write(1)
    """


@pytest.mark.parametrize("sql", ['"insert into log values (?)"', '"DELETE FROM log"'])
def test_every_rank_changes_the_database(sql: str) -> None:
    text = DATABASE.format(path="path", sql=sql, mark="  # here")
    assert ("O7", "violated", 6) in audited(text)


@pytest.mark.parametrize(
    ("path", "sql"),
    [("path", '"select * from log"'), ('":memory:"', '"insert into log values (?)"')],
)
def test_a_database_is_read_or_in_memory(path: str, sql: str) -> None:
    text = DATABASE.format(path=path, sql=sql, mark="")
    assert not any(code == "O7" for code, _, _ in audited(text))


FOLDER = """\
import torch
from pathlib import Path

def make(folder, resume):
    new = resume is not None
    folder.mkdir(parents=True, exist_ok={value})

torch.distributed.init_process_group("gloo")
make(Path("out"), None)
"""


@pytest.mark.parametrize("value", ["new", "resume is not None"])
def test_ranks_insist_on_no_folder_of_their_own(value: str) -> None:
    text = fixed("DF602", FOLDER.format(value=value))
    assert f"exist_ok={value} or torch.distributed.is_initialized())" in text
    assert not found("DF602", text)
    assert not found("DF602", FOLDER.format(value="True"))
