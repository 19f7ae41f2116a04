"""QB-article of Tenrec: comma separated with a header; a user's rows are in the order of time.

Yuan et al.: Tenrec: A Large-scale Multipurpose Benchmark Dataset for Recommender Systems. NeurIPS 2022.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from fedrecgel.data.columns import Columns, pick_columns
from fedrecgel.data.delimited import read_delimited
from fedrecgel.data.sources.source import Source, Statistics


def parse(path: Path) -> Columns:
    """Read `QB-article.csv`, with the row number as time."""
    table = read_delimited(path, ",", {"user_id": pa.int64(), "item_id": pa.int64()})
    timed = table.append_column("time", pa.array(np.arange(table.num_rows)))
    return pick_columns(timed, where=str(path))


QB_ARTICLE = Source(
    name="qb-article",
    about="Articles clicked in the QQ Browser, from Tenrec; row order is time.",
    folder="qb-article",
    file="QB-article.csv",
    sha256=None,
    url=None,
    member=None,
    obtain="https://static.qblv.qq.com/qblv/h5/algo-frontend/tenrec_dataset.html (licence form)",
    licence="CC BY-NC 4.0",
    parse=parse,
    expected=Statistics(users=24_516, items=7_355, interactions=348_736),
)
