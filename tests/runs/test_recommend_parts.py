from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tests.builders import random_split, tiny

import fedrecgel
from fedrecgel.errors import ConfigError, RunFolderError, StorageError
from fedrecgel.runs import everyone
from fedrecgel.runs.everyone import Everyone
from fedrecgel.runs.recommend_parts import parts_folder, write_in_parts
from fedrecgel.storage import lock_folder

N_USERS, N_ITEMS = 23, 120
SPLIT = random_split(n_users=N_USERS, n_items=N_ITEMS)
RESULT = fedrecgel.train("fedrecgel", SPLIT, rounds=2, local={"chunk_scores": 2 * N_ITEMS}, **tiny("fedrecgel"))

each_format = pytest.mark.parametrize("name", ["all.parquet", "all.csv"])


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four users each, in two blocks; the last has three."""
    monkeypatch.setattr(everyone, "SCORES_PER_PART", 5 * N_ITEMS)


class Watcher:
    """Counts, and stops after some users."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.begun: int | None = None
        self.done, self.stop_after = 0, stop_after

    def begin(self, done: int) -> None:
        self.begun = self.done = done

    def advance(self, users: int) -> None:
        self.done += users
        if self.stop_after is not None and self.done >= self.stop_after:
            raise KeyboardInterrupt


def stopped(path: Path, after: int, k: int = 3) -> Path:
    with pytest.raises(KeyboardInterrupt):
        write_in_parts(Everyone(RESULT, k), path, Watcher(after))
    return parts_folder(path)


@each_format
def test_without_a_stop_it_is_the_same_file(name: str, tmp_path: Path) -> None:
    watcher = Watcher()
    n_rows = write_in_parts(Everyone(RESULT, 3), tmp_path / name, watcher)
    assert n_rows == RESULT.recommend_all(tmp_path / f"whole-{name}", 3) == 3 * N_USERS
    assert (watcher.begun, watcher.done) == (0, N_USERS)
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert {entry.name for entry in tmp_path.iterdir()} == {name, f"whole-{name}"}


@each_format
def test_stopped_again_and_again_it_is_the_same_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for after, kept in ((6, 1), (9, 2), (22, 5)):  # in the middle of the second, third and last part
        folder = stopped(path, after)
        assert len(list(folder.glob("*.parquet"))) == kept
        assert not path.exists()
    watcher = Watcher()
    write_in_parts(Everyone(RESULT, 3), path, watcher)
    assert (watcher.begun, watcher.done) == (20, N_USERS)
    RESULT.recommend_all(tmp_path / f"whole-{name}", 3)
    assert path.read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert not folder.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from fedrecgel.cli.main import main
from fedrecgel.runs import everyone, recommend_parts

everyone.SCORES_PER_PART = int(sys.argv[1])
write = recommend_parts.write_atomically

def die(path, action):
    if path.name == "000002.parquet":  # half of the third part is on disk
        (path.parent / ".000002.parquet.tmp").mkdir()
        (path.parent / ".000002.parquet.tmp" / path.name).write_bytes(b"PAR1")
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, action)

recommend_parts.write_atomically = die
main(sys.argv[2:])
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is a POSIX signal")
def test_killed_then_continued_it_is_the_same_file(tmp_path: Path) -> None:
    run, path = tmp_path / "run", tmp_path / "out" / "all.parquet"
    RESULT.save(run)
    words = ["recommend", str(run), "--all", "-k", "3", "-o", str(path)]
    killed = subprocess.run([sys.executable, "-c", KILLED, str(5 * N_ITEMS), *words], check=False)
    assert killed.returncode == -9
    assert [file.name for file in sorted(parts_folder(path).glob("*.parquet"))] == ["000000.parquet", "000001.parquet"]
    watcher = Watcher()
    write_in_parts(Everyone(fedrecgel.open(run), 3), path, watcher)
    assert watcher.begun == 8
    RESULT.recommend_all(tmp_path / "whole.parquet", 3)
    assert path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert [entry.name for entry in path.parent.iterdir()] == ["all.parquet"]


def test_parts_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    folder = stopped(path, 9)
    before = {file: file.read_bytes() for file in folder.iterdir()}
    other = replace(RESULT, summary={**RESULT.summary, "seed": 7})
    for table in (Everyone(RESULT, 4), Everyone(other, 3)):
        with pytest.raises(RunFolderError, match=r"all\.parquet\.parts' holds unfinished parts of another run"):
            write_in_parts(table, path, Watcher())
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
    assert not path.exists()


@pytest.mark.parametrize("about", ["", "[]", "7", '{"fingerprint": 1}', "\x00"])
def test_parts_of_nobody_knows_what_are_refused(about: str, tmp_path: Path) -> None:
    folder = stopped(tmp_path / "all.csv", 9)
    (folder / "about.json").write_text(about)
    with pytest.raises(RunFolderError, match="another run"):
        write_in_parts(Everyone(RESULT, 3), tmp_path / "all.csv", Watcher())


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    parts_folder(path).mkdir()
    (parts_folder(path) / "thesis.txt").write_text("years of work")
    with pytest.raises(RunFolderError, match="Found something else"):
        write_in_parts(Everyone(RESULT, 3), path, Watcher())
    (parts_folder(path) / "thesis.txt").unlink()
    stopped(path, 9)
    (parts_folder(path) / "thesis.txt").write_text("years of work")
    write_in_parts(Everyone(RESULT, 3), path, Watcher())
    assert [file.name for file in parts_folder(path).iterdir()] == ["thesis.txt"]


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "all.csv", 9)
    part = folder / "000001.parquet"
    whole = bytearray(part.read_bytes())
    for place in range(len(whole) // 8, len(whole) // 4):  # a single bit may hit a header that nobody reads
        whole[place] ^= 4
    for content in (bytes(whole), b"PAR1", b""):
        part.write_bytes(content)
        with pytest.raises(StorageError, match=r"000001\.parquet' cannot be read"):
            write_in_parts(Everyone(RESULT, 3), tmp_path / "all.csv", Watcher())
    pyarrow.parquet.write_table(pyarrow.table({"user": [1]}), part)
    with pytest.raises(StorageError, match=r"000001\.parquet' should be part of a table"):
        write_in_parts(Everyone(RESULT, 3), tmp_path / "all.csv", Watcher())
    part.unlink()
    assert write_in_parts(Everyone(RESULT, 3), tmp_path / "all.csv", Watcher()) == 3 * N_USERS


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    folder = parts_folder(tmp_path / "all.csv")
    with lock_folder(folder, folder / ".lock"), pytest.raises(RunFolderError, match="Choose another -o"):
        write_in_parts(Everyone(RESULT, 3), tmp_path / "all.csv", Watcher())


def test_a_full_disk_keeps_finished_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "all.csv"

    def full(*arguments: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setitem(everyone.WRITERS, ".csv", full)
        with pytest.raises(StorageError, match="No space left"):
            write_in_parts(Everyone(RESULT, 3), path, Watcher())
    watcher = Watcher()
    write_in_parts(Everyone(RESULT, 3), path, watcher)
    assert watcher.begun == N_USERS


@pytest.mark.parametrize(("k", "scores"), [(1, 1), (3, 10**9), (1000, 10**9)])
def test_parts_are_whole_blocks_of_users(k: int, scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everyone, "SCORES_PER_PART", scores)
    monkeypatch.setattr(everyone, "ROWS_AT_ONCE", 1000)
    parts: Any = Everyone(RESULT, k).parts
    assert [user for users in parts for user in users] == list(range(N_USERS))
    assert all(len(users) % 2 == 0 for users in parts[:-1])
    assert len(parts[0]) == {1: 2, 3: N_USERS, 1000: 8}[k]


def test_wrong_input_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="k should be at least 1"):
        Everyone(RESULT, 0)
    with pytest.raises(ConfigError, match="-o should end with"):
        write_in_parts(Everyone(RESULT, 3), tmp_path / "all.xlsx", Watcher())
    assert list(tmp_path.iterdir()) == []
