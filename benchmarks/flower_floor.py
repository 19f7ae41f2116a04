"""How long Flower itself takes for a round: an app that answers nothing to nothing, on three nodes with TLS.

python benchmarks/flower_floor.py [--nodes 3] [--rounds 8]

Flower as it comes: its SuperLink, its SuperNodes, TLS and node keys on the loopback, an app that imports Flower alone.
A round is one empty message to each node and its empty answer, by the server app's own clock; `benchmarks/nodes.py` has
the rounds of ours beside it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import tomli_w

from fedrecgel.engine.flower.processes import environment, free_port, program
from fedrecgel.engine.flower.superlink import Connection

DEPLOY = Path(__file__).parents[1] / "deploy"
PATIENCE = 300.0
SERVER = '''"""Empty messages to all nodes, timed."""
import time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < context.run_config["nodes"]:
        time.sleep(0.2)
    seconds = []
    for _ in range(context.run_config["rounds"]):
        started = time.monotonic()
        nothing = RecordDict({"a": ConfigRecord({"b": 0})})
        messages = [Message(nothing, dst_node_id=node, message_type="query") for node in nodes]
        answers = list(grid.send_and_receive(messages, timeout=120))
        assert len(answers) == len(nodes) and not any(one.has_error() for one in answers)
        seconds.append(time.monotonic() - started)
    Path(context.run_config["out"]).write_text(" ".join(map(str, seconds)))
'''
CLIENT = '''"""An empty answer."""
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.query()
def query(message, context):
    return Message(RecordDict({"a": ConfigRecord({"b": 0})}), reply_to=message)
'''


def write_empty_app(folder: Path, order: dict[str, str | int]) -> None:
    """The folder that `flwr run` takes."""
    components = {"serverapp": "empty_app.server:app", "clientapp": "empty_app.client:app"}
    about = {
        "project": {"name": "empty-app", "version": "1.0.0", "dependencies": []},
        "tool": {"flwr": {"app": {"publisher": "nobody", "components": components, "config": order}}},
    }
    (folder / "empty_app").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(tomli_w.dumps(about))
    for name, text in {"__init__": "", "server": SERVER, "client": CLIENT}.items():
        (folder / "empty_app" / f"{name}.py").write_text(text)


def wait_for(what: str, file: Path) -> str:
    """The text of a file once it has these words.

    Raises:
        TimeoutError: it has not.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if file.exists() and what in (text := file.read_text()):
            return text
        time.sleep(0.2)
    raise TimeoutError(f"'{what}' does not come in {file.name}: {file.read_text() if file.exists() else 'no file'}")


def main() -> None:
    """Print the seconds of every round, and their median without the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        keys, log, out = folder / "keys", folder / "superlink.log", folder / "seconds"
        env = environment(folder)

        def start(words: list[str], log: Path) -> None:
            with log.open("wb") as file:
                started.append(subprocess.Popen(words, env=env, stdout=file, stderr=file, start_new_session=True))

        subprocess.run([DEPLOY / "keys.sh", keys, "DNS:localhost,IP:127.0.0.1", str(args.nodes)], check=True, env=env)
        try:
            start([str(DEPLOY / "superlink.sh"), str(keys), "127.0.0.1", str(port)], log)
            wait_for("is ready", log)
            for number in range(args.nodes):
                words = [program("flower-supernode"), "--superlink", f"127.0.0.1:{port}"]
                words += ["--root-certificates", str(keys / "ca.crt"), "--port", str(free_port())]
                words += ["--auth-supernode-private-key", str(keys / f"node-{number}")]
                start(words, folder / f"node-{number}.log")
            link = Connection.to(f"127.0.0.1:{port}", folder, str(keys / "ca.crt"))
            write_empty_app(folder / "app", {"nodes": args.nodes, "rounds": args.rounds, "out": str(out)})
            link.flwr("run", str(folder / "app"), "link")
            seconds = [float(one) for one in wait_for(" ", out).split()]
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGTERM)
            for process in started:
                process.wait()
    print(f"load {os.getloadavg()[0]:.2f}; seconds: {' '.join(f'{one:.2f}' for one in seconds)}")
    print(f"median of {args.rounds - 1}: {median(seconds[1:]):.2f} s")


if __name__ == "__main__":
    main()
