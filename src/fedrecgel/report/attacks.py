"""What audits found out about runs: a section of the page for folders that hold an audit."""

from __future__ import annotations

from collections.abc import Iterator

from fedrecgel.audit.guesses import Finding
from fedrecgel.audit.record import AuditRecord, read_audit
from fedrecgel.audit.verdict import INCOMPLETE, NONE
from fedrecgel.display.tabular import Entry, Table
from fedrecgel.report.collect import Collected

COMMAND = "fedrecgel audit RUN"
ABOUT = (
    "A curious server, a canary and malicious clients, played against these runs. Attacks guess users' training items; "
    "the advantage is what a guess gains in F1 over one from popularity alone."
)


def audits_of(found: Collected) -> list[tuple[str, str, AuditRecord]]:
    """Label, folder and audit of every finished run that has one."""
    audits = []
    for group in found.groups:
        for record in group.records:
            audit = read_audit(found.root / record.folder)
            if audit is not None:
                label = f"{group.dataset}: {group.label}, seed {record.run['seed']}"
                audits.append((label, record.folder, audit))
    return audits


def attack_tables(found: Collected) -> Iterator[Table]:
    """What was learnt about users, and how far an item could be pushed; nothing without audits."""
    audits = audits_of(found)
    if audits:
        yield _inference(audits)
    if any(audit.promotion for _, _, audit in audits):
        yield _promotion(audits)


def _inference(audits: list[tuple[str, str, AuditRecord]]) -> Table:
    lines = []
    for label, folder, audit in audits:
        rows = {name.replace("_", " "): one for name, one in audit.attacks.items()}
        rows |= {f"sum of {n}": one for n, one in audit.sums.items()}
        lines += [_line(label, folder, audit, name, one) for name, one in rows.items()]
    columns = ["run", "channel", "attack", "F1", "popularity's F1", "advantage", "95% interval", "users"]
    notes = [f"{label}, channel {audit.channel}: {_outcome(audit)}" for label, _, audit in audits]
    notes.append("Passive attacks by a server that follows the protocol; one that finds nothing proves nothing.")
    return Table("attacks", "What the server could find out", columns, lines, notes, COMMAND)


def _line(label: str, folder: str, audit: AuditRecord, name: str, one: Finding) -> list[Entry]:
    return [
        Entry(label, hint=folder),
        Entry(audit.channel),
        Entry(name),
        Entry(f"{one.f1:.3f}", one.f1),
        Entry(f"{one.popularity_f1:.3f}", one.popularity_f1),
        Entry(f"{one.advantage:+.3f}", one.advantage),
        Entry(f"{one.low:+.3f} … {one.high:+.3f}"),
        Entry(str(one.n_clients), one.n_clients),
    ]


def _outcome(audit: AuditRecord) -> str:
    """The sentence, the cohort that sums need, what canaries and noise say, and why promotion is incomplete."""
    told = [audit.sentence]
    if audit.smallest_cohort is not None:
        told.append(f"Sums are safe from these attacks from {audit.smallest_cohort:,} clients on.")
    if audit.epsilon_lower_bound is not None and audit.epsilon_claimed is not None and audit.noise_p is not None:
        told.append(
            f"Canaries show ε of a round to be at least {audit.epsilon_lower_bound:.2f}; claimed is "
            f"{audit.epsilon_claimed:.2f}. Size of the noise: p = {audit.noise_p:.3g}."
        )
    if audit.promotion_error is not None:
        told.append(f"{INCOMPLETE if audit.promotion else NONE} {audit.promotion_error}")
    return " ".join(told)


def _defence(name: str) -> str:
    """Of a case of an audit, such as "5% limited"."""
    if name.endswith("by round"):
        return "row limits by round"
    return "row and client limits" if name.endswith("limited") else "none"


def _promotion(audits: list[tuple[str, str, AuditRecord]]) -> Table:
    lines = [
        [
            Entry(label, hint=folder),
            Entry(f"{one.malicious:.0%}", one.malicious),
            Entry(_defence(name)),
            Entry(f"{100 * one.er:.1f}", one.er),
            Entry(f"{100 * one.hr:.2f}", one.hr),
        ]
        for label, folder, audit in audits
        for name, one in audit.promotion.items()
    ]
    notes = [
        "ER@10: share of honest users, in percent, to whom malicious clients get an unpopular item recommended. HR@10: "
        "of honest users' held-out items."
    ]
    columns = ["run", "malicious", "defence", "ER@10", "HR@10"]
    return Table("promotion", "How far an item can be pushed", columns, lines, notes, COMMAND)
