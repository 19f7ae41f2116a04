"""A compiled kernel is code: it is loaded only from where nobody else can write."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pooch
import pytest

from fedrecgel.models.kernels.compiler import Recipe, check_only_ours, compile_cached, compiler, library, state_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")
SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.mark.parametrize(("folder", "file"), [(0o700, 0o666), (0o777, 0o600), (0o770, 0o600)])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, folder: int, file: int) -> None:
    place = tmp_path / "native"
    place.mkdir()
    library = place / "kernel.so"
    library.touch()
    place.chmod(0o700)
    library.chmod(0o600)
    check_both(library)
    library.chmod(file)
    place.chmod(folder)
    with pytest.raises(PermissionError, match="should be writable by its owner only"):
        check_both(library)


def check_both(library: Path) -> None:
    check_only_ours(library.parent)
    check_only_ours(library)


@pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    library = tmp_path / "kernel.so"
    library.touch(mode=0o600)
    os.chown(library, 12345, 12345)
    with pytest.raises(PermissionError, match="should belong to this user"):
        check_only_ours(library)


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler at run time")
def test_a_planted_library_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path)
    built = compile_cached(SOURCE, {})
    assert compile_cached(SOURCE, {}) == built
    assert built.parent.stat().st_mode & 0o777 == 0o700
    assert ctypes.CDLL(str(built)).answer() == 42
    written, whole = built.stat().st_mtime_ns, built.read_bytes()
    compile_cached(SOURCE, {})
    assert built.stat().st_mtime_ns == written, "once is enough"
    built.unlink()  # a loaded library must not change under the process that has it
    built.write_bytes(b"something else")
    built.chmod(0o600)
    compile_cached(SOURCE, {})
    assert built.read_bytes() == whole, "a file that is not the one it built is built again"
    built.chmod(0o666)  # as if somebody else had put it there
    with pytest.raises(PermissionError):
        compile_cached(SOURCE, {})


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler at run time")
def test_what_does_not_compile_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path)
    monkeypatch.setattr(Recipe, "source", "rubbish")
    recipe = Recipe("neumf.cpp", ())
    assert state_of(recipe) == "new"
    library.cache_clear()
    assert library(recipe) is None
    assert state_of(recipe) == "failed"


BUILD = """
import pathlib, sys, pooch
pooch.os_cache = lambda name: pathlib.Path(sys.argv[1])
from fedrecgel.models.kernels.compiler import compile_cached
print(compile_cached(sys.argv[2], {}))
"""


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler at run time")
def test_two_processes_build_one_library(tmp_path: Path) -> None:
    words = [sys.executable, "-c", BUILD, str(tmp_path), SOURCE]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    places = {process.communicate()[0].strip() for process in both}
    (place,) = places
    assert ctypes.CDLL(place).answer() == 42
    assert {path.suffix for path in (tmp_path / "native").iterdir()} == {".so", ".sha256", ".lock"}
