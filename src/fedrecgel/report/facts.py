"""Tables of what stands behind the results: generalisation, data, protocol, privacy, environment, runs."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from fedrecgel.channels.registry import what_it_shows
from fedrecgel.display.tabular import Entry, Table
from fedrecgel.methods import method_label
from fedrecgel.report.collect import Collected, Group
from fedrecgel.studies.cells import SHOWN, shown_name


def generalisation_table(found: Collected) -> Table | None:
    """Training and held-out loss of every configuration that has them, and the bound."""
    lines = []
    for group in found.groups:
        known = [record.generalisation for record in group.records if record.generalisation is not None]
        if not known:
            continue
        train, heldout = (fmean(item[name] for item in known) for name in ("train_loss", "heldout_loss"))
        bounds = [item["bound"] for item in known if item["bound"] is not None]
        vacuous = any(item["vacuous"] for item in known if item["vacuous"] is not None)
        config, run = group.records[0].config, group.first
        method, held_out = config["method"], "test, validation" if config["split"]["validation"] else "test"
        lines.append(
            [
                Entry(f"{group.dataset}: {group.label}", hint=_folders(group)),
                Entry(held_out),
                Entry(f"{run['rounds']} × {method['fraction']:g}", run["rounds"] * method["fraction"]),
                Entry(f"{train:.4f}", train),
                Entry(f"{heldout:.4f}", heldout),
                Entry(f"{heldout - train:+.4f}", heldout - train),
                Entry(f"{fmean(bounds):,.0f}" + (" (vacuous)" if vacuous else ""), fmean(bounds))
                if bounds
                else Entry("–"),
                Entry(str(len(known)), len(known)),
            ]
        )
    columns = [
        "run",
        "items held out",
        "rounds × share",
        "training loss",
        "held-out loss",
        "gap",
        "Lemma 2 bound",
        "seeds",
    ]
    notes = [
        "Binary cross-entropy per example, mean over clients and seeds: training items and fresh negatives of one more "
        "round; the held-out item and four of its candidates.",
        "The bound is the right-hand side of Lemma 2 with confidence 95%, where both radii are positive. A vacuous "
        "bound is above the largest loss of any client: it says nothing.",
    ]
    return (
        Table("generalisation", "Training loss, held-out loss and the bound", columns, lines, notes) if lines else None
    )


def data_table(found: Collected) -> Table | None:
    """Sizes and traps of the data sets."""
    lines = [
        [
            Entry(name, hint=str(facts["source"])),
            *(Entry(f"{facts[key]:,}", facts[key]) for key in ("users", "items", "interactions", "duplicate_pairs")),
            *(Entry(f"{facts[key]:.1%}", facts[key]) for key in ("heldout_in_train", "tied_latest", "ceiling")),
            Entry(str(facts["ties"])),
        ]
        for name, facts in found.data.items()
    ]
    columns = ["data set", "users", "items", "interactions", "repeated pairs", "held-out item also trained"]
    columns += ["several rows at the latest time", "ceiling", "held out"]
    notes = ["Ceiling: users whose held-out item somebody trains on. No method can learn to rank the others' items."]
    return Table("data", "Data sets and their traps", columns, lines, notes) if lines else None


def protocol_table(found: Collected) -> Table:
    """What was trained on and tested, one row for each way that occurs."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for record in found.finished:
        protocol = record.run["protocol"]
        key = (
            shown_name(record.run["dataset"]),
            protocol["split"],
            protocol["ties"],
            str(protocol["candidates"]),
            protocol["negatives"],
            protocol["equal_scores"],
            protocol["selection"],
        )
        rows.setdefault(key, []).append(protocol["fingerprint"][:12])
    columns = ["data set", "split", "held out", "candidates", "training negatives", "equal scores", "reported round"]
    lines = [
        [*map(Entry, key), Entry(", ".join(sorted(set(splits)))), Entry(str(len(splits)), len(splits))]
        for key, splits in rows.items()
    ]
    return Table("protocol", "Protocol", [*columns, "split fingerprints", "runs"], lines)


def privacy_table(found: Collected) -> Table:
    """What leaves the device, and how much of it."""
    lines, seen = [], set()
    for group in found.shown_groups:
        key = (group.dataset, group.method, group.first["privacy"]["channel"])
        if key in seen:
            continue
        seen.add(key)
        up, down = (group.records[0].traffic(way) for way in ("up", "down"))
        leaves = group.first["privacy"]["leaves_device"]
        lines.append(
            [
                Entry(f"{group.dataset}: {group.label}", hint=_folders(group)),
                Entry(f"{up / 1e6:.2f} MB", up),
                Entry(f"{down / 1e6:.2f} MB", down),
                Entry(group.first["privacy"]["channel"]),
                Entry(", ".join(leaves)),
                Entry(what_it_shows(group.first["privacy"]["channel"])),
            ]
        )
    columns = ["method", "up per client and round", "down per client and round", "channel", "leaves the device"]
    return Table("privacy", "What leaves the device", [*columns, "the server sees"], lines)


def environment_table(found: Collected) -> Table:
    """Versions, commits and machine."""
    versions = {f"{key} {value}" for record in found.finished for key, value in record.run["versions"].items()}
    commits = {str(record.run["commit"]) for record in found.finished}
    seconds = sum(record.run["seconds"]["total"] for record in found.finished)
    facts = {
        "versions": ", ".join(sorted(versions)),
        "commits": ", ".join(sorted(commits)),
        **{key: str(value) for key, value in found.environment.items() if key not in ("python", "torch", "commit")},
        "finished runs": str(len(found.finished)),
        "time of all runs": f"{seconds / 60:.1f} min",
    }
    return Table("environment", "Environment", ["what", "value"], [[Entry(k), Entry(v)] for k, v in facts.items()])


def runs_table(found: Collected) -> Table:
    """Every run, finished or failed: where each number comes from, and with which settings."""
    labels = {record.folder: group.label for group in found.groups for record in group.records}
    lines = []
    for record in sorted(found.records, key=lambda record: record.folder):
        config = record.config
        seed, rounds = config["run"]["seed"], config["run"]["rounds"]
        label = labels.get(record.folder, method_label(str(config["method"]["name"])))
        settings = Entry(_settings(config["method"]))
        name = [Entry(label, hint=record.folder), Entry(str(seed), _value(seed)), Entry(str(rounds), _value(rounds))]
        if record.summary is None:
            lines.append(
                [
                    *name,
                    Entry("failed"),
                    Entry("–"),
                    Entry("–"),
                    settings,
                    Entry(record.folder),
                    Entry(record.error or ""),
                ]
            )
            continue
        hr, ndcg = (record.summary["metrics"].get(metric) for metric in SHOWN)
        seconds = record.summary["seconds"]["total"]
        shown = "–" if hr is None or ndcg is None else f"{100 * hr:.2f} / {100 * ndcg:.2f}"
        commit = str(record.summary["commit"] or "installed")
        lines.append(
            [
                *name,
                Entry(shown, hr),
                Entry(f"{seconds:.1f}", seconds),
                Entry(commit[:10], hint=commit),
                settings,
                Entry(record.folder),
                Entry(""),
            ]
        )
    columns = ["run", "seed", "rounds", " / ".join(SHOWN), "seconds", "commit", "settings", "folder", "error"]
    return Table("runs", "Every run", columns, lines)


def _settings(method: Mapping[str, object]) -> str:
    """All hyper-parameters in a line."""
    return ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in method.items()
    )


def _value(setting: object) -> float | None:
    """What a setting is sorted by, if it is a number, which a file of settings need not keep to."""
    return setting if isinstance(setting, int | float) else None


def _folders(group: Group) -> str:
    return ", ".join(record.folder for record in group.records)
