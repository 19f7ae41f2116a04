from __future__ import annotations

from fedrecgel.experiments.cells import METRICS, Cell, Row
from fedrecgel.experiments.main_table import MainTable
from fedrecgel.experiments.published import PublishedCell
from fedrecgel.experiments.statistics import Comparison
from fedrecgel.report.tables import tables_of

ABOVE = Comparison(difference=0.1, low=0.05, high=0.15, p=0.001, effect=0.3, users=9, seeds=1, p_adjusted=0.002)


def row_of(dataset: str, method: str, mean: float, kind: str = "federated", *, missing: int = 0) -> Row:
    cell = Cell(mean, None, PublishedCell("91.66", None), ABOVE) if method == "fedncf" else Cell(mean, None)
    return Row(
        dataset=dataset,
        method=method,
        kind=kind,
        label=method,
        about="defaults",
        seeds=[0],
        missing_seeds=list(range(1, missing + 1)),
        rounds=2,
        selection="last",
        seconds=1.0,
        up=0.0,
        down=0.0,
        leaves_device=[],
        cells={"candidates": dict.fromkeys(METRICS, cell)},
        folders=[],
    )


def document_of(*rows: Row) -> MainTable:
    caveats: dict[str, list[str]] = {row.dataset: [] for row in rows}
    return MainTable("command", "tuned", "a test", "a paper", caveats, [], list(rows), [])


def test_the_overview_shows_all_data_sets_popularity_first() -> None:
    shop = [row_of("shop", "fedncf", 0.9256, missing=2), row_of("shop", "popularity", 0.5)]
    club = [row_of("club", "popularity", 0.25), row_of("club", "ials", 0.75, "centralised")]
    overview, *per_dataset = tables_of(document_of(*shop, *club))
    assert len(per_dataset) == 2
    assert overview.markdown().splitlines()[2:7] == [
        "| method | shop | club |",
        "|---|---:|---:|",
        "| popularity | 50.0 / 50.0 | 25.0 / 25.0 |",
        "| fedncf | 92.6 ▲ / 92.6 ▲ ¹ (91.66 / 91.66) | – |",
        "| ials, centralised | – | 75.0 / 75.0 |",
    ]
    assert "$^1$" in overview.latex()


def test_one_data_set_needs_no_overview() -> None:
    assert [table.name for table in tables_of(document_of(row_of("shop", "popularity", 0.5)))] == ["main-shop"]
