"""The raw file of a named data set: from a folder of the user, from the cache, or from its publisher."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile

import pooch

from fedrecgel.data.sources.source import Source
from fedrecgel.errors import DataError

DATA_DIR_VARIABLE = "FEDRECGEL_DATA"


@dataclass(frozen=True)
class RawFile:
    """A raw file whose checksum was computed, and compared where one is known."""

    path: Path
    sha256: str


def locate(source: Source, data_dir: str | Path | None = None, *, progress: bool = False) -> RawFile:
    """Find the raw file, or download it into the cache.

    Args:
        source: which data set.
        data_dir: read `<data_dir>/<folder>/<file>` and nothing else. Without it: the same below
            `FEDRECGEL_DATA` if it is there, else the cache, else the publisher.
        progress: show a progress bar while downloading.

    Raises:
        DataError: the file is nowhere, cannot be downloaded, or is not the published one.
    """
    if data_dir is not None:
        path = _below(Path(data_dir).expanduser(), source)
        if not path.is_file():
            raise DataError(
                f"'{source.name}' should be in {path}. Found no such file. "
                f"Put it there ({source.obtain}) or leave out --data-dir."
            )
        return check(path, source)
    folder = os.environ.get(DATA_DIR_VARIABLE)
    if folder and (path := _below(Path(folder).expanduser(), source)).is_file():
        return check(path, source)
    if (path := _below(cache(), source)).is_file():
        return check(path, source)
    return _download(source, path, progress)


def cache() -> Path:
    """The folder downloads are kept in."""
    return Path(pooch.os_cache("fedrecgel"))


def check(path: Path, source: Source) -> RawFile:
    """Compare the checksum of a file with the published one.

    Raises:
        DataError: they differ.
    """
    found = sha256_of(path)
    if source.sha256 not in (None, found):
        raise DataError(
            f"{path} should have the SHA-256 {source.sha256}. Found {found}. "
            f"Delete it and get it again with `fedrecgel data fetch {source.name}` or from {source.obtain}."
        )
    return RawFile(path, found)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _below(root: Path, source: Source) -> Path:
    return root / source.folder / source.file


def _by_hand(source: Source) -> str:
    return f"Get {source.file} from {source.obtain}, put it in DIR/{source.folder}/ and pass --data-dir DIR."


def _download(source: Source, target: Path, progress: bool) -> RawFile:
    """Download next to the target, check, then move: whatever happens, no half file takes its place."""
    if source.url is None:
        raise DataError(f"'{source.name}' cannot be downloaded automatically. {_by_hand(source)}")
    pooch.get_logger().setLevel("WARNING")  # what it logs is about its own arguments
    try:
        cache().mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache()) as folder:
            fetched = pooch.retrieve(
                source.url,
                known_hash=None,  # the raw file is checked, not the archive around it
                path=folder,
                downloader=pooch.HTTPDownloader(progressbar=progress, chunk_size=1 << 16),
                processor=pooch.Unzip() if source.member else None,
            )
            path = _member(fetched, source.member) if source.member else Path(fetched)
            found = sha256_of(path)
            if source.sha256 in (None, found):
                target.parent.mkdir(exist_ok=True)
                path.replace(target)
                return RawFile(target, found)
    except (OSError, ValueError, BadZipFile) as error:
        if (response := getattr(error, "response", None)) is not None:
            response.close()  # a refused request still holds its socket
        raise DataError(
            f"'{source.name}' could not be downloaded from {source.url} ({_reason(error)}). {_by_hand(source)}"
        ) from error
    raise DataError(
        f"{source.file} from {source.url} should have the SHA-256 {source.sha256}. Found {found}, nothing was kept. "
        f"Try again; if it stays so, the publisher changed it. {_by_hand(source)}"
    )


def _member(extracted: list[str], member: str) -> Path:
    for path in map(Path, extracted):
        if path.match(member):
            return path
    raise FileNotFoundError(f"no {member} in the archive")


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP status {response.status_code}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if type(error) is FileNotFoundError else type(error).__name__
