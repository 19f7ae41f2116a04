"""Real processes on loopback: a simulation, and a TLS deployment in which things are killed, one node behind nginx."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from tests.builders import random_interactions, random_split
from tests.engine.flower.curious import APP
from tests.engine.flower.inprocess import InProcess, served

from fedrecgel.engine.flower import processes, superlink
from fedrecgel.engine.flower.processes import free_port
from fedrecgel.engine.flower.superlink import Connection
from fedrecgel.runs.result import Result, open_run

pytest.importorskip("flwr", reason="needs the extra 'flower'")

psutil = pytest.importorskip("psutil", reason="needs the extra 'flower'")

NGINX = shutil.which("nginx", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))
DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
PATIENCE = 400.0
"""Seconds after which a test gives up: a loaded machine is slow, a hanging run is a bug."""
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]),
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
SETTINGS = {
    "run.dtype": "float64",
    "run.rounds": 3,
    "evaluation.full": "false",
    "evaluation.every": 3,
    "method.gmf_dim": 4,
    "method.mlp_dim": 6,
    "method.fraction": 0.5,
    "split.candidates": 30,
}


def command(data: Path, out: Path, *words: str, **settings: object) -> list[str]:
    chosen = {**SETTINGS, **{key.replace("__", "."): value for key, value in settings.items()}}
    flags = [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    fedrecgel = [sys.executable, "-m", "fedrecgel", "train", "--dataset", str(data), "--out", str(out), "--quiet"]
    return [*fedrecgel, *flags, *words]


class Done(NamedTuple):
    """How a command ended, and all it said."""

    returncode: int
    said: str


def run(words: list[str]) -> Done:
    with tempfile.TemporaryFile("w+") as output:  # not a pipe: a child that outlives it would hold it open
        code = subprocess.run(words, env=ENVIRONMENT, stdout=output, stderr=output, timeout=PATIENCE).returncode
        output.seek(0)
        return Done(code, output.read())


def wait_for(what: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


def n_rounds(out: Path) -> int:
    place = out / "metrics.jsonl"
    return len(place.read_text().splitlines()) if place.exists() else 0


def processes_with(*words: str) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=1) for line in listed.splitlines()]
    return [int(row[0]) for row in rows if len(row) == 2 and all(word in row[1] for word in words)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set as a file."""
    found, place = random_interactions(30, 150), tmp_path_factory.mktemp("data") / "tiny.csv"
    rows = [f"{user},{item}" for user, item in zip(found.users, found.items, strict=True)]
    place.write_text("\n".join(["user,item", *rows]) + "\n")
    return place


@pytest.fixture(scope="module")
def local(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The same run in one process."""
    out = tmp_path_factory.mktemp("local") / "run"
    assert run(command(data, out)).returncode == 0
    return open_run(out)


def test_a_simulation_writes_the_same_run_folder_and_leaves_no_process(
    data: Path, local: Result, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = run(command(data, out, "--engine", "flower", "--channel", "plain", flower__nodes=2))
    assert done.returncode == 0, done.said
    found = open_run(out)
    assert found.metrics == local.metrics
    assert found.reference == {}
    for name, value in local.shared.items():
        torch.testing.assert_close(found.shared[name], value, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.clients["user"], local.clients["user"], rtol=1e-9, atol=1e-9)
    assert found.recommend(local.user_ids[3], 5) is not None
    assert processes_with(str(out)) == []


class Deployment:
    """A SuperLink with TLS and three nodes whose keys it knows."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        subprocess.run([DEPLOY / "keys.sh", folder / "keys"], check=True, env=ENVIRONMENT)
        words = ["data", "shard", str(data), "--nodes", "3", "--out", str(folder / "shards")]
        words += ["--set", "split.candidates=30"]
        subprocess.run([sys.executable, "-m", "fedrecgel", *words], check=True, env=ENVIRONMENT, capture_output=True)
        (folder / "policy.toml").write_text("[policy]\nmin_users = 1\n")  # the data are tiny
        self.doors = dict.fromkeys(range(3), self.port)
        self.start_superlink()
        if NGINX:
            self.doors[2] = free_port()
            words = [str(DEPLOY / "proxy.sh"), str(folder / "keys"), "127.0.0.1", str(self.doors[2]), str(self.port)]
            self._start("proxy", words)
        for number in range(3):
            self.start_node(number)

    def _start(self, name: str, words: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                words, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def start_superlink(self) -> None:
        before = self.log("superlink").count("is ready") if "superlink" in self.running else 0
        self._start("superlink", [str(DEPLOY / "superlink.sh"), str(self.folder / "keys"), "127.0.0.1", str(self.port)])
        wait_for(lambda: self.log("superlink").count("is ready") > before, 120)

    def node_words(self, number: int, key: Path) -> list[str]:
        words = [sys.executable, "-m", "fedrecgel", "node", "--shard", str(self.folder / "shards" / f"node-{number}")]
        words += ["--superlink", f"127.0.0.1:{self.doors[number]}"]
        words += ["--certificate", str(self.folder / "keys" / "ca.crt"), "--key", str(key)]
        words += ["--policy", str(self.folder / "policy.toml")]
        return [*words, "--wait", "300"]  # a SuperLink on a busy machine forgets slowly

    def start_node(self, number: int) -> None:
        self._start(f"node-{number}", self.node_words(number, self.folder / "keys" / f"node-{number}"))

    def kill(self, name: str) -> None:
        """With all of its session, at once and without a warning."""
        with suppress(ProcessLookupError):
            os.killpg(self.running[name].pid, signal.SIGKILL)
        self.running[name].wait()

    def kill_alone(self, name: str) -> None:
        """Without those below it, which must end by themselves."""
        below = psutil.Process(self.running[name].pid).children(recursive=True)
        assert below
        self.running[name].kill()
        self.running[name].wait()
        wait_for(lambda: not any(processes._alive(child) for child in below), 60)

    def train(self, data: Path, out: Path, *words: str, **settings: object) -> list[str]:
        flower = {
            "flower__superlink": f"127.0.0.1:{self.port}",
            "flower__certificate": self.folder / "keys" / "ca.crt",
            "flower__nodes": 3,
            "flower__wait_seconds": 300,
            "flower__round_seconds": 100,
        }
        words = (*words, *(() if "--channel" in words else ("--channel", "plain")))
        return command(data, out, "--engine", "flower", *words, **{**flower, **settings})

    def close(self) -> None:
        for name in self.running:
            self.kill(name)


def on_copies(deployment: Deployment, run: Result, folder: Path) -> Result:
    """The same run in this process, on nodes with the same data and secrets."""
    places = [folder / "copies" / f"node-{number}" for number in range(3)]
    for place in places:
        shutil.copytree(deployment.folder / "shards" / place.name, place)
    return served(
        run.config, random_split(), folder / "undisturbed", InProcess(places, simulated=False), simulated=False
    )


@pytest.fixture(scope="module")
def deployment(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    started = Deployment(tmp_path_factory.mktemp("deployment"), data)
    yield started
    started.close()


@pytest.mark.xdist_group("deployment")
def test_a_node_whose_key_is_not_registered_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(stranger)], check=True)
    done = run([*deployment.node_words(0, stranger), "--wait", "0"])
    assert done.returncode != 0, done.said


@pytest.mark.xdist_group("deployment")
def test_a_failed_run_fails_with_the_words_of_the_node(deployment: Deployment, data: Path, tmp_path: Path) -> None:
    in_the_way = deployment.folder / "shards" / "node-0" / "state"  # where the node would keep what it learns
    in_the_way.write_text("")
    try:
        done = run(deployment.train(data, tmp_path / "run", flower__min_answers=1.0, flower__repeats=0))
    finally:
        in_the_way.unlink()
    assert done.returncode == 1
    assert "could not be written" in done.said


@pytest.mark.xdist_group("deployment")
def test_a_node_runs_no_app_but_its_own(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server, or whoever reaches its Control routes, submits another program."""
    wait_for(lambda: all("SuperNode ID" in deployment.log(f"node-{number}") for number in range(3)))
    place, answers = tmp_path / "ran", tmp_path / "answers"
    hostile = {name: text.format(place=str(place), answers=str(answers)) for name, text in APP.items()}
    monkeypatch.setattr(superlink, "APP", {**superlink.APP, **hostile})
    home = tmp_path / "home"
    home.mkdir()
    connection = Connection.to(f"127.0.0.1:{deployment.port}", home, str(deployment.folder / "keys" / "ca.crt"))
    run = connection.submit(superlink.ORDER)
    wait_for(lambda: answers.exists() and answers.read_text().endswith("end"))
    assert answers.read_text().count("A server should send the app that fedrecgel makes") == 3
    assert not place.exists()
    assert "Refused a run whose app is not this package's" in deployment.log("node-0")
    wait_for(lambda: connection.status(run).startswith("finished"))


@pytest.mark.xdist_group("deployment")
@pytest.mark.skipif(NGINX is None, reason="needs nginx, which .ci/run installs")
@pytest.mark.parametrize(
    ("route", "status"),
    [
        ("/v1/fleet/activate-node", 405),  # it is there, and is not for reading
        ("/v1/control/start-run", 403),
        ("/v1/runtime/acquire-task", 403),
        ("/v1/fleet/../control/list-runs", 403),
        ("/v1/fleet/%2e%2e/control/list-runs", 403),
        ("/v1/fleet/..%2fcontrol/list-runs", 403),
        ("//v1/control/list-runs", 403),
        ("/health", 403),
    ],
)
def test_the_proxy_passes_what_nodes_need_and_nothing_else(deployment: Deployment, route: str, status: int) -> None:
    trusted = ssl.create_default_context(cafile=str(deployment.folder / "keys" / "ca.crt"))
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"https://127.0.0.1:{deployment.doors[2]}{route}", context=trusted, timeout=30)
    caught.value.close()
    assert caught.value.code == status


@pytest.mark.xdist_group("deployment")
def test_kills_of_the_superlink_and_of_a_node_are_survived(deployment: Deployment, data: Path, tmp_path: Path) -> None:
    """All answers are asked for, so that after every kill the outcome must be that of an undisturbed run."""
    out = tmp_path / "run"
    patient = {"flower__min_answers": 1.0, "flower__repeats": 5}
    with (tmp_path / "train.log").open("wb") as log:
        process = subprocess.Popen(deployment.train(data, out, **patient), env=ENVIRONMENT, stdout=log, stderr=log)
    wait_for(lambda: n_rounds(out) >= 1 or process.poll() is not None)
    deployment.kill_alone("node-1")
    deployment.kill("superlink")
    assert process.wait(PATIENCE) == 1, (tmp_path / "train.log").read_text()
    finished = n_rounds(out)
    deployment.start_superlink()
    deployment.start_node(1)
    done = run(deployment.train(data, out, "--resume", **patient))
    assert done.returncode == 0, done.said
    found = open_run(out)
    assert 1 <= finished < 3
    undisturbed = on_copies(deployment, found, tmp_path)
    assert found.metrics == undisturbed.metrics
    for name, value in undisturbed.shared.items():
        torch.testing.assert_close(found.shared[name], value, rtol=1e-9, atol=1e-9)
    state = deployment.folder / "shards" / "node-1" / "state"
    rounds = [path.name for path in state.glob("*-fedrecgel/round-*.safetensors")]
    assert len(rounds) >= 2, "the restarted node went on with the files it had"
    assert json.loads((out / "summary.json").read_text())["rounds"] == 3
