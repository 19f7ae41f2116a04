"""The sentences say what the tests of reduced experiments say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.documents import ABOVE, document_of, row_of

from fedrecgel.report.collect import Collected
from fedrecgel.report.findings import findings_of
from fedrecgel.studies.ablation import Ablation, AblationRow
from fedrecgel.studies.cells import Against
from fedrecgel.studies.experiment import Document
from fedrecgel.studies.main_table import MainTable
from fedrecgel.studies.pairs import Pair
from fedrecgel.studies.quirks import QuirkRow, Quirks
from fedrecgel.studies.sensitivity import Point, Sensitivity
from fedrecgel.studies.statistics import Comparison

BELOW = replace(ABOVE, difference=-0.1, low=-0.15, high=-0.05)
UNCLEAR = replace(ABOVE, p_adjusted=0.3)
ONE_SEED = replace(ABOVE, one_seed=True)


def main_of(**found: Comparison) -> MainTable:
    """Methods against popularity, on data set shop."""
    rows = [row_of("shop", method, 0.5) for method in found]
    pairs = [Pair("shop", "candidates", "HR@10", method, "popularity", result) for method, result in found.items()]
    return replace(document_of(*rows), pairs=pairs)


def _among(found: Comparison) -> dict[Against, dict[str, Comparison]]:
    return {"candidates": {"NDCG@10": found}}


def sentences(main: MainTable | None = None, **others: Document) -> list[str]:
    documents: dict[str, Document] = {"main-table": main or main_of(fedncf=ABOVE), **others}
    found = Collected(Path(), records=[], groups=[], documents=documents, data={}, environment={})
    (finding,) = findings_of(found)
    assert finding.dataset == "shop"
    return finding.sentences


def test_who_is_above_popularity() -> None:
    assert sentences(main_of(fedncf=ABOVE, fedmf=UNCLEAR, fedrap=BELOW)) == [
        "Above popularity (HR@10, points): fedncf (+10.0).",
        "Not significantly different from popularity, with 95% intervals (HR@10, points): fedmf (+10.0 [+5.0, +15.0]).",
        "Below popularity (HR@10, points): fedrap (-10.0).",
    ]
    assert sentences(main_of(fedrap=BELOW))[0] == "No federated method is significantly above popularity."


def test_whether_sam_helps() -> None:
    rows = [
        AblationRow("published", replace(row_of("shop", "fedrecgel", 0.5), label="both off"), _among(BELOW)),
        AblationRow("long", replace(row_of("shop", "fedrecgel", 0.5), label="both off"), _among(UNCLEAR)),
        AblationRow("long", replace(row_of("shop", "fedrecgel", 0.5), label="w/o shared"), _among(ABOVE)),
    ]
    _, published, long = sentences(ablation=Ablation("command", "a test", "a paper", {}, rows, {}, {}))
    assert published.startswith("SAM hurts at the published settings (NDCG@10 -10.00")
    assert long.startswith("SAM makes no significant difference at the long settings (NDCG@10 +10.00")


def test_which_radii_matter() -> None:
    row, grid = row_of("shop", "fedrecgel", 0.5), {0.1: UNCLEAR, 0.5: ABOVE, 1.0: BELOW}
    points = [Point("published", "rho_co", value, 0.02, row, {"HR@10": found}) for value, found in grid.items()]
    _, found = sentences(sensitivity=Sensitivity("command", "a test", points, {}))
    assert "HR@10 significantly against 0 at the published settings" in found
    assert found.endswith("in points: rho_co = 0.5 +10.0; rho_co = 1 -10.0.")
    _, none = sentences(sensitivity=Sensitivity("command", "a test", points[:1], {}))
    assert none.endswith("in points: none.")


def test_what_quirks_are_worth_and_which_were_not_tested() -> None:
    worth = {"leaky negatives": ABOVE, "vary = fixed": UNCLEAR, "all native": ONE_SEED}
    rows = [
        QuirkRow(replace(row_of("shop", "fedrap", 0.5), label=label), _among(found)) for label, found in worth.items()
    ]
    _, *found = sentences(quirks=Quirks("command", "a test", rows, {}, {}))
    assert found == [
        "Quirks that change NDCG@10 significantly, in points: fedrap, leaky negatives +10.0.",
        "Quirks that do not: fedrap, vary = fixed +10.0.",
        "Quirks run with one seed, so not tested; NDCG@10, points: fedrap, all native +10.0.",
    ]
