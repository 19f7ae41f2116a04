"""Files written whole or not at all, tensors without pickles, and folders kept to one process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fedrecgel
from fedrecgel.errors import RunFolderError, StorageError
from fedrecgel.storage import (
    EARLIER,
    HEADER_BYTES,
    lock_folder,
    read_json,
    read_tensors,
    write_atomically,
    write_tensors,
)

TENSORS = {
    "odd": torch.arange(7.0),
    "step": torch.tensor(3.0),
    "turned": torch.arange(12.0).reshape(4, 3).T.contiguous(),
}
HOLDER = """import sys
from pathlib import Path
from fedrecgel.storage import lock_folder
with lock_folder(Path(sys.argv[1]), Path(sys.argv[1], ".lock")):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_tensors_and_their_description_come_back(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", TENSORS, {"round": 1, "best": 0.1 + 0.2}, "run")
    found, about, run = read_tensors(tmp_path / "file", dict)
    assert run == "run"
    assert about == {"round": 1, "best": 0.1 + 0.2}
    assert set(found) == set(TENSORS)
    assert all(torch.equal(found[name], value) for name, value in TENSORS.items())


def test_tensors_come_back_aligned(tmp_path: Path) -> None:
    """Products with misaligned tensors differ in the last bits, and a resumed run would drift from an unbroken one."""
    write_tensors(tmp_path / "file", {**TENSORS, "more": torch.zeros(100)}, {}, "run")
    found, _, _ = read_tensors(tmp_path / "file", dict)
    assert {value.data_ptr() % 64 for value in found.values()} == {0}


@pytest.mark.parametrize(
    "value",
    [
        torch.from_numpy(np.zeros(4, dtype=np.int32)[:0:2]),
        torch.from_numpy(np.lib.stride_tricks.as_strided(np.zeros(1, dtype=np.int32), (0,), (0,))),
        torch.zeros(1, 5)[:, :1],
        torch.tensor(True),
        torch.ones(3, dtype=torch.bfloat16),
        torch.arange(6.0).expand(2, 6),
    ],
    ids=["empty", "without strides", "one of five", "a truth", "16 bits", "expanded"],
)
def test_any_tensor_comes_back(value: torch.Tensor, tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", {"it": value}, {}, "run")
    assert torch.equal(read_tensors(tmp_path / "file", dict)[0]["it"], value)


def test_the_checksum_covers_all_there_is(tmp_path: Path) -> None:
    """Names, types, shapes, numbers, description and run; and the same content gives the same file."""
    same, changed = {"a": torch.zeros(4), "b": torch.ones(4)}, torch.tensor([1.0, 1.0, 1.0, 1.5])
    variants: list[tuple[dict[str, torch.Tensor], dict[str, int], str]] = [
        (same, {"round": 1}, "run"),
        ({"a": same["b"], "b": same["a"]}, {"round": 1}, "run"),
        ({**same, "b": changed}, {"round": 1}, "run"),
        ({**same, "b": same["b"].reshape(2, 2)}, {"round": 1}, "run"),
        ({**same, "b": same["b"].view(torch.int32)}, {"round": 1}, "run"),
        (same, {"round": 2}, "run"),
        (same, {"round": 1}, "other"),
    ]
    found = [write_tensors(tmp_path / f"{n}", *variant) for n, variant in enumerate(variants)]
    assert len(set(found)) == len(variants)
    assert write_tensors(tmp_path / "again", *variants[0]) == found[0]
    assert (tmp_path / "again").read_bytes() == (tmp_path / "0").read_bytes()


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    mark = write_tensors(tmp_path / "file", TENSORS, {}, "mine")
    read_tensors(tmp_path / "file", dict, run="mine", sha256=mark)
    for run, found in (("yours", mark), ("mine", "0" * 64)):
        with pytest.raises(RunFolderError, match="file' belongs to another run"):
            read_tensors(tmp_path / "file", dict, run=run, sha256=found)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_tensors(path, TENSORS, {"round": 1}, "run")
    sound = path.read_bytes()
    for at in range(0, len(sound), 3):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :])
        with pytest.raises((StorageError, RunFolderError), match=r"file' (should be|cannot be read|belongs to)"):
            read_tensors(path, dict)


@pytest.mark.parametrize("length", [HEADER_BYTES + 1, 1 << 40, (1 << 64) - 1])
def test_a_long_header_is_refused_before_it_is_parsed(length: int, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").write_bytes(length.to_bytes(8, "little") + b"{" + b" " * 1000)
    monkeypatch.setattr("fedrecgel.storage.safe_open", None)
    with pytest.raises(StorageError, match=r"its header should have at most 1,048,576 bytes, and has"):
        read_tensors(tmp_path / "file", dict)


def test_long_descriptions_do_not_stand_in_the_header(tmp_path: Path) -> None:
    names = [f"user {number}" for number in range(100_000)]
    write_tensors(tmp_path / "file", {}, {"user_ids": names}, "run")
    assert read_tensors(tmp_path / "file", dict)[1] == {"user_ids": names}


def test_files_of_an_earlier_version(tmp_path: Path) -> None:
    save_file(
        {name: value.contiguous() for name, value in TENSORS.items()}, tmp_path / "file", {EARLIER: '{"round": 1}'}
    )
    with pytest.raises(RunFolderError, match="written by an earlier version, without a checksum"):
        read_tensors(tmp_path / "file", dict)
    tensors, about, run = read_tensors(tmp_path / "file", dict, unchecked=True)
    assert (set(tensors), about, run) == (set(TENSORS), {"round": 1}, "")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"[" * 100_000, b"9" * 5000])
def test_damaged_text(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(StorageError, match="file' cannot be read"):
        read_json(tmp_path / "file", dict)


def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_json, read_tensors):
        with pytest.raises(StorageError, match="no ordinary file"):
            read(tmp_path / "pipe", dict)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_tensors(path, TENSORS, {"round": 1}, "run")
    before = path.read_bytes()

    def full_disk(temporary: Path) -> None:
        temporary.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match=r"state' could not be written: .*No space left.*untouched"):
        write_atomically(path, full_disk)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_any_failure_leaves_no_temporary_file(tmp_path: Path) -> None:
    def interrupted(temporary: Path) -> None:
        temporary.write_bytes(b"half of it")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "state", interrupted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["folder", "file"])
def test_the_next_try_clears_what_a_killed_writer_left(tmp_path: Path, left: str) -> None:
    """Also temporary files of the library that writes, whose names only that library knows."""
    rooms: list[Path] = []

    def killed(temporary: Path) -> None:
        rooms.append(temporary.parent)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "state", killed)
    if left == "folder":
        rooms[0].mkdir()
        (rooms[0] / ".tmpXeQ3fz").write_bytes(b"half of it")
    else:
        rooms[0].write_bytes(b"half of it")
    write_tensors(tmp_path / "state", TENSORS, {}, "run")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("old")

    def write(temporary: Path) -> None:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert path.parent in temporary.parents  # renaming is atomic only within one file system

    write_atomically(path, write)
    assert path.read_text() == "new"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="could not be written"):
        write_tensors(tmp_path / "file" / "state", TENSORS, {}, "run")


def test_a_folder_is_kept_to_one_process_until_that_ends_however_it_ends(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"locked"
        with (
            pytest.raises(RunFolderError, match=r"Another process is writing to '.*'\. Choose another --out\."),
            lock_folder(tmp_path, tmp_path / ".lock"),
        ):
            pass
        holder.kill()
    with lock_folder(tmp_path, tmp_path / ".lock"):
        pass


def test_a_lock_is_held_once_also_within_a_process(tmp_path: Path) -> None:
    place = tmp_path / "deep" / ".lock"
    with (
        lock_folder(tmp_path, place),
        pytest.raises(RunFolderError, match="Another process"),
        lock_folder(tmp_path, place),
    ):
        pass
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path, place):
        raise ZeroDivisionError
    with lock_folder(tmp_path, place):
        pass


@pytest.mark.parametrize("obstacle", ["a file above", "a folder in its place", "a read-only folder"])
def test_a_lock_that_cannot_be_written(tmp_path: Path, obstacle: str) -> None:
    place = tmp_path / "run" / ".lock"
    if obstacle == "a file above":
        place.parent.write_text("in the way")
    elif obstacle == "a folder in its place":
        place.mkdir(parents=True)
    else:
        if os.name != "posix" or os.geteuid() == 0:
            pytest.skip("the administrator may write everywhere")
        place.parent.mkdir(mode=0o500)
    wanted = rf"'{place.parent}' could not be written: .*\. Choose another --out\."
    with pytest.raises(StorageError, match=wanted), lock_folder(place.parent, place):
        pass


def test_no_pickle_anywhere() -> None:
    unsafe = {"pickle", "cPickle", "dill", "joblib", "shelve", "cloudpickle"}
    for path in Path(fedrecgel.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            if isinstance(node, ast.ImportFrom):
                names = {node.module or ""}
            assert not {name.split(".")[0] for name in names} & unsafe, path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}, path


def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    (tmp_path / ".lock").symlink_to(precious)
    with pytest.raises(StorageError, match="could not be written"), lock_folder(tmp_path, tmp_path / ".lock"):
        pass
    assert precious.read_text() == "keep me"


def test_a_lock_empties_no_file(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("somebody's")
    with lock_folder(tmp_path, tmp_path / ".lock"):
        pass
    assert (tmp_path / ".lock").read_text() == "somebody's"
