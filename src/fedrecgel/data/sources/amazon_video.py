"""Amazon-Video: `user,item,rating,unix time`, separated by commas, no header.

A 5-core style cut of the Amazon reviews (Ni, Li, McAuley: Justifying Recommendations using Distantly-Labeled
Reviews and Fine-Grained Aspects. EMNLP 2019) that the federated literature passes on.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from fedrecgel.data.columns import Columns, pick_columns
from fedrecgel.data.delimited import read_delimited
from fedrecgel.data.sources.source import Source, Statistics


def parse(path: Path) -> Columns:
    """Read `ratings.dat`."""
    types = {"user": pa.string(), "item": pa.string(), "rating": pa.float32(), "timestamp": pa.int64()}
    return pick_columns(read_delimited(path, ",", types, header=list(types)), where=str(path))


AMAZON_VIDEO = Source(
    name="amazon-video",
    about="Ratings of Amazon Instant Video, the cut used by the federated literature.",
    folder="amazon-video",
    file="ratings.dat",
    sha256="a1292e4a4dba6c37be6ae5dc83d4404af96bf3eace4c8954e2f4e8360a3cdd76",
    url=None,
    member=None,
    obtain="the authors of PFedRec and GPFedRec, who share this cut (no publisher offers it for download)",
    licence="research use",
    parse=parse,
    expected=Statistics(users=8_072, items=11_830, interactions=63_836),
)
