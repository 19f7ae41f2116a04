"""A compiled kernel is code: it is loaded only from where nobody else can write."""

from __future__ import annotations

import os
from pathlib import Path

import pooch
import pytest

from fedrecgel.models.kernels.compiler import check_only_ours, compile_cached, compiler

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
    check_only_ours(library)
    library.chmod(file)
    place.chmod(folder)
    with pytest.raises(PermissionError, match="should be writable by its owner only"):
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
    built.chmod(0o666)  # as if somebody else had put it there
    with pytest.raises(PermissionError):
        compile_cached(SOURCE, {})
