"""A web server for one exported folder: this machine only, its files only, nothing written down."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedrecgel.errors import ConfigError

LOOPBACK = "127.0.0.1"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
}
"""Everything else is a table."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Sent with every answer."""


class PageServer(ThreadingHTTPServer):
    """Serves the files that are in a folder when it starts.

    Raises:
        ConfigError: the port is taken or is none.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        self.files = {f"/{path.name}": path for path in folder.iterdir() if path.is_file()}
        self.files["/"] = folder / "index.html"
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"--port should be free. Found {port}: {str(error).rstrip('.')}. Choose another, or 0 for any."
            ) from error

    @property
    def address(self) -> str:
        """What a browser opens."""
        return f"http://{LOOPBACK}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    """Looks names up in a table, so no path leads out of the folder."""

    server: PageServer
    server_version, sys_version = "fedrecgel", ""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            # A name of somebody else's that leads to the loopback would let their page read this one.
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        path = self.server.files.get(self.path.partition("?")[0])
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content = path.read_bytes()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", TYPES.get(path.suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Who looked at what is nobody's business."""
