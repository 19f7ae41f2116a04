"""The attacks of docs/privacy.md: every method on real data, over single uploads and over sums, and promotion.

    python benchmarks/attacks.py results/attacks [--datasets A,B] [--methods A,B] [--seeds N] [--tables]

Trains what is missing below the folder, audits it with `fedrecgel audit`, and prints the two tables of the page from
the run folders. Folders that have an audit are not run again; `--tables` runs nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrecgel.audit.guesses import Finding
from fedrecgel.audit.record import AuditRecord, read_audit
from fedrecgel.cli.main import main as fedrecgel

DATASETS = ("filmtrust", "lastfm-2k-distinct", "amazon-video")
METHODS = ("popularity", "fedmf", "fedncf", "fedncf-weights", "pfedrec", "fedrap", "fedrecgel", "spectra")
PUSHED = ("fedmf", "fedrecgel")
"""Methods in which promotion is tried."""
SUMS = (2, 10, 50, 100, 200)
SPECTRA_RANK = 32
"""Of Spectra under `secagg`, where so few users hide each other; Amazon-Video has enough for its own."""
ROUNDS = 20
MALICIOUS = ("1%", "5%")
"""Shares of clients, as audits name them; each case is compared with nobody, `HONEST`."""
HONEST = "0%"
LIMITS = {"": "none", " limited": "fixed", " limited by round": "by round"}


def commands(
    root: Path, datasets: Sequence[str], methods: Sequence[str], seeds: int
) -> Iterator[tuple[Path, bool, list[str]]]:
    """Folder, whether promotion is tried, and the words of `fedrecgel train`."""
    for dataset in datasets:
        for method in methods:
            for channel in ("plain", "secagg"):
                words = ["--dataset", dataset, "--method", method, "--channel", channel]
                if method == "spectra":
                    small = channel == "secagg" and dataset != "amazon-video"
                    words += ["--set", f"method.rank={SPECTRA_RANK}"] if small else []
                else:
                    words += ["--rounds", "1"]
                yield root / "audits" / f"{dataset}-{method}-{channel}", False, words
        for method in sorted(set(PUSHED) & set(methods)):
            for seed in range(seeds):
                words = ["--dataset", dataset, "--method", method, "--rounds", str(ROUNDS), "--seed", str(seed)]
                yield root / "promotion" / f"{dataset}-{method}-s{seed}", True, words


def carry_out(folder: Path, pushed: bool, words: Sequence[str]) -> None:
    """Train, unless it is done, and audit."""
    if not (folder / "summary.json").exists():
        code = fedrecgel(["train", *words, "--out", str(folder), "--quiet", "--set", "evaluation.full=false"])
        if code != 0:
            raise SystemExit(f"{folder.name} could not be trained.")
    if read_audit(folder) is None:
        with contextlib.redirect_stdout(io.StringIO()):
            code = fedrecgel(["audit", str(folder), *([] if pushed else ["--no-promotion"])])
        if code != 0:
            raise SystemExit(f"{folder.name} could not be audited.")


def best(record: AuditRecord) -> Finding:
    """The attack that gains most."""
    return max(record.attacks.values(), key=lambda one: one.advantage)


def histories(root: Path, datasets: Sequence[str], methods: Sequence[str]) -> Iterator[str]:
    """What the server learns of histories: over single uploads, over the run's own sums, and over smaller ones."""
    yield "| method | data | F1, advantage of single uploads | " + " | ".join(map(str, SUMS)) + " | the run's own sum |"
    yield "|---|---|---|" + "---|" * len(SUMS) + "---|"
    for method in methods:
        for dataset in datasets:
            single, summed = (
                read_audit(root / "audits" / f"{dataset}-{method}-{channel}") for channel in ("plain", "secagg")
            )
            if single is None or summed is None:
                continue
            cells = [f"{best(single).f1:.2f}, {best(single).advantage:+.2f}"]
            cells += [f"{summed.sums[str(n)].advantage:.2f}" if str(n) in summed.sums else "–" for n in SUMS]
            own = best(summed)
            cells += [f"{own.advantage:+.3f} [{own.low:+.3f}, {own.high:+.3f}] of {summed.cohort:,}"]
            yield f"| `{method}` | {dataset} | " + " | ".join(cells) + " |"


def promotions(root: Path, datasets: Sequence[str], seeds: int) -> Iterator[str]:
    """ER@10 and HR@10 by limits and share of malicious clients: the mean over seeds, and the range of ER@10."""
    columns = [f"{metric} at {share}" for metric in ("ER@10", "HR@10") for share in MALICIOUS]
    yield f"| data, method | limits | HR@10, nobody malicious | {' | '.join(columns)} |"
    yield "|---|---|" + "---:|" * (1 + len(columns))
    incomplete = []
    for dataset in datasets:
        for method in PUSHED:
            folders = [root / "promotion" / f"{dataset}-{method}-s{seed}" for seed in range(seeds)]
            records = {folder.name: record for folder in folders if (record := read_audit(folder)) is not None}
            found = [record.promotion for record in records.values() if is_complete(record)]
            incomplete += [name for name, record in records.items() if not is_complete(record)]
            for key, name in LIMITS.items() if found else ():
                hr = {
                    share: 100 * sum(one[share + key].hr for one in found) / len(found)
                    for share in (HONEST, *MALICIOUS)
                }
                ers = {share: sorted(100 * one[share + key].er for one in found) for share in MALICIOUS}
                shown = [f"{sum(all_) / len(all_):.1f} ({all_[0]:.0f} to {all_[-1]:.0f})" for all_ in ers.values()]
                cells = [f"{hr[HONEST]:.1f}", *shown, *(f"{hr[share]:.1f}" for share in MALICIOUS)]
                what = f"{dataset}, `{method}`" if not key else ""
                yield f"| {what} | {name} | {' | '.join(cells)} |"
    if incomplete:
        yield f"\nLeft out, as their audits do not have every case: {', '.join(incomplete)}."


def is_complete(record: AuditRecord) -> bool:
    """Whether promotion was tried in every case of the table."""
    return {share + key for share in (HONEST, *MALICIOUS) for key in LIMITS} <= record.promotion.keys()


def main() -> None:
    """Run, then print the tables."""
    parser = argparse.ArgumentParser(description="The attacks of docs/privacy.md.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=3, help="of promotion")
    parser.add_argument("--tables", action="store_true", help="run nothing")
    args = parser.parse_args()
    datasets, methods = args.datasets.split(","), args.methods.split(",")
    if not args.tables:
        for folder, pushed, words in commands(args.folder, datasets, methods, args.seeds):
            print(folder.name, flush=True)
            carry_out(folder, pushed, words)
    print("\n".join([*histories(args.folder, datasets, methods), "", *promotions(args.folder, datasets, args.seeds)]))


if __name__ == "__main__":
    main()
