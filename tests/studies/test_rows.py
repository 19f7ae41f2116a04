from __future__ import annotations

from dataclasses import replace

import pytest
from tests.documents import ABOVE, document_of, row_of

from fedrecgel.studies.rows import difference_text


def test_the_overview_shows_all_data_sets_popularity_first() -> None:
    shop = [row_of("shop", "fedncf", 0.9256), row_of("shop", "popularity", 0.5)]
    club = [row_of("club", "popularity", 0.25), row_of("club", "ials", 0.75, "centralised", seeds=3)]
    overview, *per_dataset = document_of(*shop, *club).tables()
    assert len(per_dataset) == 2
    assert overview.markdown().splitlines()[2:7] == [
        "| method | shop | club |",
        "|---|---:|---:|",
        "| popularity | 50.0 / 50.0 | 25.0 / 25.0 |",
        "| fedncf | 92.6 ▲ / 92.6 ▲ ¹ (91.66 / 91.66) | – |",
        "| ials, centralised | – | 75.0 / 75.0 |",
    ]
    assert "$^1$" in overview.latex()


def test_a_difference_of_one_seed_has_no_sign() -> None:
    assert difference_text(ABOVE) == "+10.00 [+5.00, +15.00], p = 0.002, d = +0.300"
    alone = replace(ABOVE, one_seed=True)
    assert alone.sign == 0
    assert difference_text(alone) == "+10.00 [+5.00, +15.00], one seed, d = +0.300"


@pytest.mark.parametrize(("p", "text"), [(0.0499, "0.04990"), (0.05, "0.050"), (0.049, "0.049"), (0.0001, "< 0.001")])
def test_no_p_is_rounded_to_the_level(p: float, text: str) -> None:
    assert f"{text}, d" in difference_text(replace(ABOVE, p_adjusted=p))


def test_rows_without_results_are_named() -> None:
    document = replace(document_of(row_of("shop", "popularity", 0.5)), left_out={"shop": ["fedmf (failed)"]})
    assert "Rows without results: fedmf (failed)." in document.tables()[0].notes


def test_one_data_set_needs_no_overview() -> None:
    assert [table.name for table in document_of(row_of("shop", "popularity", 0.5)).tables()] == ["main-shop"]
