"""How well users are served who took no part in training, beside the same users trained normally.

    python benchmarks/fold_in.py benchmarks/fold_in.jsonl [--runs DIR] [--datasets A,B] [--methods A,B] [--seeds N]
                                                           [--rounds N]

A tenth of the users is kept out of training, then folded in with their own rows; a second run trains with them. Both
rank their held-out items among the same candidates; so does popularity, counted without them. Each line of RECORDS
is one data set, method and seed, which also seeds the split; lines that are there are not measured again, and runs in
DIR are opened instead of trained, so that a stopped table goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import fedrecgel as fr
from fedrecgel.data.history import History
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.data.split import NO_ITEM, Split
from fedrecgel.evaluation.metrics import metrics
from fedrecgel.evaluation.ranking import Ranks, rank_against
from fedrecgel.runs.fold_in import newcomers
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.result import Result
from fedrecgel.runs.summary import source_commit

Users = npt.NDArray[np.int64]
DATASETS = ("filmtrust", "lastfm-2k-distinct", "amazon-video")
METHODS = ("spectra", "ease", "itemknn", "ials", "fedmf", "fedrecgel", "pfedrec", "fedrap")
SHARE = 10
"""One user in so many is kept out."""
ALONE = 50
"""Newcomers folded in one by one, to time them."""
SETTINGS: dict[str, Any] = {
    "evaluation": {"every": 10**6, "full": False, "reference": "off"},
    "local": {"accelerate": True},
}
"""Training is not watched; kernels change no number but by rounding."""


def keep_out(split: Split, seed: int) -> tuple[Users, Split]:
    """Some users who have something held out, and the same split without them."""
    possible = np.flatnonzero(split.test != NO_ITEM)
    out = np.sort(np.random.default_rng(seed).choice(possible, len(possible) // SHARE, replace=False))
    inside = np.setdiff1d(np.arange(split.n_users), out)
    data = split.interactions
    rows = np.isin(data.users, inside)
    part = replace(
        data,
        users=np.searchsorted(inside, data.users[rows]).astype(np.int32),
        items=data.items[rows],
        times=None if data.times is None else data.times[rows],
        user_ids=[data.user_ids[user] for user in inside],
    )
    without = replace(
        split,
        interactions=part,
        train=split.train.of(inside),
        observed=split.observed.of(inside),
        test=split.test[inside],
        candidates=split.candidates[inside],
    )
    return out, without


def trained(method: str, split: Split, seed: int, rounds: int | None, folder: Path) -> Result:
    """A finished run, from its folder as far as it is there."""
    place = RunFolder(folder)
    if place.summary.exists():
        return fr.open(folder)
    return fr.train(method, split, rounds=rounds, seed=seed, out=folder, resume=place.config.exists(), **SETTINGS)


def measure(dataset: str, method: str, seed: int, rounds: int | None, runs: Path) -> dict[str, object]:
    """One line."""
    split = fr.load(dataset).split(seed=seed)
    out, part = keep_out(split, seed)
    name = f"{dataset}-{method}-s{seed}"
    run, whole = (
        trained(method, rows, seed, rounds, runs / f"{name}-{kind}")
        for kind, rows in (("without", part), ("with", split))
    )
    rows, items = split.train.of(out), np.concatenate([split.test[out, None], split.candidates[out]], 1)
    shown = torch.from_numpy(items.astype(np.int64))
    audience = newcomers(run, rows)
    folded = audience.method.score(audience.private, audience.down, History(rows, torch.arange(len(out))), shown)
    counts = torch.from_numpy(np.bincount(part.train.items, weights=part.train.counts, minlength=split.n_items))
    ranks, at = (
        whole.ranks.against["candidates"],
        torch.from_numpy(np.searchsorted(np.flatnonzero(split.test != NO_ITEM), out)),
    )
    longest = int(rows.sizes(np.arange(len(out))).argmax())
    alone = [milliseconds(run, rows, user) for user in range(min(ALONE, len(out)))]
    return {
        "dataset": dataset,
        "method": method,
        "seed": seed,
        "users": len(out),
        "folded_in": _metrics(rank_against(folded[:, 0], folded[:, 1:])),
        "trained": _metrics(Ranks(ranks.above[at], ranks.tied[at])),
        "popularity": _metrics(rank_against(counts[shown][:, 0], counts[shown][:, 1:])),
        "ms_median": round(median(alone), 2),
        "ms_longest": round(milliseconds(run, rows, longest), 2),
        "longest": int(rows.sizes(np.array([longest]))[0]),
        "rounds": run.config.run.rounds,
        "commit": source_commit(),
    }


def milliseconds(run: Result, rows: ItemSets, user: int) -> float:
    """Processor time of folding in one newcomer: the shorter of two."""
    one, seconds = rows.of(np.array([user])), []
    for _ in range(2):
        started = time.process_time()
        newcomers(run, one)
        seconds.append(time.process_time() - started)
    return 1e3 * min(seconds)


def _metrics(ranks: Ranks) -> dict[str, float]:
    found = metrics(ranks, (10,))
    return {name: round(found[name], 6) for name in ("HR@10", "NDCG@10")}


def main() -> None:
    """Measure what is not in the records yet, cheapest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, metavar="RECORDS.jsonl")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep the trained runs here")
    parser.add_argument("--datasets", default=",".join(DATASETS), metavar="A,B")
    parser.add_argument("--methods", default=",".join(METHODS), metavar="A,B")
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    parser.add_argument("--rounds", type=int, metavar="N", help="of every run (default: as many as usual)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = args.records.read_text(encoding="utf-8").splitlines() if args.records.exists() else []
    done = {(line["dataset"], line["method"], line["seed"]) for line in map(json.loads, lines)}
    with TemporaryDirectory() as room:
        for seed in range(args.seeds):
            for dataset in args.datasets.split(","):
                for method in args.methods.split(","):
                    if (dataset, method, seed) in done:
                        continue
                    line = json.dumps(measure(dataset, method, seed, args.rounds, args.runs or Path(room)))
                    print(line, flush=True)
                    with args.records.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")


if __name__ == "__main__":
    main()
