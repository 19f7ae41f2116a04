"""Flower's commands as processes of ours: started quietly, watched, and ended with all they started."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrecgel.errors import ConfigError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Nothing is reported to anybody, and nothing is installed on the way."""
START_SECONDS = 60.0
STOP_SECONDS = 20.0
STARTER = "flower-superexec"
"""Flower's process below a node that has another started for every message."""
REFUSED = "Failed to activate SuperNode"
"""What a SuperNode says when the SuperLink does not take it."""
RETRY_SECONDS = 5.0


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


def node_environment(home: Path) -> dict[str, str]:
    """The same for a node, which finds a command of ours where it looks for Flower's that starts apps.

    Flower's own runs whatever code the server sends, imports torch for every message, and outlives a killed node where
    nobody collects ended processes.
    """
    place = home / "bin"
    place.mkdir(parents=True, exist_ok=True)
    # -P: the folder that a node is started in is no place to import from
    script = f'#!/bin/sh\nexec {shlex.join([sys.executable, "-P", "-m", "fedrecgel.runs.node_app"])} "$@"\n'
    (place / STARTER).write_text(script, encoding="utf-8")
    (place / STARTER).chmod(0o755)
    found = environment(home)
    return {**found, "PATH": os.pathsep.join([str(place.resolve()), found["PATH"]])}


def node_command(
    shard: Path,
    superlink: str,
    *,
    policy: Path | None,
    certificate: Path | None,
    key: Path | None,
    port: int | None,
    retries: int | None,
) -> list[str]:
    """The command that starts a SuperNode for a shard; without a certificate the connection is not encrypted."""
    named = {"shard": shard, "policy": policy, "key": key}
    own = " ".join(f'{name}="{path.resolve()}"' for name, path in named.items() if path is not None)
    program("flower-supernode")  # says what to install where there is none
    words = [sys.executable, "-P", "-c", "from fedrecgel.engine.flower.supernode import run_supernode; run_supernode()"]
    words += ["--superlink", superlink, "--host", "127.0.0.1"]
    words += ["--port", str(port or free_port()), "--node-config", own]
    words += ["--insecure"] if certificate is None else ["--root-certificates", str(certificate)]
    words += [] if key is None else ["--auth-supernode-private-key", str(key)]
    return words + ([] if retries is None else ["--max-retries", str(retries)])


def keep_node(words: list[str], env: dict[str, str], say: Callable[[str], object], wait_seconds: float) -> int:
    """Run a SuperNode until it ends, passing on its output; returns its exit code.

    A SuperLink counts a killed node as present for a minute and refuses it until then, in the words it has for an
    unknown key. So a refused node is started again for a while.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        process = subprocess.Popen(
            words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent
        )
        refused = threading.Event()
        listener = threading.Thread(target=_listen, args=(process, say, refused), daemon=True)
        listener.start()  # not here: a process below the node may hold its output open until the node is waited for
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        listener.join(STOP_SECONDS)
        if not refused.is_set() or time.monotonic() > deadline:
            return code
        say("The SuperLink does not know this key, or counts the node's last life as present still; trying again.\n")
        time.sleep(RETRY_SECONDS)


def _listen(process: subprocess.Popen[str], say: Callable[[str], object], refused: threading.Event) -> None:
    if process.stdout is not None:
        with process.stdout as lines:
            for line in lines:
                say(line)
                if REFUSED in line:
                    refused.set()


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _alive(process: Any) -> bool:
    """Whether a `psutil.Process` runs; one that ended and that nobody waits for, as in many containers, does not."""
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def die_with_parent(how: signal.Signals = signal.SIGINT) -> None:
    """On Linux, ask the kernel to interrupt this process when the one that started it is gone, however it went."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, how)
