"""What bundles weigh, how fast they start, and what 8 bits cost in accuracy.

    python benchmarks/bundles.py RUN...

For finished runs: size of a bundle in both precisions; processor seconds to import its runtime, to read the bundle and
rank the catalogue once, and to rank it again, with reasons (medians of separate processes); and NDCG@10 of all users
with tables as they are and as they come back from 8 bits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

from fedrecgel.data.history import History
from fedrecgel.data.load import load_data
from fedrecgel.data.split import NO_ITEM, leave_one_out
from fedrecgel.evaluation.metrics import metrics
from fedrecgel.evaluation.ranking import Ranks, rank_against
from fedrecgel.export.bundle import Precision, write_bundle
from fedrecgel.export.rounding import as_rounded
from fedrecgel.methods.messages import Server
from fedrecgel.runs.result import Result, open_run

AT_ONCE = 200
"""Users scored together."""
ASK = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
start = time.process_time()
import fedrecgel_device
imported = time.process_time()
me = fedrecgel_device.Device(sys.argv[1])
me.add(me.bundle.ids[:5])
me.recommend(10)
ranked = time.process_time()
me.recommend(10)
print(json.dumps([imported - start, ranked - imported, time.process_time() - ranked]))
"""


def rounded(run: Result) -> Result:
    """The run with item tables as a device reads them from 8 bits."""

    def table(value: torch.Tensor) -> torch.Tensor:
        per_item = value.dim() == 2 and len(value) == len(run.item_ids) and value.shape[1] > 1
        return torch.from_numpy(as_rounded(value.numpy())) if per_item and value.is_floating_point() else value

    return replace(run, shared={name: table(value) for name, value in run.shared.items()})


def evaluate(run: Result) -> float:
    """NDCG@10 of every user's held-out item among its candidates."""
    split = leave_one_out(load_data(run.config.data), run.config.split)
    method, users = run.config.method.build(), np.flatnonzero(split.test != NO_ITEM)
    found: list[Ranks] = []
    for first in range(0, len(users), AT_ONCE):
        some = users[first : first + AT_ONCE]
        ids = torch.from_numpy(some)
        items = torch.from_numpy(np.concatenate([split.test[some, None], split.candidates[some]], 1).astype(np.int64))
        private = run.clients.of(slice(first, first + len(some)))
        scores = method.score(private, method.broadcast(Server(run.shared), ids), History(run.train, ids), items)
        found.append(rank_against(scores[:, 0], scores[:, 1:]))
    ranks = Ranks(torch.cat([some.above for some in found]), torch.cat([some.tied for some in found]))
    return metrics(ranks)["NDCG@10"]


def measure(folder: str, repeats: int) -> str:
    """One row."""
    run = open_run(folder)
    sizes, seconds = {}, []
    precisions: tuple[Precision, ...] = ("int8", "float32")
    with TemporaryDirectory() as room:
        for precision in precisions:
            sizes[precision] = write_bundle(run, Path(room) / precision, precision=precision).n_bytes / 1e6
        for _ in range(repeats):
            words = [sys.executable, "-c", ASK, str(Path(room) / "float32")]
            seconds.append(json.loads(subprocess.run(words, capture_output=True, check=True).stdout))
    imported, first, again = (median(column) for column in zip(*seconds, strict=True))
    exact, eight = evaluate(run), evaluate(rounded(run))
    return (
        f"| {run.summary['dataset']} | {run.summary['method']} | {sizes['float32']:.2f} | {sizes['int8']:.2f} "
        f"| {1e3 * imported:.0f} | {1e3 * first:.0f} | {1e3 * again:.1f} "
        f"| {100 * exact:.2f} | {100 * eight:.2f} | {100 * (eight - exact):+.2f} |"
    )


def main() -> None:
    """One row for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    args = parser.parse_args()
    print(
        "| data set | method | MB | MB in int8 | import, ms | first ranking, ms | next, ms | NDCG@10 | in int8 | cost |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for folder in args.runs:
        print(measure(folder, args.repeats), flush=True)


if __name__ == "__main__":
    main()
