"""Processes: a SuperLink of our own for a simulation, and submitting to it or to a running one."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedrecgel.engine.flower.settings import FlowerSettings
from fedrecgel.errors import ConfigError, RunError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Nothing is reported to anybody, and nothing is installed on the way."""
START_SECONDS = 60.0
STOP_SECONDS = 20.0
FAILED = "fedrecgel failed: "
"""Begins the line of the log that says why a run failed."""

APP = {
    "__init__.py": '"""A run of fedrecgel."""\n',
    "client_app.py": "from fedrecgel.engine.flower.apps import client_app\n"
    "from fedrecgel.experiments.flower import work_of\n\napp = client_app(work_of)\n",
    "server_app.py": "from fedrecgel.engine.flower.apps import server_app\n"
    "from fedrecgel.experiments.flower import serve\n\napp = server_app(serve)\n",
}
"""What travels to the nodes as code: a door into the package they have installed."""


def program(name: str) -> str:
    """One of Flower's commands, from this environment.

    Raises:
        ConfigError: Flower is not installed.
    """
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        raise ConfigError(
            f"The engine 'flower' needs the command '{name}'. Install it: pip install 'fedrecgel[flower]'."
        )
    return found


def environment(home: Path) -> dict[str, str]:
    """Flower's own files in a folder of ours, no telemetry, this environment's commands first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {"OMP_NUM_THREADS": "1", **os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}


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

    def submit(self, order: Mapping[str, str | bool], simulated_nodes: int | None) -> str:
        """Start a run with these settings and return its number."""
        with tempfile.TemporaryDirectory() as folder:
            write_app(Path(folder), order)
            words = ["run", folder, "link", "--format", "json"]
            if simulated_nodes is not None:
                words += ["--federation-config", f"num-supernodes={simulated_nodes} client-resources-num-cpus=1"]
            answer = _json_in(self.flwr(*words))
        if not answer.get("success"):
            raise RunError(f"The SuperLink did not take the run: {answer.get('error-message', answer)}.")
        return str(answer["run-id"])

    def status(self, run: str) -> str:
        """For example `running` or `finished:completed`."""
        runs = _json_in(self.flwr("ls", "link", "--format", "json"))["runs"]
        found = [entry["status"] for entry in runs if str(entry["run-id"]) == run]
        return str(found[0]) if found else "unknown"

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
        return reasons[-1] if reasons else "\n".join(["Its log ends with:", *lines[-12:]])


def write_app(folder: Path, order: Mapping[str, str | bool]) -> None:
    """The folder `flwr run` takes: settings and a door into the installed package."""
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
                    "config": dict(order),
                }
            }
        },
    }
    (folder / "pyproject.toml").write_text(tomli_w.dumps(about), encoding="utf-8")
    (folder / "fedrecgel_run").mkdir()
    for name, text in APP.items():
        (folder / "fedrecgel_run" / name).write_text(text, encoding="utf-8")


def _json_in(text: str) -> dict[str, Any]:
    """The JSON document in what a command printed."""
    start = text.find("{")
    try:
        found = json.loads(text[start:])
    except ValueError as error:
        raise RunError(f"Flower should have answered in JSON. It said: {text.strip()[-300:]}") from error
    return dict(found)


@contextmanager
def connected(settings: FlowerSettings) -> Iterator[Connection]:
    """A connection to the SuperLink the settings name, or to one that lives as long as this block."""
    with tempfile.TemporaryDirectory(prefix="fedrecgel-") as name:
        home = Path(name)
        if settings.superlink is not None:
            yield Connection.to(settings.superlink, home, settings.certificate)
        else:
            with _simulation(home) as address:
                yield Connection.to(address, home)


@contextmanager
def _simulation(home: Path) -> Iterator[str]:
    """A SuperLink for simulations on a free port; no process of it outlives this block."""
    port = free_port()
    words = [program("flower-superlink"), "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
    words.append("--disable-runtime-dependency-installation")
    with (home / "superlink.log").open("w") as log:
        process = subprocess.Popen(
            words,
            stdout=log,
            stderr=log,
            env=environment(home),
            cwd=home,
            start_new_session=True,  # Ctrl-C is ours to handle
            preexec_fn=_die_with_parent,
        )
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", process, home / "superlink.log")
        yield f"127.0.0.1:{port}"
    finally:
        end(process)


def node_command(
    shard: Path, superlink: str, *, certificate: Path | None, key: Path | None, port: int | None, retries: int | None
) -> list[str]:
    """The command that starts a SuperNode for a shard; without a certificate the connection is not encrypted."""
    words = [program("flower-supernode"), "--superlink", superlink, "--host", "127.0.0.1"]
    words += ["--port", str(port or free_port()), "--node-config", f'shard="{shard.resolve()}"']
    words += ["--insecure"] if certificate is None else ["--root-certificates", str(certificate)]
    words += [] if key is None else ["--auth-supernode-private-key", str(key)]
    return words + ([] if retries is None else ["--max-retries", str(retries)])


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for a SuperLink to answer.

    Raises:
        RunError: it ended, or took too long.
    """
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    raise RunError(f"The SuperLink should answer within {START_SECONDS:g} s. It said: {' '.join(lines[-3:])}")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything it started: asked first, killed after a while."""
    started = _descendants(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    deadline = time.monotonic() + STOP_SECONDS
    while (left := started.items() & _processes().items()) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid, _ in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _descendants(pid: int) -> dict[int, str]:
    """The command line of every process below this one."""
    parents, running = _table("pid=,ppid="), _processes()
    found, latest = set[int](), {pid}
    while latest:
        latest = {child for child, parent in parents.items() if int(parent) in latest}
        found |= latest
    return {child: running[child] for child in found if child in running}


def _processes() -> dict[int, str]:
    """The command line of every process."""
    return _table("pid=,args=")


def _table(columns: str) -> dict[int, str]:
    listed = subprocess.run(["ps", "-A", "-o", columns], capture_output=True, text=True, check=True).stdout
    rows = (line.split(maxsplit=1) for line in listed.splitlines())
    return {int(row[0]): row[1] for row in rows if len(row) == 2 and "<defunct>" not in row[1]}


def _die_with_parent() -> None:
    """On Linux, ask the kernel to interrupt this process when the one that started it is gone, however it went."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGINT)
