from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fedrecgel.data import download
from fedrecgel.data.download import locate
from fedrecgel.data.sources import SOURCES, Source
from fedrecgel.errors import DataError

CONTENT = b"1 1 2\n1 2 4\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Handler(SimpleHTTPRequestHandler):
    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.path == "/cut":  # promises more than it sends, as a broken connection does
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(CONTENT)
            self.close_connection = True
            return
        super().do_GET()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(download, "cache", lambda: tmp_path / "cache")
    monkeypatch.delenv("FEDRECGEL_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def served(tmp_path: Path) -> Path:
    (folder := tmp_path / "served").mkdir()
    return folder


@pytest.fixture
def server(served: Path) -> Iterator[str]:
    Handler.requests = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(served))) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def make(url: str | None, member: str | None = None) -> Source:
    return replace(SOURCES["filmtrust"], url=url, member=member, sha256=DIGEST)


def put(root: Path, content: bytes = CONTENT) -> Path:
    path = root / "filmtrust" / "ratings.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


def test_data_dir(tmp_path: Path, cache: Path) -> None:
    path = put(tmp_path / "mine")
    assert locate(make(None), tmp_path / "mine") == download.RawFile(path, DIGEST)


def test_data_dir_without_the_file_does_not_download(tmp_path: Path, cache: Path, server: str) -> None:
    put(cache)
    with pytest.raises(DataError, match="no such file") as error:
        locate(make(f"{server}/ratings.txt"), tmp_path / "mine")
    assert str(tmp_path / "mine" / "filmtrust" / "ratings.txt") in str(error.value)
    assert Handler.requests == []


def test_environment_then_cache(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDRECGEL_DATA", str(tmp_path / "mine"))
    cached = put(cache)
    assert locate(make(None)).path == cached
    mine = put(tmp_path / "mine")
    assert locate(make(None)).path == mine


@pytest.mark.parametrize("where", ["data dir", "environment", "cache"])
def test_wrong_checksum(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    root = cache if where == "cache" else tmp_path / "mine"
    path = put(root, b"something else")
    if where == "environment":
        monkeypatch.setenv("FEDRECGEL_DATA", str(root))
    with pytest.raises(DataError) as error:
        locate(make(None), root if where == "data dir" else None)
    for part in (str(path), DIGEST, hashlib.sha256(b"something else").hexdigest(), "data fetch filmtrust"):
        assert part in str(error.value)
    assert path.read_bytes() == b"something else"


def test_download_once(cache: Path, served: Path, server: str) -> None:
    (served / "ratings.txt").write_bytes(CONTENT)
    source = make(f"{server}/ratings.txt")
    for _ in range(2):
        raw = locate(source)
        assert raw.path == cache / "filmtrust" / "ratings.txt"
        assert raw.path.read_bytes() == CONTENT
        assert raw.sha256 == DIGEST
    assert Handler.requests == ["/ratings.txt"]
    assert files_below(cache) == ["filmtrust", "filmtrust/ratings.txt"]


def test_download_with_progress(cache: Path, served: Path, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    (served / "ratings.txt").write_bytes(CONTENT)
    locate(make(f"{server}/ratings.txt"), progress=True)
    assert "100%" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["ratings.txt", "inside/ratings.txt"])
def test_member_of_an_archive(cache: Path, served: Path, server: str, name: str) -> None:
    (served / "all.zip").write_bytes(archive({"other.txt": b"x", "inside/my_ratings.txt": b"y", name: CONTENT}))
    assert locate(make(f"{server}/all.zip", name)).path.read_bytes() == CONTENT
    assert files_below(cache) == ["filmtrust", "filmtrust/ratings.txt"]


@pytest.mark.parametrize(
    ("name", "content", "member", "words"),
    [
        ("ratings.txt", b"changed", None, f"should have the SHA-256 {DIGEST}"),
        ("all.zip", archive({"ratings.txt": b"changed"}), "ratings.txt", f"should have the SHA-256 {DIGEST}"),
        ("all.zip", archive({"other.txt": CONTENT}), "ratings.txt", "no ratings.txt in the archive"),
        ("all.zip", b"<html>not found</html>", "ratings.txt", "BadZipFile"),
        ("elsewhere", CONTENT, None, "HTTP status 404"),
    ],
)
def test_bad_downloads_leave_nothing(
    cache: Path, served: Path, server: str, name: str, content: bytes, member: str | None, words: str
) -> None:
    (served / name).write_bytes(content)
    file = "ratings.txt" if name == "elsewhere" else name
    with pytest.raises(DataError, match=words) as error:
        locate(make(f"{server}/{file}", member))
    assert "--data-dir" in str(error.value)
    assert files_below(cache) == []


def test_broken_connection_leaves_nothing(cache: Path, server: str) -> None:
    with pytest.raises(DataError, match="could not be downloaded"):
        locate(make(f"{server}/cut"))
    assert files_below(cache) == []


def test_offline(cache: Path, server: str) -> None:
    with pytest.raises(DataError, match=r"could not be downloaded .*--data-dir DIR"):
        locate(make("http://127.0.0.1:1/ratings.txt"))
    assert files_below(cache) == []


def test_cache_that_cannot_be_written(cache: Path, server: str) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match="could not be downloaded"):
        locate(make(f"{server}/ratings.txt"))


def test_nothing_to_download(cache: Path) -> None:
    with pytest.raises(DataError, match="cannot be downloaded automatically") as error:
        locate(SOURCES["qb-article"])
    assert "QB-article.csv" in str(error.value)


def test_unpinned_file_gets_its_own_checksum(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "qb-article" / "QB-article.csv"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    assert locate(SOURCES["qb-article"], tmp_path).sha256 == DIGEST
