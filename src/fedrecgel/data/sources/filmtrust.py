"""FilmTrust: `user item rating`, separated by spaces, no header, no time.

Guo, Zhang, Yorke-Smith: A Novel Bayesian Similarity Measure for Recommender Systems. IJCAI 2013.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from fedrecgel.data.columns import Columns, pick_columns
from fedrecgel.data.delimited import read_delimited
from fedrecgel.data.sources.source import Source, Statistics


def parse(path: Path) -> Columns:
    """Read `ratings.txt`."""
    types = {"user": pa.int64(), "item": pa.int64(), "rating": pa.float32()}
    return pick_columns(read_delimited(path, " ", types, header=list(types)), where=str(path))


FILMTRUST = Source(
    name="filmtrust",
    about="Film ratings of the FilmTrust website, crawled in 2011; no timestamps.",
    folder="filmtrust",
    file="ratings.txt",
    sha256="241167424e24d588e8871d68641e94ead98d5b3a4f0db01ef3181a74ad35e7a1",
    url="https://guoguibing.github.io/librec/datasets/filmtrust.zip",
    member="ratings.txt",
    obtain="https://guoguibing.github.io/librec/datasets.html",
    licence="research use",
    parse=parse,
    expected=Statistics(users=1_227, items=2_059, interactions=34_889),
)
