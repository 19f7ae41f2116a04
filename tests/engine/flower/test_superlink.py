from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from fedrecgel.engine.flower import processes
from fedrecgel.engine.flower.processes import (
    environment,
    free_port,
    keep_node,
    node_command,
    node_environment,
    program,
)
from fedrecgel.engine.flower.superlink import FAILED, ORDER, Connection, write_app
from fedrecgel.errors import ConfigError, RunError

CHILD = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(99)"
FAMILY = f"""import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], start_new_session=True)
print(child.pid, flush=True)
{CHILD}"""


def test_the_app_that_travels_is_a_door_into_the_package(tmp_path: Path) -> None:
    write_app(tmp_path)
    about = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    assert about["project"]["dependencies"] == []  # nothing is installed on the way
    app = about["tool"]["flwr"]["app"]
    assert app["config"] == ORDER
    for reference in app["components"].values():
        module, _, name = reference.partition(":")
        text = tmp_path.joinpath(*module.split(".")).with_suffix(".py").read_text()
        assert name in _names(text)


def _names(text: str) -> set[str]:
    """What a module defines or imports."""
    tree = ast.parse(text).body
    imported = {alias.name for node in tree if isinstance(node, ast.ImportFrom) for alias in node.names}
    targets = {target for node in tree if isinstance(node, ast.Assign) for target in node.targets}
    return imported | {target.id for target in targets if isinstance(target, ast.Name)}


def test_telemetry_is_off_and_flowers_files_are_in_our_folder(tmp_path: Path) -> None:
    env = environment(tmp_path)
    assert env["FLWR_TELEMETRY_ENABLED"] == env["RAY_USAGE_STATS_ENABLED"] == "0"
    assert env["FLWR_HOME"] == str(tmp_path)


@pytest.mark.parametrize("certificate", [None, "ca.crt"])
def test_a_connection_is_encrypted_if_there_is_a_certificate(certificate: str | None, tmp_path: Path) -> None:
    Connection.to("host:1", tmp_path, certificate)
    link = tomllib.loads((tmp_path / "config.toml").read_text())["superlink"]["link"]
    assert link["address"] == "host:1"
    assert ("insecure" in link) == (certificate is None)
    assert ("root-certificates" in link) == (certificate is not None)


def test_a_missing_flower_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="pip install"):
        program("flower-something")


def test_a_node_is_not_started_without_tls_by_accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "program", lambda name: name)
    settings = {"policy": tmp_path / "policy.toml", "key": tmp_path / "key", "port": 1, "retries": None}
    safe = node_command(tmp_path, "host:1", certificate=tmp_path / "ca.crt", **settings)  # type: ignore[arg-type]
    assert "--insecure" not in safe
    assert f'shard="{tmp_path}" policy="{tmp_path / "policy.toml"}" key="{tmp_path / "key"}"' in safe
    unsafe = node_command(tmp_path, "host:1", policy=None, certificate=None, key=None, port=None, retries=3)
    assert "--insecure" in unsafe
    assert f'shard="{tmp_path}"' in unsafe


def _answering(monkeypatch: pytest.MonkeyPatch, *answers: str) -> Connection:
    waiting = list(answers)
    monkeypatch.setattr(Connection, "flwr", lambda self, *words: waiting.pop(0))
    return Connection(Path())


def test_status_and_reason_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = 'Loading\n{"success": true, "runs": [{"run-id": 7, "status": "finished:failed"}]}'
    log = f"INFO x\nERROR {FAILED}the disk is full\nTraceback"
    connection = _answering(monkeypatch, listed, listed, log, "INFO started\n")
    assert connection.status("7") == "finished:failed"
    assert connection.status("8").startswith("finished")
    assert connection.failure("7") == "the disk is full"
    assert "as when its process is killed; continue with --resume. Its log ends: INFO started" in connection.failure(
        "7"
    )


def test_a_superlink_that_is_gone_is_a_failure_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = _answering(monkeypatch, '{"success": false, "error-message": "no connection"}', "nothing")
    with pytest.raises(RunError, match=r"no connection.*--resume"):
        connection.status("7")
    with pytest.raises(RunError, match="should have answered in JSON"):
        connection.status("7")


def test_what_a_node_starts_ends_with_it_however_it_went() -> None:
    """Deaf to interrupts, as a process in a long computation is."""
    psutil = pytest.importorskip("psutil", reason="needs the extra 'flower'")
    deaf = f"from {processes.__name__} import die_with_parent; import signal; die_with_parent(signal.SIGKILL); {CHILD}"
    family = FAMILY.replace(repr(CHILD), repr(f"{deaf}".replace("time.sleep", "print(1, flush=True); time.sleep")))
    process = subprocess.Popen([sys.executable, "-c", family], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    assert process.stdout.readline() == b"1\n"  # it has asked the kernel
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 30
    while processes._alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_starts_apps_on_a_node_is_ours(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="needs the extra 'flower'")
    starter = shutil.which("flower-superexec", path=node_environment(tmp_path)["PATH"])
    assert starter == str(tmp_path / "bin" / "flower-superexec")
    assert "-P -m fedrecgel.runs.node_app" in Path(starter).read_text()
    said = subprocess.run([starter, "--help"], capture_output=True, text=True, check=True).stdout
    assert "Run Flower SuperExec" in said


def test_a_node_that_is_still_counted_as_present_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "RETRY_SECONDS", 0.01)
    place = tmp_path / "lives"
    script = (
        f"import pathlib; p = pathlib.Path({str(place)!r}); n = len(p.read_text()) if p.exists() else 0; "
        f"p.write_text('x' * (n + 1)); print({processes.REFUSED!r} if n < 2 else 'bye'); raise SystemExit(n)"
    )
    said: list[str] = []
    assert keep_node([sys.executable, "-c", script], dict(os.environ), said.append, 60.0) == 2
    assert place.read_text() == "xxx"
    assert "bye\n" in said
    place.unlink()
    assert keep_node([sys.executable, "-c", script], dict(os.environ), said.append, 0.0) == 0
    assert place.read_text() == "x"


def test_ports_are_free() -> None:
    assert 0 < free_port() < 65536
