from __future__ import annotations

import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Thread

import pytest

from fedrecgel.errors import ConfigError
from fedrecgel.export.server import LOOPBACK, PageServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "rows.bin").write_bytes(b"\x00\x01")
    (tmp_path / "secret.txt").write_text("private")
    with PageServer(folder, 0) as running:
        Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(LOOPBACK, server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_files_come_with_their_type_and_a_strict_policy(server: PageServer) -> None:
    answer, body = ask(server, "/")
    assert (answer.status, body) == (200, b"<!doctype html>")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    answer, body = ask(server, "/rows.bin")
    assert (answer.headers["Content-Type"], body) == ("application/octet-stream", b"\x00\x01")
    answer, body = ask(server, "/rows.bin", "HEAD")
    assert (answer.headers["Content-Length"], body) == ("2", b"")


@pytest.mark.parametrize("path", ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "//etc/passwd", "/none"])
def test_no_path_leads_out_of_the_folder(server: PageServer, path: str) -> None:
    answer, body = ask(server, path)
    assert answer.status == 404
    assert b"private" not in body


def test_it_is_for_this_machine_only(server: PageServer) -> None:
    assert server.server_address[0] == LOOPBACK
    assert ask(server, "/", Host="evil.example")[0].status == 421
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0].status == 200


def test_nothing_can_be_sent_to_it(server: PageServer) -> None:
    assert ask(server, "/", "POST")[0].status == 501


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port should be free. Found {port}: .*Choose another, or 0 for any"):
            PageServer(tmp_path, port)
