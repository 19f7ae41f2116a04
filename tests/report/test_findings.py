"""The sentences say what the tests of reduced experiments say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.documents import ABOVE, document_of, row_of

from fedrecgel.report.collect import Collected
from fedrecgel.report.findings import findings_of
from fedrecgel.studies.ablation import Ablation, AblationRow
from fedrecgel.studies.cells import Against, Cell
from fedrecgel.studies.experiment import Document
from fedrecgel.studies.main_table import MainTable
from fedrecgel.studies.quirks import QuirkRow, Quirks
from fedrecgel.studies.sensitivity import Point, Sensitivity
from fedrecgel.studies.statistics import Comparison

BELOW = replace(ABOVE, difference=-0.1, low=-0.15, high=-0.05)
OPEN = replace(ABOVE, low=-0.05, high=0.25, p_adjusted=0.3)
ALIKE = replace(ABOVE, difference=0.001, low=-0.01, high=0.012, p_adjusted=0.8)
FEW_SEEDS = replace(ABOVE, seeds=3)


def main_of(**found: Comparison) -> MainTable:
    """Methods against popularity, on data set shop."""
    rows = [row_of("shop", "popularity", 0.6)]
    for method, result in found.items():
        cell = Cell(0.6 + result.difference, None, popularity=result)
        rows.append(replace(row_of("shop", method, 0.5), cells={"candidates": {"HR@10": cell}}))
    return document_of(*rows)


def _among(found: Comparison) -> dict[Against, dict[str, Comparison]]:
    return {"candidates": {"NDCG@10": found}}


def sentences(main: MainTable | None = None, **others: Document) -> list[str]:
    told: dict[str, Document] = {"main-table": main or main_of(fedncf=ABOVE), **others}
    documents = {name: [document] for name, document in told.items()}
    found = Collected(Path(), records=[], groups=[], documents=documents, data={}, environment={})
    (finding,) = findings_of(found)
    assert finding.dataset == "shop"
    return finding.sentences


def test_who_is_above_popularity() -> None:
    methods = {"fedncf": ABOVE, "fedmf": OPEN, "fedrap": BELOW, "pfedrec": ALIKE, "gpfedrec": FEW_SEEDS}
    assert sentences(main_of(**methods)) == [
        "Of the items that users chose and no method saw, popularity alone puts 60% among the first 10 of 100; the "
        "best federated method, fedncf, 70%.",
        "Against popularity, in points of HR@10, better: fedncf (+10.0); no clear difference: pfedrec (+0.1); "
        "open: fedmf (+10.0 [-5.0, +25.0]); worse: fedrap (-10.0); too few seeds to say: gpfedrec (+10.0).",
    ]
    assert "no method is clearly better; worse: fedrap (-10.0)." in sentences(main_of(fedrap=BELOW))[1]


def test_held_out_items_that_stand_in_the_history_are_no_success() -> None:
    rows = [*main_of(fedncf=ABOVE).rows, row_of("shop", "seen-first", 0.65, "reference")]
    told = sentences(document_of(*rows))
    assert told[0].startswith("Of the items that users chose and no method should have seen, popularity alone")
    assert told[1] == (
        "Do not read that as learning: held-out items stand in their users' training rows, too, and seen-first, which "
        "repeats the history, reaches 65%."
    )
    rows[-1] = row_of("shop", "seen-first", 0.6, "reference")
    assert len(sentences(document_of(*rows))) == 2


def test_a_recorded_leak_is_told_whatever_rows_there_are() -> None:
    first, *others = main_of(fedncf=ABOVE).rows
    level, warning, *_ = sentences(document_of(replace(first, leak=True), *others))
    assert "no method should have seen" in level
    assert warning == ("Do not read that as learning: held-out items stand in their users' training rows, too.")


def test_what_central_data_would_buy() -> None:
    rows = [*main_of(fedncf=ABOVE).rows, row_of("shop", "ials", 0.75, "centralised")]
    assert sentences(document_of(*rows))[2] == (
        "With all data in one place, the best ranker, ials, reaches 75%: keeping them on devices costs 5.0 points."
    )


def test_whether_sam_helps() -> None:
    rows = [
        AblationRow("published", replace(row_of("shop", "fedrecgel", 0.5), label="both off"), _among(BELOW)),
        AblationRow("long", replace(row_of("shop", "fedrecgel", 0.5), label="both off"), _among(OPEN)),
        AblationRow("long", replace(row_of("shop", "fedrecgel", 0.5), label="w/o shared"), _among(ABOVE)),
    ]
    *_, published, long = sentences(ablation=Ablation("command", "a test", "a paper", {}, rows, {}, {}))
    assert published == (
        "Sharpness-aware training hurts at the published settings (NDCG@10 -10.0 [-15.0, -5.0] points)."
    )
    assert long.startswith("Sharpness-aware training may help or hurt, which is open at the long settings (NDCG@10")


def test_which_radii_matter() -> None:
    row, grid = row_of("shop", "fedrecgel", 0.5), {0.1: OPEN, 0.5: ABOVE, 1.0: BELOW}
    points = [Point("published", "rho_co", value, 0.02, row, {"HR@10": found}) for value, found in grid.items()]
    *_, found = sentences(sensitivity=Sensitivity("command", "a test", points, {}))
    assert "HR@10 against 0 at the published settings" in found
    assert found.endswith("in points: rho_co = 0.5 +10.0; rho_co = 1 -10.0.")
    *_, none = sentences(sensitivity=Sensitivity("command", "a test", points[:1], {}))
    assert none.endswith("in points: none.")


def test_what_quirks_are_worth_and_which_were_not_tested() -> None:
    worth = {"leaky negatives": ABOVE, "vary = fixed": ALIKE, "mu = 1": OPEN, "all native": FEW_SEEDS}
    rows = [
        QuirkRow(replace(row_of("shop", "fedrap", 0.5), label=label), _among(found)) for label, found in worth.items()
    ]
    _, _, *found = sentences(quirks=Quirks("command", "a test", rows, {}, {}))
    assert found == [
        "Quirks that change NDCG@10, in points: fedrap, leaky negatives +10.0.",
        "Quirks with no clear difference: fedrap, vary = fixed +0.1.",
        "Open, with intervals: fedrap, mu = 1 +10.0 [-5.0, +25.0].",
        "Run with too few seeds to test: fedrap, all native +10.0.",
    ]
