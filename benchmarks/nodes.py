"""What people wait for on nodes: three of them with TLS on the loopback, and a simulation.

python benchmarks/nodes.py [--dataset demo] [--rounds 8] [--only plain|secagg|simulation ...]

`start`: from the command to the first round. `round`, `evaluate`: medians of wall seconds, by the server's clock; the
first round is left out. The row `local` is the same run in one process: what of it is compute.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from fedrecgel.engine.flower.processes import free_port

DEPLOY = Path(__file__).parents[1] / "deploy"
PROGRAM = [sys.executable, "-m", "fedrecgel"]
ENVIRONMENT = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
PATIENCE = 300.0


def timed(words: list[str], out: Path) -> dict[str, float]:
    """Run `fedrecgel train` and look at its folder meanwhile.

    Raises:
        RuntimeError: it failed.
    """
    started, lines = time.monotonic(), out / "metrics.jsonl"
    with (out.parent / f"{out.name}.log").open("w+") as log:
        process = subprocess.Popen([*words, "--out", str(out)], env=ENVIRONMENT, stdout=log, stderr=log)
        first = 0.0
        while process.poll() is None:
            if not first and lines.exists() and lines.stat().st_size:
                first = time.monotonic() - started
            time.sleep(0.02)
        if process.returncode != 0:
            log.seek(0)
            raise RuntimeError(log.read())
    rounds: list[dict[str, Any]] = [json.loads(line) for line in lines.read_text().splitlines()]
    whole = time.monotonic() - started
    ranked = [line["seconds_evaluate"] for line in rounds if line["seconds_evaluate"]]
    return {
        "start": first - rounds[0]["seconds_train"] - rounds[0]["seconds_evaluate"],
        "round": median(line["seconds_train"] for line in rounds[1:]),
        "evaluate": median(ranked),
        "all": whole,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="demo")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", nargs="+", default=["local", "simulation", "plain", "secagg"])
    args = parser.parse_args()
    train = [*PROGRAM, "train", "--dataset", args.dataset, "--rounds", str(args.rounds), "--quiet"]
    # init: nodes of few users refuse the first sums of a spectral start over plain
    for choice in ("method.fraction=0.2", "method.init=normal", "evaluation.every=4", "evaluation.full=false"):
        train += ["--set", choice]
    flower = [*train, "--engine", "flower", "--set", "flower.nodes=3"]
    print(f"load {os.getloadavg()[0]:.2f}\n{'':12}{'start':>9}{'round':>9}{'evaluate':>9}{'all':>9}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def show(what: str, words: list[str]) -> None:
            row = timed(words, folder / what)
            print(f"{what:12}" + "".join(f"{value:9.2f}" for value in row.values()), flush=True)

        if "local" in args.only:
            show("local", train)
        if "simulation" in args.only:
            show("simulation", [*flower, "--channel", "plain"])
        channels = [one for one in ("plain", "secagg") if one in args.only]
        if not channels:
            return
        port, ready = free_port(), folder / "ready"
        with ready.open("w") as log:
            words = [str(DEPLOY / "loopback.sh"), str(folder), args.dataset, str(port)]
            deployment = subprocess.Popen(words, env=ENVIRONMENT, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + PATIENCE
            while "Ready" not in ready.read_text() and time.monotonic() < deadline:
                time.sleep(0.2)
            policy = folder / "policy.toml"
            policy.write_text(policy.read_text().replace('"secagg",', '"secagg", "plain",'))
            link = [f"flower.superlink=127.0.0.1:{port}", f"flower.certificate={folder / 'keys' / 'ca.crt'}"]
            for channel in channels:
                show(channel, [*flower, "--set", link[0], "--set", link[1], "--channel", channel])
        finally:
            deployment.send_signal(signal.SIGTERM)
            deployment.wait()


if __name__ == "__main__":
    main()
