from __future__ import annotations

from dataclasses import replace

import pytest
from tests.documents import ABOVE, document_of, row_of

from fedrecgel.studies.rows import difference_text, points_text, sign_text, verdict_text


def test_the_overview_shows_all_data_sets_popularity_first() -> None:
    shop = [row_of("shop", "fedncf", 0.9256), row_of("shop", "popularity", 0.5)]
    club = [row_of("club", "popularity", 0.25), row_of("club", "ials", 0.75, "centralised", seeds=3)]
    overview, *per_dataset = document_of(*shop, *club).tables()
    assert len(per_dataset) == 2
    assert overview.markdown().splitlines()[2:7] == [
        "| method | shop | club |",
        "|---|---:|---:|",
        "| popularity | 50.0 / 50.0 | 25.0 / 25.0 |",
        "| fedncf | 92.6 ▲ / 92.6 ▲ ¹<br>(91.66 / 91.66) | – |",
        "| ials, centralised | – | 75.0 / 75.0 |",
    ]
    assert "$^1$" in overview.latex()


def test_a_difference_over_few_seeds_has_no_sign() -> None:
    assert difference_text(ABOVE) == "+10.00 [+5.00, +15.00], p = 0.002, d = +0.300"
    few = replace(ABOVE, seeds=4)
    assert (few.sign, sign_text(few)) == (0, "")
    assert difference_text(few) == "+10.00 [+5.00, +15.00], 4 seeds, not tested, d = +0.300"
    assert replace(few, fixed=True).sign == 1


def test_only_a_narrow_interval_around_zero_is_no_clear_difference() -> None:
    narrow = replace(ABOVE, difference=0.001, low=-0.02, high=0.015, p_adjusted=0.5)
    wide = replace(narrow, low=-0.021)
    assert [(sign_text(one), verdict_text(one)) for one in (narrow, wide)] == [
        (" ≈", "no clear difference"),
        (" ?", "open"),
    ]
    assert [points_text(one) for one in (narrow, wide)] == ["+0.1", "+0.1 [-2.1, +1.5]"]


@pytest.mark.parametrize(("p", "text"), [(0.0499, "0.04990"), (0.05, "0.050"), (0.049, "0.049"), (0.0001, "< 0.001")])
def test_no_p_is_rounded_to_the_level(p: float, text: str) -> None:
    assert f"{text}, d" in difference_text(replace(ABOVE, p_adjusted=p))


def test_rows_without_results_are_named() -> None:
    document = replace(document_of(row_of("shop", "popularity", 0.5)), left_out={"shop": ["fedmf (failed)"]})
    assert "Rows without results: fedmf (failed)." in document.tables()[0].notes


def test_one_data_set_needs_no_overview() -> None:
    assert [table.name for table in document_of(row_of("shop", "popularity", 0.5)).tables()] == ["main-shop"]
