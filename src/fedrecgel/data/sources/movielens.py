"""MovieLens 100K (tab separated) and 1M (separated by `::`): `user item rating unix time`, no header.

Harper, Konstan: The MovieLens Datasets: History and Context. ACM TiiS 5(4), 2015.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from fedrecgel.data.columns import Columns, pick_columns
from fedrecgel.data.delimited import read_delimited
from fedrecgel.data.sources.source import Source, Statistics

TYPES = {"user": pa.int64(), "item": pa.int64(), "rating": pa.float32(), "timestamp": pa.int64()}


def parse_100k(path: Path) -> Columns:
    """Read `u.data`."""
    return pick_columns(read_delimited(path, "\t", TYPES, header=list(TYPES)), where=str(path))


def parse_1m(path: Path) -> Columns:
    """Read `ratings.dat`."""
    # Arrow splits at one character: `::` is two separators around an empty column
    header = ["user", "_1", "item", "_2", "rating", "_3", "timestamp"]
    return pick_columns(read_delimited(path, ":", TYPES, header=header), where=str(path))


MOVIELENS_100K = Source(
    name="movielens-100k",
    about="100,000 film ratings of the MovieLens website, 1997-1998.",
    folder="movielens-100k",
    file="u.data",
    sha256="06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    url="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
    member="ml-100k/u.data",
    obtain="https://grouplens.org/datasets/movielens/100k/",
    licence="research use, no redistribution",
    parse=parse_100k,
    expected=Statistics(users=943, items=1_682, interactions=100_000),
)

MOVIELENS_1M = replace(
    MOVIELENS_100K,
    name="movielens-1m",
    about="A million film ratings of the MovieLens website, 2000-2003.",
    folder="movielens-1m",
    file="ratings.dat",
    sha256="506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
    url="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
    member="ml-1m/ratings.dat",
    obtain="https://grouplens.org/datasets/movielens/1m/",
    parse=parse_1m,
    expected=Statistics(users=6_040, items=3_706, interactions=1_000_209),
)
