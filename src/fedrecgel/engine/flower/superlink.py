"""Submitting runs to a SuperLink, and watching them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedrecgel.engine.flower.processes import environment, program
from fedrecgel.errors import RunError

FAILED = "fedrecgel failed: "
"""Begins the line of the log that says why a run failed."""

APP = {
    "__init__.py": '"""A run of fedrecgel."""\n',
    "client_app.py": "from fedrecgel.runs.node_app import app\n\n__all__ = ['app']\n",
    "server_app.py": "from fedrecgel.engine.flower.apps import server_app\n"
    "from fedrecgel.runs.flower import serve\n\napp = server_app(serve)\n",
}
"""What travels to the nodes as code: a door into the package they have installed. Real nodes know it by its hash, so it
is the same for every run; what a run is about travels as its config."""
ORDER: Mapping[str, str | bool] = {"config": "", "folder": "", "resume": False, "hosts": ""}
"""What a run's config holds, each overridden by the run."""


@dataclass(frozen=True)
class Connection:
    """A SuperLink that runs can be submitted to."""

    home: Path
    """Holds the config.toml that names it."""

    @classmethod
    def to(cls, address: str, home: Path, certificate: str | None = None) -> Connection:
        """A connection to HOST:PORT."""
        safety = {"insecure": True} if certificate is None else {"root-certificates": str(Path(certificate).resolve())}
        named = {"default": "link", "link": {"address": address, **safety}}
        (home / "config.toml").write_text(tomli_w.dumps({"superlink": named}), encoding="utf-8")
        return cls(home)

    def flwr(self, *words: str) -> str:
        """Run a `flwr` command and return what it prints.

        Raises:
            RunError: it failed.
        """
        done = subprocess.run([program("flwr"), *words], capture_output=True, text=True, env=environment(self.home))
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise RunError(f"`flwr {words[0]}` failed: {said[-1] if said else 'it said nothing'}.")
        return done.stdout

    def submit(self, order: Mapping[str, str | bool]) -> str:
        """Start a run with these settings and return its number."""
        with tempfile.TemporaryDirectory() as folder:
            write_app(Path(folder))
            about = self.home / "order.toml"
            about.write_text(tomli_w.dumps(order), encoding="utf-8")
            words = ["run", folder, "link", "--format", "json", "--run-config", str(about)]
            answer = _json_in(self.flwr(*words))
        if not answer.get("success"):
            raise RunError(f"The SuperLink did not take the run: {answer.get('error-message', answer)}.")
        return str(answer["run-id"])

    def status(self, run: str) -> str:
        """For example `running` or `finished:completed`."""
        answer = _json_in(self.flwr("ls", "link", "--format", "json"))
        if "runs" not in answer:
            raise RunError(
                f"The SuperLink should say how the run is doing. It does not answer: {answer.get('error-message')}. "
                f"Start it again if it ended, then continue with --resume."
            )
        found = [entry["status"] for entry in answer["runs"] if str(entry["run-id"]) == run]
        return str(found[0]) if found else "finished: the SuperLink has forgotten it"

    @contextmanager
    def following(self, run: str) -> Iterator[subprocess.Popen[bytes]]:
        """A process that ends when the run does: asking for the status takes a second, so it is asked seldom."""
        words = [program("flwr"), "log", run, "link", "--stream"]
        with (self.home / "run.log").open("wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, env=environment(self.home))
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def stop(self, run: str) -> None:
        """End a run at once."""
        self.flwr("stop", run, "link")

    def failure(self, run: str) -> str:
        """Why a run failed, in its own words."""
        lines = self.flwr("log", run, "link", "--show").splitlines()
        reasons = [line.split(FAILED, 1)[1].strip() for line in lines if FAILED in line]
        if reasons:
            return reasons[-1]
        last = " / ".join(line.strip() for line in lines[-5:] if line.strip())
        return f"It gave no reason, as when its process is killed; continue with --resume. Its log ends: {last}"


def app_files() -> dict[str, str]:
    """The files of the app by name: a door into the installed package."""
    about = {
        "project": {"name": "fedrecgel-run", "version": "1.0.0", "dependencies": []},
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedrecgel",
                    "components": {
                        "serverapp": "fedrecgel_run.server_app:app",
                        "clientapp": "fedrecgel_run.client_app:app",
                    },
                    "config": dict(ORDER),
                }
            }
        },
    }
    return {"pyproject.toml": tomli_w.dumps(about)} | {f"fedrecgel_run/{name}": text for name, text in APP.items()}


def write_app(folder: Path) -> None:
    """The folder `flwr run` takes."""
    (folder / "fedrecgel_run").mkdir()
    for name, text in app_files().items():
        (folder / name).write_text(text, encoding="utf-8")


def _json_in(text: str) -> dict[str, Any]:
    """The JSON document in what a command printed."""
    start = text.find("{")
    try:
        found = json.loads(text[start:])
    except ValueError as error:
        raise RunError(f"Flower should have answered in JSON. It said: {text.strip()[-300:]}") from error
    return dict(found)


@contextmanager
def connected(superlink: str, certificate: str | None) -> Iterator[Connection]:
    """A connection to a running SuperLink, HOST:PORT."""
    with tempfile.TemporaryDirectory(prefix="fedrecgel-") as home:
        yield Connection.to(superlink, Path(home), certificate)
