from __future__ import annotations

from fedrecgel.display.chart import Chart, Traffic
from fedrecgel.display.section import in_order
from fedrecgel.display.tabular import Table


def chart(name: str, above: str = "") -> Chart:
    return Chart(name, name, Traffic([]), "command", above=above)


def test_charts_stand_above_the_table_they_name() -> None:
    tables = [Table("one", "One", ["a"], []), Table("two", "Two", ["a"], [])]
    parts = in_order([chart("of two", above="two"), chart("of none")], tables)
    assert [part.name for part in parts if isinstance(part, Chart | Table)] == ["of none", "one", "of two", "two"]
